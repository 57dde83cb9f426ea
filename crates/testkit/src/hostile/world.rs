//! One world: a runtime with random tools and rules, a model that calls what it likes, people who answer as they like, and operators
//! who change rules and tools in between.
//!
//! After each of these it is waited until every call is where the [truth](super::truth) says that it must be: a call that may run and
//! does not is as wrong as one that may not and does.

mod grants;
mod people;
mod settle;

use super::chances::{
    self, ENVIRONMENTS, OUTER, PRINCIPALS, TOOLS, TURNS, arguments, broken_rules, called, written,
};
use super::grants::GrantTruth;
use super::tools::{HostileTool, SharedTruth};
use super::truth::{ApprovalTruth, CallTruth, FormerRules, RulesTruth, SessionTruth, ToolTruth};
use super::{HostileCounts, WorldOutcome};
use crate::chance::Chance;
use crate::clock::ManualClock;
use anyhow::{Context, Result};
use grants::TriedGrant;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use windlass::ask::Target;
use windlass::inspect::{self, WaitingCall, WaitingKind};
use windlass::policy::NewPolicy;
use windlass::sessions::{ABOUT, ChildSpec, LOCAL, SessionOpening};
use windlass::store::MemoryStore;
use windlass::time::Clock;
use windlass::tool::OverlayGuard;
use windlass::{Args, BatchRequest, CallRequest, Config, Limits, Runtime, Submitted};
use windlass_core::handle::Handle;

/// Events of a world.
const EVENTS: u64 = 40;
/// Grants that there are before the first event.
const GRANTS: u64 = 5;
/// The rules from which the policies of a world are made.
const RULES: u64 = 6;
/// Within this everything is where it must be, however busy the machine is.
const SETTLED_AFTER: Duration = Duration::from_secs(30);
/// The length of a report, without the journals of its calls.
const REPORT_CHARS_MAX: usize = 4_000;
/// When so many batches are open, somebody answers.
const OPEN_MAX: usize = 6;

/// A world.
struct HostileWorld {
    chance: Chance,
    clock: Arc<ManualClock>,
    runtime: Runtime,
    truth: SharedTruth,
    /// Rules as the host declares them, and those that operators choose from.
    declared: Vec<Value>,
    pool: Vec<Value>,
    is_broken: bool,
    /// The rules that are set.
    set: Vec<Value>,
    open: Vec<OpenSubmission>,
    /// Numbers of calls, registrations and grants.
    numbers: u64,
    /// Overlays that hide tools from sessions.
    hiding: Vec<OverlayGuard>,
    counts: HostileCounts,
}

/// A batch of which something is open.
struct OpenSubmission {
    submitted: Submitted,
    /// The handles of its calls.
    calls: Vec<String>,
}

/// Plays one world.
pub async fn play(seed: Chance) -> Result<WorldOutcome> {
    let mut world = HostileWorld::new(seed).await?;
    for _ in 0..GRANTS {
        world.issue().await?;
    }
    for _ in 0..EVENTS {
        world.begin_event();
        world.event().await?;
        world.settle().await?;
        if world.has_failed() {
            world.tell_stories().await;
            return world.finish();
        }
    }
    let began = Instant::now();
    while !world.open.is_empty() && !world.has_failed() && began.elapsed() < SETTLED_AFTER {
        for call in world.waits().await? {
            world.begin_event();
            world.decide(&call).await?;
            world.settle().await?;
        }
        world.settle().await?;
        tokio::task::yield_now().await;
    }
    world.count_uses().await?;
    world.tell_stories().await;
    world.finish()
}

