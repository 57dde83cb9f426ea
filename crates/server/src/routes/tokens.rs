//! Managing tokens.

use super::{HandlerResult, json, with_status};
use crate::api::Api;
use crate::extract::{Body, PathParams, QueryParams};
use crate::problem::{Problem, ProblemCode};
use crate::undisturbed::undisturbed;
use crate::view;
use crate::wire::shown::{PageView, Revoked};
use crate::wire::{NewToken, Paging};
use axum::extract::State;
use hyper::StatusCode;

pub async fn list(State(api): State<Api>, QueryParams(paging): QueryParams<Paging>) -> HandlerResult {
    let limit = view::limit(paging.limit)?;
    let (items, next) = api.tokens().list(paging.after.as_deref(), limit).await?;
    json(&PageView { items, next })
}

pub async fn make(State(api): State<Api>, Body(wanted): Body<NewToken>) -> HandlerResult {
    with_status(StatusCode::CREATED, &api.tokens().make(wanted).await?)
}

pub async fn revoke(State(api): State<Api>, PathParams(id): PathParams<String>) -> HandlerResult {
    let revoking = api.clone();
    let gone = undisturbed({
        let id = id.clone();
        async move { revoking.tokens().revoke(&id).await }
    });
    match gone.await? {
        true => json(&Revoked { revoked: true }),
        false => Err(Problem::new(
            ProblemCode::NotFound,
            format!("there is no token {id:?}; `windlass token list` lists them"),
        )),
    }
}
