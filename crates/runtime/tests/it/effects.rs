//! A stepped call's stated effect is that of its steps and its nested calls.

use crate::inside::{DAY, asked, body, stepped};
use crate::rig::{Count, call, end, memory, returns, run, spec, waits_for};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use windlass::ask::Target;
use windlass::batch::{NestedBatch, Siblings};
use windlass::store::memory::MemoryStore;
use windlass::tool::{Reconciled, with_reconcile};
use windlass::{
    BatchAnswer, Config, Cx, Deadlines, EffectClass, Output, RetryRule, Runtime, Tool, ToolError, ToolFuture,
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

/// How a call ends that is cancelled while it waits for this.
async fn cancelled(runtime: &Runtime, waits: &str) -> String {
    let submitted = runtime.submit("s", asked()).await.unwrap();
    let waiting = waits_for(runtime, waits).await;
    runtime.cancel(Target::Call(&waiting), None).await.unwrap();
    end(&submitted.settled().await.unwrap())
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
        assert_eq!(cancelled(&runtime, then).await, expected, "{loser:?} {then}");
    }
}

#[tokio::test]
async fn a_call_inside_that_failed_counts_as_a_step_that_did() {
    for (class, did_not_happen, expected) in [
        (EffectClass::Read, false, "c cancelled{landed}, 1 attempts"),
        (EffectClass::Keyed, true, "c cancelled{landed}, 1 attempts"),
        (EffectClass::Keyed, false, "c cancelled{unknown}, 1 attempts"),
    ] {
        let runtime = memory();
        let tool = body(stepped(), |args, cx| {
            Box::pin(async move {
                let answer = cx.call("inner", "inner", args).await?;
                assert_eq!(answer.state(), "failed");
                cx.sleep("night", DAY).await?;
                Ok(json!(null).into())
            })
        });
        runtime.register(tool).unwrap();
        let error = ToolError { did_not_happen, ..ToolError::new("no") };
        runtime.register(returns(spec("inner", class), Err(error))).unwrap();
        assert_eq!(cancelled(&runtime, "sleep").await, expected, "{class:?} {did_not_happen}");
    }
}

#[tokio::test]
async fn an_unknown_call_inside_is_not_forgotten_when_the_others_are_called_again() {
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
    assert_eq!(cancelled(&runtime, "sleep").await, "c cancelled{unknown}, 2 attempts");
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
        assert_eq!(cancelled(&runtime, "sleep").await, expected, "{failing} {did_not_happen}");
    }
}

#[tokio::test]
async fn whoever_is_asked_after_answers_for_the_calls_inside() {
    let runtime = memory();
    let over = Arc::new(Notify::new());
    let is_over = over.clone();
    let tool = body(spec("t", EffectClass::Once), move |args, cx| {
        let is_over = is_over.clone();
        Box::pin(async move {
            let calls = ["winner", "loser"].map(|tool| call(tool, tool, args.clone())).into();
            cx.batch("race", NestedBatch { calls, siblings: Siblings::Race }).await?;
            is_over.notify_one();
            cx.stopping().await;
            Err(ToolError::stopped())
        })
    });
    let landed = |_, _: &Cx| async { Ok(Reconciled::Landed(json!(7).into())) };
    runtime.register(with_reconcile(tool, landed)).unwrap();
    let (wins, loses) = racers(EffectClass::Keyed, |_| Ok(json!(1).into()));
    runtime.register(wins).unwrap();
    runtime.register(loses).unwrap();
    let submitted = runtime.submit("s", asked()).await.unwrap();
    over.notified().await;
    runtime.cancel(Target::Session("s"), None).await.unwrap();
    assert_eq!(end(&submitted.settled().await.unwrap()), "c cancelled{landed}, 1 attempts");
}

/// A failed call's code, and that nothing happened, if it says so.
fn said(answer: &BatchAnswer) -> (Value, Value) {
    let failure = &serde_json::to_value(&answer.calls[0]).unwrap()["outcome"]["failure"];
    (failure["code"].clone(), failure["did_not_happen"].clone())
}

/// A stepped tool that does a step, or none, and then this.
fn after_a_step<F>(done: bool, spec: ToolSpec, then: F) -> impl Tool
where
    F: for<'a> Fn(&'a Cx) -> ToolFuture<'a> + Copy + Send + Sync + 'static,
{
    body(spec, move |_, cx| {
        Box::pin(async move {
            if done {
                cx.step("done", (), |()| async { Ok(1) }).await?;
            }
            then(cx).await
        })
    })
}