impl HostileWorld {
    async fn new(mut chance: Chance) -> Result<HostileWorld> {
        let clock = Arc::new(ManualClock::default());
        let rule =
            |chance: &mut Chance, kind: &str, number| chances::rule(chance, &format!("{kind}{number}"));
        let declared: Vec<Value> =
            (0..chance.below(3)).map(|number| rule(&mut chance, "declared", number)).collect();
        let pool = (0..RULES).map(|number| rule(&mut chance, "set", number)).collect();
        let is_broken = chance.percent(4);
        let policy = match is_broken {
            true => broken_rules(&mut chance),
            false => declared.clone(),
        };
        let limits = Limits { loop_batches_max: u64::MAX, loop_cycles_max: u64::MAX, ..Limits::default() };
        let store = MemoryStore::new().context("no store")?;
        let config = Config {
            clock: clock.clone(),
            limits,
            policy: Some(json!({ "rules": policy })),
            ..Config::new(store)
        };
        let mut world = HostileWorld {
            chance,
            runtime: Runtime::new(config),
            clock,
            truth: SharedTruth::default(),
            declared,
            pool,
            is_broken,
            set: Vec::new(),
            open: Vec::new(),
            numbers: 0,
            hiding: Vec::new(),
            counts: HostileCounts::default(),
        };
        world.truth.now().now = world.clock.now().0;
        world.truth.now().rules = vec![world.rules(&[])];
        for number in 0..TOOLS {
            let tool = chances::tool(&mut world.chance, number, 0);
            world.register(tool)?;
        }
        let (name, id) = (OUTER.to_owned(), "outer.id".to_owned());
        let outer = ToolTruth { name, id, ..chances::tool(&mut world.chance, TOOLS, 0) };
        world.register(ToolTruth { has_schema: false, ..outer })?;
        world.open_sessions().await?;
        Ok(world)
    }

    fn rules(&self, set: &[Value]) -> RulesTruth {
        let rules = self.declared.iter().chain(set).cloned().collect();
        RulesTruth { rules, broken: self.is_broken }
    }

    fn register(&mut self, tool: ToolTruth) -> Result<()> {
        self.numbers += 1;
        let tool = ToolTruth { version: self.numbers, ..tool };
        self.truth.now().tools.insert(tool.name.clone(), tool.clone());
        self.runtime.replace(HostileTool { truth: tool, seen: self.truth.clone() })?;
        Ok(())
    }

    async fn open_sessions(&mut self) -> Result<()> {
        for (number, principal) in PRINCIPALS.iter().take(2).enumerate() {
            let labels: BTreeMap<String, String> = match self.chance.percent(70) {
                true => [("env".to_owned(), self.chance.one_of(&ENVIRONMENTS).to_owned())].into(),
                false => BTreeMap::new(),
            };
            let about = json!({ "labels": labels }).to_string();
            let settings = vec![(ABOUT.to_owned(), Arc::from(about.as_bytes()))];
            let opening =
                SessionOpening { principal: (*principal).into(), settings, ..SessionOpening::default() };
            let name = format!("s{number}");
            self.runtime.open_session(&name, opening).await?;
            let principal = Some((*principal).to_owned());
            let session = SessionTruth { principal, labels, ..SessionTruth::default() };
            self.truth.now().sessions.insert(name, session);
        }
        // One that nobody opened.
        let local = SessionTruth { principal: Some(LOCAL.to_owned()), ..SessionTruth::default() };
        self.truth.now().sessions.insert("s2".to_owned(), local);
        self.hide_tools();
        self.open_children().await
    }

    /// Some sessions do not have all tools.
    fn hide_tools(&mut self) {
        for session in ["s0", "s1", "s2"] {
            if self.chance.percent(60) {
                continue;
            }
            let tool = format!("t{}", self.chance.below(TOOLS));
            let mut overlay = self.runtime.overlay();
            overlay.hide(&tool);
            self.hiding.push(self.runtime.attach(session, overlay));
            self.truth.now().sessions.entry(session.to_owned()).or_default().hidden.insert(tool);
        }
    }

    /// Two sessions have a child, with some of their tools.
    async fn open_children(&mut self) -> Result<()> {
        for (parent, child) in [("s0", "k0"), ("s1", "k1")] {
            let above = self.truth.now().sessions[parent].clone();
            let all: Vec<String> = self.truth.now().tools.keys().cloned().collect();
            let has = |tool: &&String| !above.hidden.contains(*tool) && self.chance.percent(65);
            let tools: Vec<String> = all.iter().filter(has).cloned().collect();
            let hidden = all.into_iter().filter(|tool| !tools.contains(tool)).collect();
            let spec = ChildSpec { tools: Some(tools), ..ChildSpec::default() };
            self.runtime.open_child(parent, child, spec).await?;
            let session = SessionTruth { principal: above.principal, hidden, ..SessionTruth::default() };
            self.truth.now().sessions.insert(child.to_owned(), session);
        }
        Ok(())
    }

    /// Any session.
    fn session(&mut self) -> String {
        self.chance.one_of(&["s0", "s1", "s2", "s0", "s1", "s2", "k0", "k1"]).to_owned()
    }

