//! The handlers, one file per kind of object. A handler reads the request, finds out whether what it names is there for
//! the caller, asks the runtime, and shows what it said. Nothing is decided here.

pub mod artifacts;
pub mod asks;
pub mod batches;
mod bytes;
pub mod calls;
pub mod files;
pub mod health;
pub mod pairs;
pub mod schedules;
pub mod sessions;
pub mod tasks;
pub mod tokens;
pub mod tools;
pub mod triggers;

use crate::problem::Problem;
use axum::response::{IntoResponse, Response};
use hyper::StatusCode;
use hyper::header::CONTENT_TYPE;
use serde::Serialize;

/// What a handler answers.
pub type Answered = Result<Response, Problem>;

fn json(value: &impl Serialize) -> Answered {
    with_status(StatusCode::OK, value)
}

/// Something that is there now, and whether it was not before.
fn opened(is_new: bool, value: &impl Serialize) -> Answered {
    with_status(if is_new { StatusCode::CREATED } else { StatusCode::OK }, value)
}

fn with_status(status: StatusCode, value: &impl Serialize) -> Answered {
    let text = serde_json::to_string(value).map_err(|error| Problem::new("internal", error.to_string()))?;
    Ok((status, [(CONTENT_TYPE, "application/json")], text).into_response())
}
