//! The files of a session.

use super::bytes::{Pieces, served};
use super::{Answered, json};
use crate::access::Caller;
use crate::api::Api;
use crate::extract::{Asked, Named, Raw};
use crate::problem::Problem;
use crate::undisturbed::undisturbed;
use crate::view;
use crate::wire::shown::{FileShown, FileWritten, Page};
use crate::wire::{Deleted, Files};
use axum::extract::State;
use hyper::StatusCode;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use windlass::{FileError, FileKind, SessionFiles, chain};

/// What is read of a file at once.
const PIECE_BYTES: u64 = 256 << 10;

pub async fn list(
    State(api): State<Api>,
    caller: Caller,
    Named(session): Named<String>,
    Asked(asked): Asked<Files>,
) -> Answered {
    api.session(&caller, &session).await?;
    let limit = view::limit(asked.limit)?;
    let files = api.runtime().files(&session)?;
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
    json(&Page { items, next })
}

pub async fn read(
    State(api): State<Api>,
    caller: Caller,
    Named((session, path)): Named<(String, String)>,
) -> Answered {
    api.session(&caller, &session).await?;
    let files = api.runtime().files(&session)?;
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
    Named((session, path)): Named<(String, String)>,
    Raw(body): Raw,
) -> Answered {
    api.takes_work()?;
    api.claim(&caller, &session).await?;
    let files = api.runtime().files(&session)?;
    let bytes = body.len() as u64;
    let to = path.clone();
    undisturbed(on_disk(files, move |files| files.write(&to, &body))).await?;
    json(&FileWritten { path, bytes })
}

pub async fn delete(
    State(api): State<Api>,
    caller: Caller,
    Named((session, path)): Named<(String, String)>,
) -> Answered {
    api.takes_work()?;
    api.session(&caller, &session).await?;
    let files = api.runtime().files(&session)?;
    undisturbed(on_disk(files, move |files| files.remove(&path))).await?;
    json(&Deleted { deleted: true })
}

/// Does something that waits for the disk where nobody else waits for it.
async fn on_disk<T: Send + 'static>(
    files: SessionFiles,
    does: impl FnOnce(&SessionFiles) -> Result<T, FileError> + Send + 'static,
) -> Result<T, Problem> {
    let done = tokio::task::spawn_blocking(move || does(&files)).await;
    Ok(done.map_err(|error| Problem::new("internal", error.to_string()))??)
}

impl From<FileError> for Problem {
    fn from(error: FileError) -> Problem {
        let code = match &error {
            FileError::NotFound { .. } => "not_found",
            FileError::TooLarge { .. } => "too_large",
            FileError::NotEmpty { .. } => "conflict",
            FileError::NotConfigured | FileError::Path { .. } => "invalid_file",
            FileError::Io { .. } => "internal",
        };
        Problem::new(code, chain(&error))
    }
}
