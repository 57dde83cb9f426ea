//! What is asked of calls that are under way or over: to stop, to go on, to take an answer.

use super::{Answered, json, tasks};
use crate::access::Caller;
use crate::api::Api;
use crate::extract::{Asked, Body, Named};
use crate::problem::Problem;
use crate::undisturbed::undisturbed;
use crate::view::View;
use crate::wire::{
    Answer, Cancel, Cancelled, Complete, Completed, Connect, Connecting, Nothing, Questions,
    REASON_CHARS_MAX, Resolve, Signal, Signalled,
};
use axum::extract::State;
use windlass::{Resolution, Target};

pub async fn cancel_call(
    State(api): State<Api>,
    caller: Caller,
    Named(call): Named<String>,
    Body(body): Body<Cancel>,
) -> Answered {
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
    Named((session, task)): Named<(String, String)>,
    Body(body): Body<Cancel>,
) -> Answered {
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
    Named(session): Named<String>,
    Body(body): Body<Cancel>,
) -> Answered {
    let reason = reason(body)?;
    api.session(&caller, &session).await?;
    // One that is opened and not used yet has no journal, and nothing to stop.
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
    Named((session, key)): Named<(String, String)>,
    Body(body): Body<Cancel>,
) -> Answered {
    let reason = reason(body)?;
    api.session(&caller, &session).await?;
    cancel(&api, reason, async move |runtime, reason| {
        runtime.cancel(Target::Batch { session: &session, key: &key }, reason.as_deref()).await
    })
    .await
}

async fn cancel<F>(
    api: &Api,
    reason: Option<String>,
    ask: impl FnOnce(windlass::Runtime, Option<String>) -> F,
) -> Answered
where
    F: Future<Output = Result<windlass::Asked, windlass::AskError>> + Send + 'static,
{
    let asked = undisturbed(ask(api.runtime().clone(), reason)).await?;
    json(&Cancelled { asked: asked.asked, over: asked.over })
}

/// Why something is cancelled, if it is not too long.
fn reason(body: Cancel) -> Result<Option<String>, Problem> {
    if body.reason.as_ref().is_some_and(|reason| reason.chars().count() > REASON_CHARS_MAX) {
        let told = format!("a reason has at most {REASON_CHARS_MAX} characters; say it shorter");
        return Err(Problem::new("bad_body", told));
    }
    Ok(body.reason)
}

pub async fn resolve(
    State(api): State<Api>,
    caller: Caller,
    Named(call): Named<String>,
    Body(body): Body<Resolve>,
) -> Answered {
    let session = api.call(&caller, &call).await?;
    let landed = body.landed.map(Resolution::Landed);
    let resolution = match (landed, body.did_not_happen, body.ask_tool) {
        (Some(landed), false, false) => Some(landed),
        (None, true, false) => Some(Resolution::DidNotHappen),
        (None, false, true) => None,
        _ => {
            let told =
                "say exactly one of {\"landed\": value}, {\"did_not_happen\": true}, {\"ask_tool\": true}";
            return Err(Problem::new("bad_body", told));
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
    json(&View::of_session(api.runtime(), &session).show(&call, false).await?)
}

pub async fn accept(
    State(api): State<Api>,
    caller: Caller,
    Named(call): Named<String>,
    Body(Nothing {}): Body<Nothing>,
) -> Answered {
    let session = api.call(&caller, &call).await?;
    undisturbed({
        let (runtime, call) = (api.runtime().clone(), call.clone());
        async move { runtime.accept(&call).await }
    })
    .await?;
    json(&View::of_session(api.runtime(), &session).show(&call, false).await?)
}

/// Whoever has the key may be a stranger, and is told nothing of the call.
pub async fn complete(
    State(api): State<Api>,
    Named(key): Named<String>,
    Body(body): Body<Complete>,
) -> Answered {
    let (runtime, said) = (api.runtime().clone(), body.said()?);
    undisturbed(async move { runtime.complete(&key, said).await }).await?;
    json(&Completed { completed: true })
}

pub async fn client_result(
    State(api): State<Api>,
    caller: Caller,
    Named(call): Named<String>,
    Body(body): Body<Complete>,
) -> Answered {
    api.call(&caller, &call).await?;
    let (runtime, said) = (api.runtime().clone(), body.said()?);
    undisturbed(async move { runtime.client_result(&call, said).await }).await?;
    json(&Completed { completed: true })
}

pub async fn signal(
    State(api): State<Api>,
    caller: Caller,
    Named(call): Named<String>,
    Body(Signal { name, payload, key }): Body<Signal>,
) -> Answered {
    api.call(&caller, &call).await?;
    let runtime = api.runtime().clone();
    undisturbed(async move {
        let signal = windlass::Signal { name: &name, payload: &payload, key: key.as_deref() };
        runtime.signal(&call, signal).await
    })
    .await?;
    json(&Signalled { signalled: true })
}

pub async fn questions(State(api): State<Api>, caller: Caller, Asked(list): Asked<Questions>) -> Answered {
    let view = View::of_record(api.runtime().store().clone());
    json(&api.in_reach(&caller, async |whose| view.questions(whose, &list).await).await?)
}

pub async fn answer(
    State(api): State<Api>,
    caller: Caller,
    Named(id): Named<String>,
    Body(body): Body<Answer>,
) -> Answered {
    api.question(&caller, &id).await?;
    let runtime = api.runtime().clone();
    undisturbed(async move { runtime.answer(&id, &body.answer).await }).await?;
    json(&Completed { completed: true })
}

pub async fn connect(
    State(api): State<Api>,
    caller: Caller,
    Named((session, provider)): Named<(String, String)>,
    Body(body): Body<Connect>,
) -> Answered {
    api.session(&caller, &session).await?;
    let runtime = api.runtime().clone();
    let reached = undisturbed(async move { runtime.connected(&session, &provider, body.connected).await });
    json(&Connecting { waiting: reached.await?.waiting })
}
