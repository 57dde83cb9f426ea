//! Approvals: a person decides whether a call runs, and exactly what was approved runs, once.

use crate::rig::{Count, batch, call, config, echo, memory, n, reopen, run, spec, sqlite, states, waits_for};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use windlass::approvals::{ApprovalDecision, Remember, RememberedArgs};
use windlass::error::AskError;
use windlass::inspect::{WaitingCall, WaitingKind};
use windlass::policy::{ApprovalRule, NewPolicy};
use windlass::sessions::SessionOpening;
use windlass::tool::{BoundContent, BoundFuture, PrepareCx};
use windlass::{
    BatchRequest, Config, Cx, EffectClass, Limits, Runtime, Submitted, Tool, ToolFuture, ToolSpec,
};
use windlass_testkit::clock::ManualClock;

/// A tool about which a person is asked.
fn asking(name: &str, class: EffectClass) -> ToolSpec {
    ToolSpec { approval: ApprovalRule::Ask, claims: Some(Vec::new()), ..spec(name, class) }
}

fn with_n(spec: ToolSpec) -> ToolSpec {
    let input_schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
    ToolSpec { input_schema: Some(input_schema), ..spec }
}

/// Submits a batch, and waits until all that is left waits for a person.
async fn stand_still(runtime: &Runtime, request: BatchRequest) -> Submitted {
    let submitted = runtime.submit("s", request).await.unwrap();
    submitted.admitted().await.unwrap();
    submitted.stands_still().await.unwrap();
    submitted
}

async fn waiting(runtime: &Runtime) -> Vec<WaitingCall> {
    runtime.waiting().await.unwrap().into_iter().map(|(_, waiting)| waiting).collect()
}

/// The only call that waits for an approval.
async fn the_one(runtime: &Runtime) -> WaitingCall {
    let mut waits = waiting(runtime).await;
    assert_eq!(waits.len(), 1, "{waits:?}");
    assert_eq!(waits[0].kind, WaitingKind::Approval);
    waits.remove(0)
}

fn yes(waits: &WaitingCall) -> ApprovalDecision {
    ApprovalDecision { approve: true, digest: waits.digest.clone().unwrap(), ..ApprovalDecision::default() }
}

fn no(waits: &WaitingCall, reason: &str) -> ApprovalDecision {
    ApprovalDecision { approve: false, reason: Some(reason.into()), ..yes(waits) }
}

fn text(answer: &windlass::BatchAnswer, place: usize) -> String {
    answer.calls[place].model_text()
}

#[tokio::test]
async fn a_call_waits_for_a_person_and_runs_once_it_is_approved() {
    for class in EffectClass::ALL {
        let (runtime, count) = (memory(), Count::default());
        runtime.register(echo(asking("pay", *class), &count)).unwrap();
        let submitted = stand_still(&runtime, batch("k", vec![call("a", "pay", n(1))])).await;
        assert_eq!(states(&submitted.now().await.unwrap()), "a awaiting_approval");
        assert_eq!(
            text(&submitted.now().await.unwrap(), 0),
            "The call waits until a person has approved or denied it."
        );
        let waits = the_one(&runtime).await;
        assert_eq!((waits.session.as_str(), waits.tool.as_str()), ("s", "pay"));
        assert_eq!(waits.args, Some(n(1)));
        assert_eq!(waits.rules, ["the tool asks"]);
        assert_eq!(waits.command, format!("windlass approve {}", waits.id));
        assert_eq!(count.get(), 0);
        runtime.decide(&waits.id, &yes(&waits), "ann").await.unwrap();
        assert_eq!(states(&submitted.settled().await.unwrap()), "a succeeded", "{class}");
        assert_eq!(count.get(), 1);
        assert!(waiting(&runtime).await.is_empty());
    }
}

