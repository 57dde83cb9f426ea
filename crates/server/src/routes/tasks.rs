//! The tasks of a session, their logs, and the session's inbox.

use super::{HandlerResult, json};
use crate::access::Caller;
use crate::api::Api;
use crate::extract::{Body, PathParams, QueryParams};
use crate::problem::{Problem, ProblemCode};
use crate::undisturbed::undisturbed;
use crate::view::{self, View};
use crate::wire::background::{InboxQuery, NoticeBody, PostedNotice, TaskQuery};
use crate::wire::shown::{TaskMessages, TaskNotices, WholeTask};
use crate::wire::turns::WireQuery;
use crate::wire::{Acknowledged, Nothing, Paging, Requeued, SaidTo, SayBody, Show, Take};
use axum::extract::State;
use serde_json::value::RawValue;
use std::time::Duration;
use windlass::error::InboxError;
use windlass::outcome::{ModelAnswer, Part};
use windlass::tasks::{NewMessage, NewNotice, Notice, Tasks};
use windlass_wire::Wire;

/// The longest wait for a notice, in milliseconds: shorter than most connections live without a byte.
const WAIT_MS_MAX: u64 = 60_000;

/// The default lease of a notice, in milliseconds.
const LEASE_MS: u64 = 60_000;

pub async fn list(
    State(api): State<Api>,
    caller: Caller,
    PathParams(session): PathParams<String>,
    QueryParams(query): QueryParams<TaskQuery>,
) -> HandlerResult {
    api.session(&caller, &session).await?;
    json(&view::tasks(&api.runtime().tasks(&session), &query).await?)
}

pub async fn show(
    State(api): State<Api>,
    caller: Caller,
    PathParams((session, task)): PathParams<(String, String)>,
) -> HandlerResult {
    api.session(&caller, &session).await?;
    let tasks = api.runtime().tasks(&session);
    if let Some(monitor) = tasks.monitor(&task).await? {
        return json(&WholeTask { task: monitor, call: None });
    }
    let (found, _) = tasks.get(&task).await?;
    let call = View::of_session(api.runtime(), &session).show(&task, Show::default()).await?;
    json(&WholeTask { task: found, call: Some(call) })
}

pub async fn log(
    State(api): State<Api>,
    caller: Caller,
    PathParams((session, task)): PathParams<(String, String)>,
    QueryParams(paging): QueryParams<Paging>,
) -> HandlerResult {
    api.session(&caller, &session).await?;
    json(&view::log(&api.runtime().tasks(&session), &task, &paging).await?)
}

pub async fn messages(
    State(api): State<Api>,
    caller: Caller,
    PathParams((session, task)): PathParams<(String, String)>,
    QueryParams(paging): QueryParams<Paging>,
) -> HandlerResult {
    api.session(&caller, &session).await?;
    let (after, limit) = (paging.after.as_deref(), view::limit(paging.limit)?);
    let mut items = api.runtime().tasks(&session).messages_after(&task, after, limit as u64 + 1).await?;
    let more = items.len() > limit;
    items.truncate(limit);
    let next = items.last().filter(|_| more).map(|message| message.id.clone());
    json(&TaskMessages { items, next })
}

pub async fn say(
    State(api): State<Api>,
    caller: Caller,
    PathParams((session, task)): PathParams<(String, String)>,
    Body(SayBody { text, in_reply_to, key }): Body<SayBody>,
) -> HandlerResult {
    api.takes_work()?;
    api.session(&caller, &session).await?;
    let tasks = api.runtime().tasks(&session);
    let said = async move {
        let message = NewMessage { text: &text, in_reply_to: in_reply_to.as_deref(), key: key.as_deref() };
        tasks.say(&task, message).await
    };
    undisturbed(said).await?;
    json(&SaidTo { said: true })
}

/// Checks that the session has this task.
pub(super) async fn is_there(tasks: &Tasks, task: &str) -> Result<(), Problem> {
    tasks.get(task).await?;
    Ok(())
}

pub async fn inbox(
    State(api): State<Api>,
    caller: Caller,
    PathParams(session): PathParams<String>,
    QueryParams(query): QueryParams<InboxQuery>,
) -> HandlerResult {
    api.session(&caller, &session).await?;
    json(&view::inbox(&api.runtime().inbox(&session), &query).await?)
}

pub async fn post(
    State(api): State<Api>,
    caller: Caller,
    PathParams(session): PathParams<String>,
    Body(NoticeBody { title, text, urgency, priority, key }): Body<NoticeBody>,
) -> HandlerResult {
    api.takes_work()?;
    api.claim(&caller, &session).await?;
    let (inbox, notice) = (api.runtime().inbox(&session), NewNotice { title, text, urgency, priority, key });
    let id = undisturbed(async move { inbox.post(notice).await }).await?;
    json(&PostedNotice { id })
}

pub async fn take(
    State(api): State<Api>,
    caller: Caller,
    PathParams(session): PathParams<String>,
    QueryParams(WireQuery { wire }): QueryParams<WireQuery>,
    Body(Take { limit, lease_ms, wait_ms }): Body<Take>,
) -> HandlerResult {
    api.takes_work()?;
    api.session(&caller, &session).await?;
    let (inbox, most) = (api.runtime().inbox(&session), view::limit(limit)? as u64);
    let lease_ms = lease_ms.unwrap_or(LEASE_MS);
    if wait_ms.is_some_and(|wait_ms| wait_ms > WAIT_MS_MAX) {
        return Err(Problem::new(
            ProblemCode::InvalidArgs,
            format!("wait_ms is at most {WAIT_MS_MAX}; take again after it"),
        ));
    }
    let taken = match wait_ms {
        // Nobody waits on behalf of a caller that has gone away: what it would take stays in the inbox.
        Some(wait_ms) => inbox.take_within(most, lease_ms, Duration::from_millis(wait_ms)).await?,
        None => undisturbed(async move { inbox.take(most, lease_ms).await }).await?,
    };
    let messages = wire.map(|wire| taken.iter().flat_map(|notice| told(wire.into(), notice)).collect());
    json(&TaskNotices { items: taken, messages })
}

/// A notice as messages to append to the conversation.
fn told(wire: Wire, notice: &Notice) -> Vec<Box<RawValue>> {
    wire.notice(&ModelAnswer { parts: vec![Part::Text(notice.text.clone())], is_error: false })
}

pub async fn acknowledge(
    State(api): State<Api>,
    caller: Caller,
    PathParams((session, id)): PathParams<(String, String)>,
    Body(Nothing {}): Body<Nothing>,
) -> HandlerResult {
    api.takes_work()?;
    api.session(&caller, &session).await?;
    let inbox = api.runtime().inbox(&session);
    undisturbed(async move { inbox.acknowledge(&id).await }).await?;
    json(&Acknowledged { acknowledged: true })
}

pub async fn requeue(
    State(api): State<Api>,
    caller: Caller,
    PathParams((session, id)): PathParams<(String, String)>,
    Body(Nothing {}): Body<Nothing>,
) -> HandlerResult {
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
            InboxError::NotFound { .. } => Problem::new(ProblemCode::NotFound, told),
            InboxError::Lease { .. } | InboxError::Invalid { .. } => {
                Problem::new(ProblemCode::InvalidArgs, told)
            }
            InboxError::Full { .. } => Problem::new(ProblemCode::Overloaded, told),
            InboxError::NotOwned => Problem::new(ProblemCode::Internal, told),
            InboxError::Session(error) => Problem::from(error),
            // A kind that this server does not know yet.
            _ => Problem::new(ProblemCode::Internal, told),
        }
    }
}
