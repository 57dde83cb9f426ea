//! Results that carry more than a value: parts in order, raw output, words to the host, failures and answers with parts.

use crate::rig::{batch, call, memory, n, quick, reopen, run, spec, sqlite, states, waits_for};
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::sync::mpsc;
use windlass::ask::{Asked, Target};
use windlass::error::{AskError, Code, FailureClass};
use windlass::ids::Handle;
use windlass::limits::SessionLimits;
use windlass::outcome::{KeptBytes, Outcome, Part};
use windlass::sessions::UploadFor;
use windlass::tasks::NewTask;
use windlass::tool::{Before, BeforeFuture, ErrorExtras, Hook, HookCx, RawOutput, client_tool};
use windlass::wait::Completed;
use windlass::{
    CallAnswer, CallRequest, Config, Cx, EffectClass, Limits, Output, Runtime, Tool, ToolError, ToolSpec,
    tool_fn,
};

const PNG: &[u8] = b"\x89PNG\r\n\x1a\n";

fn text(text: &str) -> Part {
    Part::Text(text.to_string())
}

fn image() -> Part {
    Part::Image { media_type: "image/png".into(), data: PNG.into() }
}

/// A tool that returns a clone of this.
fn gives(class: EffectClass, result: Result<Output, ToolError>) -> impl Tool {
    tool_fn(quick("t", class), move |_, _: &Cx| {
        let result = result.clone();
        async move { result }
    })
}

async fn only(runtime: &Runtime, tool: impl Tool) -> CallAnswer {
    runtime.register(tool).unwrap();
    run(runtime, "s", batch("k", vec![call("c", "t", n(1))])).await.calls.remove(0)
}

fn shown(answer: &CallAnswer) -> Value {
    serde_json::to_value(answer.view()).unwrap()
}

#[tokio::test]
async fn parts_reach_the_model_in_the_order_the_tool_gave_them_also_after_a_restart() {
    let (runtime, folder) = sqlite();
    let tool = || {
        tool_fn(spec("t", EffectClass::Keyed), |_, cx: &Cx| {
            let cx = cx.clone();
            async move {
                let stored = cx.attach("shot", PNG, "image/png").await?;
                let kept = cx.attach("table", b"a,b", "text/csv").await?;
                let parts = vec![
                    text("first"),
                    image(),
                    text("second"),
                    stored.clone().into_image(),
                    stored.into_part("shot.png"),
                    kept.into_part("a.csv"),
                    text("last"),
                ];
                Ok(Output { parts, ..Output::default() })
            }
        })
    };
    let answer = only(&runtime, tool()).await;
    let parts = answer.model().parts;
    let [first, inline, second, by_artifact, as_file, file, last] = &parts[..] else { panic!("{parts:?}") };
    assert_eq!([first, inline, second, last], [&text("first"), &image(), &text("second"), &text("last")]);
    let Part::KeptImage { kept, media_type } = by_artifact else { panic!("{by_artifact:?}") };
    assert_eq!((kept.bytes, media_type.as_str(), by_artifact), (PNG.len() as u64, "image/png", as_file));
    assert!(file.text().unwrap().starts_with("file \"a.csv\": 3 bytes of text/csv"), "{file:?}");
    assert_eq!(shown(&answer)["model"]["parts"][3]["artifact"], json!(kept.artifact.to_string()));
    drop((answer, runtime));
    let again = only(&reopen(&folder), tool()).await;
    assert_eq!(again.model().parts, parts);
}