#[tokio::test]
async fn a_denied_call_never_runs_and_the_model_is_told_why() {
    let (runtime, count) = (memory(), Count::default());
    runtime.register(echo(asking("pay", EffectClass::Once), &count)).unwrap();
    let submitted = stand_still(&runtime, batch("k", vec![call("a", "pay", n(1))])).await;
    let waits = the_one(&runtime).await;
    runtime.decide(&waits.id, &no(&waits, "not today"), "ann").await.unwrap();
    let answer = submitted.settled().await.unwrap();
    assert_eq!(states(&answer), "a denied");
    assert!(text(&answer, 0).contains("a person denied it: not today"), "{}", text(&answer, 0));
    assert_eq!(count.get(), 0);
}

#[tokio::test]
async fn the_first_answer_counts_and_repeating_it_is_fine() {
    let (runtime, count) = (memory(), Count::default());
    runtime.register(echo(asking("pay", EffectClass::Once), &count)).unwrap();
    let submitted = stand_still(&runtime, batch("k", vec![call("a", "pay", n(1))])).await;
    let waits = the_one(&runtime).await;
    runtime.decide(&waits.id, &yes(&waits), "ann").await.unwrap();
    runtime.decide(&waits.id, &yes(&waits), "ann").await.unwrap();
    submitted.settled().await.unwrap();
    runtime.decide(&waits.id, &yes(&waits), "ann").await.unwrap();
    let refused = runtime.decide(&waits.id, &no(&waits, "no"), "bob").await.unwrap_err();
    assert!(matches!(refused, AskError::Answered), "{refused}");
    let forged = format!("{}0", &waits.id[..waits.id.len() - 1]);
    let forged = if forged == waits.id { format!("{}1", &waits.id[..waits.id.len() - 1]) } else { forged };
    assert!(matches!(runtime.decide(&forged, &yes(&waits), "ann").await, Err(AskError::NoApproval)));
    assert_eq!(count.get(), 1);
}

#[tokio::test]
async fn two_approvers_at_once_start_it_once() {
    for _ in 0..20 {
        let (runtime, count) = (memory(), Count::default());
        runtime.register(echo(asking("pay", EffectClass::Once), &count)).unwrap();
        let submitted = stand_still(&runtime, batch("k", vec![call("a", "pay", n(1))])).await;
        let waits = the_one(&runtime).await;
        let (yes, no) = (yes(&waits), no(&waits, "no"));
        let (one, two) =
            tokio::join!(runtime.decide(&waits.id, &yes, "ann"), runtime.decide(&waits.id, &no, "bob"));
        assert!(one.is_ok() != two.is_ok(), "{one:?} {two:?}");
        let state = states(&submitted.settled().await.unwrap());
        assert_eq!(state, if one.is_ok() { "a succeeded" } else { "a denied" });
        assert_eq!(count.get(), u32::from(one.is_ok()));
    }
}

#[tokio::test]
async fn a_stale_digest_is_refused() {
    let (runtime, count) = (memory(), Count::default());
    runtime.register(echo(asking("pay", EffectClass::Once), &count)).unwrap();
    let submitted = stand_still(&runtime, batch("k", vec![call("a", "pay", n(1))])).await;
    let waits = the_one(&runtime).await;
    for digest in ["", "00", &"ä".repeat(32), &"0".repeat(64)] {
        let decision = ApprovalDecision { digest: digest.into(), ..yes(&waits) };
        let refused = runtime.decide(&waits.id, &decision, "ann").await.unwrap_err();
        assert!(
            matches!(&refused, AskError::StaleDigest { digest } if Some(digest) == waits.digest.as_ref())
        );
    }
    assert_eq!(states(&submitted.now().await.unwrap()), "a awaiting_approval");
    assert_eq!(count.get(), 0);
}

