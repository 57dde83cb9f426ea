//! Extractors: requests become values, or problems: limits first, then our own JSON, then the shape.

use crate::access::Caller;
use crate::api::Api;
use crate::bodies::{IncomingBody, RequestRoom, Sender};
use crate::guest::Guest;
use crate::problem::{Problem, ProblemCode};
use crate::wire;
use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Body as _;
use hyper::http::request::Parts;
use serde::de::DeserializeOwned;
use serde_json::error::Category;
use std::sync::Arc;
use std::time::Duration;
use windlass::error::AskError;
use windlass_args::json;
use windlass_args::limits::ArgLimits;
use windlass_core::handle::open_completion_key;

/// Path parameters.
pub struct PathParams<T>(pub T);

/// Query parameters.
pub struct QueryParams<T>(pub T);

/// The JSON object in the body; `{}` if the body is empty.
pub struct Body<T>(pub T);

/// A [`Body`] that may be as large as one with calls.
pub struct LargeBody<T>(pub T);

/// A body of bytes, such as a file's.
pub struct Raw(pub Bytes);

/// A [`Body`] with calls, whose arguments are kept as written.
pub struct CallsPayload<T>(pub T);

impl<T: DeserializeOwned + Send> FromRequestParts<Api> for PathParams<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<PathParams<T>, Problem> {
        let path = Path::<T>::from_request_parts(parts, api).await;
        path.map(|Path(named)| PathParams(named)).map_err(|rejection| {
            Problem::new(ProblemCode::BadPath, format!("the path is invalid: {}", cause(&rejection)))
        })
    }
}

impl<T: DeserializeOwned> FromRequestParts<Api> for QueryParams<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &Api) -> Result<QueryParams<T>, Problem> {
        let query = Query::<T>::try_from_uri(&parts.uri);
        query.map(|Query(asked)| QueryParams(asked)).map_err(|rejection| {
            Problem::new(ProblemCode::BadQuery, format!("the query is invalid: {}", cause(&rejection)))
        })
    }
}

/// The caller, as the router determined it before the handler ran.
impl FromRequestParts<Api> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &Api) -> Result<Caller, Problem> {
        let caller = parts.extensions.get::<Caller>().cloned();
        caller.ok_or_else(|| Problem::new(ProblemCode::NoToken, "nobody is known to have asked this"))
    }
}

impl<T: DeserializeOwned> FromRequest<Api> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, api: &Api) -> Result<Body<T>, Problem> {
        object(request, api, api.runtime().limits().result_json_bytes_max).await.map(Body)
    }
}

impl<T: DeserializeOwned> FromRequest<Api> for LargeBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, api: &Api) -> Result<LargeBody<T>, Problem> {
        object(request, api, api.runtime().limits().batch_bytes_max).await.map(LargeBody)
    }
}

/// The JSON object of a body that has at most so many bytes.
async fn object<T: DeserializeOwned>(request: Request, api: &Api, bytes_max: u64) -> Result<T, Problem> {
    let limits = ArgLimits { result_json_bytes_max: bytes_max, ..api.runtime().limits().args() };
    let received = read(request, api, bytes_max).await?;
    let text = received.text()?;
    received.make_room(api, text).await?;
    let value = json::parse_result(text, &limits)?;
    // Serde would also read a list as the fields, in their order.
    if !value.is_object() {
        return Err(Problem::new(ProblemCode::BadBody, "the body must be a JSON object"));
    }
    serde_json::from_value(value).map_err(not_understood)
}

impl FromRequest<Api> for Raw {
    type Rejection = Problem;

    async fn from_request(request: Request, api: &Api) -> Result<Raw, Problem> {
        let received = read(request, api, api.runtime().limits().file_bytes_max).await?;
        Ok(Raw(received.bytes.into()))
    }
}

