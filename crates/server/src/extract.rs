//! Requests become values, or problems: limits first, then our own JSON, then the shape.

use crate::problem::Problem;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Body as _;
use hyper::http::request::Parts;
use serde::de::DeserializeOwned;
use std::time::Duration;
use windlass::Runtime;
use windlass::core::json;

/// Whoever sends its body slower holds a connection that others need.
const BODY_WAIT: Duration = Duration::from_secs(30);

/// What stands in the path.
pub struct Named<T>(pub T);

/// What stands behind the question mark.
pub struct Asked<T>(pub T);

/// What stands in the body: a JSON object, `{}` if there is none.
pub struct Body<T>(pub T);

impl<T: DeserializeOwned + Send> FromRequestParts<Runtime> for Named<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, runtime: &Runtime) -> Result<Named<T>, Problem> {
        let path = Path::<T>::from_request_parts(parts, runtime).await;
        path.map(|Path(named)| Named(named)).map_err(|rejection| {
            Problem::new("bad_path", format!("the path is not understood: {}", cause(&rejection)))
        })
    }
}

impl<T: DeserializeOwned> FromRequestParts<Runtime> for Asked<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &Runtime) -> Result<Asked<T>, Problem> {
        let query = Query::<T>::try_from_uri(&parts.uri);
        query.map(|Query(asked)| Asked(asked)).map_err(|rejection| {
            Problem::new("bad_query", format!("the query is not understood: {}", cause(&rejection)))
        })
    }
}

impl<T: DeserializeOwned> FromRequest<Runtime> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, runtime: &Runtime) -> Result<Body<T>, Problem> {
        let limits = runtime.limits();
        let bytes_max = usize::try_from(limits.result_json_bytes_max).unwrap_or(usize::MAX);
        let too_large =
            || Problem::new("too_large", format!("the body is larger than {bytes_max} bytes; send less"));
        // What says that it is too large need not come first.
        if request.body().size_hint().lower() > bytes_max as u64 {
            return Err(too_large());
        }
        let body = Limited::new(request.into_body(), bytes_max).collect();
        let body = match tokio::time::timeout(BODY_WAIT, body).await {
            Err(_) => return Err(Problem::new("bad_body", "the body did not come in time; send it at once")),
            Ok(Err(error)) if error.is::<LengthLimitError>() => return Err(too_large()),
            Ok(Err(_)) => {
                return Err(Problem::new("bad_body", "the body ended in the middle; send it again"));
            }
            Ok(Ok(body)) => body.to_bytes(),
        };
        let text = std::str::from_utf8(&body)
            .map_err(|error| Problem::new("invalid_json", format!("the body is no text: {error}")))?;
        let text = if text.trim().is_empty() { "{}" } else { text };
        let value = json::parse_result(text, limits)?;
        // Serde would also read a list, as the fields in their order.
        if !value.is_object() {
            return Err(Problem::new("bad_body", "the body must be a JSON object"));
        }
        let parsed = serde_json::from_value(value);
        parsed
            .map(Body)
            .map_err(|error| Problem::new("bad_body", format!("the body is not understood: {error}")))
    }
}

/// What lies at the bottom of an error: the layers above only say that they failed.
fn cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(below) = cause.source() {
        cause = below;
    }
    cause.to_string()
}
