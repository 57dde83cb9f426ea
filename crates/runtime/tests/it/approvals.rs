//! Approvals: a person decides whether a call runs, and exactly what was approved runs, once.

mod covered;
mod listed;
mod remembered;

use crate::rig::{Count, batch, call, config, echo, memory, n, reopen, run, spec, sqlite, states, waits_for};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use windlass::approvals::{ApprovalDecision, Remember, RememberedArgs};
use windlass::error::AskError;
use windlass::inspect::{WaitingCall, WaitingKind};
use windlass::policy::ApprovalRule;
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