    fn begin_event(&mut self) {
        let mut truth = self.truth.now();
        truth.former = None;
        truth.exposed_before = truth.exposures();
    }

    async fn event(&mut self) -> Result<()> {
        let chosen = self.chance.below(122);
        match if self.open.len() > OPEN_MAX && chosen < 45 { 45 } else { chosen } {
            0..=44 => self.submit().await,
            45..=71 => {
                let waits = self.waits().await?;
                if waits.is_empty() {
                    return self.submit().await;
                }
                let one = self.chance.below(waits.len() as u64) as usize;
                self.decide(&waits[one]).await
            }
            72..=80 => self.change_rules().await,
            81..=85 => {
                self.pass_time();
                Ok(())
            }
            86..=87 => self.take_back().await,
            88..=92 => {
                let tool = format!("t{}", self.chance.below(TOOLS));
                self.change_content(&tool);
                Ok(())
            }
            93..=95 => {
                let number = self.chance.below(TOOLS);
                let tool = chances::tool(&mut self.chance, number, 0);
                let name = tool.name.clone();
                self.register(tool)?;
                let mut truth = self.truth.now();
                outdate(&mut truth.calls, &name);
                // Another schema may make others of them.
                let open = truth.calls.values_mut().filter(|call| call.ended.is_none());
                open.filter(|call| call.tool.as_ref() == Some(&name)).for_each(|call| call.args = None);
                self.counts.replaced_tools += 1;
                Ok(())
            }
            96..=97 => self.forget().await,
            98..=99 => self.cancel().await,
            100..=106 => self.issue().await,
            107..=115 => self.narrow().await,
            _ => self.revoke().await,
        }
    }

    /// The model calls what it likes.
    async fn submit(&mut self) -> Result<()> {
        let session = self.session();
        self.submit_to(session, 45).await
    }

    /// The model calls what it likes in this session, so many of a hundred times by a grant.
    async fn submit_to(&mut self, session: String, by_grant_percent: u64) -> Result<()> {
        let turn = self.chance.percent(60).then(|| self.chance.one_of(&TURNS).to_owned());
        let in_lane = self.chance.percent(30);
        let count = if in_lane { 2 } else { self.chance.between(1, 6) };
        let lane = in_lane.then_some(self.numbers);
        let (mut calls, mut known) = (Vec::new(), Vec::new());
        for number in 0..count {
            let grant = match self.chance.percent(by_grant_percent) {
                true => self.tried_grant(&session),
                false => None,
            };
            let (request, call) = self.call(number, lane, grant);
            calls.push(request);
            known.push(CallTruth { session: session.clone(), turn: turn.clone(), ..call });
        }
        self.counts.calls += count;
        let request = BatchRequest { calls, turn, ..BatchRequest::default() };
        let submitted = self.runtime.submit(&session, request).await?;
        let receipt = submitted.receipt().await?;
        let handles: Vec<String> = receipt.calls.iter().map(|call| call.handle().to_string()).collect();
        let mut truth = self.truth.now();
        for (place, (handle, call)) in handles.iter().zip(known).enumerate() {
            let behind = (in_lane && place > 0).then(|| handles[0].clone());
            // It may have run by now.
            let ran = truth.calls.get(handle).cloned().unwrap_or_default();
            if call.args.is_some() && ran.args.is_some() && call.args != ran.args {
                let line = format!("R5: {handle} ran with {:?} instead of {:?}", ran.args, call.args);
                truth.violations.push(line);
            }
            if ran.executions > 0 && ran.grant != call.grant {
                let line = format!("R5: {handle} ran by {:?} instead of {:?}", ran.grant, call.grant);
                truth.violations.push(line);
            }
            let executions = ran.executions;
            truth.calls.insert(handle.clone(), CallTruth { behind, executions, ..call });
        }
        drop(truth);
        self.open.push(OpenSubmission { submitted, calls: handles });
        Ok(())
    }

