//! Batches whose calls are driven by whoever waits for them.

use crate::gates::{Gates, gated, next};
use crate::rig::{batch, call, config, memory, n, quick, run, states};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use windlass::batch::Siblings;
use windlass::{BatchRequest, Config, Cx, EffectClass, Runtime, ToolSpec, tool_fn};
use windlass_testkit::fault_store::{FaultPlan, FaultReach, FaultStore, Method};

/// A tool whose calls wait for each other nowhere.
fn free(name: &str) -> ToolSpec {
    ToolSpec { claims: Some(Vec::new()), ..quick(name, EffectClass::Read) }
}

fn three() -> BatchRequest {
    batch("k", ["a", "b", "c"].map(|id| call(id, "waits", n(1))).into())
}

/// A quick tool that has to wait once, and notes in which task it then goes on.
fn noting(spec: ToolSpec, tasks: &Arc<Mutex<Vec<tokio::task::Id>>>) -> impl windlass::Tool + use<> {
    let tasks = tasks.clone();
    tool_fn(spec, move |args, _: &Cx| {
        let tasks = tasks.clone();
        async move {
            tokio::task::yield_now().await;
            tasks.lock().unwrap().push(tokio::task::id());
            Ok(args.into())
        }
    })
}

#[tokio::test]
async fn who_waits_drives_the_calls_in_its_own_task() {
    let (runtime, tasks) = (memory(), Arc::default());
    runtime.register(noting(free("waits"), &tasks)).unwrap();
    for asked in [three(), batch("lone", vec![call("a", "waits", n(1))])] {
        let (runtime, count) = (runtime.clone(), asked.calls.len());
        let waiting = async move {
            let answer = runtime.submit_here("s", asked).await.unwrap().settled().await.unwrap();
            assert!(answer.calls.iter().all(|call| call.state() == "succeeded"));
            tokio::task::id()
        };
        let own = tokio::spawn(waiting).await.unwrap();
        assert_eq!(std::mem::take(&mut *tasks.lock().unwrap()), vec![own; count]);
    }
    runtime.idle().await;
}

#[tokio::test]
async fn who_stops_waiting_leaves_the_calls_to_themselves() {
    for polls in [0, 1] {
        let runtime = memory();
        let (gates, mut begun) = gated(&runtime, [free("waits")]);
        let submitted = runtime.submit_here("s", three()).await.unwrap();
        assert_eq!(next(&mut begun, 3).await, "a b c");
        {
            let mut ended = pin!(submitted.ended());
            for _ in 0..polls {
                let polled = poll_fn(|cx| Poll::Ready(ended.as_mut().poll(cx))).await;
                assert!(polled.is_pending());
            }
        }
        // Nobody has waited yet: what is left goes on once nobody can any more.
        drop(submitted);
        open_all(&gates);
        let answer = run(&runtime, "s", three()).await;
        assert_eq!(states(&answer), "a succeeded, b succeeded, c succeeded", "after {polls} polls");
        assert!(begun.try_recv().is_err(), "none ran twice");
    }
}

#[tokio::test]
async fn calls_that_end_together_are_one_change() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(&folder);
    let store = FaultStore::new(config.store.clone(), FaultPlan::Never, FaultReach::Store);
    let runtime = Runtime::new(Config { store: Arc::new(store.clone()), ..config });
    let (gates, mut begun) = gated(&runtime, [free("waits")]);
    let submitted = runtime.submit_here("s", three()).await.unwrap();
    next(&mut begun, 3).await;
    let before = store.asked(Method::Commit);
    open_all(&gates);
    let answer = submitted.settled().await.unwrap();
    assert_eq!(states(&answer), "a succeeded, b succeeded, c succeeded");
    assert_eq!(store.asked(Method::Commit) - before, 1);
}

#[tokio::test]
async fn the_first_of_those_that_end_together_decides() {
    let runtime = memory();
    let (gates, mut begun) = gated(&runtime, [free("waits")]);
    let asked = || BatchRequest { siblings: Siblings::Race, ..three() };
    let submitted = runtime.submit_here("s", asked()).await.unwrap();
    next(&mut begun, 3).await;
    ["a", "b"].iter().for_each(|id| gates.open(id));
    let answer = submitted.settled().await.unwrap();
    let decided = serde_json::to_value(&answer).unwrap();
    assert_eq!(decided["decided"]["winners"].as_array().map(Vec::len), Some(1), "{decided}");
    let again = run(&runtime, "s", asked()).await;
    assert_eq!(states(&again), states(&answer));
}

fn open_all(gates: &Gates) {
    ["a", "b", "c"].iter().for_each(|id| gates.open(id));
}
