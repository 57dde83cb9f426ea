//! Policy: rules that allow, ask about or deny calls, as data.
//!
//! Every matching rule counts, and the strictest ruling wins, so the order of rules decides nothing. One sentence covers
//! everything that is not known of a call: an absent or wrongly typed argument, an unset hint, a missing label, principal or
//! turn matches no `allow` and every `ask` and `deny`.

mod arguments;
mod condition;
mod glob;
mod number;
mod parse;
mod problem;

pub use arguments::ArgumentRules;
pub use problem::{PolicyMistake, PolicyProblem};

use crate::limits::CallLimits;
use crate::tool::{Digest, EffectClass, Hints, ToolSource};
use condition::{CallCondition, ToolCondition};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use windlass_args::named;

named! {
    /// The ruling of a rule and of a policy, from the mildest to the strictest.
    Ruling {
        /// The call runs.
        Allow = "allow",
        /// The call waits for the approval of a person.
        Ask = "ask",
        /// The call does not run.
        Deny = "deny",
    }
}

/// Compiled rules, in the order in which they were written.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Policy {
    rules: Vec<Arc<PolicyRule>>,
}

/// One compiled rule: it matches a call if all of its conditions do.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyRule {
    /// Its name, unique among the rules that were written with it.
    pub name: Arc<str>,
    /// Its ruling.
    pub ruling: Ruling,
    /// The reason, for the model and for people.
    pub reason: Option<String>,
    /// The approver must be another principal than the requesting one.
    pub four_eyes: bool,
    /// How long its ask waits for an answer, in milliseconds; `None` means the default.
    pub expires_ms: Option<u64>,
    /// The ruling for an ask that nobody answered: `Allow` or `Deny`; `None` means `Deny`.
    pub on_expiry: Option<Ruling>,
    /// The digest of everything that was written in the rule.
    pub digest: Digest,
    on_tool: Vec<ToolCondition>,
    on_call: Vec<CallCondition>,
    written: Value,
}

/// Facts of a tool that rules look at. They do not change while it is registered.
#[derive(Clone, Copy, Debug)]
pub struct ToolFacts<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its stable id.
    pub id: &'a str,
    /// Its origin.
    pub source: ToolSource,
    /// The MCP server or toolbox it comes from.
    pub server: Option<&'a str>,
    /// Its effect class.
    pub class: EffectClass,
    /// Its hints.
    pub hints: &'a Hints,
    /// Its own approval rule asks about every call.
    pub asks: bool,
}

/// Facts of a call that rules look at.
#[derive(Clone, Copy, Debug)]
pub struct CallFacts<'a> {
    /// The requesting principal.
    pub principal: Option<&'a str>,
    /// The labels of the session.
    pub labels: &'a BTreeMap<String, String>,
    /// The turn of the batch.
    pub turn: Option<&'a str>,
    /// The arguments with which the tool will run.
    pub args: &'a Value,
    /// Content the session has read so far.
    pub exposure: Exposure,
    /// The tool asks about these arguments.
    pub tool_asks: bool,
}

/// The kinds of content that a session has read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exposure {
    /// Private data: a tool ran whose hint `reads_private` is true or unset.
    pub private: bool,
    /// Content of strangers: a tool ran whose hint `ingests_untrusted` is true or unset.
    pub untrusted: bool,
}

impl Exposure {
    /// Both kinds meet: text of strangers may steer the model to send private data out.
    pub fn is_both(self) -> bool {
        self.private && self.untrusted
    }
}

/// The rules that can match calls of one tool, valid for one policy and one registration of the tool.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolRules {
    rules: Vec<Arc<PolicyRule>>,
    default: Ruling,
    asks: bool,
}

/// The ruling on one call, and the rules that have it.
#[derive(Clone, Debug)]
pub struct RuleDecision<'a> {
    /// The strictest ruling of everything that matched.
    pub ruling: Ruling,
    /// Every matching rule with that ruling.
    pub rules: DecidingRules<'a>,
    by_tool: bool,
    by_default: bool,
}

/// The rules that decide about a call. Mostly there is one, which needs no allocation.
#[derive(Clone, Debug, Default)]
pub struct DecidingRules<'a> {
    first: Option<&'a Arc<PolicyRule>>,
    others: Vec<&'a Arc<PolicyRule>>,
}

impl<'a> DecidingRules<'a> {
    /// Whether no rule decides.
    pub fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// The rules, in the order of the policy.
    pub fn iter(&self) -> impl Iterator<Item = &'a Arc<PolicyRule>> {
        self.first.into_iter().chain(self.others.iter().copied())
    }

    fn add(&mut self, rule: &'a Arc<PolicyRule>) {
        match self.first {
            None => self.first = Some(rule),
            Some(_) => self.others.push(rule),
        }
    }
}

