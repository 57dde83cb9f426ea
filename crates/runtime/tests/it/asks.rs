//! Cancel, resolve, accept: what is asked of calls from outside, and what becomes of it.

use crate::rig::{
    Count, batch, call, echo, end, memory, n, reopen, run, spec, sqlite, states, until_runs, waits_for,
};
use crate::takeover::left_with;
use serde_json::json;
use windlass::ask::{self, Asked, Resolution, Target};
use windlass::error::{AskError, SessionError};
use windlass::tool::{Reconciled, with_reconcile};
use windlass::{BatchRequest, Cx, EffectClass, Output, Runtime, Tool, ToolError, ToolSpec, tool_fn};

fn never(spec: ToolSpec) -> impl Tool {
    tool_fn(ToolSpec { grace_ms: Some(1), ..spec }, |_, _: &Cx| std::future::pending())
}

fn one(key: &str) -> BatchRequest {
    batch(key, vec![call("c", "t", n(1))])
}

/// The outcome of a call of this tool that is cancelled while it runs.
async fn cancelled(tool: impl Tool) -> String {
    let runtime = memory();
    runtime.register(tool).unwrap();
    let waiting = runtime.submit("s", one("k")).await.unwrap();
    let call = until_runs(&runtime).await;
    assert_eq!(runtime.cancel(Target::Call(&call), None).await.unwrap(), Asked { asked: 1, over: 0 });
    let answer = waiting.settled().await.unwrap();
    let again = runtime.cancel(Target::Call(&call), None).await.unwrap();
    assert_eq!(again, Asked { asked: 0, over: 1 }, "a call that is over is not asked again");
    end(&answer)
}

#[tokio::test]
async fn a_running_call_is_stopped_and_says_what_is_known_of_its_effect() {
    for (class, expected) in [
        (EffectClass::Read, "c cancelled{none}, 1 attempts"),
        (EffectClass::Keyed, "c cancelled{unknown}, 1 attempts"),
        (EffectClass::Once, "c cancelled{unknown}, 1 attempts"),
    ] {
        assert_eq!(cancelled(never(spec("t", class))).await, expected, "{class}");
    }
    for (says, expected) in [
        (Reconciled::Landed(Output::from(n(1))), "c cancelled{landed}, 1 attempts"),
        (Reconciled::Failed(ToolError::new("no")), "c cancelled{unknown}, 1 attempts"),
        (Reconciled::DidNotHappen, "c cancelled{none}, 1 attempts"),
        (Reconciled::Unknown, "c cancelled{unknown}, 1 attempts"),
    ] {
        let tool = with_reconcile(never(spec("t", EffectClass::Once)), move |_, _: &Cx| {
            let says = says.clone();
            async move { Ok(says) }
        });
        assert_eq!(cancelled(tool).await, expected);
    }
}

#[tokio::test]
async fn what_ends_within_the_grace_ends_as_itself() {
    for class in [EffectClass::Read, EffectClass::Keyed, EffectClass::Once] {
        let patient = || ToolSpec { grace_ms: Some(60_000), ..spec("t", class) };
        let ends = |result: Result<Output, ToolError>| {
            tool_fn(patient(), move |_, cx: &Cx| {
                let (cx, result) = (cx.clone(), result.clone());
                async move {
                    cx.stopping().await;
                    result
                }
            })
        };
        assert_eq!(cancelled(ends(Ok(n(1).into()))).await, "c succeeded, 1 attempts", "{class}");
        let failed = ends(Err(ToolError::new("no").safe_to_retry()));
        assert_eq!(
            cancelled(failed).await,
            "c failed/tool_failed, 1 attempts",
            "{class}: no retry after a cancel"
        );
        let nothing = ends(Err(ToolError::stopped().did_not_happen()));
        assert_eq!(cancelled(nothing).await, "c cancelled{none}, 1 attempts", "{class}");
    }
}

