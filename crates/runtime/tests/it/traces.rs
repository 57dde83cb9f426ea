//! Traces: a span per attempt, the caller's trace continued, and links from tasks to the calls that started them.

use crate::rig::{batch, call, config, die_in_an_attempt, hanging, memory, n, run, spec};
use serde_json::json;
use std::sync::Arc;
use tokio::sync::mpsc::Receiver;
use windlass::tasks::NewTask;
use windlass::trace::{AttemptSpan, CallSpan, TraceParent, TraceSpan};
use windlass::triggers::NewTrigger;
use windlass::{BatchRequest, Cx, EffectClass, Flags, RetryRule, Runtime, ToolError, ToolSpec, tool_fn};

fn caller() -> TraceParent {
    TraceParent::parse("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01").unwrap()
}

fn traced(key: &str, tool: &str) -> BatchRequest {
    BatchRequest { traceparent: Some(caller()), ..batch(key, vec![call("c", tool, n(1))]) }
}

/// The spans up to that of a call of this tool.
async fn until(spans: &mut Receiver<TraceSpan>, tool: &str) -> (Vec<AttemptSpan>, Box<CallSpan>) {
    let mut attempts = Vec::new();
    loop {
        match spans.recv().await.unwrap() {
            TraceSpan::Attempt(span) => attempts.push(span),
            TraceSpan::Call(span) if &*span.tool == tool => return (attempts, span),
            TraceSpan::Call(_) => {}
        }
    }
}

/// A tool that fails once, says its own place in the trace, and is tried again.
fn flaky() -> impl windlass::Tool {
    let retry = RetryRule { base_ms: Some(1), cap_ms: Some(1), ..RetryRule::default() };
    tool_fn(ToolSpec { retry, ..spec("flaky", EffectClass::Keyed) }, |_, cx: &Cx| {
        let cx = cx.clone();
        async move {
            match cx.attempt().0 {
                1 => Err(ToolError::new("not yet").safe_to_retry()),
                _ => Ok(json!(cx.traceparent().map(|parent| parent.to_string())).into()),
            }
        }
    })
}

#[tokio::test]
async fn each_attempt_is_a_span_inside_its_call_inside_the_callers_trace() {
    let runtime = memory();
    runtime.register(flaky()).unwrap();
    let mut spans = runtime.spans(100, false).unwrap();
    let answer = run(&runtime, "s", traced("k", "flaky")).await;
    let (attempts, whole) = until(&mut spans, "flaky").await;
    assert_eq!((whole.trace, whole.parent), (caller().trace, Some(caller().span)));
    let ends: Vec<_> = attempts.iter().map(|span| (span.attempt.0, span.end, span.code)).collect();
    assert_eq!(ends, [(1, "failed", Some("tool_failed")), (2, "returned", None)]);
    assert!(attempts.iter().all(|span| (span.trace, span.parent) == (whole.trace, whole.span)));
    assert_ne!(attempts[0].span, attempts[1].span);
    // The tool hands its own attempt on.
    let handed: String = answer.calls[0].value().unwrap();
    let handed = TraceParent::parse(&handed).unwrap();
    assert_eq!((handed.trace, handed.span, handed.flags), (caller().trace, attempts[1].span, 1));
}

#[tokio::test]
async fn without_a_caller_and_without_a_receiver_there_is_no_trace() {
    let runtime = memory();
    runtime.register(flaky()).unwrap();
    let answer = run(&runtime, "s", batch("k", vec![call("c", "flaky", n(1))])).await;
    assert_eq!(answer.calls[0].model_text(), "null");
}

