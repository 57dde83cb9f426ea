//! What a stepped call says that it did is what its steps and the calls inside it did.

use crate::inside::{DAY, asked, body, stepped};
use crate::rig::{Count, batch, call, end, memory, run, spec, waits_for};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use windlass::store::memory::MemoryStore;
use windlass::{
    Config, Cx, Deadlines, EffectClass, NestedBatch, Output, Runtime, Siblings, Target, Tool, ToolError,
    ToolSpec,
};
use windlass_testkit::clock::ManualClock;

/// A tool that ends when the other one has begun, so from its second run on; and that one, which stops when it is told to.
fn racers(loser: EffectClass, ends: fn(u32) -> Result<Output, ToolError>) -> (impl Tool, impl Tool) {
    let free = |name, class| ToolSpec { claims: Some(Vec::new()), ..spec(name, class) };
    let begun = Arc::new(Notify::new());
    let (begins, ran) = (begun.clone(), Count::default());
    let winner = body(free("winner", EffectClass::Keyed), move |_, _| {
        let (begun, run) = (begun.clone(), ran.up());
        Box::pin(async move {
            begun.notified().await;
            begun.notify_one();
            ends(run)
        })
    });
    let loser = body(free("loser", loser), move |_, cx| {
        begins.notify_one();
        Box::pin(async move {
            cx.stopping().await;
            Err(ToolError::stopped())
        })
    });
    (winner, loser)
}

/// A tool that goes on when a race inside it is over, and then waits.
fn races(then: &'static str) -> impl Tool {
    body(stepped(), move |args, cx| {
        Box::pin(async move {
            let calls = ["winner", "loser"].map(|tool| call(tool, tool, args.clone())).into();
            cx.batch("race", NestedBatch { calls, siblings: Siblings::Race }).await?;
            match then {
                "sleep" => cx.sleep("night", DAY).await?,
                _ => _ = cx.ask("question", "Well?", None).await?,
            }
            Ok(json!(null).into())
        })
    })
}

#[tokio::test]
async fn a_cancelled_call_is_unknown_if_one_inside_it_that_is_over_is() {
    for (loser, then, expected) in [
        (EffectClass::Read, "sleep", "c cancelled{landed}, 1 attempts"),
        (EffectClass::Keyed, "sleep", "c cancelled{unknown}, 1 attempts"),
        (EffectClass::Read, "input", "c cancelled{landed}, 1 attempts"),
        (EffectClass::Keyed, "input", "c cancelled{unknown}, 1 attempts"),
    ] {
        let runtime = memory();
        runtime.register(races(then)).unwrap();
        let (wins, loses) = racers(loser, |_| Ok(json!(1).into()));
        runtime.register(wins).unwrap();
        runtime.register(loses).unwrap();
        let submitted = runtime.submit("s", asked()).await.unwrap();
        let waiting = waits_for(&runtime, then).await;
        runtime.cancel(Target::Call(&waiting), None).await.unwrap();
        assert_eq!(end(&submitted.settled().await.unwrap()), expected, "{loser:?} {then}");
    }
}

#[tokio::test]
async fn nor_is_it_forgotten_when_the_others_are_called_again() {
    let runtime = memory();
    let tool = body(stepped(), |args, cx| {
        Box::pin(async move {
            let calls = ["winner", "loser"].map(|tool| call(tool, tool, args.clone())).into();
            let answer = cx.batch("all", NestedBatch { calls, siblings: Siblings::FailFast }).await?;
            if answer.calls[0].state() == "failed" {
                return Err(ToolError::new("again").safe_to_retry());
            }
            cx.sleep("night", DAY).await?;
            Ok(json!(null).into())
        })
    });
    runtime.register(tool).unwrap();
    let fails_first = |run| if run == 1 { Err(ToolError::new("no")) } else { Ok(json!(1).into()) };
    let (wins, loses) = racers(EffectClass::Keyed, fails_first);
    runtime.register(wins).unwrap();
    runtime.register(loses).unwrap();
    let submitted = runtime.submit("s", asked()).await.unwrap();
    let waiting = waits_for(&runtime, "sleep").await;
    runtime.cancel(Target::Call(&waiting), None).await.unwrap();
    assert_eq!(end(&submitted.settled().await.unwrap()), "c cancelled{unknown}, 2 attempts");
}