impl<T: DeserializeOwned> FromRequest<Api> for CallsPayload<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, api: &Api) -> Result<CallsPayload<T>, Problem> {
        let limits = api.runtime().limits();
        let received = read(request, api, limits.batch_bytes_max).await?;
        let text = received.text()?;
        if !text.trim_start().starts_with('{') {
            return Err(Problem::new(ProblemCode::BadBody, "the body must be a JSON object"));
        }
        wire::batch::count_calls(text, limits)?;
        let weight = received.make_room(api, text).await?;
        if weight > limits.json_memory_bytes_max.saturating_add(text.len() as u64) {
            let told = format!(
                "the calls have so many values that they would take more than {} bytes of memory; submit them in parts",
                limits.json_memory_bytes_max
            );
            return Err(Problem::new(ProblemCode::TooLarge, told));
        }
        serde_json::from_str(text).map(CallsPayload).map_err(|error| match error.classify() {
            Category::Data => not_understood(error),
            Category::Io | Category::Syntax | Category::Eof => {
                Problem::new(ProblemCode::InvalidJson, format!("the body is not JSON: {error}"))
            }
        })
    }
}

/// The completion key in the path, if it is one of ours: a caller without a valid key must not make us read a body.
pub struct PathCompletionKey(pub String);

impl FromRequestParts<Api> for PathCompletionKey {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<PathCompletionKey, Problem> {
        let PathParams(key) = PathParams::<String>::from_request_parts(parts, api).await?;
        let store = api.runtime().store();
        let (call, _) = open_completion_key(store.secret(), &key).ok_or(AskError::NoKey)?;
        let user: Arc<str> = format!("key of {}", call.packed()).into();
        if let Some(guest) = parts.extensions.get::<Guest>() {
            guest.is_known(&KEY_HOLDERS.into()).await?;
        }
        parts.extensions.insert(Sender::Key(user));
        Ok(PathCompletionKey(key))
    }
}

/// All holders of completion keys share one principal's slots; no principal has this name.
const KEY_HOLDERS: &str = "(completion keys)";

/// The request's part of the budget of bodies.
impl FromRequestParts<Api> for RequestRoom {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &Api) -> Result<RequestRoom, Problem> {
        Ok(parts.extensions.get::<RequestRoom>().cloned().unwrap_or_default())
    }
}

/// A complete body.
struct Received<'a> {
    bytes: Vec<u8>,
    sender: Sender,
    room: RequestRoom,
    _incoming: IncomingBody<'a>,
}

impl Received<'_> {
    fn text(&self) -> Result<&str, Problem> {
        let text = std::str::from_utf8(&self.bytes).map_err(|error| {
            Problem::new(ProblemCode::InvalidJson, format!("the body is not text: {error}"))
        })?;
        Ok(if text.trim().is_empty() { "{}" } else { text })
    }

    /// Reserves memory for the values of the body, until its request is answered; returns the estimate.
    async fn make_room(&self, api: &Api, text: &str) -> Result<u64, Problem> {
        let depth_max = api.runtime().limits().args_depth_max.saturating_add(WRAPPED);
        let weight = json::weight(text, depth_max);
        let most = api.runtime().limits().json_memory_bytes_max;
        api.bodies().values(&self.sender, weight.min(most), &self.room).await?;
        Ok(weight)
    }
}

/// A body that is read while it arrives, such as the stream of a provider's response. Between two pieces there may be
/// `body_wait_ms`, in all `batch_bytes_max`.
pub(crate) struct BodyPieces<'a> {
    body: Limited<axum::body::Body>,
    incoming: IncomingBody<'a>,
    bytes: u64,
    bytes_max: u64,
    wait: Duration,
}

