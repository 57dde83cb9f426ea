//! Deadlines, graces, retries and what a tool can say about its attempts.

use crate::rig::{Count, batch, call, end, memory, n, quick, run, spec, states};
use std::sync::Arc;
use tokio::sync::Notify;
use windlass::tool::{Reconciled, with_reconcile};
use windlass::{Cx, Deadlines, EffectClass, Output, RetryRule, Runtime, Tool, ToolError, ToolSpec, tool_fn};

const CLASSES: [EffectClass; 3] = [EffectClass::Read, EffectClass::Keyed, EffectClass::Once];

/// A tool that is stopped soon, and tried so often.
fn short(class: EffectClass, attempts: u32) -> ToolSpec {
    let deadlines = Deadlines { attempt_ms: Some(5), ..Deadlines::default() };
    let retry = RetryRule { attempts: Some(attempts), base_ms: Some(0), ..RetryRule::default() };
    ToolSpec { deadlines, retry, grace_ms: Some(5), ..spec("t", class) }
}

/// A tool that is tried so often, without waits between.
fn tried(class: EffectClass, attempts: u32) -> ToolSpec {
    ToolSpec { deadlines: Deadlines::default(), ..short(class, attempts) }
}

/// The outcome of a tool that does this in each attempt.
async fn becomes(tool: impl Tool) -> String {
    let runtime = memory();
    runtime.register(tool).unwrap();
    end(&run(&runtime, "s", batch("k", vec![call("c", "t", n(1))])).await)
}

/// A tool that never returns.
fn never(spec: ToolSpec, ran: &Count) -> impl Tool + use<> {
    let ran = ran.clone();
    tool_fn(spec, move |_, _: &Cx| {
        ran.up();
        std::future::pending()
    })
}

/// A tool whose reconcile says this.
fn reconciled(tool: impl Tool, says: Reconciled) -> impl Tool {
    with_reconcile(tool, move |_, _: &Cx| {
        let says = says.clone();
        async move { Ok(says) }
    })
}

#[tokio::test]
async fn an_attempt_that_takes_too_long_is_stopped_and_its_class_decides() {
    for (class, attempts, expected) in [
        (EffectClass::Read, 1, "c failed/timeout, 1 attempts"),
        (EffectClass::Read, 2, "c failed/timeout, 2 attempts"),
        (EffectClass::Keyed, 2, "c failed/timeout, 2 attempts"),
        (EffectClass::Once, 2, "c unknown, 1 attempts"),
    ] {
        let ran = Count::default();
        assert_eq!(becomes(never(short(class, attempts), &ran)).await, expected, "{class}");
    }
    let landed = || Reconciled::Landed(Output::from(n(7)));
    for (says, attempts, expected) in [
        (landed(), 2, "c succeeded, 1 attempts"),
        (Reconciled::Failed(ToolError::new("no").safe_to_retry()), 2, "c failed/tool_failed, 1 attempts"),
        (Reconciled::DidNotHappen, 1, "c failed/did_not_happen, 1 attempts"),
        (Reconciled::DidNotHappen, 2, "c failed/did_not_happen, 2 attempts"),
        (Reconciled::Unknown, 2, "c unknown, 1 attempts"),
    ] {
        let ran = Count::default();
        let tool = reconciled(never(short(EffectClass::Once, attempts), &ran), says.clone());
        assert_eq!(becomes(tool).await, expected, "{says:?}");
    }
}

#[tokio::test]
async fn what_returns_within_its_grace_counts() {
    for class in CLASSES {
        let tool = tool_fn(ToolSpec { grace_ms: Some(60_000), ..short(class, 1) }, |_, cx: &Cx| {
            let cx = cx.clone();
            async move {
                cx.stopping().await;
                Ok(n(1).into())
            }
        });
        assert_eq!(becomes(tool).await, "c succeeded, 1 attempts", "{class}");
        let tool = tool_fn(ToolSpec { grace_ms: Some(60_000), ..short(class, 1) }, |_, cx: &Cx| {
            let cx = cx.clone();
            async move {
                cx.stopping().await;
                Err(ToolError::stopped())
            }
        });
        let expected = if class == EffectClass::Once { "c unknown" } else { "c failed/timeout" };
        assert_eq!(becomes(tool).await, format!("{expected}, 1 attempts"), "{class}");
    }
}

