//! Managing grants.

use super::{HandlerResult, json, with_status};
use crate::access::Caller;
use crate::api::Api;
use crate::extract::{Body, PathParams, QueryParams};
use crate::problem::Problem;
use crate::undisturbed::undisturbed;
use crate::view;
use crate::wire::Deleted;
use crate::wire::grants::{AttenuateBody, GrantBody, GrantQuery, GrantView, NewGrantView};
use crate::wire::shown::PageView;
use axum::extract::State;
use hyper::StatusCode;

pub async fn list(State(api): State<Api>, QueryParams(list): QueryParams<GrantQuery>) -> HandlerResult {
    let limit = view::limit(list.limit)? as u64;
    let runtime = api.runtime();
    let page = runtime.grants().page(list.session.as_deref(), list.after.as_deref(), limit).await?;
    let now = runtime.clock().now();
    let items: Vec<GrantView> = page.items.into_iter().map(|grant| GrantView::of(grant, now)).collect();
    json(&PageView { items, next: page.next })
}

pub async fn issue(State(api): State<Api>, caller: Caller, Body(wanted): Body<GrantBody>) -> HandlerResult {
    let (runtime, by) = (api.runtime().clone(), caller.principal.clone());
    let issued = undisturbed(async move {
        let (session, now) = (wanted.session.clone(), runtime.clock().now());
        let issued = runtime.grants().issue(&session, wanted.terms(now), &by).await;
        issued.map(|issued| NewGrantView::of(issued, now)).map_err(Problem::from)
    });
    with_status(StatusCode::CREATED, &issued.await?)
}

pub async fn attenuate(
    State(api): State<Api>,
    caller: Caller,
    PathParams(id): PathParams<String>,
    Body(wanted): Body<AttenuateBody>,
) -> HandlerResult {
    let (runtime, by) = (api.runtime().clone(), caller.principal.clone());
    let issued = undisturbed(async move {
        let now = runtime.clock().now();
        let issued = runtime.grants().attenuate(&id, wanted.copy(now), &by).await;
        issued.map(|issued| NewGrantView::of(issued, now)).map_err(Problem::from)
    });
    with_status(StatusCode::CREATED, &issued.await?)
}

pub async fn revoke(State(api): State<Api>, PathParams(id): PathParams<String>) -> HandlerResult {
    let runtime = api.runtime().clone();
    undisturbed(async move { runtime.grants().revoke(&id).await.map_err(Problem::from) }).await?;
    json(&Deleted { deleted: true })
}
