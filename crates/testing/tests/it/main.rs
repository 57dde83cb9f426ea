//! The kit itself: what it tells of a call is what happened, and an assertion that does not hold panics.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a panic is how a test speaks")]

use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use windlass::wait::Wait;
use windlass::{Cx, EffectClass, ToolError, ToolSpec, tool, tool_fn};
use windlass_testing::TestRuntime;

/// Fails at the first attempt.
#[tool(class = "keyed")]
async fn shaky(cx: &Cx) -> Result<u32, ToolError> {
    match cx.attempt().0 {
        1 => Err(ToolError::new("not yet").safe_to_retry()),
        attempt => Ok(attempt),
    }
}

#[tokio::test]
async fn runs_keys_and_the_models_view_are_told() {
    let test = TestRuntime::new().unwrap();
    test.register(shaky()).unwrap();
    let ended = test.call("shaky", json!({})).await.unwrap();
    ended.assert_succeeded();
    ended.assert_runs(2);
    ended.assert_steps(&[]);
    ended.assert_model_saw("2");
    assert_eq!(ended.value::<u32>().unwrap(), 2);
    assert_eq!(ended.runs().iter().map(|run| run.attempt).collect::<Vec<_>>(), [1, 2]);
    let other = test.call("shaky", json!({})).await.unwrap();
    assert_ne!(ended.assert_one_key(), other.assert_one_key());
    test.call("shaky", json!({"n": 1})).await.unwrap().assert_failed("invalid_args");
}

/// Two steps around a sleep.
#[tool(class = "stepped")]
async fn naps(cx: &Cx) -> Result<String, ToolError> {
    let first: String = cx.step("before", (), |()| async { Ok("slept".to_string()) }).await?;
    cx.sleep("nap", Duration::from_secs(60)).await?;
    Ok(cx.step("after", first, |first| async move { Ok(format!("{first} well")) }).await?)
}

#[tokio::test]
async fn a_restart_replays_the_body_and_no_step() {
    let test = TestRuntime::new().unwrap();
    test.register(naps()).unwrap();
    let nap = test.start("naps", json!({})).await.unwrap();
    test.until_waiting(&nap, Wait::Sleep).await.unwrap();
    let test = test.restart().await.unwrap();
    test.until_waiting(&nap, Wait::Sleep).await.unwrap();
    test.clock().advance(Duration::from_secs(60));
    let ended = test.ended(&nap).await.unwrap();
    ended.assert_succeeded();
    ended.assert_steps(&["before", "after"]);
    ended.assert_model_saw("slept well");
    assert!(ended.runs().len() >= 2, "{:?}", ended.runs());
    ended.assert_one_key();
}

/// Steps whose names look like sentences; the second fails at the first attempt.
#[tool(class = "stepped")]
async fn worded(cx: &Cx) -> Result<u32, ToolError> {
    cx.step("a is done: b", (), |()| async { Ok(()) }).await?;
    let attempt = cx.attempt().0;
    let tried = cx.step("the step failed: c", (), |()| async move {
        if attempt == 1 { Err(ToolError::new("not yet").safe_to_retry()) } else { Ok(attempt) }
    });
    Ok(tried.await?)
}

#[tokio::test]
async fn steps_are_told_by_their_names_whatever_these_are() {
    let test = TestRuntime::new().unwrap();
    test.register(worded()).unwrap();
    let ended = test.call("worded", json!({})).await.unwrap();
    ended.assert_succeeded();
    ended.assert_steps(&["a is done: b", "the step failed: c", "the step failed: c"]);
}

/// A step of its own around a call of another tool.
#[tool(class = "stepped")]
async fn outer(cx: &Cx) -> Result<u32, ToolError> {
    cx.step("own", (), |()| async { Ok(()) }).await?;
    cx.call("nested", "worded", json!({})).await?;
    Ok(1)
}

#[tokio::test]
async fn steps_of_nested_calls_are_not_those_of_the_call() {
    let test = TestRuntime::new().unwrap();
    test.register(outer()).unwrap();
    test.register(worded()).unwrap();
    let ended = test.call("outer", json!({})).await.unwrap();
    ended.assert_succeeded();
    ended.assert_steps(&["own"]);
}

#[tokio::test]
async fn a_once_call_that_was_under_way_ends_as_unknown() {
    let (test, begun) = (TestRuntime::new().unwrap(), Arc::new(Notify::new()));
    let spec = ToolSpec { name: "send".into(), class: Some(EffectClass::Once), ..ToolSpec::default() };
    let begins = begun.clone();
    let hangs = tool_fn(spec, move |_, _| {
        begins.notify_one();
        std::future::pending()
    });
    test.register(hangs).unwrap();
    let sent = test.start("send", json!({})).await.unwrap();
    begun.notified().await;
    let test = test.restart().await.unwrap();
    let ended = test.ended(&sent).await.unwrap();
    assert_eq!(ended.state(), "unknown");
    ended.assert_runs(1);
}

/// The panic of an assertion that does not hold.
fn panic_of(check: impl FnOnce() + std::panic::UnwindSafe) -> String {
    let panic = std::panic::catch_unwind(check).expect_err("it does not hold");
    let words = panic.downcast_ref::<&str>().map(|text| text.to_string());
    words.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
}

#[tokio::test]
async fn an_assertion_that_does_not_hold_says_what_happened() {
    let test = TestRuntime::new().unwrap();
    test.register(shaky()).unwrap();
    let ended = test.call("shaky", json!({})).await.unwrap();
    let ended = std::panic::AssertUnwindSafe(&ended);
    assert!(panic_of(|| ended.assert_failed("timeout")).contains("ended as succeeded"));
    assert!(panic_of(|| ended.assert_runs(1)).contains("ran 2 times"));
    assert!(panic_of(|| ended.assert_steps(&["x"])).contains("other steps"));
    assert!(panic_of(|| ended.assert_model_saw("x")).contains("the model saw"));
    let refused = test.call("shaky", json!({"n": 1})).await.unwrap();
    let refused = std::panic::AssertUnwindSafe(&refused);
    assert!(panic_of(|| refused.assert_succeeded()).contains("ended as failed"));
    assert!(panic_of(|| refused.assert_failed("timeout")).contains("invalid_args"));
    assert!(panic_of(|| _ = refused.assert_one_key()).contains("never ran"));
}
