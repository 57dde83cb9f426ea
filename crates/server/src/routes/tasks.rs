//! The tasks of a session, what they have said, and the session's inbox.

use super::{Answered, json};
use crate::access::Caller;
use crate::api::Api;
use crate::extract::{Asked, Body, Named};
use crate::problem::Problem;
use crate::undisturbed::undisturbed;
use crate::view::{self, View};
use crate::wire::{Acknowledged, Nothing, Paging, Requeued, SaidTo, Say, Take};
use axum::extract::State;
use windlass::{InboxError, Tasks};

/// A notice is somebody's for so long if they do not say, in milliseconds.
const LEASE_MS: u64 = 60_000;

pub async fn list(
    State(api): State<Api>,
    caller: Caller,
    Named(session): Named<String>,
    Asked(paging): Asked<Paging>,
) -> Answered {
    api.session(&caller, &session).await?;
    json(&view::tasks(&api.runtime().tasks(&session), &paging).await?)
}

pub async fn show(
    State(api): State<Api>,
    caller: Caller,
    Named((session, task)): Named<(String, String)>,
) -> Answered {
    api.session(&caller, &session).await?;
    let tasks = api.runtime().tasks(&session);
    if let Some(monitor) = tasks.monitor(&task).await? {
        return json(&monitor);
    }
    let (found, _) = tasks.get(&task).await?;
    let call = View::of_session(api.runtime(), &session).show(&task, false).await?;
    let mut shown = serde_json::to_value(found).unwrap_or_default();
    shown["call"] = call;
    json(&shown)
}

pub async fn log(
    State(api): State<Api>,
    caller: Caller,
    Named((session, task)): Named<(String, String)>,
    Asked(paging): Asked<Paging>,
) -> Answered {
    api.session(&caller, &session).await?;
    json(&view::log((&api.runtime().tasks(&session), &task), &paging).await?)
}

pub async fn messages(
    State(api): State<Api>,
    caller: Caller,
    Named((session, task)): Named<(String, String)>,
) -> Answered {
    api.session(&caller, &session).await?;
    let messages = api.runtime().tasks(&session).messages(&task).await?;
    json(&serde_json::json!({ "items": messages }))
}

pub async fn say(
    State(api): State<Api>,
    caller: Caller,
    Named((session, task)): Named<(String, String)>,
    Body(Say { text, in_reply_to, key }): Body<Say>,
) -> Answered {
    api.takes_work()?;
    api.session(&caller, &session).await?;
    let tasks = api.runtime().tasks(&session);
    let said = async move { tasks.say(&task, (&text, in_reply_to.as_deref()), key.as_deref()).await };
    undisturbed(said).await?;
    json(&SaidTo { said: true })
}

/// The task of this session, or it is told as one that is not there.
pub(super) async fn is_there(tasks: &Tasks, task: &str) -> Result<(), Problem> {
    tasks.get(task).await?;
    Ok(())
}

pub async fn inbox(
    State(api): State<Api>,
    caller: Caller,
    Named(session): Named<String>,
    Asked(paging): Asked<Paging>,
) -> Answered {
    api.session(&caller, &session).await?;
    json(&view::inbox(&api.runtime().inbox(&session), &paging).await?)
}

pub async fn take(
    State(api): State<Api>,
    caller: Caller,
    Named(session): Named<String>,
    Body(Take { limit, lease_ms }): Body<Take>,
) -> Answered {
    api.takes_work()?;
    api.session(&caller, &session).await?;
    let (inbox, most) = (api.runtime().inbox(&session), view::limit(limit)? as u64);
    let taken = undisturbed(async move { inbox.take(most, lease_ms.unwrap_or(LEASE_MS)).await }).await?;
    json(&serde_json::json!({ "items": taken }))
}

pub async fn acknowledge(
    State(api): State<Api>,
    caller: Caller,
    Named((session, id)): Named<(String, String)>,
    Body(Nothing {}): Body<Nothing>,
) -> Answered {
    api.takes_work()?;
    api.session(&caller, &session).await?;
    let inbox = api.runtime().inbox(&session);
    undisturbed(async move { inbox.acknowledge(&id).await }).await?;
    json(&Acknowledged { acknowledged: true })
}

pub async fn requeue(
    State(api): State<Api>,
    caller: Caller,
    Named((session, id)): Named<(String, String)>,
    Body(Nothing {}): Body<Nothing>,
) -> Answered {
    api.takes_work()?;
    api.session(&caller, &session).await?;
    let inbox = api.runtime().inbox(&session);
    undisturbed(async move { inbox.requeue(&id).await }).await?;
    json(&Requeued { requeued: true })
}

impl From<InboxError> for Problem {
    fn from(error: InboxError) -> Problem {
        let told = error.to_string();
        match error {
            InboxError::NotFound { .. } => Problem::new("not_found", told),
            InboxError::Lease { .. } => Problem::new("invalid_args", told),
            InboxError::NotOwned => Problem::new("internal", told),
            InboxError::Batch(error) => Problem::from(error),
        }
    }
}
