//! The files of a session.

use super::bytes::{Pieces, served};
use super::{HandlerResult, json};
use crate::access::Caller;
use crate::api::Api;
use crate::extract::{PathParams, QueryParams, Raw};
use crate::problem::{Problem, ProblemCode};
use crate::undisturbed::undisturbed;
use crate::view;
use crate::wire::shown::{FileShown, FileWritten, PageView};
use crate::wire::{Deleted, Files};
use axum::extract::State;
use hyper::StatusCode;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use windlass::error::{FileError, chain};
use windlass::sessions::{FileKind, SessionFiles};

/// How much of a file is read at once.
const PIECE_BYTES: u64 = 256 << 10;

pub async fn list(
    State(api): State<Api>,
    caller: Caller,
    PathParams(session): PathParams<String>,
    QueryParams(asked): QueryParams<Files>,
) -> HandlerResult {
    api.session(&caller, &session).await?;
    let limit = view::limit(asked.limit)?;
    let files = api.runtime().files(&session).await?;
    let folder = asked.folder.unwrap_or_default();
    let found = on_disk(files, move |files| files.list(&folder)).await?;
    let after = asked.after.unwrap_or_default();
    let mut rest = found.into_iter().filter(|entry| after.is_empty() || entry.name > after);
    let items: Vec<FileShown> = rest
        .by_ref()
        .take(limit)
        .map(|entry| FileShown {
            name: entry.name,
            kind: match entry.kind {
                FileKind::File => "file",
                FileKind::Folder => "folder",
                FileKind::Other => "other",
            },
            bytes: entry.bytes,
        })
        .collect();
    let next = rest.next().and_then(|_| items.last().map(|last| last.name.clone()));
    json(&PageView { items, next })
}

pub async fn read(
    State(api): State<Api>,
    caller: Caller,
    PathParams((session, path)): PathParams<(String, String)>,
) -> HandlerResult {
    api.session(&caller, &session).await?;
    let files = api.runtime().files(&session).await?;
    let (file, bytes) = on_disk(files, move |files| files.open(&path)).await?;
    let file = Arc::new(file);
    let pieces = Pieces::new(0..bytes, PIECE_BYTES, move |offset, len| {
        let file = file.clone();
        async move {
            let read = move || {
                let mut bytes = vec![0; len as usize];
                let read = file.read_at(&mut bytes, offset)?;
                bytes.truncate(read);
                Ok(bytes)
            };
            tokio::task::spawn_blocking(read).await.map_err(std::io::Error::other)?
        }
    });
    Ok(served(StatusCode::OK, "application/octet-stream", pieces))
}

pub async fn write(
    State(api): State<Api>,
    caller: Caller,
    PathParams((session, path)): PathParams<(String, String)>,
    Raw(body): Raw,
) -> HandlerResult {
    api.takes_work()?;
    api.claim(&caller, &session).await?;
    let files = api.runtime().files(&session).await?;
    let bytes = body.len() as u64;
    let to = path.clone();
    undisturbed(on_disk(files, move |files| files.write(&to, &body))).await?;
    json(&FileWritten { path, bytes })
}

pub async fn delete(
    State(api): State<Api>,
    caller: Caller,
    PathParams((session, path)): PathParams<(String, String)>,
) -> HandlerResult {
    api.takes_work()?;
    api.session(&caller, &session).await?;
    let files = api.runtime().files(&session).await?;
    undisturbed(on_disk(files, move |files| files.remove(&path))).await?;
    json(&Deleted { deleted: true })
}

/// Runs blocking disk access on a thread for it.
async fn on_disk<T: Send + 'static>(
    files: SessionFiles,
    does: impl FnOnce(&SessionFiles) -> Result<T, FileError> + Send + 'static,
) -> Result<T, Problem> {
    let done = tokio::task::spawn_blocking(move || does(&files)).await;
    Ok(done.map_err(|error| Problem::new(ProblemCode::Internal, error.to_string()))??)
}

impl From<FileError> for Problem {
    fn from(error: FileError) -> Problem {
        let code = match &error {
            FileError::Session(error) => return Problem::from(error.clone()),
            FileError::NotFound { .. } => ProblemCode::NotFound,
            FileError::TooLarge { .. } => ProblemCode::TooLarge,
            FileError::NotEmpty { .. } => ProblemCode::Conflict,
            FileError::NotConfigured | FileError::Path { .. } => ProblemCode::InvalidFile,
            FileError::Io { .. } => ProblemCode::Internal,
            // A kind that this server does not know yet.
            _ => ProblemCode::Internal,
        };
        Problem::new(code, chain(&error))
    }
}
