//! Sibling rules: race, quorum, fail_fast.

use crate::rig::{
    Count, batch, call, die_in_an_attempt, echo, memory, n, quick, reopen, returns, run, spec, sqlite,
    states, until_runs,
};
use serde_json::json;
use std::sync::Arc;
use tokio::sync::Notify;
use windlass::ask::Target;
use windlass::batch::Siblings;
use windlass::{
    BatchAnswer, BatchRequest, CallRequest, Cx, EffectClass, Runtime, Tool, ToolError, ToolSpec, tool_fn,
};
use windlass_core::call::Fact;
use windlass_core::entry::{self, EntryEvent};
use windlass_core::handle::HandleKind;
use windlass_core::ids::CallId;

fn asking(siblings: Siblings, calls: Vec<CallRequest>) -> BatchRequest {
    BatchRequest { siblings, ..batch("k", calls) }
}

/// `decision by winners`, or nothing.
fn decided(answer: &BatchAnswer) -> String {
    let shown = serde_json::to_value(answer).unwrap();
    let Some(decided) = shown.get("decided") else { return String::new() };
    let winners: Vec<&str> =
        decided["winners"].as_array().unwrap().iter().map(|id| id.as_str().unwrap()).collect();
    format!("{} by {}", decided["decision"].as_str().unwrap(), winners.join(" "))
}

/// The facts of each journal row of an answer's batch, each as its kind and the ordinal of its call.
async fn rows(runtime: &Runtime, answer: &BatchAnswer) -> Vec<Vec<String>> {
    let store = runtime.store();
    let packed = answer.calls[0].handle().open(store.secret(), HandleKind::Call).unwrap();
    let rows = store.journal(CallId::unpacked(packed).batch).await.unwrap();
    let facts = |row: &windlass::store::JournalRow| {
        let entries = entry::unpack(&row.data).unwrap().into_iter();
        let facts = entries.filter_map(|entry| match entry.event {
            EntryEvent::Call { ordinal, fact } if !matches!(fact, Fact::Opened(_)) => {
                Some(format!("{} {}", fact.kind(), ordinal.0))
            }
            _ => None,
        });
        facts.collect()
    };
    rows.iter().map(facts).collect()
}

/// A tool that tells that it began, and never returns.
fn stuck(spec: ToolSpec, begun: &Arc<Notify>) -> impl Tool + use<> {
    let begun = begun.clone();
    tool_fn(ToolSpec { grace_ms: Some(1), ..spec }, move |_, _: &Cx| {
        begun.notify_one();
        std::future::pending()
    })
}

/// A tool that returns its arguments once it may.
fn gated(spec: ToolSpec, go: &Arc<Notify>) -> impl Tool + use<> {
    let go = go.clone();
    tool_fn(spec, move |args, _: &Cx| {
        let go = go.clone();
        async move {
            go.notified().await;
            Ok(args.into())
        }
    })
}

fn failing(name: &str) -> impl Tool {
    returns(quick(name, EffectClass::Read), Err(ToolError::new("no")))
}

/// `+` a call that succeeds at once, `-` one that fails at once.
fn signs(signs: &str) -> Vec<CallRequest> {
    let tool = |sign| if sign == '+' { "yes" } else { "no" };
    signs.chars().enumerate().map(|(place, sign)| call(&place.to_string(), tool(sign), n(1))).collect()
}

