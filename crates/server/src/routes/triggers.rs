//! The triggers of a session.

use super::{HandlerResult, json, opened};
use crate::access::Caller;
use crate::api::Api;
use crate::extract::{Body, PathParams, QueryParams};
use crate::problem::{Problem, ProblemCode};
use crate::undisturbed::undisturbed;
use crate::view;
use crate::wire::triggers::TriggerBody;
use crate::wire::{Deleted, Paging};
use axum::extract::State;
use windlass::error::TriggerError;
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
    undisturbed(async move { triggers.remove(&id).await }).await?;
    json(&Deleted { deleted: true })
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