    /// One call, and what is known of it.
    fn call(&mut self, place: u64, lane: Option<u64>, grant: Option<TriedGrant>) -> (CallRequest, CallTruth) {
        self.numbers += 1;
        let number = self.numbers;
        let nested = lane.is_none() && self.chance.percent(8);
        let target = format!("t{}", self.chance.below(TOOLS));
        let target = grant.as_ref().map_or(target, |grant| grant.tool.clone());
        let target = self.truth.now().tools[&target].clone();
        let mut args = arguments(&mut self.chance, number);
        if let Some(grant) = &grant {
            self.fitted(grant, &mut args);
            let key = (number, target.name.clone());
            self.truth.now().by_grant.insert(key, grant.id.clone());
        }
        if let Some(lane) = lane {
            args["lane"] = json!(lane);
        }
        let mut tool = target;
        if nested {
            let token = grant.as_ref().map(|grant| grant.token.reveal());
            let inner = called(&mut self.chance, &tool);
            args = json!({"call": number, "tool": inner, "args": args, "grant": token});
            tool = self.truth.now().tools[OUTER].clone();
        }
        let grant = grant.filter(|_| !nested);
        let plain = nested || lane.is_some();
        let name = if plain { tool.name.clone() } else { called(&mut self.chance, &tool) };
        let written = if plain || grant.is_some() {
            Args::Json(args.clone())
        } else {
            written(&mut self.chance, &args)
        };
        let is_named = name == tool.name || name == tool.id;
        let is_known = matches!(&written, Args::Json(given) if *given == args) && !tool.has_schema;
        let call = CallTruth {
            tool: is_named.then(|| tool.name.clone()),
            args: is_known.then_some(args),
            grant: grant.as_ref().map(|grant| grant.id.clone()),
            ..CallTruth::default()
        };
        let (id, grant) = (Some(format!("c{place}")), grant.map(|grant| grant.token));
        (CallRequest { id, tool: name, args: written, grant, ..CallRequest::default() }, call)
    }

    /// An operator sets other rules, or tries to set some that no policy can have.
    async fn change_rules(&mut self) -> Result<()> {
        if self.chance.percent(15) {
            let (rules, by) = (broken_rules(&mut self.chance), "root".to_owned());
            if self.runtime.set_policy(NewPolicy { rules, by, version: None }).await.is_ok() {
                self.truth.now().violations.push("R5: a broken policy was taken".to_owned());
            }
            return Ok(());
        }
        if self.chance.percent(40) {
            // Another rule of the same name.
            let one = self.chance.below(RULES) as usize;
            self.pool[one] = chances::rule(&mut self.chance, &format!("set{one}"));
        }
        let rules = self.pool.iter().filter(|_| self.chance.percent(50)).cloned().collect();
        self.set_rules(rules).await
    }

    async fn set_rules(&mut self, rules: Vec<Value>) -> Result<()> {
        let next = self.rules(&rules);
        let is_news = self.set != rules;
        self.set.clone_from(&rules);
        let by = "root".to_owned();
        {
            let mut truth = self.truth.now();
            // Until it is acknowledged both may count.
            truth.rules.push(next);
            // By new rules all that waits is judged again. What runs because of that may be news for those that were judged before it.
            if is_news {
                truth.calls.values_mut().for_each(|call| call.outdated = false);
            }
        }
        self.runtime.set_policy(NewPolicy { rules, by, version: None }).await?;
        let open = self.runtime.open().await?.into_iter();
        let calls = open.filter(|open| open.state != "awaiting_approval").map(|open| open.call).collect();
        let mut truth = self.truth.now();
        let rules = truth.rules.remove(0);
        truth.former = Some(FormerRules { rules, calls });
        drop(truth);
        self.counts.policies += 1;
        Ok(())
    }

    /// The content of a tool that approvals cover is one of two.
    fn change_content(&mut self, tool: &str) {
        let mut truth = self.truth.now();
        let content = truth.bound.entry(tool.to_owned()).or_default();
        *content = 1 - *content;
        outdate(&mut truth.calls, tool);
        self.counts.changed_contents += 1;
    }

    /// The content of a tool is changed before one of its calls is approved, so that it is asked for again, and then taken back:
    /// the old approval must not count again.
    async fn take_back(&mut self) -> Result<()> {
        let is_bound = |waits: &WaitingCall| {
            let truth = self.truth.now();
            truth.tool(&waits.tool).filter(|tool| tool.is_bound).map(|tool| tool.name.clone())
        };
        let waits = self.waits().await?;
        let Some((waits, tool)) = waits.iter().find_map(|waits| Some((waits, is_bound(waits)?))) else {
            return Ok(());
        };
        self.change_content(&tool);
        self.approve(waits).await?;
        self.settle().await?;
        self.begin_event();
        self.change_content(&tool);
        // Another policy, by which all that waits is judged again.
        let mut rules = self.set.clone();
        rules.push(
            json!({"name": format!("idle{}", self.numbers), "ruling": "ask", "when": {"tool": "idle"}}),
        );
        self.numbers += 1;
        self.counts.taken_back += 1;
        self.set_rules(rules).await
    }