/// The first call holds the session; what waits behind it is cancelled before it starts.
#[tokio::test]
async fn a_batch_and_a_session_are_cancelled_whole() {
    for whole in [Target::Batch { session: "s", key: "k" }, Target::Session("s")] {
        let (runtime, _folder) = sqlite();
        let ran = Count::default();
        runtime.register(never(spec("slow", EffectClass::Once))).unwrap();
        runtime.register(echo(spec("t", EffectClass::Once), &ran)).unwrap();
        let calls = vec![call("1", "slow", n(1)), call("2", "t", n(1)), call("3", "t", n(2))];
        let waiting = runtime.submit("s", batch("k", calls)).await.unwrap();
        until_runs(&runtime).await;
        waits_for(&runtime, "claim").await;
        assert_eq!(runtime.cancel(whole, Some("enough")).await.unwrap().asked, 3);
        let answer = waiting.settled().await.unwrap();
        assert_eq!(states(&answer), "1 cancelled, 2 cancelled, 3 cancelled");
        let effects: Vec<_> = answer
            .calls
            .iter()
            .map(|call| serde_json::to_value(call).unwrap()["outcome"]["effect"].clone())
            .collect();
        assert_eq!(effects, [json!("unknown"), json!("none"), json!("none")]);
        assert_eq!(ran.get(), 0);
        let after = run(&runtime, "s", batch("next", vec![call("1", "t", n(1))])).await;
        assert_eq!(states(&after), "1 succeeded", "the session goes on");
    }
}

#[tokio::test]
async fn what_there_is_not_cannot_be_asked() {
    let runtime = memory();
    runtime.register(echo(spec("t", EffectClass::Read), &Count::default())).unwrap();
    let ended = run(&runtime, "s", one("k")).await;
    let handle = ended.calls[0].handle().to_string();
    for target in [Target::Call("nonsense"), Target::Batch { session: "s", key: "none" }] {
        assert!(matches!(runtime.cancel(target, None).await, Err(AskError::NotFound { .. })), "{target:?}");
    }
    for target in [Target::Session("none"), Target::Batch { session: "none", key: "none" }] {
        let error = runtime.cancel(target, None).await.unwrap_err();
        let not_found =
            matches!(&error, AskError::Session(SessionError::NotFound { session }) if session == "none");
        assert!(not_found, "{target:?}: {error:?}");
    }
    let landed = || Resolution::Landed(n(1));
    assert!(matches!(runtime.resolve("nonsense", landed()).await, Err(AskError::NotFound { .. })));
    assert!(matches!(
        runtime.resolve(&handle, landed()).await,
        Err(AskError::Unfit { state: "succeeded", .. })
    ));
    assert!(matches!(runtime.reconcile(&handle).await, Err(AskError::Unfit { .. })));
    assert!(matches!(runtime.accept(&handle).await, Err(AskError::Unfit { .. })));
}

/// A call that nobody knows the effect of, and the runtime it is in.
async fn unknown(tool: impl Tool) -> (Runtime, tempfile::TempDir, String) {
    let (runtime, folder) = sqlite();
    runtime.register(tool).unwrap();
    let waiting = runtime.submit("s", one("k")).await.unwrap();
    let call = until_runs(&runtime).await;
    runtime.cancel(Target::Call(&call), None).await.unwrap();
    assert_eq!(end(&waiting.settled().await.unwrap()), "c cancelled{unknown}, 1 attempts");
    (runtime, folder, call)
}

