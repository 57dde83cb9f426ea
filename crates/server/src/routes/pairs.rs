//! The key-value pairs of a session.

use super::{Answered, json};
use crate::access::Caller;
use crate::api::Api;
use crate::extract::{Asked, Body, Named};
use crate::problem::Problem;
use crate::undisturbed::undisturbed;
use crate::view;
use crate::wire::shown::{Page, Pair, PairKey};
use crate::wire::{Deleted, NewPair, Pairs};
use axum::extract::State;
use windlass::{PairError, PairList};

pub async fn list(
    State(api): State<Api>,
    caller: Caller,
    Named(session): Named<String>,
    Asked(list): Asked<Pairs>,
) -> Answered {
    api.session(&caller, &session).await?;
    let limit = view::limit(list.limit)?;
    let prefix = list.prefix.as_deref().unwrap_or_default();
    let wanted = PairList { prefix, after: list.after.as_deref(), limit: Some(limit as u64 + 1) };
    let found = api.runtime().kv(&session).list(wanted).await?;
    let more = found.len() > limit;
    let items = found.into_iter().take(limit);
    let items: Vec<PairKey> =
        items.map(|pair| PairKey { key: pair.key, generation: pair.generation }).collect();
    let next = items.last().filter(|_| more).map(|last| last.key.clone());
    json(&Page { items, next })
}

pub async fn show(
    State(api): State<Api>,
    caller: Caller,
    Named((session, key)): Named<(String, String)>,
) -> Answered {
    api.session(&caller, &session).await?;
    match api.runtime().kv(&session).get(&key).await? {
        Some(pair) => json(&Pair { key: pair.key, value: pair.value, generation: pair.generation }),
        None => Err(Problem::new("not_found", format!("there is no pair {key:?} in session {session:?}"))),
    }
}

pub async fn set(
    State(api): State<Api>,
    caller: Caller,
    Named((session, key)): Named<(String, String)>,
    Body(NewPair { value, generation }): Body<NewPair>,
) -> Answered {
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
    json(&PairKey { key, generation: written.await? })
}

pub async fn delete(
    State(api): State<Api>,
    caller: Caller,
    Named((session, key)): Named<(String, String)>,
) -> Answered {
    api.takes_work()?;
    api.session(&caller, &session).await?;
    let pairs = api.runtime().kv(&session);
    undisturbed(async move { pairs.delete(&key).await }).await?;
    json(&Deleted { deleted: true })
}

impl From<PairError> for Problem {
    fn from(error: PairError) -> Problem {
        let told = error.to_string();
        match error {
            PairError::Unfit { .. } => Problem::new("invalid_pair", told),
            PairError::Full { .. } => Problem::new("too_many_pairs", told),
            PairError::Changed { .. } => Problem::new("conflict", told),
            PairError::Batch(error) => Problem::from(error),
        }
    }
}
