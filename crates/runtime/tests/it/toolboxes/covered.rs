//! An approval of a toolbox's call covers its box and the whole manifest: when any of it changes, a person is asked again.

use super::{ANN, tool};
use crate::rig::{batch, call, memory, n, states, waits_for};
use serde_json::{Value, json};
use std::time::Duration;
use windlass::approvals::ApprovalDecision;
use windlass::error::AskError;
use windlass::inspect::WaitingCall;
use windlass::policy::NewPolicy;
use windlass::toolboxes::{
    AttemptReport, ManifestDeadlines, ManifestRetry, TakeRequest, TakenAttempt, ToolManifest, ToolboxEnd,
};
use windlass::{EffectClass, Output, Runtime, Submitted};

/// A change of what an approval covers, between the question and the start.
#[derive(Clone, Copy)]
enum Changed {
    Nothing,
    /// A field of the tool's manifest, by its name.
    Field(&'static str, fn(&mut ToolManifest)),
    /// The manifest has one more tool; the contract of this one is the same.
    Manifest,
    /// Another toolbox offers the tool, with the same manifest.
    Toolbox,
    /// The rule that asks has another text.
    Rule,
    /// One more rule asks.
    Rules,
    /// The arguments, by an edit after which another rule asks.
    Arguments,
}

impl Changed {
    fn name(self) -> &'static str {
        match self {
            Changed::Nothing => "nothing",
            Changed::Field(name, _) => name,
            Changed::Manifest => "the manifest",
            Changed::Toolbox => "the toolbox",
            Changed::Rule => "the rule",
            Changed::Rules => "the rules",
            Changed::Arguments => "the arguments",
        }
    }

    /// Whether the call is asked for again as soon as it is so, and not only at its start.
    fn is_policy(self) -> bool {
        matches!(self, Changed::Rule | Changed::Rules)
    }
}

fn changes() -> Vec<Changed> {
    use Changed::Field;
    let mut changes = vec![
        Field("id", |tool| tool.id = "till.pay".into()),
        Field("title", |tool| tool.title = "Pays".into()),
        Field("description", |tool| tool.description = "Pays twice.".into()),
        Field("input", |tool| tool.input = Some(json!({"type": "object", "description": "other"}))),
        Field("output", |tool| tool.output = Some(json!({"type": "string"}))),
        Field("hints", |tool| _ = tool.hints.insert("sends_out".into(), true)),
        Field("background", |tool| tool.background = true),
        Field("stays_direct", |tool| tool.stays_direct = true),
        Field("claims", |tool| tool.claims = Some(vec!["write till".into()])),
        Field("deadlines", |tool| {
            tool.deadlines = ManifestDeadlines { attempt_ms: Some(9_000), ..ManifestDeadlines::default() };
        }),
        Field("grace_ms", |tool| tool.grace_ms = Some(100)),
        Field("retry", |tool| tool.retry = ManifestRetry { base_ms: Some(7), ..ManifestRetry::default() }),
        Field("running_max", |tool| tool.running_max = Some(3)),
        Field("approval", |tool| tool.approval = Some("ask".into())),
        Field("deferral", |tool| tool.deferral = Some("never".into())),
        Field("secrets", |tool| tool.secrets = vec!["stripe".into()]),
        Field("version", |tool| tool.version = "2".into()),
        Field("category", |tool| tool.category = "money".into()),
        Field("tags", |tool| tool.tags = vec!["till".into()]),
    ];
    let rest = [Changed::Nothing, Changed::Manifest, Changed::Toolbox, Changed::Rule, Changed::Rules];
    changes.extend(rest);
    changes
}

fn pay(class: EffectClass) -> ToolManifest {
    ToolManifest { claims: Some(Vec::new()), ..tool("pay", class) }
}

async fn set_rules(runtime: &Runtime, changed: Changed) {
    let reason = if matches!(changed, Changed::Rule) { "otherwise" } else { "" };
    let mut rules = vec![
        json!({"name": "asks", "ruling": "ask", "when": {"tool": "pay"}, "reason": reason}),
        json!({"name": "high", "ruling": "ask",
            "when": {"tool": "pay", "args": [{"pointer": "/n", "range": {"min": 100}}]}}),
    ];
    if matches!(changed, Changed::Rules) {
        rules.push(json!({"name": "more", "ruling": "ask"}));
    }
    runtime.set_policy(NewPolicy { rules, by: "root".into(), version: None }).await.unwrap();
}

/// A call of a toolbox's tool that a person is asked about, and the process that would run it.
struct AskedCall {
    runtime: Runtime,
    toolbox: &'static str,
    manifest: String,
    submitted: Submitted,
    asked: WaitingCall,
}

impl AskedCall {
    async fn new(class: EffectClass) -> AskedCall {
        let runtime = memory();
        set_rules(&runtime, Changed::Nothing).await;
        let manifest = runtime.toolboxes().put("crm", ANN, vec![pay(class)]).await.unwrap().manifest;
        let taken = take(&runtime, "crm", &manifest, 1, Duration::ZERO).await;
        assert!(taken.is_empty());
        let submitted = runtime.submit("s", batch("k", vec![call("c", "pay", n(1))])).await.unwrap();
        submitted.stands_still().await.unwrap();
        let asked = waiting(&runtime).await.remove(0);
        AskedCall { runtime, toolbox: "crm", manifest, submitted, asked }
    }

