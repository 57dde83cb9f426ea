//! The handlers, one file per kind of object. A handler reads the request, checks that the caller may use the
//! object, asks the runtime, and renders the answer. Nothing is decided here.

pub mod approvals;
pub mod artifacts;
pub mod asks;
pub mod batches;
mod bytes;
pub mod calls;
pub mod files;
pub mod health;
pub mod mcp;
pub mod pairs;
pub mod policy;
pub mod schedules;
pub mod secrets;
pub mod sessions;
pub mod tasks;
pub mod tokens;
pub mod tools;
pub mod triggers;
pub mod webhooks;

use crate::problem::{Problem, ProblemCode};
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

fn with_status(status: StatusCode, value: &impl Serialize) -> HandlerResult {
    let text = serde_json::to_string(value)
        .map_err(|error| Problem::new(ProblemCode::Internal, error.to_string()))?;
    Ok((status, [(CONTENT_TYPE, "application/json")], text).into_response())
}
