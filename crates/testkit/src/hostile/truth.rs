//! All that is so in a world: which rules are in force, which tools are there, what each call was approved for. Every execution is
//! judged by it, with the [second evaluator](super::second), in the moment in which it happens.

use super::grants::GrantTruth;
use super::second::{self, BY_DEFAULT, BY_TOOL, PolicyCase};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use windlass::EffectClass;
use windlass::approvals::Remembered;
use windlass::policy::{ApprovalRule, Ruling};
use windlass_args::canonical;
use windlass_core::policy::Exposure;
use windlass_core::tool::{Hints, ToolSource};

/// A tool as it is registered.
#[derive(Clone, Debug)]
pub struct ToolTruth {
    /// Its name.
    pub name: String,
    /// Its stable id.
    pub id: String,
    /// Its origin.
    pub source: ToolSource,
    /// Its class.
    pub class: EffectClass,
    /// Its hints.
    pub hints: Hints,
    /// Its own approval rule.
    pub approval: ApprovalRule,
    /// Whether approvals cover content of it that changes.
    pub is_bound: bool,
    /// Whether its arguments are checked, and so may be repaired.
    pub has_schema: bool,
    /// Another number for each registration.
    pub version: u64,
}

impl ToolTruth {
    /// Whether it asks about these arguments, if it asks by arguments.
    pub fn asks(&self, args: &Value) -> bool {
        args.get("x").is_some_and(Value::is_number)
    }
}

/// A session.
#[derive(Clone, Debug, Default)]
pub struct SessionTruth {
    /// Its principal.
    pub principal: Option<String>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// The content that its calls have read.
    pub exposure: Exposure,
    /// The answers that it remembers.
    pub remembered: Vec<RememberedTruth>,
    /// The tools that it does not have.
    pub hidden: BTreeSet<String>,
}

/// An answer that is given again.
#[derive(Clone, Debug)]
pub struct RememberedTruth {
    /// Its id; empty until its record is found, which may be long after the answer was acknowledged.
    pub id: String,
    /// The question that was answered with it.
    pub question: String,
    /// The version of the tool.
    pub version: u64,
    /// The texts of the rules whose question it answers.
    pub sources: BTreeSet<String>,
    /// The arguments that a call must have at these pointers.
    pub args: BTreeMap<String, Option<Value>>,
    /// Until when.
    pub until: Option<i64>,
}

/// The rules in force.
#[derive(Clone, Debug, Default)]
pub struct RulesTruth {
    /// All of them, declared and set.
    pub rules: Vec<Value>,
    /// Whether they cannot be read, so that everything is denied.
    pub broken: bool,
}

/// The facts that an approval covers.
#[derive(Clone, Debug, PartialEq)]
pub struct CoveredFacts {
    version: u64,
    bound: Option<u32>,
    sources: BTreeSet<String>,
    args: Value,
}

impl CoveredFacts {
    /// The tool's version.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The arguments that were shown.
    pub fn args(&self) -> &Value {
        &self.args
    }

    /// The texts of the rules that ask.
    pub fn sources(&self) -> &BTreeSet<String> {
        &self.sources
    }
}

/// An open question to a person.
#[derive(Clone, Debug)]
pub struct AskedTruth {
    /// Its id.
    pub id: String,
    /// The facts that an approval covers.
    pub covered: CoveredFacts,
    /// Until when it can be answered.
    pub until: i64,
    /// Whether the call may run if nobody answers.
    pub allows_on_expiry: bool,
}

/// An approval.
#[derive(Clone, Debug)]
pub struct ApprovalTruth {
    /// The facts that it covers.
    pub covered: CoveredFacts,
    /// The arguments instead of those that were shown.
    pub edited: Option<Value>,
    /// The approver; `None` if nobody answered in time.
    pub by: Option<String>,
}

