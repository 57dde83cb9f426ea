//! The tools that a session is opened with: hidden ones, and those its callers run.

use crate::rig::{batch, call, n, quick, reopen, returns, run, sqlite, states, waits_for};
use serde_json::json;
use std::time::Duration;
use windlass::error::SessionError;
use windlass::sessions::{ChildSpec, ClientToolSpec, SessionOpening, SessionOverlay};
use windlass::store::memory::MemoryStore;
use windlass::wait::Completed;
use windlass::{Config, EffectClass, Limits, Runtime};
use windlass_testkit::clock::ManualClock;

fn with_base(runtime: Runtime) -> Runtime {
    for name in ["keep", "send"] {
        runtime.register(returns(quick(name, EffectClass::Read), Ok(json!("base")))).unwrap();
    }
    runtime
}

fn tab() -> ClientToolSpec {
    let input = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
    ClientToolSpec { name: "open_tab".into(), input: Some(input), ..ClientToolSpec::default() }
}

fn opening(hide: &[&str], add: Vec<ClientToolSpec>) -> SessionOpening {
    let hide = hide.iter().map(|name| name.to_string()).collect();
    SessionOpening { overlay: SessionOverlay { hide, add }, ..SessionOpening::default() }
}

async fn names(runtime: &Runtime, session: &str) -> Vec<String> {
    runtime.tools_of(session).await.unwrap().into_iter().map(|tool| tool.summary.name).collect()
}

#[tokio::test]
async fn a_session_keeps_the_tools_that_it_was_opened_with_over_a_restart() {
    let (runtime, folder) = sqlite();
    let runtime = with_base(runtime);
    runtime.open_session("s", opening(&["send"], vec![tab()])).await.unwrap();
    runtime.limit_session("s", windlass::limits::SessionLimits::default()).await.unwrap();
    runtime.open_child("s", "child", ChildSpec::default()).await.unwrap();
    runtime.open_session("other", SessionOpening::default()).await.unwrap();
    let submitted = runtime.submit("s", batch("k", vec![call("a", "open_tab", n(1))])).await.unwrap();
    let handle = waits_for(&runtime, "client").await;
    drop((submitted, runtime));

    let runtime = with_base(reopen(&folder));
    // Nobody has taken the sessions yet.
    assert_eq!(names(&runtime, "s").await, ["keep", "open_tab"]);
    assert_eq!(names(&runtime, "child").await, ["keep", "open_tab"]);
    assert_eq!(names(&runtime, "other").await, ["keep", "send"]);
    let answer = run(&runtime, "child", batch("k", vec![call("a", "send", n(1))])).await;
    assert_eq!(states(&answer), "a failed/no_such_tool");
    runtime.resume().await.unwrap();
    runtime.client_result(&handle, Completed::ok(json!("opened"))).await.unwrap();
    let calls = vec![call("a", "open_tab", n(1))];
    assert_eq!(run(&runtime, "s", batch("k", calls)).await.calls[0].model_text(), "opened");
    let calls = vec![call("a", "send", n(1)), call("b", "keep", n(1)), call("c", "open_tab", json!({}))];
    let answer = run(&runtime, "s", batch("l", calls)).await;
    assert_eq!(states(&answer), "a failed/no_such_tool, b succeeded, c failed/invalid_args");
    // Taken now, the answer is the same.
    assert_eq!(names(&runtime, "s").await, ["keep", "open_tab"]);
    assert_eq!(names(&runtime, "child").await, ["keep", "open_tab"]);
}

#[tokio::test]
async fn a_brought_tool_waits_as_long_as_it_says() {
    let clock = ManualClock::default();
    let config =
        Config { clock: std::sync::Arc::new(clock.clone()), ..Config::new(MemoryStore::new().unwrap()) };
    let runtime = Runtime::new(config);
    let slow = ClientToolSpec { name: "slow".into(), claims: Some(Vec::new()), ..tab() };
    let soon = ClientToolSpec { client_ms: Some(5_000), claims: Some(Vec::new()), ..tab() };
    runtime.open_session("s", opening(&[], vec![soon, slow])).await.unwrap();
    let calls = vec![call("a", "open_tab", n(1)), call("b", "slow", n(1))];
    let submitted = runtime.submit("s", batch("k", calls)).await.unwrap();
    while runtime.open().await.unwrap().iter().filter(|open| open.state == "awaiting_client").count() < 2 {
        tokio::task::yield_now().await;
    }
    clock.advance(Duration::from_secs(6));
    while runtime.open().await.unwrap().len() > 1 {
        tokio::task::yield_now().await;
    }
    assert_eq!(states(&submitted.now().await.unwrap()), "a failed/timeout, b awaiting_client");
}

#[tokio::test]
async fn an_overlay_that_cannot_be_had_opens_nothing() {
    let limits = Limits { session_tools_max: 2, session_tools_bytes_max: 4_000, ..Limits::default() };
    let runtime = with_base(Runtime::new(Config { limits, ..Config::new(MemoryStore::new().unwrap()) }));
    let named = |name: &str| ClientToolSpec { name: name.into(), ..tab() };
    let cases = [
        (opening(&[], vec![named("no spaces")]), "no spaces"),
        (opening(&[], vec![named("a-b"), named("a_b")]), "a-b"),
        (opening(&["a", "b"], vec![tab()]), "at most 2 tools"),
        (opening(&[], vec![ClientToolSpec { input: Some(json!({"type": 3})), ..tab() }]), "open_tab"),
        (opening(&[], vec![ClientToolSpec { client_ms: Some(0), ..tab() }]), "client_ms"),
        (opening(&[], vec![ClientToolSpec { claims: Some(vec!["x".into()]), ..tab() }]), "open_tab"),
        (opening(&[], vec![ClientToolSpec { description: "x".repeat(4_000), ..tab() }]), "4000 bytes"),
    ];
    for (opening, told) in cases {
        let error = runtime.open_session("s", opening.clone()).await.unwrap_err();
        assert!(matches!(error, SessionError::Shape { .. }), "{error}");
        assert!(error.to_string().contains(told), "{told}: {error}");
        assert!(runtime.store().session("s").await.unwrap().is_none(), "{opening:?}");
    }
}