#[tokio::test]
async fn a_call_that_is_taken_over_goes_on_in_the_trace_of_its_caller() {
    let folder = Arc::new(tempfile::tempdir().unwrap());
    die_in_an_attempt(&folder, traced("k", "flaky"), |config, begun| {
        let runtime = Runtime::new(config);
        runtime.register(hanging(spec("flaky", EffectClass::Keyed), begun)).unwrap();
        runtime
    })
    .await;
    let runtime = Runtime::new(config(&folder));
    runtime
        .register(tool_fn(spec("flaky", EffectClass::Keyed), |_, cx: &Cx| {
            let traceparent = cx.traceparent().map(|parent| parent.to_string());
            async move { Ok(json!(traceparent).into()) }
        }))
        .unwrap();
    let mut spans = runtime.spans(100, false).unwrap();
    // Whoever submits it again belongs to another trace: the recorded one counts.
    let answer = run(&runtime, "s", batch("k", vec![call("c", "flaky", n(1))])).await;
    let handed: String = answer.calls[0].value().unwrap();
    assert_eq!(TraceParent::parse(&handed).unwrap().trace, caller().trace);
    let (attempts, whole) = until(&mut spans, "flaky").await;
    let ends: Vec<_> = attempts.iter().map(|span| (span.attempt.0, span.end, span.code)).collect();
    assert_eq!(ends, [(1, "lost", Some("lost")), (2, "returned", None)]);
    assert!(attempts.iter().all(|span| span.parent == whole.span && span.started_at <= span.ended_at));
    assert!(attempts[0].started_at >= whole.opened_at, "it began when it was recorded");
}

#[tokio::test]
async fn a_call_is_linked_to_the_tasks_that_its_events_start() {
    let runtime = memory();
    let flags = Flags { background: true, ..Flags::default() };
    let later = ToolSpec { flags, claims: Some(Vec::new()), ..spec("later", EffectClass::Keyed) };
    runtime.register(tool_fn(later, |_, _: &Cx| async { Ok(json!(1).into()) })).unwrap();
    let emits = [("sold".to_string(), json!({}))].into();
    let sells = tool_fn(ToolSpec { emits, ..spec("sells", EffectClass::Keyed) }, |_, cx: &Cx| {
        let cx = cx.clone();
        async move { Ok(json!(cx.emit("e", "sold", &json!({})).await?.number).into()) }
    });
    runtime.register(sells).unwrap();
    let new = NewTrigger { event: "sold".into(), tool: "later".into(), ..NewTrigger::default() };
    runtime.triggers("s").create(new).await.unwrap();
    let mut spans = runtime.spans(100, false).unwrap();
    run(&runtime, "s", batch("k", vec![call("c", "sells", n(1))])).await;
    let mut found = Vec::new();
    while found.len() < 2 {
        if let TraceSpan::Call(span) = spans.recv().await.unwrap() {
            found.push(span);
        }
    }
    found.sort_by_key(|span| span.tool.to_string());
    let [task, seller] = &found[..] else { panic!() };
    let linked: Vec<_> = seller.tasks.iter().map(|task| (task.trace, task.span)).collect();
    assert_eq!(linked, [(task.trace, task.span)]);
}

#[tokio::test]
async fn a_task_has_a_trace_of_its_own_with_a_link_to_the_call_that_started_it() {
    let runtime = memory();
    let flags = Flags { background: true, ..Flags::default() };
    let spec_of = |name: &str| ToolSpec { flags, claims: Some(Vec::new()), ..spec(name, EffectClass::Keyed) };
    runtime.register(tool_fn(spec_of("later"), |_, _: &Cx| async { Ok(json!(1).into()) })).unwrap();
    let starts = tool_fn(spec("starts", EffectClass::Keyed), |_, cx: &Cx| {
        let cx = cx.clone();
        async move { Ok(json!(cx.spawn("t", "later", &json!({}), NewTask::default()).await?.to_string()).into()) }
    });
    runtime.register(starts).unwrap();
    let mut spans = runtime.spans(100, false).unwrap();
    run(&runtime, "s", traced("k", "starts")).await;
    let mut found = Vec::new();
    while found.len() < 2 {
        if let TraceSpan::Call(span) = spans.recv().await.unwrap() {
            found.push(span);
        }
    }
    found.sort_by_key(|span| span.tool.to_string());
    let [task, starter] = &found[..] else { panic!() };
    let link = task.link.unwrap();
    assert_eq!((link.trace, link.span), (caller().trace, starter.span));
    assert!(task.trace != starter.trace && task.parent.is_none() && starter.link.is_none());
    let linked: Vec<_> = starter.tasks.iter().map(|task| (task.trace, task.span)).collect();
    assert_eq!((linked, task.tasks.len()), (vec![(task.trace, task.span)], 0));
}