#[tokio::test]
async fn what_is_behind_the_decision_never_runs() {
    for (siblings, calls, expected, by, ran) in [
        (
            Siblings::Race,
            "-+++",
            "0 failed/tool_failed, 1 succeeded, 2 cancelled, 3 cancelled",
            "reached by 1",
            1,
        ),
        (Siblings::Race, "--", "0 failed/tool_failed, 1 failed/tool_failed", "unreachable by ", 0),
        (
            Siblings::Quorum(2),
            "+-++",
            "0 succeeded, 1 failed/tool_failed, 2 succeeded, 3 cancelled",
            "reached by 0 2",
            2,
        ),
        (
            Siblings::Quorum(3),
            "+--+",
            "0 succeeded, 1 failed/tool_failed, 2 failed/tool_failed, 3 cancelled",
            "unreachable by 0",
            1,
        ),
        (Siblings::FailFast, "+-+", "0 succeeded, 1 failed/tool_failed, 2 cancelled", "unreachable by 0", 1),
        (Siblings::FailFast, "++", "0 succeeded, 1 succeeded", "reached by 0 1", 2),
        (Siblings::Independent, "+-+", "0 succeeded, 1 failed/tool_failed, 2 succeeded", "", 2),
    ] {
        let (runtime, count) = (memory(), Count::default());
        runtime.register(echo(quick("yes", EffectClass::Read), &count)).unwrap();
        runtime.register(failing("no")).unwrap();
        let answer = run(&runtime, "s", asking(siblings, signs(calls))).await;
        assert_eq!((states(&answer).as_str(), decided(&answer).as_str()), (expected, by), "{siblings}");
        assert_eq!(count.get(), ran, "{siblings}");
        for cancelled in answer.calls.iter().filter(|call| call.state() == "cancelled") {
            assert_eq!(cancelled.call().attempts, 0, "{siblings}");
        }
        let again = run(&runtime, "s", asking(Siblings::Independent, signs(calls))).await;
        assert_eq!(
            (states(&again).as_str(), decided(&again).as_str()),
            (expected, by),
            "{siblings}: recorded"
        );
        runtime.idle().await;
        assert_eq!((count.get(), runtime.kept()), (ran, 0), "{siblings}");
    }
}