const NOTHING_OR_A_STEP: [(bool, Value); 2] = [(false, Value::Bool(true)), (true, Value::Null)];

#[tokio::test]
async fn that_nothing_happened_a_step_says_of_itself_alone() {
    for (done, expected) in NOTHING_OR_A_STEP {
        let runtime = memory();
        let tool = after_a_step(done, spec("t", EffectClass::Stepped), |cx| {
            Box::pin(async move {
                fails(cx, "fails", true).await?;
                Ok(json!(null).into())
            })
        });
        runtime.register(tool).unwrap();
        assert_eq!(said(&run(&runtime, "s", asked()).await), (json!("tool_failed"), expected));
    }
}

#[tokio::test]
async fn that_nothing_happened_an_attempt_says_of_itself_alone() {
    for (first, expected) in [(true, json!(true)), (false, Value::Null)] {
        let runtime = memory();
        let ran = Count::default();
        let retry = RetryRule { attempts: Some(2), base_ms: Some(0), ..RetryRule::default() };
        let tool = body(ToolSpec { retry, ..spec("t", EffectClass::Keyed) }, move |_, _| {
            let did_not_happen = ran.up() == 2 || first;
            Box::pin(async move { Err(ToolError { did_not_happen, ..ToolError::new("no").safe_to_retry() }) })
        });
        runtime.register(tool).unwrap();
        assert_eq!(said(&run(&runtime, "s", asked()).await), (json!("tool_failed"), expected));
    }
}

#[tokio::test]
async fn a_call_that_is_late_or_not_connected_does_not_deny_its_steps() {
    for (done, expected) in NOTHING_OR_A_STEP {
        let clock = ManualClock::default();
        let store = MemoryStore::new().unwrap();
        let runtime = Runtime::new(Config { clock: Arc::new(clock.clone()), ..Config::new(store) });
        let deadlines = Deadlines { total_ms: Some(60_000), ..Deadlines::default() };
        let tool = after_a_step(done, ToolSpec { deadlines, ..stepped() }, |cx| {
            Box::pin(async move {
                cx.sleep("night", DAY).await?;
                Ok(json!(null).into())
            })
        });
        runtime.register(tool).unwrap();
        let submitted = runtime.submit("s", asked()).await.unwrap();
        waits_for(&runtime, "sleep").await;
        clock.advance(Duration::from_secs(61));
        assert_eq!(said(&submitted.settled().await.unwrap()), (json!("timeout"), expected.clone()));

        let runtime = memory();
        let tool = after_a_step(done, stepped(), |_| {
            Box::pin(async { Err(ToolError::needs_connection("mail", None)) })
        });
        runtime.register(tool).unwrap();
        let submitted = runtime.submit("s", asked()).await.unwrap();
        waits_for(&runtime, "connection").await;
        runtime.connected("s", "mail", false).await.unwrap();
        assert_eq!(said(&submitted.settled().await.unwrap()), (json!("connection_declined"), expected));
    }
}

#[tokio::test]
async fn an_attempt_that_took_too_long_behind_a_step_may_have_taken_effect() {
    for (done, expected) in [(false, false), (true, true)] {
        let clock = ManualClock::default();
        let store = MemoryStore::new().unwrap();
        let runtime = Runtime::new(Config { clock: Arc::new(clock.clone()), ..Config::new(store) });
        let deadlines = Deadlines { attempt_ms: Some(60_000), ..Deadlines::default() };
        let late = ToolSpec { deadlines, ..spec("t", EffectClass::Stepped) };
        let begun = Arc::new(Notify::new());
        let begins = begun.clone();
        let retry = RetryRule { attempts: Some(1), ..RetryRule::default() };
        let tool = body(ToolSpec { retry, ..late }, move |_, cx| {
            let begins = begins.clone();
            Box::pin(async move {
                if done {
                    cx.step("done", (), |()| async { Ok(1) }).await?;
                }
                begins.notify_one();
                cx.stopping().await;
                Err(ToolError::stopped())
            })
        });
        runtime.register(tool).unwrap();
        let submitted = runtime.submit("s", asked()).await.unwrap();
        begun.notified().await;
        clock.advance(Duration::from_secs(61));
        let answer = submitted.settled().await.unwrap();
        let told = answer.calls[0].model_text();
        assert_eq!(said(&answer).0, json!("timeout"));
        assert_eq!(told.contains("It may have taken effect."), expected, "{told}");
    }
}
