//! The loop guard: a session that gets nowhere is told so, in this process and after it.

use crate::gates::left_running;
use crate::rig::{Count, batch, call, echo, memory, n, quick, reopen, returns, run, spec, sqlite, states};
use serde_json::{Value, json};
use std::sync::Arc;
use windlass::tasks::NewTask;
use windlass::{Args, CallRequest, Cx, EffectClass, Flags, Runtime, ToolError, ToolSpec, tool_fn};

/// Runs one batch per word, each under a key of its own: `a` is the tool `a`, `a+b` two calls. What became of the last.
async fn turns(runtime: &Runtime, words: &str) -> String {
    let mut last = String::new();
    for word in words.split_whitespace() {
        let calls = word.split('+').map(|tool| call(tool, tool, n(1))).collect();
        let key = windlass::batch::fresh_key().unwrap();
        last = states(&run(runtime, "s", batch(&key, calls)).await);
    }
    last
}

/// A runtime on which `a` to `d` give the same each time, `new` something else each time, and `fail` always fails.
fn register(runtime: &Runtime) -> Count {
    let ran = Count::default();
    for name in ["a", "b", "c", "d"] {
        runtime.register(echo(quick(name, EffectClass::Read), &ran)).unwrap();
    }
    let count = Count::default();
    let counting = tool_fn(quick("new", EffectClass::Read), move |_, _: &Cx| {
        let value = Value::from(count.up());
        async move { Ok(value.into()) }
    });
    runtime.register(counting).unwrap();
    runtime.register(returns(quick("fail", EffectClass::Once), Err(ToolError::new("no")))).unwrap();
    let flags = Flags { polls: true, quick: true, ..Flags::default() };
    let polled = ToolSpec { flags, ..quick("poll", EffectClass::Read) };
    runtime.register(returns(polled, Ok(json!("not yet")))).unwrap();
    ran
}

#[tokio::test]
async fn the_same_over_and_over_is_answered_with_loop() {
    let (five, six) = ("a a a a a", "a a a a a a");
    for (words, last) in [
        (five, "a succeeded"),
        (six, "a failed/loop"),
        ("a a a a a a a a", "a failed/loop"),
        // Any other call lifts it, in a batch of its own or beside.
        ("a a a a a a b a", "a succeeded"),
        ("a a a a a a+b", "a succeeded, b succeeded"),
        ("a a a a b a", "a succeeded"),
        // Failures are results.
        ("fail fail fail fail fail fail", "fail failed/loop"),
        ("none none none none none none", "none failed/loop"),
        // Results that differ never are a loop.
        ("new new new new new new new new", "new succeeded"),
        // Cycles of two to four.
        ("a b a b a b", "b succeeded"),
        ("a b a b a b a", "a failed/loop"),
        ("a b a b a b c", "c succeeded"),
        ("a b c a b c a b c a", "a failed/loop"),
        ("a b c d a b c d a b c d a", "a failed/loop"),
        ("a b c new a b c new a b c new a", "a succeeded"),
        // Batches of several calls, in any order.
        ("a+b b+a a+b b+a a+b b+a", "b failed/loop, a failed/loop"),
        ("a+b b+a a+b b+a a+b b", "b failed/loop"),
        // What is meant to be asked again and again.
        ("poll poll poll poll poll poll poll", "poll succeeded"),
        ("a+poll a+poll a+poll a+poll a+poll a+poll", "a failed/loop, poll succeeded"),
        ("a poll a poll a poll a a poll a", "a failed/loop"),
    ] {
        let runtime = memory();
        register(&runtime);
        assert_eq!(turns(&runtime, words).await, last, "{words}");
        assert_eq!(runtime.kept(), 0);
    }
}

#[tokio::test]
async fn a_call_of_a_loop_is_recorded_and_has_no_attempt() {
    let runtime = memory();
    let ran = register(&runtime);
    turns(&runtime, "a a a a a").await;
    let again = || batch("k", vec![call("x", "a", n(1))]);
    let answer = run(&runtime, "s", again()).await;
    let failure = answer.calls[0].failure().unwrap().clone();
    assert!(
        failure.message.contains("5 times in a row") && failure.message.contains("lifts this"),
        "{failure:?}"
    );
    assert_eq!((answer.calls[0].call().attempts, ran.get()), (0, 5));
    // The answer is the answer, whatever happens later.
    turns(&runtime, "b").await;
    let answer = run(&runtime, "s", again()).await;
    assert!(answer.calls[0].is_recorded());
    assert_eq!(states(&answer), "x failed/loop");
    // Other sessions have their own.
    assert_eq!(states(&run(&runtime, "other", batch("k", vec![call("x", "a", n(1))])).await), "x succeeded");
}