#[tokio::test]
async fn it_runs_with_the_arguments_that_an_approver_gave_it_and_the_model_is_told() {
    let (runtime, count) = (memory(), Count::default());
    runtime.register(echo(with_n(asking("pay", EffectClass::Once)), &count)).unwrap();
    let submitted = stand_still(&runtime, batch("k", vec![call("a", "pay", n(1_000))])).await;
    let waits = the_one(&runtime).await;
    let edit = |args| ApprovalDecision { args: Some(args), ..yes(&waits) };
    let refused = runtime.decide(&waits.id, &edit(json!({"n": "much"})), "ann").await.unwrap_err();
    assert!(refused.to_string().contains("/n"), "{refused}");
    assert!(runtime.decide(&waits.id, &edit(json!([1])), "ann").await.is_err(), "no object");
    let preview = runtime.preview_approval(&waits.id, &n(10)).await.unwrap();
    assert_eq!((preview.problem, preview.differences), (None, vec!["/n".to_string()]));
    runtime.decide(&waits.id, &edit(n(10)), "ann").await.unwrap();
    let answer = submitted.settled().await.unwrap();
    assert_eq!(states(&answer), "a succeeded");
    let shown = serde_json::to_value(&answer.calls[0]).unwrap();
    assert_eq!(shown["outcome"]["value"], n(10), "{shown}");
    let told: Vec<&str> = shown["model"]["parts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|part| part["text"].as_str().unwrap())
        .collect();
    assert_eq!(
        told,
        [
            "A person approved this call with other arguments than you gave: /n: 10 instead of 1000.",
            "{\"n\":10}"
        ]
    );
    // The same batch again is the same call: identity is what was submitted.
    let again = run(&runtime, "s", batch("k", vec![call("a", "pay", n(1_000))])).await;
    assert_eq!(states(&again), "a succeeded");
    assert_eq!(count.get(), 1);
}

#[tokio::test]
async fn an_ask_that_nobody_answers_ends_in_a_denial() {
    let clock = Arc::new(ManualClock::default());
    let limits = Limits { approval_ms: 60_000, ..Limits::default() };
    let config =
        Config { clock: clock.clone(), limits, ..Config::new(windlass::store::MemoryStore::new().unwrap()) };
    let (runtime, count) = (Runtime::new(config), Count::default());
    runtime.register(echo(asking("pay", EffectClass::Once), &count)).unwrap();
    let submitted = stand_still(&runtime, batch("k", vec![call("a", "pay", n(1))])).await;
    let waits = the_one(&runtime).await;
    clock.advance(Duration::from_secs(61));
    let answer = submitted.settled().await.unwrap();
    assert_eq!(states(&answer), "a denied");
    assert!(text(&answer, 0).contains("nobody approved it within 60 s"), "{}", text(&answer, 0));
    let late = runtime.decide(&waits.id, &yes(&waits), "ann").await.unwrap_err();
    assert!(matches!(late, AskError::Over { .. }), "{late}");
    assert_eq!(count.get(), 0);
}

#[tokio::test]
async fn a_call_waits_for_its_approval_through_a_restart() {
    let (runtime, folder) = sqlite();
    let count = Count::default();
    runtime.register(echo(asking("pay", EffectClass::Once), &count)).unwrap();
    stand_still(&runtime, batch("k", vec![call("a", "pay", n(1))])).await;
    let before = the_one(&runtime).await;
    drop(runtime);
    let runtime = reopen(&folder);
    runtime.register(echo(asking("pay", EffectClass::Once), &count)).unwrap();
    let waits = the_one(&runtime).await;
    assert_eq!((&waits.id, &waits.digest), (&before.id, &before.digest));
    runtime.resume().await.unwrap();
    runtime.decide(&waits.id, &yes(&waits), "ann").await.unwrap();
    let answer = run(&runtime, "s", batch("k", vec![call("a", "pay", n(1))])).await;
    assert_eq!(states(&answer), "a succeeded");
    assert_eq!(count.get(), 1);
}

#[tokio::test]
async fn an_answer_that_is_left_in_the_store_reaches_the_next_owner() {
    let (runtime, folder) = sqlite();
    let count = Count::default();
    runtime.register(echo(asking("pay", EffectClass::Once), &count)).unwrap();
    stand_still(&runtime, batch("k", vec![call("a", "pay", n(1))])).await;
    let waits = the_one(&runtime).await;
    drop(runtime);
    {
        let config = config(&folder);
        let approver =
            windlass::approvals::Approver { by: "ann", clock: &*config.clock, limits: &config.limits };
        let yes = yes(&waits);
        let posted = windlass::approvals::post_decision(&*config.store, &waits.id, &yes, approver);
        assert_eq!(posted.await.unwrap().name, "s");
    }
    let runtime = reopen(&folder);
    runtime.register(echo(asking("pay", EffectClass::Once), &count)).unwrap();
    runtime.resume().await.unwrap();
    runtime.idle().await;
    assert_eq!(count.get(), 1);
}

/// A tool whose bound content changes.
struct Bound {
    spec: ToolSpec,
    content: Arc<AtomicU32>,
    count: Count,
}

impl Tool for Bound {
    fn spec(&self) -> ToolSpec {
        self.spec.clone()
    }

    fn run<'a>(&'a self, args: Value, _: &'a Cx) -> ToolFuture<'a> {
        self.count.up();
        Box::pin(async move { Ok(args.into()) })
    }

    fn bound<'a>(&'a self, _: &'a Value, _: &'a PrepareCx<'a>) -> Option<BoundFuture<'a>> {
        let content = self.content.load(Ordering::SeqCst);
        let held: Arc<dyn std::any::Any + Send + Sync> = Arc::new(content);
        let fixed = content.to_le_bytes().to_vec();
        Some(Box::pin(async move { Ok(BoundContent { fixed, held: Some(held), ..BoundContent::default() }) }))
    }
}

/// What an approval covers, and what changes between it and the start.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Changed {
    /// Nothing: then it runs.
    Nothing,
    /// The tool has another version.
    Contract,
    /// The tool is bound to other content.
    Bound,
    /// The rule that asks has another text.
    Rule,
    /// One more rule asks.
    Rules,
    /// The rule that asks is gone, and the tool asks by itself.
    Source,
    /// The arguments, by an edit after which another rule asks.
    Arguments,
}