/// A call.
#[derive(Clone, Debug, Default)]
pub struct CallTruth {
    /// Its session.
    pub session: String,
    /// The tool, if it was called by its name or id.
    pub tool: Option<String>,
    /// The turn of its batch.
    pub turn: Option<String>,
    /// The arguments that must run, if they are known.
    pub args: Option<Value>,
    /// The id of the grant it is made by, or whatever its caller takes for one.
    pub grant: Option<String>,
    /// The call that is before it in its lane.
    pub behind: Option<String>,
    /// The question that waits.
    pub asked: Option<AskedTruth>,
    /// The id of the question that was answered last: it is shown until the answer is heard.
    pub answered: String,
    /// The approval of the question asked last.
    pub approval: Option<ApprovalTruth>,
    /// An approval that is being given: it may count, or not.
    pub approving: Option<ApprovalTruth>,
    /// Whether a person, or the end of the wait, denied it.
    pub denied: bool,
    /// Whether it was cancelled.
    pub cancelled: bool,
    /// How it ended.
    pub ended: Option<String>,
    /// How often its tool ran.
    pub executions: u32,
    /// Whether something that it was judged by has changed without a reason to judge it again.
    pub outdated: bool,
}

/// Why a call may run. A grant is no reason beside these: it lets a call name a tool, and the rules apply as to any other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PermittedBy {
    /// The rules allow it.
    Rules,
    /// A person approved it.
    Person,
    /// A person approved it with other arguments.
    Edit,
    /// A remembered answer.
    Memory,
    /// Nobody answered in time, and the rules that ask allow it then.
    Silence,
}

/// Why a call may not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusedBy {
    /// The rules deny it.
    Rules,
    /// Its grant does not admit it.
    Grant,
    /// Its session does not have the tool, and it has no grant.
    Catalog,
    /// A person must be asked.
    Nobody,
}

/// The state that a call must reach by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpectedState {
    /// Its tool runs.
    Runs,
    /// It is denied.
    Denied,
    /// It is refused like one of a tool that does not exist.
    Missing,
    /// It waits for a person.
    Waits,
    /// Any: it is not known what it runs with.
    Any,
}

/// The second evaluator's opinion of a call.
#[derive(Clone, Debug)]
pub struct Opinion {
    /// The ruling.
    pub ruling: Ruling,
    /// The names of the rules that decided.
    pub names: Vec<String>,
    /// Their texts.
    pub sources: BTreeSet<String>,
    /// Whether another than the caller must approve.
    pub four_eyes: bool,
    /// Whether a rule about untrusted content asks.
    pub untrusted: bool,
    /// Whether it may run if nobody answers.
    pub allows_on_expiry: bool,
}

impl Opinion {
    /// The question of the rules of these names.
    pub fn asking(rules: &RulesTruth, names: Vec<String>) -> Opinion {
        let of = |name: &String| rules.rules.iter().find(|rule| rule["name"] == **name);
        let deciding: Vec<&Value> = names.iter().filter_map(of).collect();
        let by_tool = names.iter().filter(|name| [BY_TOOL, BY_DEFAULT].contains(&name.as_str()));
        let sources = deciding.iter().map(|rule| rule.to_string()).chain(by_tool.cloned()).collect();
        Opinion {
            ruling: Ruling::Ask,
            four_eyes: deciding.iter().any(|rule| rule["four_eyes"] == true),
            untrusted: deciding.iter().any(|rule| rule["when"]["exposed"] == true),
            allows_on_expiry: deciding.len() == names.len()
                && deciding.iter().all(|rule| rule["on_expiry"] == "allow"),
            names,
            sources,
        }
    }
}

impl RememberedTruth {
    /// Whether this is its record.
    pub fn is(&self, kept: &Remembered) -> bool {
        let text = |value: &Option<Value>| value.as_ref().map(canonical::text);
        let args: BTreeMap<String, Option<String>> =
            self.args.iter().map(|(pointer, value)| (pointer.clone(), text(value))).collect();
        args == kept.args && kept.expires_at == self.until && kept.rules.len() == self.sources.len()
    }
}

