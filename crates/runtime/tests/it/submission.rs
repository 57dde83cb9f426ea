//! Resubmission, other calls under a batch's key, and who waits for what.

use crate::rig::{Count, batch, call, echo, memory, n, quick, run, spec, sqlite, states};
use serde_json::json;
use std::sync::Arc;
use tokio::sync::Notify;
use windlass::store::memory::MemoryStore;
use windlass::{Args, BatchRequest, CallRequest, Config, Cx, EffectClass, Runtime, tool_fn};

fn counted(runtime: &Runtime) -> Count {
    let count = Count::default();
    runtime.register(echo(spec("once", EffectClass::Once), &count)).unwrap();
    runtime.register(echo(quick("read", EffectClass::Read), &count)).unwrap();
    count
}

#[tokio::test]
async fn the_same_batch_again_is_answered_from_the_record_byte_for_byte() {
    let (runtime, _folder) = sqlite();
    let ran = counted(&runtime);
    let again =
        || batch("k", vec![call("a", "once", n(1)), call("b", "read", n(2)), call("c", "nope", n(3))]);
    let first = run(&runtime, "s", again()).await;
    let second = run(&runtime, "s", again()).await;
    assert_eq!(serde_json::to_string(&first).unwrap(), serde_json::to_string(&second).unwrap());
    assert_eq!(ran.get(), 2);
    assert!(
        first.calls.iter().all(|call| !call.is_recorded())
            && second.calls.iter().all(|call| call.is_recorded())
    );
}

#[tokio::test]
async fn other_arguments_under_the_same_identity_conflict_and_name_the_place() {
    let runtime = memory();
    let ran = counted(&runtime);
    let args = |x: u64| json!({"list": [1, 2, x], "name": "n"});
    run(&runtime, "s", batch("k", vec![call("a", "once", args(3)), call("b", "once", n(2))])).await;
    let answer =
        run(&runtime, "s", batch("k", vec![call("a", "once", args(4)), call("b", "once", n(2))])).await;
    assert_eq!(states(&answer), "a failed/conflict, b succeeded");
    assert!(answer.calls[0].model_text().contains("/list/2"), "{}", answer.calls[0].model_text());
    let other = run(&runtime, "s", batch("k", vec![call("a", "read", args(3))])).await;
    assert_eq!(states(&other), "a failed/conflict");
    let original = run(&runtime, "s", batch("k", vec![call("a", "once", args(3))])).await;
    assert_eq!((states(&original).as_str(), ran.get()), ("a succeeded", 2));
}

#[tokio::test]
async fn arguments_that_mean_the_same_are_the_same() {
    let runtime = memory();
    let ran = counted(&runtime);
    run(&runtime, "s", batch("k", vec![call("a", "once", json!({"x": 1, "y": 2}))])).await;
    let text =
        CallRequest { args: Args::Text("{ \"y\": 2, \"x\": 1.0 }".into()), ..call("a", "once", json!(null)) };
    let answer = run(&runtime, "s", batch("k", vec![text])).await;
    assert_eq!((states(&answer).as_str(), ran.get()), ("a succeeded", 1));
}

#[tokio::test]
async fn a_call_added_to_a_recorded_batch_runs_alone() {
    let (runtime, _folder) = sqlite();
    let ran = counted(&runtime);
    run(&runtime, "s", batch("k", vec![call("a", "once", n(1))])).await;
    let answer = run(&runtime, "s", batch("k", vec![call("b", "once", n(2)), call("a", "once", n(1))])).await;
    assert_eq!((states(&answer).as_str(), ran.get()), ("b succeeded, a succeeded", 2));
    let again = run(&runtime, "s", batch("k", vec![call("a", "once", n(1)), call("b", "once", n(2))])).await;
    assert_eq!((states(&again).as_str(), ran.get()), ("a succeeded, b succeeded", 2));
}

#[tokio::test]
async fn the_same_id_twice_in_a_batch() {
    let runtime = memory();
    let ran = counted(&runtime);
    let same = vec![call("a", "once", n(1)), call("b", "once", n(2)), call("a", "once", n(1))];
    let answer = run(&runtime, "s", batch("same", same)).await;
    assert_eq!((states(&answer).as_str(), ran.get()), ("a succeeded, b succeeded, a succeeded", 2));
    assert_eq!(answer.calls[0].handle(), answer.calls[2].handle());
    for _again in 0..2 {
        let different = vec![call("a", "once", n(1)), call("b", "once", n(2)), call("a", "once", n(9))];
        let answer = run(&runtime, "s", batch("different", different)).await;
        assert_eq!(states(&answer), "a failed/call_id_conflict, b succeeded, a failed/call_id_conflict");
    }
    assert_eq!(ran.get(), 3);
}

