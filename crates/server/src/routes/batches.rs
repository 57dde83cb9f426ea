//! Batches: submitted whole, or call by call.

use super::{HandlerResult, json};
use crate::access::Caller;
use crate::api::Api;
use crate::bodies::RequestRoom;
use crate::extract::{Body, BodyPieces, CallsPayload, PathParams, QueryParams, response_text};
use crate::own_wakes::own_wakes;
use crate::problem::{Problem, ProblemCode};
use crate::turns::TurnPost;
use crate::undisturbed::undisturbed;
use crate::view::View;
use crate::wire::turns::{BatchQuery, TurnAnswer};
use crate::wire::{AnswerWait, BatchBody, Close, Push, ShowBatch};
use axum::extract::{FromRequest, Request, State};
use hyper::HeaderMap;
use hyper::header::CONTENT_TYPE;
use windlass::BatchRequest;
use windlass::batch::StreamRequest;
use windlass::trace::TraceParent;

pub async fn submit(
    State(api): State<Api>,
    caller: Caller,
    room: RequestRoom,
    PathParams(session): PathParams<String>,
    QueryParams(query): QueryParams<BatchQuery>,
    request: Request,
) -> HandlerResult {
    api.takes_work()?;
    if let Some(wire) = query.wire {
        let traceparent = traceparent(request.headers());
        let post = TurnPost::new(&api, &session, wire.into(), query)?.traced(traceparent);
        return json(&turn(&api, &caller, &session, post, request).await?);
    }
    only_with_wire(&query)?;
    let traceparent = traceparent(request.headers());
    let CallsPayload(batch) = CallsPayload::<BatchBody>::from_request(request, &api).await?;
    not_empty(batch.calls.len())?;
    let waits = api.waits(batch.wait.unwrap_or_default(), batch.timeout_ms)?;
    let request = BatchRequest { traceparent, ..batch.request(api.runtime().limits())? };
    api.claim(&caller, &session).await?;
    let submitted = undisturbed({
        let (runtime, session) = (api.runtime().clone(), session.clone());
        async move {
            match waits.until {
                AnswerWait::Settled => runtime.submit_here(&session, request).await,
                AnswerWait::Inline | AnswerWait::None => runtime.submit(&session, request).await,
            }
        }
    });
    let submitted = submitted.await?;
    // From here on the calls have their own limits, and may take long.
    room.release();
    json(&own_wakes(api.answer(&session, submitted, waits)).await?)
}

/// Answers a provider's response, which is read while it arrives if it is a stream.
async fn turn(
    api: &Api,
    caller: &Caller,
    session: &str,
    post: TurnPost,
    request: Request,
) -> Result<TurnAnswer, Problem> {
    let kind = request.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let is_stream = kind.is_some_and(|kind| kind.trim_start().starts_with("text/event-stream"));
    let room = request.extensions().get::<RequestRoom>().cloned().unwrap_or_default();
    if is_stream {
        api.claim(caller, session).await?;
        return post.answer_stream(api, BodyPieces::of(request, caller, api).await?).await;
    }
    let response = response_text(request, api).await?;
    api.claim(caller, session).await?;
    let answered = post.answer(api, &response).await;
    room.release();
    answered
}

/// A field of the body that was given in the query is reported, and not ignored.
fn only_with_wire(query: &BatchQuery) -> Result<(), Problem> {
    let BatchQuery { wire: _, turn, key, wait, timeout_ms } = query;
    if turn.is_none() && key.is_none() && wait.is_none() && timeout_ms.is_none() {
        return Ok(());
    }
    let told = "`turn`, `key`, `wait` and `timeout_ms` belong into the body, unless `wire` says that it is a provider's";
    Err(Problem::new(ProblemCode::BadQuery, told))
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
    QueryParams(ShowBatch { spans }): QueryParams<ShowBatch>,
) -> HandlerResult {
    api.session(&caller, &session).await?;
    let view = View::of_session(api.runtime(), &session);
    json(&match spans {
        true => view.batch_with_spans(&session, &key).await?,
        false => view.find_batch(&session, &key).await?,
    })
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
