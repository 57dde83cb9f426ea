//! Requests about running or finished calls: cancel, accept, resolve, complete, signal.

use super::{HandlerResult, json, tasks};
use crate::access::Caller;
use crate::api::Api;
use crate::extract::{Body, PathCompletionKey, PathParams, QueryParams};
use crate::problem::{Problem, ProblemCode};
use crate::undisturbed::undisturbed;
use crate::view::View;
use crate::wire::Show;
use crate::wire::{
    AnswerBody, BatchCancelBody, CancelBody, Cancelled, CompletionBody, CompletionReceipt, Connect,
    ConnectionReach, Nothing, QuestionQuery, ResolveBody, SignalBody, SignalReceipt,
};
use axum::extract::State;
use windlass::ask::{Resolution, Target, check_reason};

pub async fn cancel_call(
    State(api): State<Api>,
    caller: Caller,
    PathParams(call): PathParams<String>,
    Body(body): Body<CancelBody>,
) -> HandlerResult {
    let reason = reason(body)?;
    api.call(&caller, &call).await?;
    cancel(&api, reason, async move |runtime, reason| {
        runtime.cancel(Target::Call(&call), reason.as_deref()).await
    })
    .await
}

pub async fn cancel_task(
    State(api): State<Api>,
    caller: Caller,
    PathParams((session, task)): PathParams<(String, String)>,
    Body(body): Body<CancelBody>,
) -> HandlerResult {
    let reason = reason(body)?;
    api.session(&caller, &session).await?;
    tasks::is_there(&api.runtime().tasks(&session), &task).await?;
    cancel(&api, reason, async move |runtime, reason| {
        runtime.cancel(Target::Call(&task), reason.as_deref()).await
    })
    .await
}

pub async fn cancel_session(
    State(api): State<Api>,
    caller: Caller,
    PathParams(session): PathParams<String>,
    Body(body): Body<CancelBody>,
) -> HandlerResult {
    let reason = reason(body)?;
    api.session(&caller, &session).await?;
    // A session that is opened and not used yet has no journal, and nothing to stop.
    if api.runtime().store().session(&session).await?.is_none() {
        let open = api.runtime().live_in(&session);
        if open.is_empty() {
            return json(&Cancelled { asked: 0, over: 0 });
        }
    }
    cancel(&api, reason, async move |runtime, reason| {
        runtime.cancel(Target::Session(&session), reason.as_deref()).await
    })
    .await
}

pub async fn cancel_batch(
    State(api): State<Api>,
    caller: Caller,
    PathParams((session, key)): PathParams<(String, String)>,
    Body(BatchCancelBody { reason: said, id }): Body<BatchCancelBody>,
) -> HandlerResult {
    let reason = reason(CancelBody { reason: said })?;
    api.session(&caller, &session).await?;
    cancel(&api, reason, async move |runtime, reason| {
        let (session, key) = (session.as_str(), key.as_str());
        let target = match id.as_deref() {
            Some(id) => Target::CallOf { session, key, id },
            None => Target::Batch { session, key },
        };
        runtime.cancel(target, reason.as_deref()).await
    })
    .await
}

async fn cancel<F>(
    api: &Api,
    reason: Option<String>,
    ask: impl FnOnce(windlass::Runtime, Option<String>) -> F,
) -> HandlerResult
where
    F: Future<Output = Result<windlass::ask::Asked, windlass::error::AskError>> + Send + 'static,
{
    let asked = undisturbed(ask(api.runtime().clone(), reason)).await?;
    json(&Cancelled { asked: asked.asked, over: asked.over })
}

/// The reason of a cancel, refused before anything is looked up if it is too long.
fn reason(body: CancelBody) -> Result<Option<String>, Problem> {
    check_reason(body.reason.as_deref())?;
    Ok(body.reason)
}

