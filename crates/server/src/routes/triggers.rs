//! The triggers of a session.

use super::{Answered, json, opened};
use crate::access::Caller;
use crate::api::Api;
use crate::extract::{Asked, Body, Named};
use crate::problem::Problem;
use crate::undisturbed::undisturbed;
use crate::view;
use crate::wire::triggers::NewTrigger;
use crate::wire::{Deleted, Paging};
use axum::extract::State;
use windlass::TriggerError;
use windlass::core::call::Wake;

pub async fn list(
    State(api): State<Api>,
    caller: Caller,
    Named(session): Named<String>,
    Asked(paging): Asked<Paging>,
) -> Answered {
    api.session(&caller, &session).await?;
    json(&view::triggers(&api.runtime().triggers(&session), &paging).await?)
}

pub async fn make(
    State(api): State<Api>,
    caller: Caller,
    Named(session): Named<String>,
    Body(wanted): Body<NewTrigger>,
) -> Answered {
    api.takes_work()?;
    api.claim(&caller, &session).await?;
    let new = windlass::NewTrigger {
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
    Named((session, id)): Named<(String, String)>,
) -> Answered {
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
            TriggerError::Invalid { .. } => Problem::new("invalid_trigger", told),
            TriggerError::Exists { .. } => Problem::new("conflict", told),
            TriggerError::Full { .. } => Problem::new("too_many_triggers", told),
            TriggerError::NotOwned => Problem::new("internal", told),
            TriggerError::Batch(error) => Problem::from(error),
        }
    }
}