#[tokio::test]
async fn an_unknown_call_is_resolved_once_and_for_all() {
    let (runtime, folder, call) = unknown(never(spec("t", EffectClass::Once))).await;
    let answer = runtime.resolve(&call, Resolution::Landed(json!({"paid": true}))).await.unwrap();
    assert_eq!((answer.state(), answer.model_text().as_str()), ("succeeded", r#"{"paid":true}"#));
    // The same again is fine; another is not, and changes nothing.
    let again = runtime.resolve(&call, Resolution::Landed(json!({"paid": true}))).await.unwrap();
    assert_eq!(again.state(), "succeeded");
    let other = runtime.resolve(&call, Resolution::DidNotHappen).await;
    assert!(matches!(other, Err(AskError::Conflict)), "{:?}", other.err());
    assert_eq!(run(&runtime, "s", one("k")).await.calls[0].model_text(), r#"{"paid":true}"#);
    drop((runtime, answer, again));
    let runtime = reopen(&folder);
    assert_eq!(run(&runtime, "s", one("k")).await.calls[0].model_text(), r#"{"paid":true}"#);
}

#[tokio::test]
async fn what_did_not_happen_is_a_failure_that_says_so() {
    let (runtime, _folder, call) = unknown(never(spec("t", EffectClass::Once))).await;
    let answer = runtime.resolve(&call, Resolution::DidNotHappen).await.unwrap();
    assert_eq!(answer.failure().unwrap().code.as_str(), "did_not_happen");
}

#[tokio::test]
async fn a_tool_can_be_asked_again_later() {
    let asked = Count::default();
    let count = asked.clone();
    let tool = with_reconcile(never(spec("t", EffectClass::Once)), move |_, _: &Cx| {
        let known = count.up() > 1;
        async move { Ok(if known { Reconciled::Landed(Output::from(n(5))) } else { Reconciled::Unknown }) }
    });
    let (runtime, _folder, call) = unknown(tool).await;
    let answer = runtime.reconcile(&call).await.unwrap();
    assert_eq!((answer.state(), answer.model_text().as_str()), ("succeeded", r#"{"n":5}"#));
    assert_eq!(run(&runtime, "s", one("k")).await.calls[0].state(), "succeeded");
    assert_eq!(asked.get(), 2);
}

/// Asked while nobody owned the folder, and heard by the next owner before anything runs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_asked_of_a_folder_that_nobody_owns_is_heard_by_the_next_owner() {
    let folder = left_with(EffectClass::Keyed).await;
    {
        let store = reopen(&folder).store().clone();
        let target = Target::Batch { session: "s", key: "k" };
        let asked = ask::post_cancel(&*store, target, Some("left behind")).await.unwrap();
        assert_eq!(asked, Asked { asked: 1, over: 0 });
    }
    let runtime = reopen(&folder);
    let ran = Count::default();
    runtime.register(echo(spec("x", EffectClass::Keyed), &ran)).unwrap();
    let answer = run(&runtime, "s", batch("k", vec![call("x", "x", n(1))])).await;
    assert_eq!(end(&answer), "x cancelled{unknown}, 1 attempts");
    assert_eq!(ran.get(), 0);
}

/// A cancel is answered when it is durable, not when the call ends; what the store did not know yet is recorded first.
#[tokio::test]
async fn a_cancel_does_not_wait_for_the_end() {
    let (runtime, _folder) = sqlite();
    let go = std::sync::Arc::new(tokio::sync::Notify::new());
    let gate = go.clone();
    let patient = ToolSpec { grace_ms: Some(600_000), ..spec("t", EffectClass::Read) };
    let tool = tool_fn(patient, move |_, cx: &Cx| {
        let (cx, gate) = (cx.clone(), gate.clone());
        async move {
            cx.stopping().await;
            gate.notified().await;
            Ok(n(1).into())
        }
    });
    runtime.register(tool).unwrap();
    let waiting = runtime.submit("s", one("k")).await.unwrap();
    let call = until_runs(&runtime).await;
    assert_eq!(runtime.cancel(Target::Call(&call), Some("slow")).await.unwrap(), Asked { asked: 1, over: 0 });
    assert_eq!(runtime.open_calls(), 1);
    go.notify_one();
    let answer = waiting.settled().await.unwrap();
    assert_eq!(end(&answer), "c succeeded, 1 attempts");
    let (_, story) =
        windlass::inspect::call(runtime.store(), answer.calls[0].handle()).await.unwrap().unwrap();
    let kinds: Vec<&str> = story.iter().map(|line| line.kind).collect();
    assert_eq!(kinds, ["batch", "opened", "prepared", "started", "cancel_asked", "returned", "ended"]);
}
