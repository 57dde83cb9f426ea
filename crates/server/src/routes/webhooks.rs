//! Managing webhooks.

use super::{HandlerResult, json, page, removed, with_status};
use crate::access::Caller;
use crate::api::Api;
use crate::extract::{Body, PathParams, QueryParams};
use crate::problem::Problem;
use crate::undisturbed::undisturbed;
use crate::wire::webhooks::{NewWebhookView, WebhookBody, WebhookEdit};
use crate::wire::{Nothing, Paging};
use axum::extract::State;
use hyper::StatusCode;
use windlass::error::WebhookError;
use windlass::webhooks::AddedWebhook;

pub async fn list(State(api): State<Api>, QueryParams(paging): QueryParams<Paging>) -> HandlerResult {
    page(api.runtime().webhooks().list().await?, &paging, |hook| &hook.id)
}

pub async fn show(State(api): State<Api>, PathParams(id): PathParams<String>) -> HandlerResult {
    json(&api.runtime().webhooks().get(&id).await?)
}

pub async fn make(State(api): State<Api>, caller: Caller, Body(wanted): Body<WebhookBody>) -> HandlerResult {
    let (webhooks, by) = (api.runtime().webhooks(), caller.principal.clone());
    let added = undisturbed(async move { webhooks.add(wanted.into(), &by).await.map_err(Problem::from) });
    let AddedWebhook { secret, webhook } = added.await?;
    with_status(StatusCode::CREATED, &NewWebhookView { secret, shown: webhook })
}

pub async fn edit(
    State(api): State<Api>,
    PathParams(id): PathParams<String>,
    Body(WebhookEdit { enabled }): Body<WebhookEdit>,
) -> HandlerResult {
    let webhooks = api.runtime().webhooks();
    json(&undisturbed(async move { webhooks.enable(&id, enabled).await.map_err(Problem::from) }).await?)
}

pub async fn remove(State(api): State<Api>, PathParams(id): PathParams<String>) -> HandlerResult {
    let webhooks = api.runtime().webhooks();
    let change = async move {
        match webhooks.remove(&id).await? {
            true => Ok(()),
            false => Err(WebhookError::NotFound { id }),
        }
    };
    removed(change).await
}

pub async fn test(
    State(api): State<Api>,
    PathParams(id): PathParams<String>,
    Body(Nothing {}): Body<Nothing>,
) -> HandlerResult {
    json(&api.runtime().webhooks().test(&id).await?)
}