#[tokio::test]
async fn the_winners_end_and_the_losers_cancel_are_one_row() {
    let (runtime, _folder) = sqlite();
    let (begun, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let claims = |spec| ToolSpec { claims: Some(Vec::new()), ..spec };
    runtime.register(stuck(claims(spec("once", EffectClass::Once)), &begun)).unwrap();
    runtime.register(stuck(claims(spec("read", EffectClass::Read)), &begun)).unwrap();
    runtime.register(gated(claims(spec("win", EffectClass::Once)), &go)).unwrap();
    let parked = Count::default();
    let two_at_once = ToolSpec { claims: Some(vec!["write x".into()]), ..spec("parked", EffectClass::Once) };
    runtime.register(echo(two_at_once.clone(), &parked)).unwrap();
    runtime.register(stuck(ToolSpec { name: "holds".into(), ..two_at_once }, &begun)).unwrap();
    let holder = runtime.submit("s", batch("other", vec![call("h", "holds", n(1))])).await.unwrap();
    begun.notified().await;
    let calls = [("a", "once"), ("b", "read"), ("c", "win"), ("d", "parked")];
    let calls = calls.map(|(id, tool)| call(id, tool, n(1))).to_vec();
    let waiting = runtime.submit("s", asking(Siblings::Race, calls)).await.unwrap();
    begun.notified().await;
    begun.notified().await;
    go.notify_one();
    let answer = waiting.settled().await.unwrap();
    assert_eq!(states(&answer), "a cancelled, b cancelled, c succeeded, d cancelled");
    let effects: Vec<_> = answer
        .calls
        .iter()
        .map(|call| serde_json::to_value(call).unwrap()["outcome"]["effect"].clone())
        .collect();
    assert_eq!(effects, [json!("unknown"), json!("none"), json!(null), json!("none")]);
    assert_eq!(parked.get(), 0);
    let rows = rows(&runtime, &answer).await;
    let deciding = rows.iter().find(|row| row.contains(&"ended 2".to_string())).unwrap();
    assert_eq!(
        deciding[deciding.len() - 4..],
        ["ended 2", "cancel_asked 0", "cancel_asked 1", "cancel_asked 3"]
    );
    let cancels = rows.iter().flatten().filter(|fact| fact.starts_with("cancel_asked")).count();
    assert_eq!(cancels, 3, "{rows:?}");
    let reason = answer.calls[0].call().cancel.as_ref().unwrap().reason.clone();
    assert_eq!(reason.as_deref(), Some("enough calls of its batch have succeeded"));
    runtime.cancel(Target::Session("s"), None).await.unwrap();
    holder.settled().await.unwrap();
}

#[tokio::test]
async fn a_loser_that_finished_keeps_its_result() {
    let runtime = memory();
    let (begun, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    runtime.register(gated(spec("win", EffectClass::Read), &go)).unwrap();
    let tells = begun.clone();
    let patient = ToolSpec { grace_ms: Some(60_000), ..spec("obeys", EffectClass::Read) };
    let obeys = tool_fn(patient, move |args, cx: &Cx| {
        let (cx, tells) = (cx.clone(), tells.clone());
        async move {
            tells.notify_one();
            cx.stopping().await;
            Ok(args.into())
        }
    });
    runtime.register(obeys).unwrap();
    let calls = vec![call("a", "obeys", n(1)), call("b", "win", n(1))];
    let waiting = runtime.submit("s", asking(Siblings::Race, calls.clone())).await.unwrap();
    begun.notified().await;
    go.notify_one();
    let answer = waiting.settled().await.unwrap();
    assert_eq!(
        (states(&answer).as_str(), decided(&answer).as_str()),
        ("a succeeded, b succeeded", "reached by b")
    );
    let again = run(&runtime, "s", asking(Siblings::Race, calls)).await;
    assert_eq!(decided(&again), "reached by b");
    for (one, other) in answer.calls.iter().zip(&again.calls) {
        assert_eq!(one.call(), other.call(), "what was told is what is recorded");
    }
}

#[tokio::test]
async fn a_quorum_that_can_never_be_is_refused() {
    let runtime = memory();
    runtime.register(failing("no")).unwrap();
    let twice = vec![call("a", "no", n(1)), call("a", "no", n(1))];
    for (siblings, calls, expected) in [
        (
            Siblings::Quorum(0),
            signs("-"),
            "a quorum needs at least 1 call; leave `siblings` out if none has to succeed",
        ),
        (Siblings::Quorum(3), signs("--"), "a quorum of 3 cannot be reached by 2 calls; ask for 2 or fewer"),
        (Siblings::Quorum(2), twice, "a quorum of 2 cannot be reached by 1 calls; ask for 1 or fewer"),
    ] {
        let refused = runtime.submit("s", asking(siblings, calls)).await.map(|_| ()).unwrap_err();
        assert_eq!(refused.to_string(), expected);
    }
    assert_eq!((runtime.open_calls(), runtime.kept()), (0, 0));
}

/// A call that is added to a decided batch is cancelled at once, also by a runtime that only read of the decision.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_decided_batch_runs_nothing_more() {
    let (runtime, folder) = sqlite();
    let register = |runtime: &Runtime, count: &Count| {
        runtime.register(echo(quick("yes", EffectClass::Once), count)).unwrap();
        runtime.register(failing("no")).unwrap();
    };
    let count = Count::default();
    register(&runtime, &count);
    run(&runtime, "s", asking(Siblings::Race, signs("+"))).await;
    let grown = run(&runtime, "s", asking(Siblings::Race, signs("++"))).await;
    assert_eq!(
        (states(&grown).as_str(), decided(&grown).as_str()),
        ("0 succeeded, 1 cancelled", "reached by 0")
    );
    drop((runtime, grown));
    let runtime = reopen(&folder);
    register(&runtime, &count);
    let grown = run(&runtime, "s", asking(Siblings::Independent, signs("+++"))).await;
    assert_eq!(states(&grown), "0 succeeded, 1 cancelled, 2 cancelled");
    assert_eq!(count.get(), 1);
    let rows = rows(&runtime, &grown).await;
    assert_eq!(rows.last().unwrap(), &["cancel_asked 2", "ended 2"]);
    // Where all are needed, one that is added is needed too.
    let all = |signs| BatchRequest { siblings: Siblings::FailFast, ..batch("all", signs) };
    run(&runtime, "s", all(signs("+"))).await;
    let grown = run(&runtime, "s", all(signs("+-"))).await;
    assert_eq!(
        (states(&grown).as_str(), decided(&grown).as_str()),
        ("0 succeeded, 1 failed/tool_failed", "unreachable by 0")
    );
    assert_eq!(
        states(&run(&runtime, "s", all(signs("+-+"))).await),
        "0 succeeded, 1 failed/tool_failed, 2 cancelled"
    );
}

/// Whatever is asked of a loser meanwhile, its journal adds up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_loser_may_be_cancelled_by_others_too() {
    let (runtime, folder) = sqlite();
    let (begun, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let parallel = |spec| ToolSpec { claims: Some(Vec::new()), ..spec };
    runtime.register(stuck(parallel(spec("once", EffectClass::Once)), &begun)).unwrap();
    runtime.register(gated(parallel(spec("win", EffectClass::Once)), &go)).unwrap();
    let calls = || vec![call("a", "once", n(1)), call("b", "win", n(1))];
    let waiting = runtime.submit("s", asking(Siblings::Race, calls())).await.unwrap();
    begun.notified().await;
    let loser = until_runs(&runtime).await;
    go.notify_one();
    runtime.cancel(Target::Call(&loser), Some("no more")).await.unwrap();
    let answer = waiting.settled().await.unwrap();
    assert!(states(&answer).starts_with("a cancelled"), "{}", states(&answer));
    let told = states(&answer);
    drop((runtime, answer));
    let again = run(&reopen(&folder), "s", asking(Siblings::Race, calls())).await;
    assert_eq!(states(&again), told);
}

/// The owner dies with one loser that does not stop and one that waits behind it; who comes next ends both and runs
/// nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_decision_outlives_its_owner() {
    let folder = Arc::new(tempfile::tempdir().unwrap());
    let calls = || vec![call("w", "win", n(1)), call("a", "hangs", n(1)), call("b", "later", n(1))];
    let claiming = |claims: &[&str], name: &str, class| ToolSpec {
        claims: Some(claims.iter().map(ToString::to_string).collect()),
        grace_ms: Some(600_000),
        ..spec(name, class)
    };
    let win = move || claiming(&[], "win", EffectClass::Once);
    let hangs = move || claiming(&["write x"], "hangs", EffectClass::Keyed);
    let later = move || claiming(&["write x"], "later", EffectClass::Once);
    die_in_an_attempt(&folder, asking(Siblings::Race, calls()), move |config, begun| {
        let (runtime, go) = (Runtime::new(config), Arc::new(Notify::new()));
        runtime.register(gated(win(), &go)).unwrap();
        // Its owner dies once it was told to stop: then the batch is decided.
        let told = tool_fn(hangs(), move |_, cx: &Cx| {
            let (cx, begun, go) = (cx.clone(), begun.clone(), go.clone());
            async move {
                go.notify_one();
                cx.stopping().await;
                begun.send(()).unwrap();
                std::future::pending().await
            }
        });
        runtime.register(told).unwrap();
        runtime.register(echo(later(), &Count::default())).unwrap();
        runtime
    })
    .await;
    let (runtime, ran) = (reopen(&folder), Count::default());
    for spec in [win(), hangs(), later()] {
        runtime.register(echo(spec, &ran)).unwrap();
    }
    let answer = run(&runtime, "s", asking(Siblings::Race, calls())).await;
    assert_eq!(decided(&answer), "reached by w");
    assert_eq!(states(&answer), "w succeeded, a cancelled, b cancelled");
    assert_eq!(ran.get(), 0);
}
