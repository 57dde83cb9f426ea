//! Artifacts: their bytes, or a range of them; and uploads for answers that name them.

use super::bytes::{Pieces, served};
use super::{HandlerResult, opened};
use crate::access::Caller;
use crate::api::Api;
use crate::extract::{PathCompletionKey, PathParams, QueryParams, Raw};
use crate::problem::{Problem, ProblemCode};
use crate::undisturbed::undisturbed;
use crate::wire::UploadQuery;
use crate::wire::shown::ArtifactUploaded;
use axum::body::Bytes;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use hyper::header::{ACCEPT_RANGES, CONTENT_RANGE, CONTENT_TYPE, ETAG, HeaderValue, IF_RANGE, RANGE};
use hyper::{HeaderMap, StatusCode};
use windlass::error::{ArtifactError, chain};
use windlass::sessions::{Artifact, ArtifactInfo, UploadFor};
use windlass_core::handle::Handle;

/// How much of an artifact is read at once: one stored piece.
const PIECE_BYTES: u64 = 256 << 10;

pub async fn read(
    State(api): State<Api>,
    caller: Caller,
    PathParams(id): PathParams<String>,
    headers: HeaderMap,
) -> HandlerResult {
    let (artifact, info) = found(&api, &caller, &id).await?;
    // A weak tag matches no range: what was read of a log that grows may be no part of what it is now.
    let tag = format!("{}\"{artifact}\"", if info.is_growing { "W/" } else { "" });
    let range = match headers.get(RANGE).filter(|_| is_meant(&headers, &tag)) {
        Some(range) => ByteRange::parse(range, info.bytes),
        None => ByteRange::Whole,
    };
    let (status, first, last) = match range {
        ByteRange::Whole => (StatusCode::OK, 0, info.bytes),
        ByteRange::Part { first, last } => (StatusCode::PARTIAL_CONTENT, first, last + 1),
        ByteRange::Nothing => return Ok(unsatisfiable(&info)),
    };
    let runtime = api.runtime().clone();
    let pieces = Pieces::new(first..last, PIECE_BYTES, move |offset, len| {
        let runtime = runtime.clone();
        async move { runtime.read_artifact(artifact, offset, len).await.map_err(std::io::Error::other) }
    });
    let mut response = served(status, &info.media_type, pieces);
    let head = response.headers_mut();
    head.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    head.extend(HeaderValue::try_from(tag).ok().map(|tag| (ETAG, tag)));
    if status == StatusCode::PARTIAL_CONTENT {
        let told = format!("bytes {first}-{}/{}", last - 1, info.bytes);
        head.extend(HeaderValue::try_from(told).ok().map(|told| (CONTENT_RANGE, told)));
    }
    Ok(response)
}

/// Stores the body as an artifact of the session.
pub async fn upload(
    State(api): State<Api>,
    caller: Caller,
    PathParams(session): PathParams<String>,
    QueryParams(UploadQuery { call }): QueryParams<UploadQuery>,
    headers: HeaderMap,
    Raw(body): Raw,
) -> HandlerResult {
    api.takes_work()?;
    let Some(call) = call else {
        api.session(&caller, &session).await?;
        return store(&api, UploadTarget::Session(session), &headers, body).await;
    };
    if api.call(&caller, &call).await? != session {
        let told = format!("the call {call:?} is none of this session");
        return Err(Problem::new(ProblemCode::NotFound, told));
    }
    store(&api, UploadTarget::Call(call), &headers, body).await
}

/// Stores the body as an artifact, for the answer to a completion key; the key is enough.
pub async fn upload_for_key(
    State(api): State<Api>,
    PathCompletionKey(key): PathCompletionKey,
    headers: HeaderMap,
    Raw(body): Raw,
) -> HandlerResult {
    api.takes_work()?;
    store(&api, UploadTarget::Key(key), &headers, body).await
}

/// The belonging of an upload, by name.
pub(super) enum UploadTarget {
    Session(String),
    Call(String),
    Key(String),
}

pub(super) async fn store(api: &Api, to: UploadTarget, headers: &HeaderMap, body: Bytes) -> HandlerResult {
    let media_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let media_type = media_type.unwrap_or("application/octet-stream").to_string();
    let runtime = api.runtime().clone();
    let stored = undisturbed(async move {
        let to = match &to {
            UploadTarget::Session(session) => UploadFor::Session(session),
            UploadTarget::Call(call) => UploadFor::Call(call),
            UploadTarget::Key(key) => UploadFor::Key(key),
        };
        runtime.upload(to, &body, &media_type).await
    });
    let Artifact { kept, media_type } = stored.await?;
    let shown = ArtifactUploaded { artifact: kept.artifact.to_string(), bytes: kept.bytes, media_type };
    opened(true, &shown)
}

