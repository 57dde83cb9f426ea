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
use serde_json::error::Category;
use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit};
use windlass::core::json;

/// What stands in the path.
pub struct Named<T>(pub T);

/// What stands behind the question mark.
pub struct Asked<T>(pub T);

/// What stands in the body: a JSON object, `{}` if there is none.
pub struct Body<T>(pub T);

/// A body as it is: bytes of a file.
pub struct Raw(pub Bytes);

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
        let (body, _room) = read(request, api, limits.result_json_bytes_max).await?;
        let value = json::parse_result(text(&body)?, limits)?;
        // Serde would also read a list, as the fields in their order.
        if !value.is_object() {
            return Err(Problem::new("bad_body", "the body must be a JSON object"));
        }
        serde_json::from_value(value).map(Body).map_err(not_understood)
    }
}

impl FromRequest<Api> for Raw {
    type Rejection = Problem;

    async fn from_request(request: Request, api: &Api) -> Result<Raw, Problem> {
        let (body, _room) = read(request, api, api.runtime().limits().file_bytes_max).await?;
        Ok(Raw(body))
    }
}

impl<T: DeserializeOwned> FromRequest<Api> for Calls<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, api: &Api) -> Result<Calls<T>, Problem> {
        let limits = api.runtime().limits();
        let (body, _room) = read(request, api, limits.batch_bytes_max).await?;
        let text = text(&body)?;
        if !text.trim_start().starts_with('{') {
            return Err(Problem::new("bad_body", "the body must be a JSON object"));
        }
        serde_json::from_str(text).map(Calls).map_err(|error| match error.classify() {
            Category::Data => not_understood(error),
            Category::Io | Category::Syntax | Category::Eof => {
                Problem::new("invalid_json", format!("the body is no JSON: {error}"))
            }
        })
    }
}

/// The whole body, if it is not too large, there is room for it and it comes in time; and its room, until it is read.
async fn read(request: Request, api: &Api, bytes_max: u64) -> Result<(Bytes, Room<'_>), Problem> {
    let too_large =
        || Problem::new("too_large", format!("the body is larger than {bytes_max} bytes; send less"));
    // What says that it is too large need not come first.
    if request.body().size_hint().lower() > bytes_max {
        return Err(too_large());
    }
    let wait = Duration::from_millis(api.runtime().limits().body_wait_ms);
    let is_known = request.extensions().get::<Caller>().is_some();
    // One that does not say how large it is may be as large as any.
    let bytes = request.body().size_hint().upper().unwrap_or(bytes_max).min(bytes_max);
    let room = api.bodies().room(is_known, bytes, wait).await?;
    let bytes_max = usize::try_from(bytes_max).unwrap_or(usize::MAX);
    let body = Limited::new(request.into_body(), bytes_max).collect();
    match tokio::time::timeout(wait, body).await {
        Err(_) => Err(Problem::new("bad_body", "the body did not come in time; send it at once")),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large()),
        Ok(Err(_)) => Err(Problem::new("bad_body", "the body ended in the middle; send it again")),
        Ok(Ok(body)) => Ok((body.to_bytes(), room)),
    }
}

/// How much lies in memory of bodies that are being read. Strangers have room of their own, so that they cannot take that of
/// those who have a token.
pub struct Bodies {
    callers: Semaphore,
    strangers: Semaphore,
}

/// Room for one body, until this is dropped.
type Room<'a> = SemaphorePermit<'a>;

/// Room is counted in pieces of this size.
const PIECE_BYTES: u64 = 1 << 10;
/// So large a part of the room is for strangers.
const STRANGERS_PART: u64 = 4;

impl Bodies {
    pub fn new(bytes_max: u64) -> Bodies {
        let pool = |bytes: u64| Semaphore::new(usize::try_from(bytes / PIECE_BYTES).unwrap_or(1).max(1));
        let strangers = bytes_max / STRANGERS_PART;
        Bodies { callers: pool(bytes_max - strangers), strangers: pool(strangers) }
    }

    async fn room(&self, is_known: bool, bytes: u64, wait: Duration) -> Result<Room<'_>, Problem> {
        let pool = if is_known { &self.callers } else { &self.strangers };
        let pieces = u32::try_from(bytes.div_ceil(PIECE_BYTES)).unwrap_or(u32::MAX);
        match tokio::time::timeout(wait, pool.acquire_many(pieces)).await {
            Ok(Ok(room)) => Ok(room),
            Ok(Err(_)) | Err(_) => {
                let told = "too many large bodies are being read; come back in a second";
                Err(Problem { retry_after_ms: Some(1_000), ..Problem::new("overloaded", told) })
            }
        }
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