const CHANGES: [Changed; 7] = [
    Changed::Nothing,
    Changed::Contract,
    Changed::Bound,
    Changed::Rule,
    Changed::Rules,
    Changed::Source,
    Changed::Arguments,
];

fn rules(changed: Changed) -> Vec<serde_json::Value> {
    let asks =
        |reason: &str| json!({"name": "asks", "ruling": "ask", "when": {"tool": "pay"}, "reason": reason});
    let high = json!({"name": "high", "ruling": "ask",
        "when": {"tool": "pay", "args": [{"pointer": "/n", "range": {"min": 100}}]}});
    match changed {
        Changed::Rule => vec![asks("otherwise"), high],
        Changed::Rules => vec![asks(""), high, json!({"name": "more", "ruling": "ask"})],
        Changed::Source => vec![high, json!({"name": "other", "ruling": "ask", "when": {"tool": "pay"}})],
        Changed::Nothing | Changed::Contract | Changed::Bound | Changed::Arguments => vec![asks(""), high],
    }
}

async fn set_rules(runtime: &Runtime, changed: Changed) {
    let new = NewPolicy { rules: rules(changed), by: "root".into(), version: None };
    runtime.set_policy(new).await.unwrap();
}

/// A runtime with the tool `pay`, and a call of it that waits for a person behind nothing, or that was approved and waits for
/// its turn behind a call that waits for a person.
struct ApprovedCall {
    runtime: Runtime,
    content: Arc<AtomicU32>,
    count: Count,
    submitted: Submitted,
}

impl ApprovedCall {
    async fn new(class: EffectClass, calls: &[(&str, &str)]) -> ApprovedCall {
        let (runtime, content, count) = (memory(), Arc::new(AtomicU32::new(1)), Count::default());
        let pay = ToolSpec { claims: Some(vec!["write till".into()]), ..spec("pay", class) };
        runtime.register(Bound { spec: pay, content: content.clone(), count: count.clone() }).unwrap();
        let first =
            ToolSpec { claims: Some(vec!["write till".into()]), ..asking("first", EffectClass::Once) };
        runtime.register(echo(first, &Count::default())).unwrap();
        set_rules(&runtime, Changed::Nothing).await;
        let calls = calls.iter().map(|(id, tool)| call(id, tool, n(1))).collect();
        let submitted = runtime.submit("s", batch("k", calls)).await.unwrap();
        submitted.stands_still().await.unwrap();
        ApprovedCall { runtime, content, count, submitted }
    }

