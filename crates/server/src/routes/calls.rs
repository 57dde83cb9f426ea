//! Reading calls.

use super::{HandlerResult, json};
use crate::access::Caller;
use crate::api::Api;
use crate::extract::{PathParams, QueryParams};
use crate::view::{View, Whose};
use crate::wire::{CallQuery, Show};
use axum::extract::State;

pub async fn list(
    State(api): State<Api>,
    caller: Caller,
    QueryParams(list): QueryParams<CallQuery>,
) -> HandlerResult {
    let view = View::of(api.runtime());
    let (mut page, more) = api.in_reach(&caller, async |whose| view.list(whose, &list).await).await?;
    page.left_out = page.left_out.or(more);
    json(&page)
}

pub async fn of_session(
    State(api): State<Api>,
    caller: Caller,
    PathParams(session): PathParams<String>,
    QueryParams(list): QueryParams<CallQuery>,
) -> HandlerResult {
    api.session(&caller, &session).await?;
    let view = View::of_session(api.runtime(), &session);
    json(&view.list(Whose::These(&[session]), &list).await?)
}

pub async fn show(
    State(api): State<Api>,
    caller: Caller,
    PathParams(call): PathParams<String>,
    QueryParams(show): QueryParams<Show>,
) -> HandlerResult {
    let session = api.call(&caller, &call).await?;
    json(&View::of_session(api.runtime(), &session).show(&call, show).await?)
}