/// Rules that were replaced: a tool runs on a thread of its own, maybe a moment after its start was decided.
#[derive(Debug)]
pub struct FormerRules {
    /// The rules.
    pub rules: RulesTruth,
    /// The calls that were open when the new rules were acknowledged, and waited for nobody.
    pub calls: BTreeSet<String>,
}

/// The truth about a world.
#[derive(Debug, Default)]
pub struct Truth {
    /// The time, in microseconds.
    pub now: i64,
    /// The rules in force; two while they are replaced.
    pub rules: Vec<RulesTruth>,
    /// The rules before the last change, while a call that was started by them may not have run yet.
    pub former: Option<FormerRules>,
    /// The content that sessions had read before the last event.
    pub exposed_before: BTreeMap<String, Exposure>,
    /// The tools, by name.
    pub tools: BTreeMap<String, ToolTruth>,
    /// The content of tools that approvals cover.
    pub bound: BTreeMap<String, u32>,
    /// The sessions, by name.
    pub sessions: BTreeMap<String, SessionTruth>,
    /// The calls, by handle.
    pub calls: BTreeMap<String, CallTruth>,
    /// The grants, by id.
    pub grants: BTreeMap<String, GrantTruth>,
    /// The grants of calls, by the number in their arguments and their tool.
    pub by_grant: BTreeMap<(u64, String), String>,
    /// Executions by what permitted them.
    pub permitted: BTreeMap<PermittedBy, u64>,
    /// Executions by grant.
    pub granted: u64,
    /// Every broken promise.
    pub violations: Vec<String>,
}

/// An execution, as its tool sees it.
pub struct SeenExecution<'a> {
    /// The handle of the call.
    pub call: &'a str,
    /// Its session.
    pub session: &'a str,
    /// Its turn.
    pub turn: Option<&'a str>,
    /// The tool that runs.
    pub tool: &'a ToolTruth,
    /// The arguments that it runs with.
    pub args: &'a Value,
    /// The approved content that it runs, if it holds one.
    pub bound: Option<u32>,
    /// The value that its grant has for it.
    pub binding: Option<&'a Value>,
}

impl Truth {
    /// The tool that is meant by a name: its own, its id, or one that is repaired to either.
    pub fn tool(&self, called: &str) -> Option<&ToolTruth> {
        let called = called.to_lowercase();
        let mut tools = self.tools.values();
        tools.find(|tool| called == tool.id || called.trim().ends_with(&tool.name))
    }

    /// The opinion about a call under these rules, as everything is now.
    pub fn opinion(&self, rules: &RulesTruth, tool: &ToolTruth, call: &CallTruth, args: &Value) -> Opinion {
        let session = self.sessions.get(&call.session).cloned().unwrap_or_default();
        let case = PolicyCase {
            name: tool.name.clone(),
            id: tool.id.clone(),
            source: tool.source,
            server: None,
            class: tool.class,
            hints: tool.hints,
            asks: tool.approval == ApprovalRule::Ask,
            principal: session.principal,
            labels: session.labels,
            turn: call.turn.clone(),
            args: args.clone(),
            exposure: session.exposure,
            tool_asks: tool.approval == ApprovalRule::ByArgs && tool.asks(args),
        };
        let (ruling, names) = match rules.broken {
            true => (Ruling::Deny, Vec::new()),
            false => second::ruling(&rules.rules, &case),
        };
        Opinion { ruling, ..Opinion::asking(rules, names) }
    }

    /// The facts that an approval of this covers.
    pub fn covered(&self, tool: &ToolTruth, opinion: &Opinion, args: &Value) -> CoveredFacts {
        let bound = tool.is_bound.then(|| self.bound.get(&tool.name).copied().unwrap_or_default());
        let sources = opinion.sources.clone();
        CoveredFacts { version: tool.version, bound, sources, args: args.clone() }
    }