    /// The call of this id that waits for a person.
    async fn asked(&self, id: &str) -> WaitingCall {
        let waits = waiting(&self.runtime).await;
        waits.into_iter().find(|waits| waits.call_id == id).unwrap_or_else(|| panic!("{id} does not wait"))
    }

    async fn change(&self, class: EffectClass, changed: Changed) {
        match changed {
            Changed::Nothing | Changed::Arguments => {}
            Changed::Contract => {
                let (content, count) = (self.content.clone(), self.count.clone());
                let claims = Some(vec!["write till".into()]);
                let spec = ToolSpec { version: "2".into(), claims, ..spec("pay", class) };
                self.runtime.replace(Bound { spec, content, count }).unwrap();
            }
            Changed::Bound => self.content.store(2, Ordering::SeqCst),
            Changed::Rule | Changed::Rules | Changed::Source => set_rules(&self.runtime, changed).await,
        }
    }

    /// The call is asked for again, has not run, and runs once it is approved as it is now.
    async fn runs_after_a_second_approval(self, changed: Changed, first: &WaitingCall) {
        self.submitted.stands_still().await.unwrap();
        let second = self.asked("pay").await;
        assert_ne!((&first.id, &first.digest), (&second.id, &second.digest), "{changed:?}");
        assert_eq!(self.count.get(), 0, "{changed:?}");
        let old = self.runtime.decide(&first.id, &yes(first), "ann").await.unwrap_err();
        assert!(matches!(old, AskError::Over { .. }), "{changed:?}: {old}");
        self.runtime.decide(&second.id, &yes(&second), "ann").await.unwrap();
        assert!(states(&self.submitted.settled().await.unwrap()).contains("pay succeeded"), "{changed:?}");
        assert_eq!(self.count.get(), 1, "{changed:?}");
    }
}

/// Between the question and its answer. Session, principal and call cannot change: an approval is in the record of its call.
#[tokio::test]
async fn what_changed_after_it_was_shown_is_asked_for_again() {
    for (class, changed) in EffectClass::ALL.iter().flat_map(|class| CHANGES.map(|changed| (*class, changed)))
    {
        let call = ApprovedCall::new(class, &[("pay", "pay")]).await;
        let first = call.asked("pay").await;
        call.change(class, changed).await;
        if matches!(changed, Changed::Rule | Changed::Rules | Changed::Source) {
            // It was asked for again at once, so the old answer is none.
            call.submitted.stands_still().await.unwrap();
            while call.asked("pay").await.id == first.id {
                tokio::task::yield_now().await;
            }
            call.runs_after_a_second_approval(changed, &first).await;
            continue;
        }
        let args = (changed == Changed::Arguments).then(|| n(500));
        let decision = ApprovalDecision { args, ..yes(&first) };
        call.runtime.decide(&first.id, &decision, "ann").await.unwrap();
        if changed == Changed::Nothing {
            assert_eq!(states(&call.submitted.settled().await.unwrap()), "pay succeeded");
            assert_eq!(call.count.get(), 1);
            continue;
        }
        call.runs_after_a_second_approval(changed, &first).await;
    }
}

/// Between the answer and the start: it waits for its turn behind a call that waits for a person.
#[tokio::test]
async fn what_changed_after_it_was_approved_is_asked_for_again() {
    for (class, changed) in EffectClass::ALL.iter().flat_map(|class| CHANGES.map(|changed| (*class, changed)))
    {
        if matches!(changed, Changed::Nothing | Changed::Arguments) {
            continue;
        }
        let call = ApprovedCall::new(class, &[("first", "first"), ("pay", "pay")]).await;
        let first = call.asked("pay").await;
        call.runtime.decide(&first.id, &yes(&first), "ann").await.unwrap();
        waits_for(&call.runtime, "claim").await;
        call.change(class, changed).await;
        let before = call.asked("first").await;
        call.runtime.decide(&before.id, &no(&before, "no"), "ann").await.unwrap();
        call.runs_after_a_second_approval(changed, &first).await;
    }
}

