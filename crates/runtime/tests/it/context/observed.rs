//! Observers of batches and of single calls.

use super::{background, free, memory, owner};
use crate::inside::body;
use crate::rig::{Count, batch, call, echo, n, run};
use serde_json::json;
use std::sync::{Arc, Mutex};
use windlass::batch::{CallOrigin, NestedBatch, NestedCall, Observer};
use windlass::sessions::ChildSpec;
use windlass::tasks::NewTask;
use windlass::triggers::NewTrigger;
use windlass::{BatchRequest, CallRequest, EffectClass, Tool, ToolSpec};
use windlass_testkit::clock::ManualClock;

type Seen = Arc<Mutex<Vec<NestedCall>>>;

fn noting(seen: &Seen) -> Observer {
    let seen = seen.clone();
    Observer::new(move |nested| seen.lock().unwrap().push(nested.clone()))
}

/// Does everything that an observer is told of.
fn busy() -> impl Tool {
    let emits = [("sold".to_string(), json!({}))].into();
    body(ToolSpec { emits, ..free("busy", EffectClass::Stepped) }, |_, cx| {
        Box::pin(async move {
            cx.announce("pid 7", "compiler");
            cx.call("inside", "work", n(1)).await?;
            let task = cx.spawn("task", "work", &n(2), NewTask::default()).await?;
            cx.emit("sold", "sold", n(3)).await?;
            let child = cx.child("agent", ChildSpec::default()).await?;
            let calls = vec![call("turn", "work", n(4))];
            child.batch("one", NestedBatch { calls, ..NestedBatch::default() }).await?;
            cx.await_task("done", task, None).await?;
            Ok(json!(1).into())
        })
    })
}

#[tokio::test]
async fn an_observer_is_told_of_everything_that_a_call_starts() {
    let runtime = owner(&memory(), &ManualClock::default());
    runtime.register(busy()).unwrap();
    runtime.register(echo(background("work", EffectClass::Keyed), &Count::default())).unwrap();
    let (id, event, tool) = (Some("on-sold".into()), "sold".into(), "work".into());
    runtime.triggers("s").create(NewTrigger { id, event, tool, ..NewTrigger::default() }).await.unwrap();
    let (all, own): (Seen, Seen) = Default::default();
    let first = CallRequest { observer: Some(noting(&own)), ..call("first", "busy", n(1)) };
    let calls = vec![first, call("second", "busy", n(2))];
    let asked = BatchRequest { observer: Some(noting(&all)), ..batch("k", calls) };
    let answer = run(&runtime, "s", asked).await;
    runtime.idle().await;
    let of = |seen: &Seen, inside: usize| {
        let handle = answer.calls[inside].handle();
        let seen = seen.lock().unwrap().clone();
        let own = seen.into_iter().filter(move |nested| nested.inside == handle);
        own.map(|nested| (nested.origin, nested.id, nested.tool)).collect::<Vec<_>>()
    };
    let told = |origin, id: &str, tool: &str| (origin, id.to_string(), tool.to_string());
    let expected = [
        told(CallOrigin::Announced, "pid 7", "compiler"),
        told(CallOrigin::Nested, "inside", "work"),
        told(CallOrigin::Spawned, "task", "work"),
        told(CallOrigin::Triggered, "on-sold", "work"),
        told(CallOrigin::Child, "turn", "work"),
    ];
    assert_eq!(of(&all, 0), expected);
    assert_eq!(of(&all, 1), expected);
    assert_eq!(of(&own, 0), expected, "the observer of a call sees what that one makes");
    assert_eq!(of(&own, 1), []);
}