    /// Why a call may run with these arguments under these rules, or why not.
    pub fn permission(
        &self,
        rules: &RulesTruth,
        tool: &ToolTruth,
        call: &CallTruth,
        args: &Value,
    ) -> Result<PermittedBy, RefusedBy> {
        let session = self.sessions.get(&call.session).cloned().unwrap_or_default();
        if call.grant.is_none() && session.hidden.contains(&tool.name) {
            return Err(RefusedBy::Catalog);
        }
        if !self.is_admitted(call, tool, args) {
            return Err(RefusedBy::Grant);
        }
        let opinion = self.opinion(rules, tool, call, args);
        match opinion.ruling {
            Ruling::Allow => return Ok(PermittedBy::Rules),
            Ruling::Deny => return Err(RefusedBy::Rules),
            Ruling::Ask => {}
        }
        for approval in call.approval.iter().chain(&call.approving) {
            let now = self.covered(tool, &opinion, args);
            let CoveredFacts { version, bound, sources, .. } = &approval.covered;
            let same_frame = (version, bound, sources) == (&now.version, &now.bound, &now.sources);
            let approved = approval.edited.as_ref().unwrap_or(&approval.covered.args);
            let is_own = opinion.four_eyes && approval.by.is_some() && approval.by == session.principal;
            if same_frame && approved == args && !is_own {
                return Ok(match (&approval.by, &approval.edited) {
                    (None, _) => PermittedBy::Silence,
                    (Some(_), Some(_)) => PermittedBy::Edit,
                    (Some(_), None) => PermittedBy::Person,
                });
            }
        }
        let is_known = |remembered: &RememberedTruth| {
            remembered.version == tool.version
                && opinion.sources.is_subset(&remembered.sources)
                && remembered.until.is_none_or(|until| self.now < until)
                && remembered.args.iter().all(|(pointer, value)| args.pointer(pointer) == value.as_ref())
        };
        let may_remember = !opinion.four_eyes && !opinion.untrusted && call.grant.is_none();
        if may_remember && session.remembered.iter().any(is_known) {
            return Ok(PermittedBy::Memory);
        }
        Err(RefusedBy::Nobody)
    }

    /// The state that a call must reach now by itself, unless it waits for another.
    pub fn expected(&self, call: &CallTruth) -> ExpectedState {
        let tool = call.tool.as_ref().and_then(|tool| self.tools.get(tool));
        let (Some(rules), Some(tool), Some(args)) = (self.rules.last(), tool, &call.args) else {
            return ExpectedState::Any;
        };
        if call.cancelled {
            return ExpectedState::Any;
        }
        if call.denied {
            return ExpectedState::Denied;
        }
        match self.permission(rules, tool, call, args) {
            Ok(_) => ExpectedState::Runs,
            Err(RefusedBy::Rules | RefusedBy::Grant) => ExpectedState::Denied,
            Err(RefusedBy::Catalog) => ExpectedState::Missing,
            Err(RefusedBy::Nobody) => ExpectedState::Waits,
        }
    }