impl<'a> BodyPieces<'a> {
    pub(crate) async fn of(
        request: Request,
        caller: &Caller,
        api: &'a Api,
    ) -> Result<BodyPieces<'a>, Problem> {
        let limits = api.runtime().limits();
        let bytes_max = limits.batch_bytes_max;
        let body = Limited::new(request.into_body(), usize::try_from(bytes_max).unwrap_or(usize::MAX));
        let incoming = api.bodies().announced(Sender::Caller(caller.principal.clone()), 0).await?;
        Ok(BodyPieces {
            body,
            incoming,
            bytes: 0,
            bytes_max,
            wait: Duration::from_millis(limits.body_wait_ms),
        })
    }

    /// The next piece; `None` at the end.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, Problem> {
        loop {
            let frame = match tokio::time::timeout(self.wait, self.body.frame()).await {
                Err(_) => {
                    return Err(Problem::new(
                        ProblemCode::BadBody,
                        "the stream paused for too long; send it again",
                    ));
                }
                Ok(None) => return Ok(None),
                Ok(Some(frame)) => frame,
            };
            let frame = frame.map_err(|error| match error.is::<LengthLimitError>() {
                true => too_large(self.bytes_max),
                false => incomplete(),
            })?;
            let Ok(piece) = frame.into_data() else { continue };
            self.bytes += piece.len() as u64;
            self.incoming.came(self.bytes).await?;
            return Ok(Some(piece));
        }
    }
}

/// A provider's response as text, which is read by the rules of its wire.
pub(crate) async fn response_text(request: Request, api: &Api) -> Result<String, Problem> {
    let received = read(request, api, api.runtime().limits().batch_bytes_max).await?;
    received.make_room(api, received.text()?).await?;
    String::from_utf8(received.bytes)
        .map_err(|error| Problem::new(ProblemCode::InvalidJson, format!("the body is not text: {error}")))
}

fn too_large(bytes_max: u64) -> Problem {
    Problem::new(ProblemCode::TooLarge, format!("the body is larger than {bytes_max} bytes; send less"))
}

fn incomplete() -> Problem {
    Problem::new(ProblemCode::BadBody, "the body is incomplete; send it again")
}

/// How many levels deep arguments are in a body.
const WRAPPED: u64 = 4;
/// The initial allocation for a body.
const FIRST_BYTES: usize = 64 << 10;

/// Reads the whole body, if it is not too large, there is space for it and it arrives in time.
async fn read(request: Request, api: &Api, bytes_max: u64) -> Result<Received<'_>, Problem> {
    // A body that announces too large a size is refused before it arrives.
    if request.body().size_hint().lower() > bytes_max {
        return Err(too_large(bytes_max));
    }
    let wait = Duration::from_millis(api.runtime().limits().body_wait_ms);
    let (parts, body) = request.into_parts();
    let caller = parts.extensions.get::<Caller>().map(|caller| Sender::Caller(caller.principal.clone()));
    let sender = caller.or_else(|| parts.extensions.get::<Sender>().cloned());
    let sender =
        sender.ok_or_else(|| Problem::new(ProblemCode::NoToken, "nobody is known to have sent this body"))?;
    let room = parts.extensions.get::<RequestRoom>().cloned().unwrap_or_default();
    // A body without an announced size may be as large as allowed.
    let announced = body.size_hint().upper().unwrap_or(bytes_max).min(bytes_max);
    let mut incoming = api.bodies().announced(sender.clone(), announced).await?;
    let limit = usize::try_from(bytes_max).unwrap_or(usize::MAX);
    let mut body = Limited::new(body, limit);
    let mut bytes = Vec::with_capacity(usize::try_from(announced).unwrap_or(0).min(FIRST_BYTES));
    let receiving = async {
        while let Some(frame) = body.frame().await {
            match frame {
                Ok(frame) => {
                    let Some(piece) = frame.data_ref() else { continue };
                    incoming.came((bytes.len() + piece.len()) as u64).await?;
                    bytes.extend_from_slice(piece);
                }
                Err(error) if error.is::<LengthLimitError>() => return Err(too_large(bytes_max)),
                Err(_) => return Err(incomplete()),
            }
        }
        Ok(())
    };
    match tokio::time::timeout(wait, receiving).await {
        Err(_) => {
            Err(Problem::new(ProblemCode::BadBody, "the body did not arrive in time; send it without pauses"))
        }
        Ok(received) => received.map(|()| Received { bytes, sender, room, _incoming: incoming }),
    }
}

fn not_understood(error: serde_json::Error) -> Problem {
    Problem::new(ProblemCode::BadBody, format!("the body is invalid: {error}"))
}

/// The root cause of an error: the layers above only say that they failed.
fn cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(below) = cause.source() {
        cause = below;
    }
    cause.to_string()
}
