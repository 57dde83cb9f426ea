//! Tokens, for who manages them.

use super::{Answered, json, with_status};
use crate::api::Api;
use crate::extract::{Asked, Body, Named};
use crate::problem::Problem;
use crate::undisturbed::undisturbed;
use crate::view;
use crate::wire::shown::{Page, Revoked};
use crate::wire::{NewToken, Paging};
use axum::extract::State;
use hyper::StatusCode;

pub async fn list(State(api): State<Api>, Asked(paging): Asked<Paging>) -> Answered {
    let limit = view::limit(paging.limit)?;
    let (items, next) = api.tokens().list(paging.after.as_deref(), limit).await?;
    json(&Page { items, next })
}

pub async fn make(State(api): State<Api>, Body(wanted): Body<NewToken>) -> Answered {
    with_status(StatusCode::CREATED, &api.tokens().make(wanted).await?)
}

pub async fn revoke(State(api): State<Api>, Named(id): Named<String>) -> Answered {
    let revoking = api.clone();
    let gone = undisturbed({
        let id = id.clone();
        async move { revoking.tokens().revoke(&id).await }
    });
    match gone.await? {
        true => json(&Revoked { revoked: true }),
        false => Err(Problem::new(
            "not_found",
            format!("there is no token {id:?}; `windlass token list` lists them"),
        )),
    }
}
