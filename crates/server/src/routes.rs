//! The handlers, one file per kind of object. A handler reads the request, checks that the caller may use the
//! object, asks the runtime, and renders the answer. Nothing is decided here.

pub mod approvals;
pub mod artifacts;
pub mod asks;
pub mod batches;
mod bytes;
pub mod calls;
pub mod files;
pub mod grants;
pub mod health;
pub mod logins;
pub mod mcp;
pub mod overview;
pub mod pairs;
pub mod policy;
pub mod schedules;
pub mod secrets;
pub mod sessions;
pub mod tasks;
pub mod tokens;
pub mod toolboxes;
pub mod tools;
pub mod triggers;
pub mod webhooks;

use crate::problem::{Problem, ProblemCode};
use crate::undisturbed::undisturbed;
use crate::view;
use crate::wire::shown::PageView;
use crate::wire::{Deleted, Paging};
use axum::response::{IntoResponse, Response};
use hyper::StatusCode;
use hyper::header::CONTENT_TYPE;
use serde::Serialize;

/// A handler's result.
pub type HandlerResult = Result<Response, Problem>;

fn json(value: &impl Serialize) -> HandlerResult {
    with_status(StatusCode::OK, value)
}

/// The response for an object that exists now: 201 if it is new.
fn opened(is_new: bool, value: &impl Serialize) -> HandlerResult {
    with_status(if is_new { StatusCode::CREATED } else { StatusCode::OK }, value)
}

/// The response for an object that is removed by this change.
async fn removed<T: Send + 'static, E: Into<Problem> + Send + 'static>(
    change: impl Future<Output = Result<T, E>> + Send + 'static,
) -> HandlerResult {
    undisturbed(change).await?;
    json(&Deleted { deleted: true })
}

/// A page of objects that are read all at once, in the order of their keys.
fn page<T: Serialize>(found: Vec<T>, paging: &Paging, key: impl Fn(&T) -> &str) -> HandlerResult {
    let limit = view::limit(paging.limit)?;
    let is_after = |item: &T| paging.after.as_deref().is_none_or(|after| key(item) > after);
    let mut left = found.into_iter().filter(is_after);
    let items: Vec<T> = left.by_ref().take(limit).collect();
    let next = left.next().and(items.last().map(|last| key(last).to_string()));
    json(&PageView { items, next })
}

fn with_status(status: StatusCode, value: &impl Serialize) -> HandlerResult {
    let text = serde_json::to_string(value)
        .map_err(|error| Problem::new(ProblemCode::Internal, error.to_string()))?;
    Ok((status, [(CONTENT_TYPE, "application/json")], text).into_response())
}