/// The ruling on one call, and where it comes from.
#[derive(Clone, Debug, PartialEq)]
pub struct Judgement {
    /// The strictest ruling of everything that matched.
    pub ruling: Ruling,
    /// Everything with that ruling; empty if no rule matched and the default is to allow.
    pub by: Vec<DecidedBy>,
    /// The approver must be another principal than the requesting one.
    pub four_eyes: bool,
    /// A rule about untrusted content asks.
    pub untrusted: bool,
    /// The shortest time for an answer among the deciding rules that state one, in milliseconds.
    pub expires_ms: Option<u64>,
    /// The ruling without an answer: `Allow` only if every deciding rule says so.
    pub on_expiry: Ruling,
    /// The reason of the first deciding rule that has one.
    pub reason: Option<String>,
}

/// One origin of a ruling.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DecidedBy {
    /// A rule of the policy.
    Rule {
        /// Its name.
        name: Arc<str>,
        /// The digest of its text.
        digest: Digest,
    },
    /// The tool's own approval rule.
    Tool,
    /// No rule matched, and tools of MCP servers ask by default.
    Default,
    /// The policy cannot be read, so it denies everything.
    Broken,
}

impl std::fmt::Display for DecidedBy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            DecidedBy::Rule { name, .. } => f.write_str(name),
            DecidedBy::Tool => f.write_str("the tool asks"),
            DecidedBy::Default => f.write_str("the default for tools of MCP servers"),
            DecidedBy::Broken => f.write_str("the policy cannot be read"),
        }
    }
}

named! {
    /// The result of comparing one condition with a call.
    Finding {
        /// The value is as the condition says.
        Matches = "matches",
        /// The value is another.
        Differs = "differs",
        /// There is no value.
        Absent = "absent",
        /// The value has a type that the condition does not compare.
        Mistyped = "mistyped",
    }
}

impl Finding {
    /// Whether the condition holds in a rule with this ruling.
    pub fn holds(self, ruling: Ruling) -> bool {
        match self {
            Finding::Matches => true,
            Finding::Differs => false,
            Finding::Absent | Finding::Mistyped => ruling != Ruling::Allow,
        }
    }

    fn of(matches: bool) -> Finding {
        if matches { Finding::Matches } else { Finding::Differs }
    }
}

/// One rule compared with one call, condition by condition.
#[derive(Clone, Debug, PartialEq)]
pub struct RuleReport {
    /// The rule's name.
    pub name: Arc<str>,
    /// Its ruling.
    pub ruling: Ruling,
    /// Whether all of its conditions hold.
    pub matched: bool,
    /// Its conditions. A rule without any matches every call.
    pub conditions: Vec<ConditionReport>,
}

/// One condition compared with one call.
#[derive(Clone, Debug, PartialEq)]
pub struct ConditionReport {
    /// Its place in the rule, such as `when.args[0]`.
    pub place: String,
    /// The condition in words; the values of the call are not in it, since they may be secret.
    pub condition: String,
    /// The result of the comparison.
    pub finding: Finding,
    /// Whether it holds, given the rule's ruling.
    pub holds: bool,
}

impl Policy {
    /// Compiles `{"rules": [{"name", "ruling", "when"?, "reason"?, …}]}`. A problem names its place, such as
    /// `rules[3].when.args[0].pointer`.
    pub fn parse(value: &Value, limits: &CallLimits) -> Result<Policy, PolicyProblem> {
        let rules = parse::rules(value, limits)?;
        Ok(Policy { rules: rules.into_iter().map(Arc::new).collect() })
    }

    /// The rules of several policies as one.
    pub fn joined<'a>(parts: impl IntoIterator<Item = &'a Policy>) -> Policy {
        Policy { rules: parts.into_iter().flat_map(|part| part.rules.iter().cloned()).collect() }
    }

    /// The rules as they were written.
    pub fn to_json(&self) -> Value {
        let rules: Vec<&Value> = self.rules.iter().map(|rule| &rule.written).collect();
        json!({ "rules": rules })
    }

    /// Whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// The rules, in order.
    pub fn rules(&self) -> impl ExactSizeIterator<Item = &PolicyRule> {
        self.rules.iter().map(|rule| &**rule)
    }

    /// The rules that can match calls of this tool: found once for each tool and policy.
    pub fn for_tool(&self, tool: &ToolFacts<'_>) -> ToolRules {
        let can_match =
            |rule: &&Arc<PolicyRule>| rule.on_tool.iter().all(|c| c.finding(tool).holds(rule.ruling));
        ToolRules {
            rules: self.rules.iter().filter(can_match).cloned().collect(),
            default: if tool.source == ToolSource::Mcp { Ruling::Ask } else { Ruling::Allow },
            asks: tool.asks,
        }
    }

    /// Every rule of the policy compared with a call of this tool.
    pub fn explain(&self, tool: &ToolFacts<'_>, call: &CallFacts<'_>) -> Vec<RuleReport> {
        self.rules.iter().map(|rule| rule.explain(tool, call)).collect()
    }
}

