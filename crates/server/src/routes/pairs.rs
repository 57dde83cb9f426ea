//! The key-value pairs of a session.

use super::{HandlerResult, json, removed};
use crate::access::Caller;
use crate::api::Api;
use crate::extract::{Body, PathParams, QueryParams};
use crate::problem::{Problem, ProblemCode};
use crate::undisturbed::undisturbed;
use crate::view;
use crate::wire::shown::{PageView, PairKeyView, PairView};
use crate::wire::{NewPair, PairQuery};
use axum::extract::State;
use windlass::error::PairError;
use windlass::sessions::PairList;

pub async fn list(
    State(api): State<Api>,
    caller: Caller,
    PathParams(session): PathParams<String>,
    QueryParams(list): QueryParams<PairQuery>,
) -> HandlerResult {
    api.session(&caller, &session).await?;
    let limit = view::limit(list.limit)?;
    let prefix = list.prefix.as_deref().unwrap_or_default();
    let wanted = PairList { prefix, after: list.after.as_deref(), limit: Some(limit as u64 + 1) };
    let found = api.runtime().kv(&session).list(wanted).await?;
    let more = found.len() > limit;
    let items = found.into_iter().take(limit);
    let items: Vec<PairKeyView> =
        items.map(|pair| PairKeyView { key: pair.key, generation: pair.generation }).collect();
    let next = items.last().filter(|_| more).map(|last| last.key.clone());
    json(&PageView { items, next })
}

pub async fn show(
    State(api): State<Api>,
    caller: Caller,
    PathParams((session, key)): PathParams<(String, String)>,
) -> HandlerResult {
    api.session(&caller, &session).await?;
    match api.runtime().kv(&session).get(&key).await? {
        Some(pair) => json(&PairView { key: pair.key, value: pair.value, generation: pair.generation }),
        None => Err(Problem::new(
            ProblemCode::NotFound,
            format!("there is no pair {key:?} in session {session:?}"),
        )),
    }
}

pub async fn set(
    State(api): State<Api>,
    caller: Caller,
    PathParams((session, key)): PathParams<(String, String)>,
    Body(NewPair { value, generation }): Body<NewPair>,
) -> HandlerResult {
    api.takes_work()?;
    api.claim(&caller, &session).await?;
    let written = undisturbed({
        let (pairs, key) = (api.runtime().kv(&session), key.clone());
        async move {
            match generation {
                Some(generation) => pairs.set_if(&key, &value, generation).await,
                None => pairs.set(&key, &value).await,
            }
        }
    });
    json(&PairKeyView { key, generation: written.await? })
}

pub async fn delete(
    State(api): State<Api>,
    caller: Caller,
    PathParams((session, key)): PathParams<(String, String)>,
) -> HandlerResult {
    api.takes_work()?;
    api.session(&caller, &session).await?;
    let pairs = api.runtime().kv(&session);
    removed(async move { pairs.delete(&key).await }).await
}

impl From<PairError> for Problem {
    fn from(error: PairError) -> Problem {
        let told = error.to_string();
        match error {
            PairError::Unfit { .. } => Problem::new(ProblemCode::InvalidPair, told),
            PairError::Full { .. } => Problem::new(ProblemCode::TooManyPairs, told),
            PairError::Changed { .. } => Problem::new(ProblemCode::Conflict, told),
            PairError::Session(error) => Problem::from(error),
            // A kind that this server does not know yet.
            _ => Problem::new(ProblemCode::Internal, told),
        }
    }
}