#[tokio::test]
async fn submitting_again_does_not_count() {
    let runtime = memory();
    let ran = register(&runtime);
    for _ in 0..10 {
        run(&runtime, "s", batch("k", vec![call("x", "a", n(1))])).await;
    }
    assert_eq!(ran.get(), 1);
    // One more call in the same batch counts, alone.
    run(&runtime, "s", batch("more", vec![call("x", "b", n(1))])).await;
    turns(&runtime, "a a a a").await;
    let answer = run(&runtime, "s", batch("more", vec![call("x", "b", n(1)), call("y", "a", n(1))])).await;
    assert_eq!(states(&answer), "x succeeded, y succeeded");
    assert_eq!(turns(&runtime, "a").await, "a failed/loop");
}

#[tokio::test]
async fn raw_text_is_compared_by_what_it_means() {
    let runtime = memory();
    register(&runtime);
    let texts = [r#"{"n":1}"#, r#"{ "n": 1 }"#, r#"{"n":1.0}"#];
    let mut last = String::new();
    for text in texts.iter().cycle().take(6) {
        let args = Args::Text(text.to_string());
        let call = CallRequest { args, ..call("x", "fail", Value::Null) };
        last = states(&run(&runtime, "s", batch(&windlass::batch::fresh_key().unwrap(), vec![call])).await);
    }
    assert_eq!(last, "x failed/loop");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_loop_goes_on_over_owners() {
    let folder = tempfile::tempdir().unwrap();
    for (words, last) in [
        ("a a", "a succeeded"),
        ("a a", "a succeeded"),
        ("a", "a succeeded"),
        ("a", "a failed/loop"),
        ("a b", "b succeeded"),
        ("a", "a succeeded"),
        ("b a b", "b succeeded"),
        ("a", "a failed/loop"),
        ("new a", "a succeeded"),
    ] {
        let runtime = reopen(&folder);
        register(&runtime);
        assert_eq!(turns(&runtime, words).await, last, "{words}");
    }
}

/// A call that ends between the taking of a session and its first submission is counted, and once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_left_open_counts_when_it_ends() {
    let folder = Arc::new(tempfile::tempdir().unwrap());
    let slow = || spec("slow", EffectClass::Keyed);
    let owner = || {
        let runtime = reopen(&folder);
        runtime.register(echo(slow(), &Count::default())).unwrap();
        runtime
    };
    turns(&owner(), "slow slow slow").await;
    let asked = batch("k", vec![call("x", "slow", n(1))]);
    assert_eq!(left_running(&folder, vec![slow()], asked, 1).await, "x");
    let runtime = owner();
    runtime.resume().await.unwrap();
    runtime.idle().await;
    assert_eq!(turns(&runtime, "slow").await, "slow succeeded", "the fifth");
    assert_eq!(turns(&runtime, "slow").await, "slow failed/loop", "the sixth");
}

/// Calls that tools start are no turn of the model: they lift no loop, in this process and after it.
#[tokio::test]
async fn a_task_that_a_tool_starts_lifts_no_loop() {
    let (runtime, folder) = sqlite();
    let flags = Flags { polls: true, ..Flags::default() };
    let starts = ToolSpec { flags, ..spec("starts", EffectClass::Keyed) };
    let starts = || {
        crate::inside::body(starts.clone(), |args, cx| {
            Box::pin(async move {
                cx.spawn("work", "work", &args, NewTask::default()).await?;
                Ok(json!("started").into())
            })
        })
    };
    let flags = Flags { background: true, ..Flags::default() };
    let work = ToolSpec { flags, claims: Some(Vec::new()), ..spec("work", EffectClass::Read) };
    let ready = |runtime: &Runtime| {
        register(runtime);
        runtime.register(starts()).unwrap();
        runtime.register(echo(work.clone(), &Count::default())).unwrap();
    };
    ready(&runtime);
    turns(&runtime, "a a a starts").await;
    runtime.idle().await;
    assert_eq!(turns(&runtime, "a a a").await, "a failed/loop");
    turns(&runtime, "b b b starts").await;
    runtime.idle().await;
    drop(runtime);
    let runtime = reopen(&folder);
    ready(&runtime);
    assert_eq!(turns(&runtime, "b b b").await, "b failed/loop");
}