/// A step that fails, and says whether it did anything.
async fn fails(cx: &Cx, name: &str, did_not_happen: bool) -> Result<(), ToolError> {
    let error = || ToolError { did_not_happen, ..ToolError::new("no") };
    Ok(cx.step(name, (), |()| async { Err::<(), _>(error()) }).await?)
}

#[tokio::test]
async fn a_cancelled_call_is_unknown_if_a_step_of_it_may_have_acted() {
    // Before and behind `done` in every order.
    for (failing, did_not_happen, expected) in [
        ("a", true, "c cancelled{landed}, 1 attempts"),
        ("z", true, "c cancelled{landed}, 1 attempts"),
        ("a", false, "c cancelled{unknown}, 1 attempts"),
        ("z", false, "c cancelled{unknown}, 1 attempts"),
    ] {
        let runtime = memory();
        let tool = body(stepped(), move |_, cx| {
            Box::pin(async move {
                cx.step("done", (), |()| async { Ok(1) }).await?;
                let _told = fails(cx, failing, did_not_happen).await;
                cx.sleep("night", DAY).await?;
                Ok(json!(null).into())
            })
        });
        runtime.register(tool).unwrap();
        let submitted = runtime.submit("s", asked()).await.unwrap();
        let waiting = waits_for(&runtime, "sleep").await;
        runtime.cancel(Target::Call(&waiting), None).await.unwrap();
        assert_eq!(end(&submitted.settled().await.unwrap()), expected, "{failing} {did_not_happen}");
    }
}

/// The failure of the first call, as it is shown.
async fn failure(runtime: &Runtime, args: Value) -> Value {
    let answer = run(runtime, "s", batch("k", vec![call("c", "t", args)])).await;
    serde_json::to_value(&answer.calls[0]).unwrap()["outcome"]["failure"].clone()
}

#[tokio::test]
async fn that_nothing_happened_a_step_says_of_itself_alone() {
    for (done, expected) in [(false, json!(true)), (true, Value::Null)] {
        let runtime = memory();
        let tool = body(spec("t", EffectClass::Stepped), move |_, cx| {
            Box::pin(async move {
                if done {
                    cx.step("done", (), |()| async { Ok(1) }).await?;
                }
                fails(cx, "fails", true).await?;
                Ok(json!(null).into())
            })
        });
        runtime.register(tool).unwrap();
        let failure = failure(&runtime, json!({})).await;
        assert_eq!((&failure["code"], &failure["did_not_happen"]), (&json!("tool_failed"), &expected));
    }
}

#[tokio::test]
async fn a_call_that_is_late_does_not_deny_its_steps() {
    for (done, expected) in [(false, json!(true)), (true, Value::Null)] {
        let clock = ManualClock::default();
        let store = MemoryStore::new().unwrap();
        let runtime = Runtime::new(Config { clock: Arc::new(clock.clone()), ..Config::new(store) });
        let deadlines = Deadlines { total_ms: Some(60_000), ..Deadlines::default() };
        let tool = body(ToolSpec { deadlines, ..stepped() }, move |_, cx| {
            Box::pin(async move {
                if done {
                    cx.step("done", (), |()| async { Ok(1) }).await?;
                }
                cx.sleep("night", DAY).await?;
                Ok(json!(null).into())
            })
        });
        runtime.register(tool).unwrap();
        let submitted = runtime.submit("s", asked()).await.unwrap();
        waits_for(&runtime, "sleep").await;
        clock.advance(Duration::from_secs(61));
        let answer = submitted.settled().await.unwrap();
        let failure = serde_json::to_value(&answer.calls[0]).unwrap()["outcome"]["failure"].clone();
        assert_eq!((&failure["code"], &failure["did_not_happen"]), (&json!("timeout"), &expected));
    }
}