    /// A tool runs: whether it may.
    pub fn executed(&mut self, seen: &SeenExecution<'_>) {
        let SeenExecution { call: handle, session, turn, tool, args, bound, binding } = *seen;
        let known = self.calls.get(handle).cloned();
        // A call inside another is first seen when it runs, or when it waits.
        let mut call = known.unwrap_or_else(|| CallTruth {
            session: session.to_owned(),
            tool: Some(tool.name.clone()),
            turn: turn.map(str::to_owned),
            grant: self.asked_by(&tool.name, args),
            ..CallTruth::default()
        });
        call.executions += 1;
        let mut broken = Vec::new();
        if self.tools.get(&tool.name).is_none_or(|now| now.version != tool.version) {
            broken.push("a tool that was replaced ran".to_owned());
        }
        if call.executions > 1 {
            broken.push(format!("it ran {} times", call.executions));
        }
        if call.denied || call.cancelled {
            broken.push("it was denied or cancelled, and ran".to_owned());
        }
        let edited = call.approving.as_ref().and_then(|approval| approval.edited.as_ref());
        if call.args.as_ref().is_some_and(|known| known != args) && edited != Some(args) {
            broken.push(format!("it ran with other arguments than {}", json!(call.args)));
        }
        let changed = bound.map(|bound| self.bound.insert(tool.name.clone(), bound));
        let is_first_seen = !self.calls.contains_key(handle);
        let former = self.former.as_ref().filter(|former| is_first_seen || former.calls.contains(handle));
        let all_rules: Vec<RulesTruth> =
            self.rules.iter().chain(former.map(|former| &former.rules)).cloned().collect();
        let exposed = self.sessions.entry(session.to_owned()).or_default().exposure;
        let (mut reasons, mut opinions) = (Vec::new(), Vec::new());
        for exposure in self.exposures_at_start(session, tool) {
            self.sessions.entry(session.to_owned()).or_default().exposure = exposure;
            reasons.extend(all_rules.iter().map(|rules| self.permission(rules, tool, &call, args)));
            opinions.extend(all_rules.iter().map(|rules| self.opinion(rules, tool, &call, args)));
        }
        self.sessions.entry(session.to_owned()).or_default().exposure = exposed;
        match reasons.iter().find_map(|reason| reason.ok()) {
            Some(reason) => *self.permitted.entry(reason).or_default() += 1,
            None => {
                let known = self.sessions.get(session);
                broken.push(format!("it must not run: {reasons:?} by {opinions:?} in {known:?}"));
            }
        }
        if let Some(now) = changed {
            self.bound.insert(tool.name.clone(), now.unwrap_or_default());
        }
        self.granted += u64::from(call.grant.is_some());
        broken.extend(self.use_grant(&call, handle, binding));
        for broken in broken {
            let line = format!(
                "R5: {broken}: {handle} of {session}, {tool:?} with {args}, known {call:?}, rules {:?}, grants {:?}",
                self.rules, self.grants
            );
            self.violations.push(line);
        }
        call.args = Some(args.clone());
        self.calls.insert(handle.to_owned(), call);
        self.expose(session, &tool.hints);
    }

    /// The content that each session has read.
    pub fn exposures(&self) -> BTreeMap<String, Exposure> {
        self.sessions.iter().map(|(name, session)| (name.clone(), session.exposure)).collect()
    }

    /// The content that the session may have read when the start of this tool was decided. A `stepped` tool runs on a thread of its own,
    /// maybe a moment after that, and a sibling may have read more since; any other runs in the moment in which it is decided.
    fn exposures_at_start(&self, session: &str, tool: &ToolTruth) -> Vec<Exposure> {
        let now = self.sessions.get(session).map(|session| session.exposure).unwrap_or_default();
        let before = self.exposed_before.get(session).copied().unwrap_or_default();
        let mut possible = vec![now];
        if tool.class == EffectClass::Stepped {
            for (private, untrusted) in [
                (before.private, before.untrusted),
                (before.private, now.untrusted),
                (now.private, before.untrusted),
            ] {
                possible.push(Exposure { private, untrusted });
            }
        }
        possible
    }

    /// The session has read what the tool reads.
    fn expose(&mut self, session: &str, hints: &Hints) {
        let known = self.sessions.entry(session.to_owned()).or_default();
        let before = known.exposure;
        known.exposure.private |= hints.reads_private != Some(false);
        known.exposure.untrusted |= hints.ingests_untrusted != Some(false);
        if known.exposure != before {
            for call in self.calls.values_mut().filter(|call| call.session == session) {
                call.outdated = true;
            }
        }
    }
}