#[tokio::test]
async fn keys_are_derived_where_every_id_was_given() {
    let runtime = memory();
    let ran = counted(&runtime);
    let derived = |turn: Option<&str>| BatchRequest {
        key: None,
        turn: turn.map(str::to_string),
        calls: vec![call("a", "once", n(1))],
        ..BatchRequest::default()
    };
    let first = run(&runtime, "s", derived(None)).await;
    let second = run(&runtime, "s", derived(None)).await;
    assert_eq!((first.key == second.key, ran.get()), (true, 1));
    run(&runtime, "s", derived(Some("turn 2"))).await;
    assert_eq!(ran.get(), 2);
    let nameless = || BatchRequest {
        calls: vec![CallRequest { id: None, ..call("", "once", n(1)) }],
        ..BatchRequest::default()
    };
    let third = run(&runtime, "s", nameless()).await;
    let fourth = run(&runtime, "s", nameless()).await;
    assert_eq!((third.key == fourth.key, ran.get()), (false, 4));
    run(&runtime, "another", derived(None)).await;
    assert_eq!(ran.get(), 5, "a key belongs to its session");
}

/// A `once` tool that waits until it is let go.
fn gated(runtime: &Runtime) -> (Count, Arc<Notify>, Arc<Notify>) {
    let (count, started, go) = (Count::default(), Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (ran, begun, gate) = (count.clone(), started.clone(), go.clone());
    let tool = tool_fn(spec("gated", EffectClass::Once), move |args, _: &Cx| {
        let (begun, gate) = (begun.clone(), gate.clone());
        ran.up();
        async move {
            begun.notify_one();
            gate.notified().await;
            Ok(args.into())
        }
    });
    runtime.register(tool).unwrap();
    (count, started, go)
}

#[tokio::test]
async fn a_second_submission_joins_what_is_under_way() {
    let runtime = memory();
    let (ran, started, go) = gated(&runtime);
    let again = || batch("k", vec![call("a", "gated", n(1))]);
    let first = runtime.submit("s", again()).await.unwrap();
    started.notified().await;
    let second = runtime.submit("s", again()).await.unwrap();
    go.notify_one();
    let (first, second) = (first.settled().await.unwrap(), second.settled().await.unwrap());
    assert_eq!((states(&first), ran.get()), (states(&second), 1));
}

#[tokio::test]
async fn a_waiter_that_goes_away_cancels_nothing() {
    let (runtime, _folder) = sqlite();
    let (ran, started, go) = gated(&runtime);
    let again = || batch("k", vec![call("a", "gated", n(1)), call("b", "gated", n(2))]);
    drop(runtime.submit("s", again()).await.unwrap());
    started.notified().await;
    go.notify_one();
    started.notified().await;
    go.notify_one();
    let answer = run(&runtime, "s", again()).await;
    assert_eq!((states(&answer).as_str(), ran.get()), ("a succeeded, b succeeded", 2));
}

#[tokio::test]
async fn past_its_limit_a_batch_is_refused_whole() {
    let mut config = Config::new(MemoryStore::new().unwrap());
    config.limits.calls_queued_max = 2;
    let runtime = Runtime::new(config);
    let (_, started, go) = gated(&runtime);
    let pair = |key: &str| batch(key, vec![call("a", "gated", n(1)), call("b", "gated", n(2))]);
    let first = runtime.submit("s", pair("1")).await.unwrap();
    started.notified().await;
    let refused = runtime.submit("s", pair("2")).await.map(|_| ()).unwrap_err();
    assert_eq!(refused.to_string(), "1 calls wait and 2 may; try again in 100 ms");
    let joined = runtime.submit("s", pair("1")).await;
    assert!(joined.is_ok(), "what is open already is joined, however much is open");
    go.notify_one();
    started.notified().await;
    go.notify_one();
    first.settled().await.unwrap();
    assert_eq!(runtime.open_calls(), 0);
    let second = runtime.submit("s", pair("2")).await.unwrap();
    started.notified().await;
    go.notify_one();
    started.notified().await;
    go.notify_one();
    assert_eq!(states(&second.settled().await.unwrap()), "a succeeded, b succeeded");
}

#[tokio::test]
async fn idle_sessions_are_let_go_and_taken_again() {
    let mut config = Config::new(MemoryStore::new().unwrap());
    config.limits.sessions_owned_max = 2;
    let runtime = Runtime::new(config);
    let ran = counted(&runtime);
    for round in 0..3 {
        for session in ["a", "b", "c", "d"] {
            let key = round.to_string();
            run(&runtime, session, batch(&key, vec![call("x", "once", n(1))])).await;
            run(&runtime, session, batch(&key, vec![call("x", "once", n(1))])).await;
        }
    }
    assert_eq!(ran.get(), 12);
}