/// It waits for its turn behind a call that waits for a person when the rules allow it.
#[tokio::test]
async fn a_question_that_nobody_asks_any_more_is_not_listed_and_not_answered() {
    for class in EffectClass::ALL {
        let call = ApprovedCall::new(*class, &[("first", "first"), ("pay", "pay")]).await;
        let asked = call.asked("pay").await;
        let none = NewPolicy { rules: Vec::new(), by: "root".into(), version: None };
        call.runtime.set_policy(none).await.unwrap();
        waits_for(&call.runtime, "claim").await;
        assert!(waiting(&call.runtime).await.iter().all(|waits| waits.call_id == "first"), "{class}");
        let late = call.runtime.decide(&asked.id, &no(&asked, "no"), "ann").await.unwrap_err();
        assert!(matches!(late, AskError::Over { .. }), "{class}: {late}");
        let before = call.asked("first").await;
        call.runtime.decide(&before.id, &yes(&before), "ann").await.unwrap();
        assert_eq!(states(&call.submitted.settled().await.unwrap()), "first succeeded, pay succeeded");
        assert_eq!(call.count.get(), 1, "{class}");
    }
}

/// The same batch submitted again and the same answer given again, all at once: it runs once.
#[tokio::test]
async fn an_approval_is_used_once_however_often_it_is_given_and_asked_for() {
    for _ in 0..20 {
        let call = ApprovedCall::new(EffectClass::Once, &[("pay", "pay")]).await;
        let (first, runtime) = (call.asked("pay").await, &call.runtime);
        let yes = yes(&first);
        let decide = || runtime.decide(&first.id, &yes, "ann");
        let again = || runtime.submit("s", batch("k", vec![crate::rig::call("pay", "pay", n(1))]));
        let (one, two, three, four) = tokio::join!(decide(), again(), decide(), again());
        assert!(one.is_ok() && three.is_ok(), "{one:?} {three:?}");
        for submitted in [two.unwrap(), four.unwrap(), call.submitted] {
            assert_eq!(states(&submitted.settled().await.unwrap()), "pay succeeded");
        }
        assert_eq!(call.count.get(), 1);
    }
}

#[tokio::test]
async fn a_remembered_answer_is_given_again_to_calls_of_the_same_kind() {
    let (runtime, folder) = sqlite();
    let count = Count::default();
    runtime.register(echo(asking("pay", EffectClass::Once), &count)).unwrap();
    let args = |to: &str, n: u64| json!({"to": to, "n": n});
    let first = stand_still(&runtime, batch("1", vec![call("a", "pay", args("ann", 1))])).await;
    let other = stand_still(&runtime, batch("2", vec![call("a", "pay", args("ann", 2))])).await;
    let waits = waiting(&runtime).await.remove(0);
    let remember = Remember { args: RememberedArgs::At(vec!["/to".into()]), for_ms: None };
    let decision = ApprovalDecision { remember: Some(remember), ..yes(&waits) };
    runtime.decide(&waits.id, &decision, "bob").await.unwrap();
    // Also one that waits already.
    assert_eq!(states(&first.settled().await.unwrap()), "a succeeded");
    assert_eq!(states(&other.settled().await.unwrap()), "a succeeded");
    let remembered = runtime.remembered("s").await.unwrap();
    assert_eq!((remembered.len(), remembered[0].by.as_str()), (1, "bob"));
    drop(runtime);
    let runtime = reopen(&folder);
    runtime.register(echo(asking("pay", EffectClass::Once), &count)).unwrap();
    let third = run(&runtime, "s", batch("3", vec![call("a", "pay", args("ann", 3))])).await;
    assert_eq!(states(&third), "a succeeded");
    let another = stand_still(&runtime, batch("4", vec![call("a", "pay", args("bob", 3))])).await;
    assert_eq!(states(&another.now().await.unwrap()), "a awaiting_approval", "of other arguments");
    let elsewhere = runtime.submit("t", batch("5", vec![call("a", "pay", args("ann", 3))])).await.unwrap();
    elsewhere.stands_still().await.unwrap();
    assert_eq!(states(&elsewhere.now().await.unwrap()), "a awaiting_approval", "of another session");
    assert!(runtime.forget_remembered("s", &remembered[0].id).await.unwrap());
    assert!(!runtime.forget_remembered("s", &remembered[0].id).await.unwrap());
    let last = stand_still(&runtime, batch("6", vec![call("a", "pay", args("ann", 4))])).await;
    assert_eq!(states(&last.now().await.unwrap()), "a awaiting_approval", "it is forgotten");
    assert_eq!(count.get(), 3);
}

