//! The triggers of a session.

use super::{HandlerResult, json, opened, removed};
use crate::access::Caller;
use crate::api::Api;
use crate::extract::{Body, PathParams, QueryParams};
use crate::problem::{Problem, ProblemCode};
use crate::undisturbed::undisturbed;
use crate::view;
use crate::wire::background::{EmittedEvent, EventBody};
use crate::wire::triggers::TriggerBody;
use crate::wire::{CompletionBody, CompletionReceipt, Paging};
use axum::extract::State;
use windlass::error::{EmitError, TriggerError};
use windlass::triggers::NewEvent;
use windlass_core::call::Wake;

pub async fn list(
    State(api): State<Api>,
    caller: Caller,
    PathParams(session): PathParams<String>,
    QueryParams(paging): QueryParams<Paging>,
) -> HandlerResult {
    api.session(&caller, &session).await?;
    json(&view::triggers(&api.runtime().triggers(&session), &paging).await?)
}

pub async fn make(
    State(api): State<Api>,
    caller: Caller,
    PathParams(session): PathParams<String>,
    Body(wanted): Body<TriggerBody>,
) -> HandlerResult {
    api.takes_work()?;
    api.claim(&caller, &session).await?;
    let new = windlass::triggers::NewTrigger {
        id: wanted.id,
        event: wanted.event,
        filter: wanted.filter.into_iter().collect(),
        tool: wanted.tool,
        args: wanted.args,
        event_as: wanted.event_as,
        title: wanted.title,
        wake: Wake::signals(wanted.signal_on_completion),
        owner: Some(caller.principal.to_string()),
    };
    let triggers = api.runtime().triggers(&session);
    let (made, is_new) = undisturbed(async move { triggers.create(new).await }).await?;
    opened(is_new, &made)
}

pub async fn remove(
    State(api): State<Api>,
    caller: Caller,
    PathParams((session, id)): PathParams<(String, String)>,
) -> HandlerResult {
    api.takes_work()?;
    api.session(&caller, &session).await?;
    let triggers = api.runtime().triggers(&session);
    removed(async move { triggers.remove(&id).await }).await
}

pub async fn emit(
    State(api): State<Api>,
    caller: Caller,
    PathParams(session): PathParams<String>,
    Body(EventBody { kind, payload, once_by }): Body<EventBody>,
) -> HandlerResult {
    api.takes_work()?;
    api.claim(&caller, &session).await?;
    let runtime = api.runtime().clone();
    let told = undisturbed(async move {
        let event = NewEvent { kind: &kind, payload, once_by: once_by.as_deref() };
        runtime.emit(&session, event).await
    })
    .await?;
    let tasks = told.tasks.iter().map(ToString::to_string).collect();
    json(&EmittedEvent { number: told.number, tasks, is_new: told.is_new })
}

pub async fn fulfil(
    State(api): State<Api>,
    caller: Caller,
    PathParams((session, event)): PathParams<(String, String)>,
    Body(body): Body<CompletionBody>,
) -> HandlerResult {
    api.takes_work()?;
    api.session(&caller, &session).await?;
    let (runtime, with) = (api.runtime().clone(), body.said()?);
    undisturbed(async move { runtime.fulfil(&session, &event, with).await }).await?;
    json(&CompletionReceipt { completed: true })
}

impl From<EmitError> for Problem {
    fn from(error: EmitError) -> Problem {
        let told = error.to_string();
        match error {
            EmitError::Undeclared { .. } | EmitError::Invalid { .. } => {
                Problem::new(ProblemCode::InvalidArgs, told)
            }
            EmitError::Batch(error) => Problem::from(error),
            EmitError::Session(error) => Problem::from(error),
            // A kind that this server does not know yet.
            _ => Problem::new(ProblemCode::Internal, told),
        }
    }
}

impl From<TriggerError> for Problem {
    fn from(error: TriggerError) -> Problem {
        let told = error.to_string();
        match error {
            TriggerError::Invalid { .. } => Problem::new(ProblemCode::InvalidTrigger, told),
            TriggerError::Refused(failure) => Problem::refused(&failure),
            TriggerError::Exists { .. } => Problem::new(ProblemCode::Conflict, told),
            TriggerError::Full { .. } => Problem::new(ProblemCode::TooManyTriggers, told),
            TriggerError::NotOwned => Problem::new(ProblemCode::Internal, told),
            TriggerError::Session(error) => Problem::from(error),
            // A kind that this server does not know yet.
            _ => Problem::new(ProblemCode::Internal, told),
        }
    }
}