pub async fn resolve(
    State(api): State<Api>,
    caller: Caller,
    PathParams(call): PathParams<String>,
    Body(body): Body<ResolveBody>,
) -> HandlerResult {
    let session = api.call(&caller, &call).await?;
    let landed = body.landed.map(Resolution::Landed);
    let resolution = match (landed, body.did_not_happen, body.ask_tool) {
        (Some(landed), false, false) => Some(landed),
        (None, true, false) => Some(Resolution::DidNotHappen),
        (None, false, true) => None,
        _ => {
            let told =
                "give exactly one of {\"landed\": value}, {\"did_not_happen\": true}, {\"ask_tool\": true}";
            return Err(Problem::new(ProblemCode::BadBody, told));
        }
    };
    undisturbed({
        let (runtime, call) = (api.runtime().clone(), call.clone());
        async move {
            match resolution {
                Some(resolution) => runtime.resolve(&call, resolution).await,
                None => runtime.reconcile(&call).await,
            }
        }
    })
    .await?;
    json(&View::of_session(api.runtime(), &session).show(&call, Show::default()).await?)
}

pub async fn accept(
    State(api): State<Api>,
    caller: Caller,
    PathParams(call): PathParams<String>,
    Body(Nothing {}): Body<Nothing>,
) -> HandlerResult {
    let session = api.call(&caller, &call).await?;
    undisturbed({
        let (runtime, call) = (api.runtime().clone(), call.clone());
        async move { runtime.accept(&call).await }
    })
    .await?;
    json(&View::of_session(api.runtime(), &session).show(&call, Show::default()).await?)
}

/// The holder of the key may be a stranger, and learns nothing of the call.
pub async fn complete(
    State(api): State<Api>,
    PathCompletionKey(key): PathCompletionKey,
    Body(body): Body<CompletionBody>,
) -> HandlerResult {
    let (runtime, said) = (api.runtime().clone(), body.said()?);
    undisturbed(async move { runtime.complete(&key, said).await }).await?;
    json(&CompletionReceipt { completed: true })
}

pub async fn client_result(
    State(api): State<Api>,
    caller: Caller,
    PathParams(call): PathParams<String>,
    Body(body): Body<CompletionBody>,
) -> HandlerResult {
    api.call(&caller, &call).await?;
    let (runtime, said) = (api.runtime().clone(), body.said()?);
    undisturbed(async move { runtime.client_result(&call, said).await }).await?;
    json(&CompletionReceipt { completed: true })
}

pub async fn signal(
    State(api): State<Api>,
    caller: Caller,
    PathParams(call): PathParams<String>,
    Body(SignalBody { name, payload, key }): Body<SignalBody>,
) -> HandlerResult {
    api.call(&caller, &call).await?;
    let runtime = api.runtime().clone();
    undisturbed(async move {
        let signal = windlass::ask::Signal { name: &name, payload: &payload, key: key.as_deref() };
        runtime.signal(&call, signal).await
    })
    .await?;
    json(&SignalReceipt { signalled: true })
}

pub async fn questions(
    State(api): State<Api>,
    caller: Caller,
    QueryParams(list): QueryParams<QuestionQuery>,
) -> HandlerResult {
    let view = View::of_record(api.runtime().store().clone());
    let (mut shown, left_out) =
        api.in_reach(&caller, async |whose| view.questions(whose, &list).await).await?;
    shown.left_out = left_out;
    json(&shown)
}

pub async fn answer(
    State(api): State<Api>,
    caller: Caller,
    PathParams(id): PathParams<String>,
    Body(body): Body<AnswerBody>,
) -> HandlerResult {
    api.question(&caller, &id).await?;
    let runtime = api.runtime().clone();
    undisturbed(async move { runtime.answer(&id, &body.answer).await }).await?;
    json(&CompletionReceipt { completed: true })
}

pub async fn connect(
    State(api): State<Api>,
    caller: Caller,
    PathParams((session, provider)): PathParams<(String, String)>,
    Body(body): Body<Connect>,
) -> HandlerResult {
    api.session(&caller, &session).await?;
    let runtime = api.runtime().clone();
    let reached = undisturbed(async move { runtime.connected(&session, &provider, body.connected).await });
    json(&ConnectionReach { waiting: reached.await?.waiting })
}