/// A call that is asked about in the moment in which an answer to it is remembered does not wait for a person.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_remembered_answer_reaches_calls_that_are_just_being_asked_about() {
    for round in 0..50 {
        let (runtime, count) = (memory(), Count::default());
        runtime.register(echo(asking("pay", EffectClass::Once), &count)).unwrap();
        let first = stand_still(&runtime, batch("1", vec![call("a", "pay", n(1))])).await;
        let waits = the_one(&runtime).await;
        let submitting = tokio::spawn({
            let runtime = runtime.clone();
            async move {
                let calls = (0..8).map(|id| call(&format!("c{id}"), "pay", n(id + 2))).collect();
                runtime.submit("s", batch("2", calls)).await.unwrap()
            }
        });
        let remember = Some(Remember { args: RememberedArgs::Any, for_ms: None });
        let decision = ApprovalDecision { remember, ..yes(&waits) };
        runtime.decide(&waits.id, &decision, "ann").await.unwrap();
        let second = submitting.await.unwrap();
        let settled = tokio::time::timeout(Duration::from_secs(60), second.settled()).await;
        assert!(settled.is_ok(), "round {round}: {:?}", waiting(&runtime).await);
        first.settled().await.unwrap();
        assert_eq!(count.get(), 9);
    }
}

#[tokio::test]
async fn approved_siblings_run_at_once_and_what_waits_gives_up_its_place_once_its_batch_is_answered() {
    let (runtime, count) = (memory(), Count::default());
    let declared = |name: &str, claim: &str| ToolSpec {
        claims: Some(vec![claim.into()]),
        ..spec(name, EffectClass::Once)
    };
    for (name, claim) in [("a", "write a"), ("b", "write b"), ("c", "write c")] {
        runtime.register(echo(declared(name, claim), &count)).unwrap();
    }
    for (name, claim) in [("x", "write x"), ("y", "write y")] {
        let asks = ToolSpec { approval: ApprovalRule::Ask, ..with_n(declared(name, claim)) };
        runtime.register(echo(asks, &count)).unwrap();
    }
    let five = ["a", "x", "b", "y", "c"].map(|tool| call(tool, tool, n(1))).to_vec();
    let submitted = stand_still(&runtime, batch("k", five)).await;
    let shown = states(&submitted.now().await.unwrap());
    assert_eq!(shown, "a succeeded, x awaiting_approval, b succeeded, y awaiting_approval, c succeeded");
    // The batch is answered, so a call that claims the same passes.
    let passes = run(&runtime, "s", batch("l", vec![call("x2", "a", n(2))])).await;
    assert_eq!(states(&passes), "x2 succeeded");
    let waits = waiting(&runtime).await;
    let of = |tool: &str| waits.iter().find(|waits| waits.tool == tool).unwrap();
    let edited = ApprovalDecision { args: Some(n(7)), ..yes(of("x")) };
    runtime.decide(&of("x").id, &edited, "ann").await.unwrap();
    runtime.decide(&of("y").id, &no(of("y"), "no"), "ann").await.unwrap();
    let answer = submitted.settled().await.unwrap();
    assert_eq!(states(&answer), "a succeeded, x succeeded, b succeeded, y denied, c succeeded");
    let notices = runtime.inbox("s").list(None, 10).await.unwrap();
    assert_eq!(notices.len(), 2, "one for each provisional answer: {notices:?}");
}

