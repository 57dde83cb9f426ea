//! An observer of a batch gets every call inside its calls, once.

use crate::inside::{body, stepped};
use crate::rig::{Count, batch, call, echo, memory, n, quick, run, spec, waits_for};
use serde_json::Value;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use windlass::batch::{NestedCall, Observer};
use windlass::store::memory::MemoryStore;
use windlass::{BatchRequest, Config, EffectClass, Runtime, Tool, ToolSpec};
use windlass_testkit::clock::ManualClock;

type Told = Arc<Mutex<Vec<NestedCall>>>;

fn watched(key: &str, tool: &str) -> (BatchRequest, Told) {
    let told = Told::default();
    let keeps = told.clone();
    let observer = Observer::new(move |nested| keeps.lock().unwrap().push(nested.clone()));
    let batch = batch(key, vec![call("c", tool, n(1))]);
    (BatchRequest { observer: Some(observer), ..batch }, told)
}

/// A tool that calls another under the name `inner`.
fn calls(name: &str, other: &'static str) -> impl Tool {
    body(spec(name, EffectClass::Once), move |args, cx| {
        Box::pin(async move { Ok(cx.call("inner", other, &args).await?.value::<Value>()?.into()) })
    })
}

#[tokio::test]
async fn every_nested_call_is_told_with_what_is_around_it() {
    let runtime = memory();
    runtime.register(echo(quick("echo", EffectClass::Read), &Count::default())).unwrap();
    runtime.register(calls("middle", "echo")).unwrap();
    runtime.register(calls("outer", "middle")).unwrap();
    let (request, told) = watched("k", "outer");
    let answer = run(&runtime, "s", request).await;
    let outer = answer.calls[0].handle();
    let told = told.lock().unwrap().clone();
    let [middle, inner] = &told[..] else { panic!("{told:?}") };
    assert_eq!(
        (&*middle.id, &*middle.tool, middle.inside.to_string()),
        ("inner", "middle", outer.to_string())
    );
    assert_eq!((&*inner.id, &*inner.tool, inner.inside), ("inner", "echo", middle.call));
    let found = windlass::inspect::call(runtime.store(), inner.call).await.unwrap().unwrap();
    assert_eq!(found.0.answer.tool(), "echo");
    // Submitting it again starts nothing, and who does not observe costs nothing.
    let (again, nothing) = watched("k", "outer");
    run(&runtime, "s", again).await;
    run(&runtime, "s", batch("other", vec![call("c", "outer", n(2))])).await;
    assert!(nothing.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_replay_tells_nothing_twice_and_a_panic_ends_nothing() {
    let (store, clock) = (MemoryStore::new().unwrap(), ManualClock::default());
    let runtime = Runtime::new(Config { clock: Arc::new(clock.clone()), ..Config::new(store) });
    runtime.register(echo(quick("echo", EffectClass::Read), &Count::default())).unwrap();
    let spec = ToolSpec { name: "naps".into(), ..stepped() };
    runtime
        .register(body(spec, |args, cx| {
            Box::pin(async move {
                cx.call("before", "echo", &args).await?;
                cx.sleep("nap", Duration::from_secs(1)).await?;
                Ok(cx.call("after", "echo", &args).await?.value::<Value>()?.into())
            })
        }))
        .unwrap();
    let (request, told) = watched("k", "naps");
    let submitted = runtime.submit("s", request).await.unwrap();
    waits_for(&runtime, "sleep").await;
    clock.advance(Duration::from_secs(1));
    submitted.settled().await.unwrap();
    let names: Vec<String> = told.lock().unwrap().iter().map(|nested| nested.id.clone()).collect();
    assert_eq!(names, ["before", "after"]);

    runtime.register(calls("calls", "echo")).unwrap();
    let observer = Some(Observer::new(|_| std::panic::resume_unwind(Box::new("it panics"))));
    let batch = BatchRequest { observer, ..batch("k2", vec![call("c", "calls", n(3))]) };
    assert_eq!(run(&runtime, "s", batch).await.calls[0].state(), "succeeded");
}
