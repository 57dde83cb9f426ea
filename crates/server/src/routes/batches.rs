//! Batches: taken whole, or call by call.

use super::{Answered, json};
use crate::access::Caller;
use crate::api::Api;
use crate::extract::{Body, Calls, Named};
use crate::problem::Problem;
use crate::undisturbed::undisturbed;
use crate::view::View;
use crate::wire::{Batch, Close, Push, Wait};
use axum::extract::State;
use windlass::StreamRequest;

pub async fn submit(
    State(api): State<Api>,
    caller: Caller,
    Named(session): Named<String>,
    Calls(batch): Calls<Batch>,
) -> Answered {
    api.takes_work()?;
    not_empty(batch.calls.len())?;
    let waits = api.waits((batch.wait.unwrap_or_default(), batch.timeout_ms))?;
    let request = batch.request(api.runtime().limits())?;
    api.claim(&caller, &session).await?;
    let submitted = undisturbed({
        let (runtime, session) = (api.runtime().clone(), session.clone());
        async move { runtime.submit(&session, request).await }
    });
    json(&api.answer((&session, submitted.await?), waits).await?)
}

pub async fn push(
    State(api): State<Api>,
    caller: Caller,
    Named((session, key)): Named<(String, String)>,
    Calls(push): Calls<Push>,
) -> Answered {
    api.takes_work()?;
    not_empty(push.calls.len())?;
    let waits = api.waits((push.wait.unwrap_or(Wait::None), push.timeout_ms))?;
    let (stream, calls) = push.request(key, api.runtime().limits())?;
    api.claim(&caller, &session).await?;
    let submitted = undisturbed({
        let (runtime, session) = (api.runtime().clone(), session.clone());
        async move { runtime.open_batch(&session, stream).await?.push(calls).await }
    });
    json(&api.answer((&session, submitted.await?), waits).await?)
}

pub async fn close(
    State(api): State<Api>,
    caller: Caller,
    Named((session, key)): Named<(String, String)>,
    Body(close): Body<Close>,
) -> Answered {
    api.takes_work()?;
    api.session(&caller, &session).await?;
    let waits = api.waits((close.wait.unwrap_or_default(), close.timeout_ms))?;
    // What was pushed is recorded, so a batch that is not there was never pushed to.
    View::of_session(api.runtime(), &session).find_batch(&session, &key).await?;
    let submitted = undisturbed({
        let (runtime, session) = (api.runtime().clone(), session.clone());
        let stream = StreamRequest { key, ..StreamRequest::default() };
        async move { runtime.open_batch(&session, stream).await?.close().await }
    });
    json(&api.answer((&session, submitted.await?), waits).await?)
}

pub async fn show(
    State(api): State<Api>,
    caller: Caller,
    Named((session, key)): Named<(String, String)>,
) -> Answered {
    api.session(&caller, &session).await?;
    json(&View::of_session(api.runtime(), &session).find_batch(&session, &key).await?)
}

fn not_empty(calls: usize) -> Result<(), Problem> {
    if calls > 0 {
        return Ok(());
    }
    Err(Problem::new(
        "empty_batch",
        "the batch has no calls, so there is nothing to answer; send at least one",
    ))
}