#[tokio::test]
async fn a_retry_needs_the_tools_word_and_the_class() {
    let safe = || ToolError::new("no").safe_to_retry();
    for (class, error, expected) in [
        (EffectClass::Read, ToolError::new("no"), "never, 1 attempts"),
        (EffectClass::Read, safe(), "exhausted, 3 attempts"),
        (EffectClass::Keyed, safe(), "exhausted, 3 attempts"),
        (EffectClass::Once, safe(), "safe, 1 attempts"),
        (EffectClass::Once, ToolError::new("no").did_not_happen(), "exhausted, 3 attempts"),
        (EffectClass::Read, ToolError::internal("x"), "never, 1 attempts"),
    ] {
        let tool = tool_fn(tried(class, 3), move |_, _: &Cx| {
            let error = error.clone();
            async move { Err(error) }
        });
        let runtime = memory();
        runtime.register(tool).unwrap();
        let answer = run(&runtime, "s", batch("k", vec![call("c", "t", n(1))])).await;
        let shown = serde_json::to_value(&answer.calls[0]).unwrap();
        let retry = &shown["outcome"]["failure"]["retry"];
        let retry = retry.as_str().unwrap_or(if retry["exhausted"].is_object() { "exhausted" } else { "?" });
        assert_eq!(format!("{retry}, {} attempts", shown["attempts"]), expected, "{class}");
    }
}

#[tokio::test]
async fn a_retry_that_succeeds_is_a_success_and_panics_are_never_retried() {
    let ran = Count::default();
    let count = ran.clone();
    let tool = tool_fn(tried(EffectClass::Keyed, 3), move |_, cx: &Cx| {
        assert_eq!((cx.attempt().0, cx.attempts_max(), cx.is_redrive()), (count.up(), 3, false));
        let fails = cx.attempt().0 < 3;
        async move { if fails { Err(ToolError::new("not yet").safe_to_retry()) } else { Ok(n(1).into()) } }
    });
    assert_eq!(becomes(tool).await, "c succeeded, 3 attempts");
    for class in CLASSES {
        let tool = tool_fn(tried(class, 3), |_, _: &Cx| async { panic!("on purpose") });
        assert_eq!(becomes(tool).await, "c failed/tool_panicked, 1 attempts", "{class}");
    }
}

#[tokio::test]
async fn a_retry_that_would_come_too_late_is_not_waited_for() {
    let mut spec = tried(EffectClass::Read, 5);
    spec.deadlines.total_ms = Some(60_000);
    let tool = tool_fn(spec, |_, _: &Cx| async { Err(ToolError::new("busy").safe_to_retry_after(61_000)) });
    let runtime = memory();
    runtime.register(tool).unwrap();
    let answer = run(&runtime, "s", batch("k", vec![call("c", "t", n(1))])).await;
    assert_eq!(end(&answer), "c failed/retry_too_late, 1 attempts");
    let failure = answer.calls[0].failure().unwrap();
    assert_eq!(
        failure.retry,
        windlass_core::failure::Retry::Safe { after_ms: Some(61_000) },
        "it keeps the delay that was asked for"
    );
    assert_eq!(
        failure.message,
        "busy Its next attempt, 61000 ms later, would have come after the 60000 ms that the call may take in all."
    );
}

#[tokio::test]
async fn silence_ends_an_attempt_and_signs_of_life_do_not() {
    let mut spec = short(EffectClass::Read, 1);
    spec.deadlines = Deadlines { silence_ms: Some(20), ..Deadlines::default() };
    let ran = Count::default();
    assert_eq!(becomes(never(spec.clone(), &ran)).await, "c failed/timeout, 1 attempts");
    // Longer than the silence allowed, in pieces that are shorter.
    let clock = windlass_testkit::clock::ManualClock::default();
    let store = windlass::store::memory::MemoryStore::new().unwrap();
    let runtime =
        Runtime::new(windlass::Config { clock: Arc::new(clock.clone()), ..windlass::Config::new(store) });
    let (say, said) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (told, tells) = (say.clone(), said.clone());
    let lively = tool_fn(spec, move |_, cx: &Cx| {
        let (cx, told, tells) = (cx.clone(), told.clone(), tells.clone());
        async move {
            for _ in 0..5 {
                told.notified().await;
                cx.output(windlass::tool::Stream::Out, b"still here\n");
                tells.notify_one();
            }
            Ok(n(1).into())
        }
    });
    runtime.register(lively).unwrap();
    let waiting = runtime.submit("s", batch("k", vec![call("c", "t", n(1))])).await.unwrap();
    for _ in 0..5 {
        clock.advance(std::time::Duration::from_millis(15));
        say.notify_one();
        said.notified().await;
    }
    assert_eq!(end(&waiting.settled().await.unwrap()), "c succeeded, 1 attempts");
}

