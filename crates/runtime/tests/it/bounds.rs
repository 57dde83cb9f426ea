//! External values are bounded by the configured limits, not by the defaults.

use crate::inside::{asked, body};
use crate::rig::{n, run, spec, states, waits_for};
use serde_json::{Value, json};
use windlass::ask::{self, Resolution, Target};
use windlass::error::AskError;
use windlass::limits::SessionLimits;
use windlass::sessions::{ChildSpec, SessionOpening};
use windlass::store::memory::MemoryStore;
use windlass::tool::client_tool;
use windlass::wait::Completed;
use windlass::{Config, EffectClass, Limits, Output, Runtime, ToolError, tool_fn};

/// Nested so deep.
fn nested(depth: usize) -> Value {
    (0..depth).fold(json!(1), |value, _| json!([value]))
}

fn runtime(limits: Limits) -> Runtime {
    Runtime::new(Config { limits, ..Config::new(MemoryStore::new().unwrap()) })
}

/// Limits with this depth, and the depth of a value they take and of one they do not.
fn depths() -> [(Limits, usize, usize); 2] {
    let of = |depth| Limits { args_depth_max: depth, ..Limits::default() };
    // One is stricter than the usual 64, the other is not.
    [(of(8), 8, 9), (of(100), 100, 101)]
}

/// A runtime with a call that waits for an answer from outside, and the key of that.
async fn waiting(limits: Limits) -> (Runtime, String) {
    let runtime = runtime(limits);
    let (given, keys) = std::sync::mpsc::channel();
    let waits = body(spec("t", EffectClass::Once), move |_, cx| {
        let given = given.clone();
        Box::pin(async move {
            let key = cx.completion("answer").await?;
            given.send(key.to_string()).unwrap();
            Ok(Output::pending(key))
        })
    });
    runtime.register(waits).unwrap();
    drop(runtime.submit("s", asked()).await.unwrap());
    waits_for(&runtime, "completion").await;
    (runtime, keys.recv().unwrap())
}

fn is_refused(result: &Result<(), AskError>) -> bool {
    matches!(result, Err(AskError::Invalid { .. }))
}

#[tokio::test]
async fn answers_by_key_and_results_of_clients_are_bounded_as_configured() {
    for (limits, fits, too_deep) in depths() {
        let (runtime, key) = waiting(limits.clone()).await;
        let refused = runtime.complete(&key, Completed::ok(nested(too_deep))).await;
        assert!(is_refused(&refused), "{refused:?}");
        runtime.complete(&key, Completed::ok(nested(fits))).await.unwrap();
        assert_eq!(states(&run(&runtime, "s", asked()).await), "c succeeded");

        let runtime = self::runtime(limits);
        runtime.register(client_tool(spec("t", EffectClass::Keyed))).unwrap();
        let submitted = runtime.submit("s", asked()).await.unwrap();
        let call = waits_for(&runtime, "client").await;
        let refused = runtime.client_result(&call, Completed::ok(nested(too_deep))).await;
        assert!(is_refused(&refused), "{refused:?}");
        runtime.client_result(&call, Completed::ok(nested(fits))).await.unwrap();
        assert_eq!(states(&submitted.settled().await.unwrap()), "c succeeded");
    }
}

#[tokio::test]
async fn answers_to_questions_are_bounded_as_configured() {
    for (limits, fits, too_deep) in depths() {
        let runtime = runtime(limits);
        let asks = body(spec("t", EffectClass::Stepped), |_, cx| {
            Box::pin(async move {
                let said = cx.ask("question", "Well?", Some(json!({}))).await?;
                Ok(json!(said.is_some()).into())
            })
        });
        runtime.register(asks).unwrap();
        let submitted = runtime.submit("s", asked()).await.unwrap();
        waits_for(&runtime, "input").await;
        let id = runtime.questions().await.unwrap()[0].id.clone();
        let refused = runtime.answer(&id, &nested(too_deep)).await;
        assert!(is_refused(&refused), "{refused:?}");
        runtime.answer(&id, &nested(fits)).await.unwrap();
        assert_eq!(states(&submitted.settled().await.unwrap()), "c succeeded");
    }
}