impl PolicyRule {
    fn explain(&self, tool: &ToolFacts<'_>, call: &CallFacts<'_>) -> RuleReport {
        let report = |place: String, condition: String, finding: Finding| ConditionReport {
            place: format!("when.{place}"),
            condition,
            finding,
            holds: finding.holds(self.ruling),
        };
        let on_tool = self.on_tool.iter().map(|c| report(c.place(), c.to_string(), c.finding(tool)));
        let on_call =
            self.on_call.iter().map(|c| report(c.place(), c.to_string(), c.finding(call, self.ruling)));
        let conditions: Vec<ConditionReport> = on_tool.chain(on_call).collect();
        let matched = conditions.iter().all(|condition| condition.holds);
        RuleReport { name: Arc::clone(&self.name), ruling: self.ruling, matched, conditions }
    }

    fn matches(&self, call: &CallFacts<'_>) -> bool {
        self.on_call.iter().all(|condition| condition.finding(call, self.ruling).holds(self.ruling))
    }

    fn is_about_untrusted_content(&self) -> bool {
        self.on_call.contains(&CallCondition::Exposed(true))
    }
}

impl ToolRules {
    /// The ruling on a call of the tool, and the rules that it comes from. A call that no rule matches costs no allocation.
    pub fn decide(&self, call: &CallFacts<'_>) -> RuleDecision<'_> {
        let tool_asks = self.asks || call.tool_asks;
        let ruling = if tool_asks { Ruling::Ask } else { Ruling::Allow };
        let mut decision = RuleDecision {
            ruling,
            rules: DecidingRules::default(),
            by_tool: tool_asks,
            by_default: !tool_asks,
        };
        for rule in self.rules.iter().filter(|rule| rule.matches(call)) {
            decision.by_default = false;
            if rule.ruling > decision.ruling {
                decision.ruling = rule.ruling;
                decision.by_tool = false;
                decision.rules = DecidingRules::default();
            }
            if rule.ruling == decision.ruling {
                decision.rules.add(rule);
            }
        }
        if decision.by_default {
            decision.ruling = self.default;
        }
        decision
    }

    /// The ruling on a call of the tool, in full.
    pub fn judge(&self, call: &CallFacts<'_>) -> Judgement {
        self.decide(call).judgement()
    }
}

impl RuleDecision<'_> {
    /// Everything that follows from it.
    pub fn judgement(&self) -> Judgement {
        if !self.by_default {
            return Judgement::of(self.ruling, &self.rules, self.by_tool);
        }
        let by = if self.ruling == Ruling::Allow { Vec::new() } else { vec![DecidedBy::Default] };
        Judgement { by, ..Judgement::plain(self.ruling) }
    }
}

impl Judgement {
    fn plain(ruling: Ruling) -> Judgement {
        Judgement {
            ruling,
            by: Vec::new(),
            four_eyes: false,
            untrusted: false,
            expires_ms: None,
            on_expiry: Ruling::Deny,
            reason: None,
        }
    }

    fn of(ruling: Ruling, deciding: &DecidingRules<'_>, by_tool: bool) -> Judgement {
        let by_rule =
            |rule: &Arc<PolicyRule>| DecidedBy::Rule { name: Arc::clone(&rule.name), digest: rule.digest };
        let by = by_tool.then_some(DecidedBy::Tool).into_iter().chain(deciding.iter().map(by_rule)).collect();
        let reason = deciding.iter().find_map(|rule| rule.reason.clone());
        if ruling != Ruling::Ask {
            return Judgement { by, reason, ..Judgement::plain(ruling) };
        }
        let all_allow = !by_tool && deciding.iter().all(|rule| rule.on_expiry == Some(Ruling::Allow));
        Judgement {
            ruling,
            by,
            four_eyes: deciding.iter().any(|rule| rule.four_eyes),
            untrusted: deciding.iter().any(|rule| rule.is_about_untrusted_content()),
            expires_ms: deciding.iter().filter_map(|rule| rule.expires_ms).min(),
            on_expiry: if all_allow { Ruling::Allow } else { Ruling::Deny },
            reason,
        }
    }
}
