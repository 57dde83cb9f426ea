//! Managing webhooks.

use super::{HandlerResult, json, with_status};
use crate::access::Caller;
use crate::api::Api;
use crate::extract::{Body, PathParams, QueryParams};
use crate::problem::Problem;
use crate::undisturbed::undisturbed;
use crate::view;
use crate::wire::shown::PageView;
use crate::wire::webhooks::{NewWebhookView, WebhookBody, WebhookEdit};
use crate::wire::{Deleted, Nothing, Paging};
use axum::extract::State;
use hyper::StatusCode;
use windlass::error::WebhookError;
use windlass::webhooks::AddedWebhook;

pub async fn list(State(api): State<Api>, QueryParams(paging): QueryParams<Paging>) -> HandlerResult {
    let limit = view::limit(paging.limit)?;
    let all = api.runtime().webhooks().list().await?;
    let mut rest = all.into_iter().filter(|hook| paging.after.as_ref().is_none_or(|after| hook.id > *after));
    let items: Vec<_> = rest.by_ref().take(limit).collect();
    let next = rest.next().and(items.last()).map(|last| last.id.clone());
    json(&PageView { items, next })
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
    let removed = undisturbed(async move {
        match webhooks.remove(&id).await? {
            true => Ok(()),
            false => Err(Problem::from(WebhookError::NotFound { id })),
        }
    });
    removed.await?;
    json(&Deleted { deleted: true })
}

pub async fn test(
    State(api): State<Api>,
    PathParams(id): PathParams<String>,
    Body(Nothing {}): Body<Nothing>,
) -> HandlerResult {
    json(&api.runtime().webhooks().test(&id).await?)
}