    async fn change(&mut self, class: EffectClass, changed: Changed) {
        let toolboxes = self.runtime.toolboxes();
        let mut tools = vec![pay(class)];
        match changed {
            Changed::Nothing | Changed::Arguments => return,
            Changed::Rule | Changed::Rules => return set_rules(&self.runtime, changed).await,
            Changed::Field(_, change) => change(&mut tools[0]),
            Changed::Manifest => tools.push(tool("wave", class)),
            Changed::Toolbox => {
                assert!(toolboxes.remove("crm", ANN).await.unwrap());
                self.toolbox = "till";
            }
        }
        self.manifest = toolboxes.put(self.toolbox, ANN, tools).await.unwrap().manifest;
    }

    /// The process asks for this many attempts.
    async fn take(&self, max: u32, wait: Duration) -> Vec<TakenAttempt> {
        take(&self.runtime, self.toolbox, &self.manifest, max, wait).await
    }

    async fn approve(&self, asked: &WaitingCall, args: Option<Value>) {
        let decision = ApprovalDecision { args, ..yes(asked) };
        self.runtime.decide(&asked.id, &decision, "ann").await.unwrap();
    }

    /// It is asked for again, no process got it, and it runs once it is approved as it is now.
    async fn runs_after_a_second_approval(self, place: &str) {
        let second = loop {
            assert!(self.take(1, Duration::ZERO).await.is_empty(), "{place}: it was handed over");
            if let Some(asked) = waiting(&self.runtime).await.pop()
                && asked.id != self.asked.id
            {
                break asked;
            }
            tokio::task::yield_now().await;
        };
        assert_ne!(self.asked.digest, second.digest, "{place}");
        let old = self.runtime.decide(&self.asked.id, &yes(&self.asked), "ann").await.unwrap_err();
        assert!(matches!(old, AskError::Over { .. }), "{place}: {old}");
        self.approve(&second, None).await;
        self.runs(place).await;
    }

    /// It runs, in one attempt.
    async fn runs(self, place: &str) {
        let taken = loop {
            if let Some(taken) = self.take(1, Duration::from_secs(5)).await.pop() {
                break taken;
            }
        };
        let end = Some(ToolboxEnd::Value(Box::new(Output::from(json!("paid")))));
        let report = AttemptReport { token: taken.token, end, ..AttemptReport::default() };
        let toolboxes = self.runtime.toolboxes();
        toolboxes.report(self.toolbox, ANN, "w1", vec![report], Duration::ZERO).await.unwrap();
        let answer = self.submitted.settled().await.unwrap();
        assert_eq!((states(&answer), answer.calls[0].call().attempts), ("c succeeded".into(), 1), "{place}");
    }
}

async fn take(
    runtime: &Runtime,
    toolbox: &str,
    manifest: &str,
    max: u32,
    wait: Duration,
) -> Vec<TakenAttempt> {
    let asks =
        TakeRequest { worker: "w1".into(), manifest: manifest.into(), max, wait, ..TakeRequest::default() };
    runtime.toolboxes().take(toolbox, ANN, asks).await.unwrap()
}

async fn waiting(runtime: &Runtime) -> Vec<WaitingCall> {
    runtime.waiting().await.unwrap().into_iter().map(|(_, waiting)| waiting).collect()
}

fn yes(waits: &WaitingCall) -> ApprovalDecision {
    ApprovalDecision { approve: true, digest: waits.digest.clone().unwrap(), ..ApprovalDecision::default() }
}

/// Between the question and its answer.
#[tokio::test]
async fn what_changed_after_it_was_shown_is_asked_for_again() {
    for class in EffectClass::ALL {
        for changed in changes().into_iter().chain([Changed::Arguments]) {
            let place = format!("{class}, {}", changed.name());
            let mut call = AskedCall::new(*class).await;
            call.change(*class, changed).await;
            if !changed.is_policy() {
                let args = matches!(changed, Changed::Arguments).then(|| n(500));
                call.approve(&call.asked, args).await;
            }
            match changed {
                Changed::Nothing => call.runs(&place).await,
                _ => call.runs_after_a_second_approval(&place).await,
            }
        }
    }
}

/// Between the answer and the start: it waits for a process when it is approved.
#[tokio::test]
async fn what_changed_after_it_was_approved_is_asked_for_again() {
    for class in EffectClass::ALL {
        for changed in changes() {
            let place = format!("{class}, {}", changed.name());
            let mut call = AskedCall::new(*class).await;
            assert!(call.take(0, Duration::ZERO).await.is_empty());
            call.approve(&call.asked, None).await;
            waits_for(&call.runtime, "no_worker").await;
            call.change(*class, changed).await;
            match changed {
                Changed::Nothing => call.runs(&place).await,
                _ => call.runs_after_a_second_approval(&place).await,
            }
        }
    }
}

/// A call of another session has a question of its own, whatever its arguments are.
#[tokio::test]
async fn an_approval_is_of_one_session() {
    let call = AskedCall::new(EffectClass::Once).await;
    let other = call.runtime.submit("t", batch("k", vec![crate::rig::call("c", "pay", n(1))])).await.unwrap();
    other.stands_still().await.unwrap();
    call.approve(&call.asked, None).await;
    let runtime = call.runtime.clone();
    call.runs("the first session").await;
    let left = waiting(&runtime).await;
    assert_eq!(left.iter().map(|asked| asked.session.as_str()).collect::<Vec<_>>(), ["t"]);
    assert_eq!(states(&other.now().await.unwrap()), "c awaiting_approval");
}