/// The artifact of this id, if the caller may use its session.
async fn found(api: &Api, caller: &Caller, id: &str) -> Result<(Handle, ArtifactInfo), Problem> {
    let not_found = || {
        Problem::new(
            ProblemCode::NotFound,
            format!("there is no artifact {id:?}; take the id from the answer that named it"),
        )
    };
    let artifact = Handle::parse(id).ok_or_else(not_found)?;
    let info = api.runtime().artifact(artifact).await?.ok_or_else(not_found)?;
    match api.session(caller, &info.session).await {
        Ok(()) => Ok((artifact, info)),
        Err(problem) if problem.code == ProblemCode::NotFound => Err(not_found()),
        Err(problem) => Err(problem),
    }
}

/// Whether a range applies to these bytes: a client that has others wants all of these.
fn is_meant(headers: &HeaderMap, tag: &str) -> bool {
    let is_strong = !tag.starts_with("W/");
    headers.get(IF_RANGE).is_none_or(|meant| is_strong && meant.as_bytes() == tag.as_bytes())
}

fn unsatisfiable(info: &ArtifactInfo) -> Response {
    let told =
        format!("the artifact has {} bytes, and none are in this range; request another range", info.bytes);
    let mut response = Problem::new(ProblemCode::NoSuchRange, told).into_response();
    let range = HeaderValue::try_from(format!("bytes */{}", info.bytes)).ok();
    response.headers_mut().extend(range.map(|range| (CONTENT_RANGE, range)));
    response
}

/// The requested bytes.
#[derive(Debug, PartialEq, Eq)]
enum ByteRange {
    Whole,
    /// From the first to the last, inclusive.
    Part {
        first: u64,
        last: u64,
    },
    /// A range outside the bytes.
    Nothing,
}

impl ByteRange {
    /// Parses the header by RFC 9110. Several ranges, other units and malformed ranges get the whole, as it allows.
    fn parse(header: &HeaderValue, bytes: u64) -> ByteRange {
        let read = || {
            let (first, last) =
                header.to_str().ok()?.trim().strip_prefix("bytes=")?.trim().split_once('-')?;
            let number = |text: &str| match text.bytes().all(|byte| byte.is_ascii_digit()) {
                // A number too large to parse is larger than any artifact.
                true if !text.is_empty() => Some(text.parse().unwrap_or(u64::MAX)),
                _ => None,
            };
            Some(match (first, last) {
                ("", last) => match number(last)? {
                    0 => ByteRange::Nothing,
                    _ if bytes == 0 => ByteRange::Nothing,
                    count => ByteRange::Part { first: bytes.saturating_sub(count), last: bytes - 1 },
                },
                (first, "") => ByteRange::from(number(first)?, u64::MAX, bytes)?,
                (first, last) => ByteRange::from(number(first)?, number(last)?, bytes)?,
            })
        };
        read().unwrap_or(ByteRange::Whole)
    }

    fn from(first: u64, last: u64, bytes: u64) -> Option<ByteRange> {
        match (first <= last, first < bytes) {
            (false, _) => None,
            (true, true) => Some(ByteRange::Part { first, last: last.min(bytes - 1) }),
            (true, false) => Some(ByteRange::Nothing),
        }
    }
}

impl From<ArtifactError> for Problem {
    fn from(error: ArtifactError) -> Problem {
        Problem::new(ProblemCode::Internal, chain(&error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges() {
        let part = |first, last| ByteRange::Part { first, last };
        for (header, bytes, expected) in [
            ("bytes=0-0", 10, part(0, 0)),
            ("bytes=2-5", 10, part(2, 5)),
            ("bytes=2-", 10, part(2, 9)),
            ("bytes=-3", 10, part(7, 9)),
            ("bytes=-99", 10, part(0, 9)),
            ("bytes=9-99", 10, part(9, 9)),
            ("bytes=0-99999999999999999999999", 10, part(0, 9)),
            ("bytes=10-", 10, ByteRange::Nothing),
            ("bytes=99999999999999999999999-", 10, ByteRange::Nothing),
            ("bytes=-0", 10, ByteRange::Nothing),
            ("bytes=0-", 0, ByteRange::Nothing),
            ("bytes=-1", 0, ByteRange::Nothing),
            ("bytes=5-2", 10, ByteRange::Whole),
            ("bytes=0-1,3-4", 10, ByteRange::Whole),
            ("bytes=", 10, ByteRange::Whole),
            ("bytes=-", 10, ByteRange::Whole),
            ("bytes=a-b", 10, ByteRange::Whole),
            ("bytes=+1-2", 10, ByteRange::Whole),
            ("lines=1-2", 10, ByteRange::Whole),
        ] {
            let found = ByteRange::parse(&HeaderValue::from_static(header), bytes);
            assert_eq!(found, expected, "{header} of {bytes}");
        }
    }
}