#[tokio::test]
async fn raw_output_and_the_word_to_the_host_are_recorded_and_never_told_to_the_model() {
    let (runtime, folder) = sqlite();
    let page = "<html>".repeat(20_000);
    let output = Output::from(json!({"title": "Home"}))
        .with_raw(RawOutput::text(&page, "text/html"))
        .with_control(json!({"end_turn": true}));
    let answer = only(&runtime, gives(EffectClass::Read, Ok(output.clone()))).await;
    assert_eq!(answer.model_text(), r#"{"title":"Home"}"#);
    let outcome = shown(&answer)["outcome"].clone();
    assert_eq!(outcome["control"], json!({"end_turn": true}));
    assert_eq!(outcome["raw_artifact"]["bytes"], json!(page.len()));
    let artifact = Handle::parse(outcome["raw_artifact"]["artifact"].as_str().unwrap()).unwrap();
    assert_eq!(runtime.artifact(artifact).await.unwrap().unwrap().media_type, "text/html");
    // The record refers to it: it is not collected.
    drop((answer, runtime));
    let runtime = reopen(&folder);
    let again = only(&runtime, gives(EffectClass::Read, Ok(output))).await;
    assert!(again.is_recorded());
    assert_eq!(shown(&again)["outcome"], outcome);
    assert_eq!(runtime.read_artifact(artifact, 0, 6).await.unwrap(), b"<html>");

    let bad = Output::from(json!(1)).with_raw(RawOutput::text("x", "no media type"));
    let answer = only(&memory(), gives(EffectClass::Read, Ok(bad))).await;
    assert_eq!(answer.failure().unwrap().code, Code::InvalidOutput);
}

#[tokio::test]
async fn a_failure_carries_parts_raw_and_control_and_the_model_sees_the_tools_own_code() {
    let error = ToolError { tool_code: Some("E_BUTTON".into()), ..ToolError::new("The button is missing.") };
    let error = error
        .with_parts(vec![text("The page:"), image()])
        .with_raw(json!({"status": 500}))
        .with_control(json!("hand over"));
    let answer = only(&memory(), gives(EffectClass::Once, Err(error.clone()))).await;
    let told = r#"{"error":"The button is missing.","code":"tool_failed","tool_code":"E_BUTTON"}"#;
    assert_eq!(answer.model().parts, [text(told), text("The page:"), image()]);
    let failure = shown(&answer)["outcome"]["failure"].clone();
    assert_eq!((&failure["raw"], &failure["control"]), (&json!(r#"{"status":500}"#), &json!("hand over")));
    assert_eq!(failure["parts"][1]["type"], json!("image"));

    // What is too long for an answer is kept beside the journal.
    let long = "line\n".repeat(50_000);
    let error = error.with_parts(vec![text(&long), image()]).with_raw(json!(long));
    let answer = only(&memory(), gives(EffectClass::Once, Err(error))).await;
    let parts = answer.model().parts;
    let [_, cut, shot, read_on] = &parts[..] else { panic!("{parts:?}") };
    assert!(cut.text().unwrap().len() < 60_000 && *shot == image(), "{}", cut.text().unwrap().len());
    assert!(read_on.text().unwrap().contains("\"artifact\""), "{read_on:?}");
    assert_eq!(
        shown(&answer)["outcome"]["failure"]["raw_artifact"]["bytes"],
        json!(json!(long).to_string().len())
    );

    // An artifact that does not exist is left out; the failure itself stands.
    let nothing = KeptBytes { artifact: Handle(7), bytes: 1 };
    let lost = Part::KeptImage { kept: nothing, media_type: "image/png".into() };
    let error = ToolError::new("It broke.").with_parts(vec![lost]);
    let answer = only(&memory(), gives(EffectClass::Once, Err(error))).await;
    let failure = answer.failure().unwrap();
    assert_eq!((failure.message.as_str(), failure.parts.len()), ("It broke.", 0));
    assert!(failure.detail.as_deref().unwrap().starts_with("its parts were left out"), "{failure:?}");
}

#[tokio::test]
async fn a_tool_may_end_its_call_as_cancelled_by_itself() {
    for (class, error, effect) in [
        (EffectClass::Read, ToolError::cancelled("nothing to do"), "none"),
        (EffectClass::Keyed, ToolError::cancelled("nothing to do"), "unknown"),
        (EffectClass::Once, ToolError::cancelled("nothing to do"), "unknown"),
        (EffectClass::Once, ToolError::cancelled("declined").did_not_happen(), "none"),
        (EffectClass::Stepped, ToolError::cancelled("declined"), "none"),
    ] {
        let runtime = memory();
        let answer = only(&runtime, gives(class, Err(error))).await;
        let view = shown(&answer);
        assert_eq!(
            (&view["state"], &view["outcome"]["effect"]),
            (&json!("cancelled"), &json!(effect)),
            "{class}"
        );
        assert_eq!(view["attempts"], json!(1));
    }
}

/// A tool that hands its completion key out and leaves the rest to the world outside.
fn pends(keys: mpsc::UnboundedSender<String>) -> impl Tool {
    tool_fn(spec("t", EffectClass::Keyed), move |_, cx: &Cx| {
        let (cx, keys) = (cx.clone(), keys.clone());
        async move {
            let key = cx.completion("answer").await?;
            keys.send(key.to_string()).unwrap();
            Ok(Output::pending(key))
        }
    })
}

#[tokio::test]
async fn an_answer_from_outside_carries_parts_and_raw_and_may_say_timeout() {
    let (sqlite, _folder) = sqlite();
    for runtime in [memory(), sqlite] {
        let (sends, mut keys) = mpsc::unbounded_channel();
        runtime.register(pends(sends)).unwrap();
        let mut pending = async |key: &str| {
            let submitted = runtime.submit("s", batch(key, vec![call("c", "t", n(1))])).await.unwrap();
            (submitted, keys.recv().await.unwrap())
        };
        let (submitted, key) = pending("k1").await;
        let shot = runtime.upload(UploadFor::Key(&key), PNG, "image/png").await.unwrap();
        let output = Output { parts: vec![text("Signed:"), shot.clone().into_image()], ..json!("ok").into() };
        let output = output.with_raw(RawOutput::text(r#"{"by":"Ann"}"#, "application/json"));
        let said = Completed::ok(output.with_control(json!({"done": true})));
        runtime.complete(&key, said.clone()).await.unwrap();
        let answer = submitted.settled().await.unwrap().calls.remove(0);
        assert_eq!(answer.model().parts, [text("ok"), text("Signed:"), shot.clone().into_image()]);
        let outcome = shown(&answer)["outcome"].clone();
        assert_eq!(
            (&outcome["raw_artifact"]["bytes"], &outcome["control"]["done"]),
            (&json!(12), &json!(true))
        );
        // The same again is fine, another is not; and the call takes no more uploads.
        runtime.complete(&key, said).await.unwrap();
        let other = runtime.complete(&key, Completed::ok(json!("ok"))).await;
        assert!(matches!(other, Err(AskError::Answered)), "{other:?}");
        let late = runtime.upload(UploadFor::Key(&key), PNG, "image/png").await;
        assert!(matches!(late, Err(AskError::Over { .. })), "{late:?}");

        let (submitted, key) = pending("k2").await;
        // An artifact of another session is none of this one.
        let foreign = runtime.upload(UploadFor::Session("other"), PNG, "image/png").await.unwrap();
        let stolen = Output { parts: vec![foreign.into_image()], ..Output::default() };
        let refused = runtime.complete(&key, Completed::ok(stolen)).await;
        assert!(
            matches!(&refused, Err(AskError::Invalid { what }) if what.contains("no artifact")),
            "{refused:?}"
        );
        let extras = ErrorExtras { parts: vec![image()], raw: Some(json!({"status": 409})), control: None };
        let (code, message) = ("busy".to_string(), "Ann is busy.".to_string());
        let error = Completed::Error { code, message, extras: Some(Box::new(extras)) };
        runtime.complete(&key, error).await.unwrap();
        let answer = submitted.settled().await.unwrap().calls.remove(0);
        let told = r#"{"error":"Ann is busy.","code":"tool_failed","tool_code":"busy"}"#;
        assert_eq!(answer.model().parts, [text(told), image()]);
        assert_eq!(answer.failure().unwrap().raw.as_deref(), Some(r#"{"status":409}"#));

        let (submitted, key) = pending("k3").await;
        runtime.complete(&key, Completed::TimedOut).await.unwrap();
        runtime.complete(&key, Completed::TimedOut).await.unwrap();
        let other = runtime.complete(&key, Completed::Cancelled).await;
        assert!(matches!(other, Err(AskError::Answered)), "{other:?}");
        let answer = submitted.settled().await.unwrap().calls.remove(0);
        let failure = answer.failure().unwrap();
        assert_eq!((failure.class, failure.code), (FailureClass::Timeout, Code::Timeout));
        assert!(failure.message.starts_with("It took too long for whoever was to answer."), "{failure:?}");
    }
}

#[tokio::test]
async fn the_result_of_a_client_side_tool_carries_parts() {
    let runtime = memory();
    runtime.register(client_tool(ToolSpec { name: "t".into(), ..ToolSpec::default() })).unwrap();
    let submitted = runtime.submit("s", batch("k", vec![call("c", "t", n(1))])).await.unwrap();
    let waits = waits_for(&runtime, "client").await;
    let shot = runtime.upload(UploadFor::Call(&waits), PNG, "image/png").await.unwrap();
    let output = Output { parts: vec![text("The tab:"), shot.clone().into_image()], ..Output::default() };
    runtime.client_result(&waits, Completed::ok(output)).await.unwrap();
    let answer = submitted.settled().await.unwrap().calls.remove(0);
    assert_eq!(answer.model().parts, [text("The tab:"), shot.into_image()]);
}

#[tokio::test]
async fn an_upload_stays_while_the_batch_of_its_call_is_open_and_goes_an_hour_after_that() {
    let (store, clock) = (
        windlass::store::memory::MemoryStore::new().unwrap(),
        windlass_testkit::clock::ManualClock::default(),
    );
    let runtime = Runtime::new(Config { clock: Arc::new(clock.clone()), ..Config::new(store) });
    let (sends, mut keys) = mpsc::unbounded_channel();
    runtime.register(pends(sends)).unwrap();
    let submitted = runtime.submit("s", batch("k", vec![call("c", "t", n(1))])).await.unwrap();
    let key = keys.recv().await.unwrap();
    let bound = runtime.upload(UploadFor::Key(&key), b"bound", "text/plain").await.unwrap();
    let free = runtime.upload(UploadFor::Session("s"), b"free", "text/plain").await.unwrap();
    let hour = std::time::Duration::from_secs(3_700);
    clock.advance(hour);
    runtime.collect_artifacts().await.unwrap();
    assert!(runtime.artifact(free.kept.artifact).await.unwrap().is_none());
    assert!(runtime.artifact(bound.kept.artifact).await.unwrap().is_some());
    let output = Output { parts: vec![bound.clone().into_part("a.txt")], ..Output::default() };
    runtime.complete(&key, Completed::ok(output)).await.unwrap();
    assert_eq!(states(&submitted.settled().await.unwrap()), "c succeeded");
    clock.advance(hour);
    runtime.collect_artifacts().await.unwrap();
    assert!(runtime.artifact(bound.kept.artifact).await.unwrap().is_some(), "the answer refers to it");
}

#[tokio::test]
async fn a_call_is_cancelled_by_its_batch_and_the_id_the_model_gave_it() {
    let runtime = memory();
    runtime.register(client_tool(ToolSpec { name: "t".into(), ..ToolSpec::default() })).unwrap();
    let calls = vec![call("a", "t", n(1)), call("b", "t", n(2))];
    let submitted = runtime.submit("s", batch("k", calls)).await.unwrap();
    let other = waits_for(&runtime, "client").await;
    let target = |id| Target::CallOf { session: "s", key: "k", id };
    assert_eq!(runtime.cancel(target("b"), Some("enough")).await.unwrap(), Asked { asked: 1, over: 0 });
    let open = loop {
        let open = runtime.open().await.unwrap();
        if let [one] = &open[..] {
            break one.clone();
        }
        tokio::task::yield_now().await;
    };
    assert_eq!((open.id.as_str(), open.call.as_str()), ("a", other.as_str()));
    let unknown = runtime.cancel(target("c"), None).await;
    assert!(matches!(unknown, Err(AskError::NotFound { .. })), "{unknown:?}");
    // What waits says the same in the library as over HTTP.
    let now = submitted.now().await.unwrap();
    assert_eq!(
        now.calls[0].model_text(),
        "The call waits for its caller, who runs the tool and posts the result."
    );
    assert_eq!(now.calls[1].state(), "cancelled");
}

#[tokio::test]
async fn a_session_has_an_inline_budget_and_a_task_cap_of_its_own() {
    let (runtime, folder) = sqlite();
    let limits = SessionLimits { inline_ms: Some(1), tasks_running_max: Some(1), ..SessionLimits::default() };
    runtime.limit_session("s", limits).await.unwrap();
    let zero = SessionLimits { tasks_running_max: Some(0), ..SessionLimits::default() };
    assert!(runtime.limit_session("s", zero).await.is_err());
    drop(runtime);
    // The limits are stored with the session. By itself no answer would come before the hour is over.
    let limits = Limits { inline_ms: 3_600_000, ..Limits::default() };
    let runtime = Runtime::new(Config { limits, ..crate::rig::config(&folder) });
    let flags = windlass::Flags { background: true, ..windlass::Flags::default() };
    let spec = ToolSpec { flags, claims: Some(Vec::new()), ..spec("t", EffectClass::Keyed) };
    runtime.register(tool_fn(spec, |_, _: &Cx| std::future::pending())).unwrap();
    let first = runtime.submit("s", batch("k1", vec![call("c", "t", n(1))])).await.unwrap();
    assert!(first.settled().await.unwrap().calls[0].is_task());
    let task = CallRequest { task: Some(NewTask::default()), ..call("c", "t", n(1)) };
    drop(runtime.submit("s", batch("k2", vec![task])).await.unwrap());
    let waits = loop {
        let open = runtime.open().await.unwrap();
        let waits = open.iter().find_map(|call| call.waiting_for.as_ref());
        if let Some(waits) = waits {
            break waits.to_string();
        }
        tokio::task::yield_now().await;
    };
    assert!(waits.starts_with("limit"), "{waits}");
}

/// A hook that answers from a cache, and counts how often it is asked.
struct Cache;

impl Hook for Cache {
    fn name(&self) -> Option<&str> {
        Some("cache")
    }

    fn before<'a>(&'a self, cx: &'a HookCx<'a>) -> Option<BeforeFuture<'a>> {
        let is_known = cx.args()["n"] == json!(1);
        Some(Box::pin(async move {
            let parts = vec![text("from the cache"), image()];
            let answer = Before::Answer(Output { parts, ..json!({"n": 7}).into() });
            Ok(if is_known { answer } else { Before::Keep })
        }))
    }
}

#[tokio::test]
async fn a_before_hook_may_answer_in_place_of_the_tool_and_the_record_names_it() {
    let (runtime, folder) = sqlite();
    drop(runtime);
    let hooked = || {
        let config = Config { hooks: vec![Arc::new(Cache)], ..crate::rig::config(&folder) };
        let runtime = Runtime::new(config);
        let ran = crate::rig::Count::default();
        let schema = json!({"type": "object", "required": ["n"]});
        let spec = ToolSpec { output_schema: Some(schema), ..spec("t", EffectClass::Once) };
        runtime.register(crate::rig::echo(spec, &ran)).unwrap();
        (runtime, ran)
    };
    let calls = || batch("k", vec![call("a", "t", n(1)), call("b", "t", n(2))]);
    let (runtime, ran) = hooked();
    let answer = run(&runtime, "s", calls()).await;
    assert_eq!((states(&answer), ran.get()), ("a succeeded, b succeeded".to_string(), 1));
    let first = shown(&answer.calls[0]);
    assert_eq!((&first["answered_by"], &first["attempts"]), (&json!("cache"), &json!(0)));
    assert_eq!(answer.calls[0].model().parts, [text(r#"{"n":7}"#), text("from the cache"), image()]);
    assert!(shown(&answer.calls[1]).get("answered_by").is_none());
    let Some(Outcome::Succeeded(success)) = answer.calls[0].call().outcome() else { panic!() };
    assert_eq!(success.parts.len(), 2);
    drop((answer, runtime));
    let (runtime, ran) = hooked();
    assert_eq!(shown(&run(&runtime, "s", calls()).await.calls[0]), first);
    assert_eq!(ran.get(), 0);
}
