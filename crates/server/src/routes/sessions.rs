//! Sessions.

use super::{Answered, json, opened};
use crate::access::Caller;
use crate::api::Api;
use crate::extract::{Asked, Body, Named};
use crate::problem::Problem;
use crate::view;
use crate::wire::shown::{Page, Session};
use crate::wire::{Deleted, NewSession, Paging};
use axum::extract::State;
use windlass::fresh_key;

pub async fn open(State(api): State<Api>, caller: Caller, Body(wanted): Body<NewSession>) -> Answered {
    api.takes_work()?;
    let name = match &wanted.id {
        Some(id) => id.clone(),
        None => fresh_key()?,
    };
    let when = (api.now(), api.runtime().limits());
    let is_new = api.sessions().open(&caller, (&name, &wanted), when).await?;
    opened(is_new, &shown(&api, &name).await?)
}

pub async fn list(State(api): State<Api>, caller: Caller, Asked(paging): Asked<Paging>) -> Answered {
    let limit = view::limit(paging.limit)?;
    let (names, next) = api.sessions().page(&caller, paging.after.as_deref(), limit).await?;
    let mut items = Vec::with_capacity(names.len());
    for name in &names {
        items.push(shown(&api, name).await?);
    }
    json(&Page { items, next })
}

pub async fn show(State(api): State<Api>, caller: Caller, Named(session): Named<String>) -> Answered {
    api.session(&caller, &session).await?;
    json(&shown(&api, &session).await?)
}

/// Removes a session with everything it had.
pub async fn remove(State(api): State<Api>, caller: Caller, Named(session): Named<String>) -> Answered {
    api.takes_work()?;
    api.session(&caller, &session).await?;
    api.remove(session).await?;
    json(&Deleted { deleted: true })
}

async fn shown(api: &Api, name: &str) -> Result<Session, Problem> {
    view::session(api.runtime().store(), api.sessions().setting(name).await?, name).await
}
