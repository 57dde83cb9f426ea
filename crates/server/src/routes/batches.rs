//! Batches: submitted whole, or call by call.

use super::{HandlerResult, json};
use crate::access::Caller;
use crate::api::Api;
use crate::bodies::RequestRoom;
use crate::extract::{Body, CallsPayload, PathParams};
use crate::problem::{Problem, ProblemCode};
use crate::undisturbed::undisturbed;
use crate::view::View;
use crate::wire::{AnswerWait, BatchBody, Close, Push};
use axum::extract::State;
use hyper::HeaderMap;
use windlass::BatchRequest;
use windlass::batch::StreamRequest;
use windlass::trace::TraceParent;

pub async fn submit(
    State(api): State<Api>,
    caller: Caller,
    room: RequestRoom,
    PathParams(session): PathParams<String>,
    headers: HeaderMap,
    CallsPayload(batch): CallsPayload<BatchBody>,
) -> HandlerResult {
    api.takes_work()?;
    not_empty(batch.calls.len())?;
    let waits = api.waits(batch.wait.unwrap_or_default(), batch.timeout_ms)?;
    let traceparent = traceparent(&headers);
    let request = BatchRequest { traceparent, ..batch.request(api.runtime().limits())? };
    api.claim(&caller, &session).await?;
    let submitted = undisturbed({
        let (runtime, session) = (api.runtime().clone(), session.clone());
        async move { runtime.submit(&session, request).await }
    });
    let submitted = submitted.await?;
    // From here on the calls have their own limits, and may take long.
    room.release();
    json(&api.answer(&session, submitted, waits).await?)
}

pub async fn push(
    State(api): State<Api>,
    caller: Caller,
    room: RequestRoom,
    PathParams((session, key)): PathParams<(String, String)>,
    headers: HeaderMap,
    CallsPayload(push): CallsPayload<Push>,
) -> HandlerResult {
    api.takes_work()?;
    not_empty(push.calls.len())?;
    let waits = api.waits(push.wait.unwrap_or(AnswerWait::None), push.timeout_ms)?;
    let (stream, calls) = push.request(key, api.runtime().limits())?;
    let stream = StreamRequest { traceparent: traceparent(&headers), ..stream };
    api.claim(&caller, &session).await?;
    let submitted = undisturbed({
        let (runtime, session) = (api.runtime().clone(), session.clone());
        async move { runtime.open_batch(&session, stream).await?.push(calls).await }
    });
    let submitted = submitted.await?;
    room.release();
    json(&api.pushed(&session, submitted, waits).await?)
}

pub async fn close(
    State(api): State<Api>,
    caller: Caller,
    PathParams((session, key)): PathParams<(String, String)>,
    Body(close): Body<Close>,
) -> HandlerResult {
    api.takes_work()?;
    api.session(&caller, &session).await?;
    let waits = api.waits(close.wait.unwrap_or_default(), close.timeout_ms)?;
    // Pushed calls are recorded, so a missing batch was never pushed to.
    View::of_session(api.runtime(), &session).find_batch(&session, &key).await?;
    let submitted = undisturbed({
        let (runtime, session) = (api.runtime().clone(), session.clone());
        let stream = StreamRequest { key, ..StreamRequest::default() };
        async move { runtime.open_batch(&session, stream).await?.close().await }
    });
    json(&api.answer(&session, submitted.await?, waits).await?)
}

pub async fn show(
    State(api): State<Api>,
    caller: Caller,
    PathParams((session, key)): PathParams<(String, String)>,
) -> HandlerResult {
    api.session(&caller, &session).await?;
    json(&View::of_session(api.runtime(), &session).find_batch(&session, &key).await?)
}

/// The trace that a request belongs to. A malformed header is none, as the standard says.
fn traceparent(headers: &HeaderMap) -> Option<TraceParent> {
    headers.get("traceparent").and_then(|value| TraceParent::parse(value.to_str().ok()?))
}

fn not_empty(calls: usize) -> Result<(), Problem> {
    if calls > 0 {
        return Ok(());
    }
    Err(Problem::new(ProblemCode::EmptyBatch, "the batch has no calls; send at least one"))
}
