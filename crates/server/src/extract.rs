//! Requests become values, or problems: limits first, then our own JSON, then the shape.

use crate::access::Caller;
use crate::api::Api;
use crate::problem::Problem;
use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Body as _;
use hyper::http::request::Parts;
use serde::de::DeserializeOwned;
use std::time::Duration;
use windlass::core::json;

/// What stands in the path.
pub struct Named<T>(pub T);

/// What stands behind the question mark.
pub struct Asked<T>(pub T);

/// What stands in the body: a JSON object, `{}` if there is none.
pub struct Body<T>(pub T);

/// The same of a body with calls, whose arguments are kept as they are written.
pub struct Calls<T>(pub T);

impl<T: DeserializeOwned + Send> FromRequestParts<Api> for Named<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Named<T>, Problem> {
        let path = Path::<T>::from_request_parts(parts, api).await;
        path.map(|Path(named)| Named(named)).map_err(|rejection| {
            Problem::new("bad_path", format!("the path is not understood: {}", cause(&rejection)))
        })
    }
}

impl<T: DeserializeOwned> FromRequestParts<Api> for Asked<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &Api) -> Result<Asked<T>, Problem> {
        let query = Query::<T>::try_from_uri(&parts.uri);
        query.map(|Query(asked)| Asked(asked)).map_err(|rejection| {
            Problem::new("bad_query", format!("the query is not understood: {}", cause(&rejection)))
        })
    }
}

/// Whoever asks, as the router found out before the handler was called.
impl FromRequestParts<Api> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &Api) -> Result<Caller, Problem> {
        let caller = parts.extensions.get::<Caller>().cloned();
        caller.ok_or_else(|| Problem::new("no_token", "nobody is known to have asked this"))
    }
}

impl<T: DeserializeOwned> FromRequest<Api> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, api: &Api) -> Result<Body<T>, Problem> {
        let limits = api.runtime().limits();
        let body = read(request, (limits.result_json_bytes_max, limits.body_wait_ms)).await?;
        let value = json::parse_result(text(&body)?, limits)?;
        // Serde would also read a list, as the fields in their order.
        if !value.is_object() {
            return Err(Problem::new("bad_body", "the body must be a JSON object"));
        }
        serde_json::from_value(value).map(Body).map_err(not_understood)
    }
}

impl<T: DeserializeOwned> FromRequest<Api> for Calls<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, api: &Api) -> Result<Calls<T>, Problem> {
        let limits = api.runtime().limits();
        let body = read(request, (limits.batch_bytes_max, limits.body_wait_ms)).await?;
        let text = text(&body)?;
        if !text.trim_start().starts_with('{') {
            return Err(Problem::new("bad_body", "the body must be a JSON object"));
        }
        serde_json::from_str(text).map(Calls).map_err(|error| match error.classify() {
            serde_json::error::Category::Data => not_understood(error),
            _ => Problem::new("invalid_json", format!("the body is no JSON: {error}")),
        })
    }
}

/// The whole body, if it is not too large and comes in time.
async fn read(request: Request, (bytes_max, wait_ms): (u64, u64)) -> Result<Bytes, Problem> {
    let too_large =
        || Problem::new("too_large", format!("the body is larger than {bytes_max} bytes; send less"));
    // What says that it is too large need not come first.
    if request.body().size_hint().lower() > bytes_max {
        return Err(too_large());
    }
    let bytes_max = usize::try_from(bytes_max).unwrap_or(usize::MAX);
    let body = Limited::new(request.into_body(), bytes_max).collect();
    match tokio::time::timeout(Duration::from_millis(wait_ms), body).await {
        Err(_) => Err(Problem::new("bad_body", "the body did not come in time; send it at once")),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large()),
        Ok(Err(_)) => Err(Problem::new("bad_body", "the body ended in the middle; send it again")),
        Ok(Ok(body)) => Ok(body.to_bytes()),
    }
}

fn text(body: &Bytes) -> Result<&str, Problem> {
    let text = std::str::from_utf8(body)
        .map_err(|error| Problem::new("invalid_json", format!("the body is no text: {error}")))?;
    Ok(if text.trim().is_empty() { "{}" } else { text })
}

fn not_understood(error: serde_json::Error) -> Problem {
    Problem::new("bad_body", format!("the body is not understood: {error}"))
}

/// What lies at the bottom of an error: the layers above only say that they failed.
fn cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(below) = cause.source() {
        cause = below;
    }
    cause.to_string()
}