#[tokio::test]
async fn an_undeclared_call_that_waits_keeps_its_place_while_its_batch_is_waited_for() {
    let (runtime, count) = (memory(), Count::default());
    let asks = ToolSpec { approval: ApprovalRule::Ask, ..spec("first", EffectClass::Once) };
    runtime.register(echo(asks, &count)).unwrap();
    runtime.register(echo(spec("second", EffectClass::Once), &count)).unwrap();
    let two = batch("k", vec![call("a", "first", n(1)), call("b", "second", n(2))]);
    let submitted = runtime.submit("s", two).await.unwrap();
    waits_for(&runtime, "claim").await;
    assert_eq!(count.get(), 0, "the second must not overtake the first");
    let waits = the_one(&runtime).await;
    runtime.decide(&waits.id, &yes(&waits), "ann").await.unwrap();
    assert_eq!(states(&submitted.settled().await.unwrap()), "a succeeded, b succeeded");
}

#[tokio::test]
async fn a_cancelled_call_waits_for_nobody() {
    let (runtime, count) = (memory(), Count::default());
    runtime.register(echo(asking("pay", EffectClass::Once), &count)).unwrap();
    let submitted = stand_still(&runtime, batch("k", vec![call("a", "pay", n(1))])).await;
    let waits = the_one(&runtime).await;
    runtime.cancel(windlass::ask::Target::Call(&waits.call), None).await.unwrap();
    assert_eq!(states(&submitted.settled().await.unwrap()), "a cancelled");
    let late = runtime.decide(&waits.id, &yes(&waits), "ann").await.unwrap_err();
    assert!(matches!(late, AskError::Over { .. }), "{late}");
    assert!(waiting(&runtime).await.is_empty());
}

#[tokio::test]
async fn a_nested_call_is_asked_for_in_the_same_way() {
    let (runtime, count) = (memory(), Count::default());
    runtime.register(echo(asking("pay", EffectClass::Once), &count)).unwrap();
    let outer = crate::inside::body(spec("outer", EffectClass::Stepped), |_, cx| {
        Box::pin(async move {
            let paid = cx.call("pay", "pay", json!({"n": 1})).await?;
            Ok(json!({ "state": paid.state() }).into())
        })
    });
    runtime.register(outer).unwrap();
    let opening = SessionOpening { principal: "carl".into(), ..SessionOpening::default() };
    runtime.open_session("s", opening).await.unwrap();
    let submitted = runtime.submit("s", batch("k", vec![call("o", "outer", json!({}))])).await.unwrap();
    waits_for(&runtime, "approval").await;
    let waits = the_one(&runtime).await;
    runtime.decide(&waits.id, &yes(&waits), "ann").await.unwrap();
    let answer = submitted.settled().await.unwrap();
    assert_eq!(states(&answer), "o succeeded");
    assert_eq!(text(&answer, 0), "{\"state\":\"succeeded\"}");
    assert_eq!(count.get(), 1);
}

#[tokio::test]
async fn a_call_of_unknown_outcome_is_on_the_list_until_it_is_resolved() {
    let folder = Arc::new(tempfile::tempdir().unwrap());
    let request = batch("k", vec![call("a", "pay", n(1))]);
    crate::rig::die_in_an_attempt(&folder, request, |config, begun| {
        let runtime = Runtime::new(config);
        runtime.register(crate::rig::hanging(spec("pay", EffectClass::Once), begun)).unwrap();
        runtime
    })
    .await;
    let runtime = reopen(&folder);
    runtime.register(echo(spec("pay", EffectClass::Once), &Count::default())).unwrap();
    runtime.resume().await.unwrap();
    runtime.idle().await;
    let waits = waiting(&runtime).await;
    assert_eq!((waits.len(), waits[0].kind), (1, WaitingKind::Unknown), "{waits:?}");
    assert!(waits[0].command.starts_with(&format!("windlass resolve {}", waits[0].call)));
    runtime.resolve(&waits[0].call, windlass::ask::Resolution::DidNotHappen).await.unwrap();
    assert!(waiting(&runtime).await.is_empty());
}