#[tokio::test]
async fn resolutions_are_bounded_as_configured() {
    for (limits, fits, too_deep) in depths() {
        let runtime = runtime(limits);
        let lost = tool_fn(spec("t", EffectClass::Once), |_, _| async { Err(ToolError::aborted("cut off")) });
        runtime.register(lost).unwrap();
        let answer = run(&runtime, "s", asked()).await;
        assert_eq!(states(&answer), "c unknown");
        let call = answer.calls[0].handle().to_string();
        let refused = runtime.resolve(&call, Resolution::Landed(nested(too_deep))).await.map(|_| ());
        assert!(is_refused(&refused), "{refused:?}");
        let resolved = runtime.resolve(&call, Resolution::Landed(nested(fits))).await.unwrap();
        assert_eq!(resolved.state(), "succeeded");
    }
    // How long an answer may be is configured too.
    let runtime = runtime(Limits { answer_bytes_max: 4_000, ..Limits::default() });
    let lost = tool_fn(spec("t", EffectClass::Once), |_, _| async { Err(ToolError::aborted("cut off")) });
    runtime.register(lost).unwrap();
    let call = run(&runtime, "s", asked()).await.calls[0].handle().to_string();
    let refused = runtime.resolve(&call, Resolution::Landed(json!("x".repeat(20_000)))).await.map(|_| ());
    assert!(is_refused(&refused), "{refused:?}");
}

/// Work cut off from outside is retried where it may be, and unknown where it must not be.
#[tokio::test]
async fn work_that_was_cut_off_ends_by_its_class() {
    for (class, expected) in [
        (EffectClass::Read, "c succeeded"),
        (EffectClass::Keyed, "c succeeded"),
        (EffectClass::Stepped, "c succeeded"),
        (EffectClass::Once, "c unknown"),
    ] {
        let runtime = runtime(Limits { retry_base_ms: 1, retry_cap_ms: 1, ..Limits::default() });
        let tool = tool_fn(spec("t", class), |_, cx: &windlass::Cx| {
            let first = cx.attempt().0 == 1;
            async move { if first { Err(ToolError::aborted("connection lost")) } else { Ok(n(2).into()) } }
        });
        runtime.register(tool).unwrap();
        assert_eq!(states(&run(&runtime, "s", asked()).await), expected, "{class}");
    }
}

#[tokio::test]
async fn a_reason_that_is_too_long_is_refused_by_every_way_to_cancel() {
    let (runtime, _) = waiting(Limits::default()).await;
    let (fits, long) = ("ü".repeat(1_000), "ü".repeat(1_001));
    let session = Target::Session("s");
    let told = "a reason has at most 1000 characters; shorten it";
    let refused = runtime.cancel(session, Some(&long)).await.unwrap_err();
    assert!(matches!(refused, AskError::LongReason { max: 1_000 }), "{refused}");
    assert_eq!(refused.to_string(), told);
    let refused = ask::post_cancel(&**runtime.store(), session, Some(&long)).await.unwrap_err();
    assert_eq!(refused.to_string(), told);
    let asked = runtime.cancel(session, Some(&fits)).await.unwrap().asked;
    assert_eq!(asked, 1, "the call was not cancelled before, and is now");
}

#[tokio::test]
async fn a_bound_of_a_session_that_bounds_nothing_is_refused_by_every_way_to_set_it() {
    let runtime = runtime(Limits { session_calls_running_max: 4, ..Limits::default() });
    let told = "of a session 1 to 4 calls run at once; ask for as many, or for none in particular";
    for asked in [0, 5] {
        let limits = SessionLimits { calls_running_max: Some(asked), ..SessionLimits::default() };
        assert_eq!(runtime.limit_session("a", limits).await.unwrap_err().to_string(), told);
        let opening = SessionOpening { limits, ..SessionOpening::default() };
        assert_eq!(runtime.open_session("b", opening).await.unwrap_err().to_string(), told);
        let spec = ChildSpec { limits, ..ChildSpec::default() };
        assert_eq!(runtime.open_child("p", "c", spec).await.unwrap_err().to_string(), told);
    }
    let limits = SessionLimits { calls_running_max: Some(4), ..SessionLimits::default() };
    runtime.limit_session("a", limits).await.unwrap();
    assert_eq!(SessionLimits::of(runtime.store(), "a").await.unwrap(), limits);
}