    /// Time passes: what nobody has answered is decided without them.
    fn pass_time(&mut self) {
        let by = Duration::from_secs(self.chance.one_of(&[1, 30, 200, 700, 1_000]));
        let mut truth = self.truth.now();
        truth.now += by.as_micros() as i64;
        let now = truth.now;
        let over = |grant: &GrantTruth| grant.until.is_some_and(|until| until <= now);
        let over: Vec<String> =
            truth.grants.iter().filter(|(_, grant)| over(grant)).map(|(id, _)| id.clone()).collect();
        for id in over {
            let family = truth.family(&id);
            truth.outdate_grants(&family);
        }
        for call in truth.calls.values_mut().filter(|call| call.ended.is_none()) {
            let Some(asked) = call.asked.take_if(|asked| asked.until <= now) else { continue };
            self.counts.expired += 1;
            call.answered = asked.id;
            if asked.allows_on_expiry {
                call.approval = Some(ApprovalTruth { covered: asked.covered, edited: None, by: None });
            } else {
                call.denied = true;
            }
        }
        drop(truth);
        self.clock.advance(by);
    }

    async fn cancel(&mut self) -> Result<()> {
        let waits = self.waits().await?;
        if waits.is_empty() {
            return Ok(());
        }
        let one = &waits[self.chance.below(waits.len() as u64) as usize];
        self.runtime.cancel(Target::Call(&one.call), None).await?;
        if let Some(call) = self.truth.now().calls.get_mut(&one.call) {
            call.cancelled = true;
        }
        self.counts.cancelled += 1;
        Ok(())
    }

    async fn waits(&self) -> Result<Vec<WaitingCall>> {
        let waits = self.runtime.waiting().await?.into_iter().map(|(_, waits)| waits);
        Ok(waits.filter(|waits| waits.kind == WaitingKind::Approval).collect())
    }

    /// Whether a promise is broken: then nothing that follows is where it must be, and each look would wait for it.
    fn has_failed(&self) -> bool {
        !self.truth.now().violations.is_empty()
    }

    /// Adds the journals of the calls that a report names: whether the runtime or the checker is wrong is mostly seen there.
    async fn tell_stories(&self) {
        let reports = std::mem::take(&mut self.truth.now().violations);
        let mut told = Vec::with_capacity(reports.len());
        for report in reports {
            let mut line: String = report.chars().take(REPORT_CHARS_MAX).collect();
            let handles: Vec<String> = self.truth.now().calls.keys().cloned().collect();
            for handle in handles.iter().filter(|handle| report.contains(*handle)) {
                let Some(call) = Handle::parse(handle) else { continue };
                let Ok(Some((_, story))) = inspect::call(self.runtime.store(), call).await else { continue };
                let story = story.iter().map(|line| format!("\n    {} {}", line.entry, line.text));
                line.push_str(&format!("\n  the journal of {handle}:{}", story.collect::<String>()));
            }
            told.push(line);
        }
        self.truth.now().violations = told;
    }

    fn finish(mut self) -> Result<WorldOutcome> {
        let mut truth = self.truth.now();
        if !self.open.is_empty() && truth.violations.is_empty() {
            let line = format!("R5: {} batches are open when all is answered", self.open.len());
            truth.violations.push(line);
        }
        let unnamed = truth.sessions.values().flat_map(|session| &session.remembered);
        if unnamed.filter(|known| known.id.is_empty()).count() > 0 {
            let line = format!("R6: an answer was acknowledged, and is not remembered: {:?}", truth.sessions);
            truth.violations.push(line);
        }
        let violations = std::mem::take(&mut truth.violations);
        self.counts.permitted = std::mem::take(&mut truth.permitted);
        self.counts.granted = truth.granted;
        drop(truth);
        Ok(WorldOutcome { counts: self.counts, violations })
    }
}

/// Calls of this tool that wait are not judged again by themselves.
fn outdate(calls: &mut BTreeMap<String, CallTruth>, tool: &str) {
    for call in calls.values_mut().filter(|call| call.tool.as_deref() == Some(tool)) {
        call.outdated = true;
    }
}
