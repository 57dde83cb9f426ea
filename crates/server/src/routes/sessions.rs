//! Sessions.

use super::{HandlerResult, json, opened};
use crate::access::Caller;
use crate::api::Api;
use crate::extract::{Body, PathParams, QueryParams};
use crate::problem::{Problem, ProblemCode};
use crate::view;
use crate::wire::shown::{PageView, SessionView};
use crate::wire::{Deleted, NewSession, Paging};
use axum::extract::State;
use windlass::batch::fresh_key;

pub async fn open(State(api): State<Api>, caller: Caller, Body(wanted): Body<NewSession>) -> HandlerResult {
    api.takes_work()?;
    let name = match &wanted.id {
        Some(id) => id.clone(),
        None => fresh_key()?,
    };
    let (now, limits) = (api.now(), api.runtime().limits());
    let is_new = api.sessions().open(&caller, &name, &wanted, now, limits).await?;
    opened(is_new, &shown(&api, &name).await?)
}

pub async fn list(
    State(api): State<Api>,
    caller: Caller,
    QueryParams(paging): QueryParams<Paging>,
) -> HandlerResult {
    let limit = view::limit(paging.limit)?;
    let (names, next) = api.sessions().page(&caller, paging.after.as_deref(), limit).await?;
    let mut items = Vec::with_capacity(names.len());
    for name in &names {
        match shown(&api, name).await {
            // The session was removed in the meantime.
            Err(problem) if problem.code == ProblemCode::NotFound => {}
            shown => items.push(shown?),
        }
    }
    json(&PageView { items, next })
}

pub async fn show(
    State(api): State<Api>,
    caller: Caller,
    PathParams(session): PathParams<String>,
) -> HandlerResult {
    api.session(&caller, &session).await?;
    json(&shown(&api, &session).await?)
}

/// Removes a session with all its data.
pub async fn remove(
    State(api): State<Api>,
    caller: Caller,
    PathParams(session): PathParams<String>,
) -> HandlerResult {
    api.takes_work()?;
    api.session(&caller, &session).await?;
    api.remove(session).await?;
    json(&Deleted { deleted: true })
}

async fn shown(api: &Api, name: &str) -> Result<SessionView, Problem> {
    view::session(api.runtime().store(), api.sessions().setting(name).await?, name).await
}