#[tokio::test]
async fn the_last_output_of_a_stopped_attempt_is_kept() {
    let tool = tool_fn(short(EffectClass::Read, 1), |_, cx: &Cx| {
        cx.output(windlass::tool::Stream::Out, b"half way");
        std::future::pending()
    });
    let runtime = memory();
    runtime.register(tool).unwrap();
    let answer = run(&runtime, "s", batch("k", vec![call("c", "t", n(1))])).await;
    assert_eq!(answer.calls[0].failure().unwrap().raw.as_deref(), Some("half way"));
}

/// The first call holds the session; the second gives up its place in time, and the third goes on.
#[tokio::test]
async fn a_call_that_waits_too_long_for_its_turn_never_runs() {
    let runtime = memory();
    let (go, ran) = (Arc::new(Notify::new()), Count::default());
    let gate = go.clone();
    runtime
        .register(tool_fn(spec("slow", EffectClass::Once), move |_, _: &Cx| {
            let gate = gate.clone();
            async move {
                gate.notified().await;
                Ok(n(1).into())
            }
        }))
        .unwrap();
    let hasty = ToolSpec {
        deadlines: Deadlines { queue_ms: Some(5), ..Deadlines::default() },
        ..spec("hasty", EffectClass::Once)
    };
    runtime.register(crate::rig::echo(hasty, &ran)).unwrap();
    runtime.register(crate::rig::echo(quick("last", EffectClass::Read), &Count::default())).unwrap();
    let calls = || vec![call("1", "slow", n(1)), call("2", "hasty", n(1)), call("3", "last", n(1))];
    let waiting = runtime.submit("s", batch("k", calls())).await.unwrap();
    let second = run(&runtime, "s", batch("k", vec![call("2", "hasty", n(1))])).await;
    assert_eq!(states(&second), "2 failed/timeout");
    go.notify_one();
    assert_eq!(states(&waiting.settled().await.unwrap()), "1 succeeded, 2 failed/timeout, 3 succeeded");
    assert_eq!(ran.get(), 0);
}

/// A reconcile that panics, fails or hangs is one that cannot tell.
#[tokio::test]
async fn a_reconcile_that_goes_wrong_cannot_tell() {
    let ran = Count::default();
    let fails = with_reconcile(never(short(EffectClass::Once, 1), &ran), |_, _: &Cx| async {
        Err::<Reconciled, _>(ToolError::new("the other side is down"))
    });
    assert_eq!(becomes(fails).await, "c unknown, 1 attempts");
    let panics =
        with_reconcile(never(short(EffectClass::Once, 1), &ran), |_, _: &Cx| async { panic!("on purpose") });
    assert_eq!(becomes(panics).await, "c unknown, 1 attempts");
    let hangs = with_reconcile(never(short(EffectClass::Once, 1), &ran), |_, _: &Cx| std::future::pending());
    assert_eq!(becomes(hangs).await, "c unknown, 1 attempts");
}

/// Without anybody to watch: a runtime that is dropped stops its wheel.
#[tokio::test]
async fn a_runtime_that_is_dropped_leaves_no_task() {
    let before = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    drop(Runtime::new(windlass::Config::new(windlass::store::memory::MemoryStore::new().unwrap())));
    while tokio::runtime::Handle::current().metrics().num_alive_tasks() > before {
        tokio::task::yield_now().await;
    }
}

/// A caller that answers somebody else before its calls end, as a door does, has them run with the deadlines of tasks, whatever tool it is.
#[tokio::test]
async fn the_calls_of_a_batch_with_task_deadlines_may_take_as_long_as_tasks() {
    for (task_deadlines, expected) in
        [(false, "c failed/timeout, 1 attempts"), (true, "c succeeded, 1 attempts")]
    {
        let mut config = windlass::Config::new(windlass::store::memory::MemoryStore::new().unwrap());
        (config.limits.attempt_ms, config.limits.retry_attempts) = (20, 1);
        let runtime = Runtime::new(config);
        let tool = tool_fn(spec("t", EffectClass::Read), |_, cx: &Cx| {
            let cx = cx.clone();
            async move {
                // Longer than an attempt that somebody waits for.
                match tokio::time::timeout(std::time::Duration::from_millis(200), cx.stopping()).await {
                    Ok(()) => Err(ToolError::stopped()),
                    Err(_) => Ok(n(1).into()),
                }
            }
        });
        runtime.register(tool).unwrap();
        let request = windlass::BatchRequest { task_deadlines, ..batch("k", vec![call("c", "t", n(1))]) };
        assert_eq!(end(&run(&runtime, "s", request).await), expected);
    }
}
