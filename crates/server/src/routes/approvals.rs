//! Handlers for everything that waits for a person, and for the answers of people to approvals.

use super::{HandlerResult, json, page, removed};
use crate::access::{Caller, TokenScope};
use crate::api::Api;
use crate::extract::{Body, PathParams, QueryParams};
use crate::problem::Problem;
use crate::undisturbed::undisturbed;
use crate::view;
use crate::wire::Paging;
use crate::wire::approvals::{
    DecisionBody, DecisionReceipt, PreviewBody, PreviewView, RememberedView, WaitingFilter, WaitingPage,
    WaitingQuery,
};
use axum::extract::State;
use windlass::error::AskError;
use windlass_core::handle::open_approval_id;

pub async fn waiting(
    State(api): State<Api>,
    caller: Caller,
    QueryParams(list): QueryParams<WaitingQuery>,
) -> HandlerResult {
    json(&waiting_page(&api, &caller, &list).await?)
}

pub async fn approvals(
    State(api): State<Api>,
    caller: Caller,
    QueryParams(list): QueryParams<WaitingQuery>,
) -> HandlerResult {
    let list = WaitingQuery { kind: Some(WaitingFilter::Approval), ..list };
    json(&waiting_page(&api, &caller, &list).await?)
}

/// A page of what waits and the caller may see.
async fn waiting_page(api: &Api, caller: &Caller, list: &WaitingQuery) -> Result<WaitingPage, Problem> {
    let limit = view::limit(list.limit)?;
    let search = view::waiting_search(list)?;
    let is_shown = |principal: Option<&str>| caller.sees_waiting(principal);
    Ok(api.runtime().waiting_part(&search, limit, is_shown).await?.into())
}

pub async fn decide(
    State(api): State<Api>,
    caller: Caller,
    PathParams(id): PathParams<String>,
    Body(body): Body<DecisionBody>,
) -> HandlerResult {
    reach(&api, &caller, &id).await?;
    let (runtime, by) = (api.runtime().clone(), caller.principal.clone());
    undisturbed(async move { runtime.decide(&id, &body.into(), &by).await }).await?;
    json(&DecisionReceipt { decided: true })
}

pub async fn preview(
    State(api): State<Api>,
    caller: Caller,
    PathParams(id): PathParams<String>,
    Body(PreviewBody { args }): Body<PreviewBody>,
) -> HandlerResult {
    reach(&api, &caller, &id).await?;
    json(&PreviewView::from(api.runtime().preview_approval(&id, &args).await?))
}

/// Checks that the caller may answer this approval. One of another principal looks as if there were none.
async fn reach(api: &Api, caller: &Caller, id: &str) -> Result<(), Problem> {
    let not_found = || Problem::from(AskError::NoApproval);
    let store = api.runtime().store();
    let (call, _) = open_approval_id(store.secret(), id).ok_or_else(not_found)?;
    let session = api.runtime().session_of(call).await?.ok_or_else(not_found)?;
    let principal = store.session(&session).await?.and_then(|row| row.principal);
    if caller.answers_for(principal.as_deref()) { Ok(()) } else { Err(not_found()) }
}

pub async fn remembered(
    State(api): State<Api>,
    caller: Caller,
    PathParams(session): PathParams<String>,
    QueryParams(paging): QueryParams<Paging>,
) -> HandlerResult {
    reach_session(&api, &caller, &session).await?;
    let found = api.runtime().remembered(&session).await?;
    page(found.into_iter().map(RememberedView::from).collect(), &paging, |kept| &kept.id)
}

pub async fn forget(
    State(api): State<Api>,
    caller: Caller,
    PathParams((session, id)): PathParams<(String, String)>,
) -> HandlerResult {
    reach_session(&api, &caller, &session).await?;
    let runtime = api.runtime().clone();
    removed(async move { runtime.forget_remembered(&session, &id).await }).await
}

/// Checks that the caller may see or change what a session remembers.
async fn reach_session(api: &Api, caller: &Caller, session: &str) -> Result<(), Problem> {
    match api.runtime().store().session(session).await? {
        Some(row) if caller.has(TokenScope::Approve) && caller.answers_for(row.principal.as_deref()) => {
            Ok(())
        }
        Some(_) | None => api.session(caller, session).await,
    }
}
