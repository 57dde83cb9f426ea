//! The files of a session.

use super::bytes::{Pieces, served};
use super::{HandlerResult, json};
use crate::access::Caller;
use crate::api::Api;
use crate::extract::{PathParams, QueryParams, Raw};
use crate::problem::{Problem, ProblemCode};
use crate::undisturbed::undisturbed;
use crate::view;
use crate::wire::shown::{FileShown, FileStatShown, FileWritten, PageView};
use crate::wire::{Deleted, FileDelete, FileWrite, Files};
use axum::extract::State;
use hyper::StatusCode;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use windlass::error::{FileError, chain};
use windlass::sessions::{ContentHash, FileExpectation, FileKind, FileStat, SessionFiles};

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
    let after = asked.after.filter(|after| !after.is_empty());
    let page = on_disk(files, move |files| files.list_page(&folder, after.as_deref(), limit)).await?;
    let items: Vec<FileShown> = page
        .entries
        .into_iter()
        .map(|entry| FileShown { name: entry.name, kind: entry.kind.as_str(), bytes: entry.bytes })
        .collect();
    let next = items.last().filter(|_| page.more).map(|last| last.name.clone());
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
    QueryParams(asked): QueryParams<FileWrite>,
    Raw(body): Raw,
) -> HandlerResult {
    api.takes_work()?;
    api.claim(&caller, &session).await?;
    let files = api.runtime().files(&session).await?;
    let bytes = body.len() as u64;
    let to = path.clone();
    if asked.folder {
        if bytes > 0 || asked.expected_hash.is_some() {
            let told = "a folder has no content: leave out the body and expected_hash, or folder";
            return Err(Problem::new(ProblemCode::InvalidFile, told));
        }
        let created = undisturbed(on_disk(files, move |files| files.make_folder(&to))).await?;
        return json(&FileWritten { path, bytes, created, hash: None });
    }
    let expected = expectation(asked.expected_hash.as_deref())?;
    let written = undisturbed(on_disk(files, move |files| files.write_if(&to, &body, expected))).await?;
    json(&FileWritten { path, bytes, created: written.is_new, hash: Some(written.hash.to_string()) })
}

pub async fn delete(
    State(api): State<Api>,
    caller: Caller,
    PathParams((session, path)): PathParams<(String, String)>,
    QueryParams(asked): QueryParams<FileDelete>,
) -> HandlerResult {
    api.takes_work()?;
    api.session(&caller, &session).await?;
    let files = api.runtime().files(&session).await?;
    let expected = expectation(asked.expected_hash.as_deref())?;
    if asked.recursive && expected != FileExpectation::Anything {
        let told = "a folder has no hash: leave out expected_hash, or recursive";
        return Err(Problem::new(ProblemCode::InvalidFile, told));
    }
    undisturbed(on_disk(files, move |files| match asked.recursive {
        true => files.remove_tree(&path),
        false => files.remove_if(&path, expected),
    }))
    .await?;
    json(&Deleted { deleted: true })
}

pub async fn stat(
    State(api): State<Api>,
    caller: Caller,
    PathParams((session, path)): PathParams<(String, String)>,
) -> HandlerResult {
    api.session(&caller, &session).await?;
    let files = api.runtime().files(&session).await?;
    let hashed_max = api.runtime().limits().file_hashed_bytes_max;
    let found = on_disk(files, move |files| {
        let stat = files.stat(&path)?;
        let is_hashed = |stat: &FileStat| stat.kind == FileKind::File && stat.bytes <= hashed_max;
        let hash = stat.as_ref().filter(|stat| is_hashed(stat)).map(|_| files.hash(&path)).transpose()?;
        Ok(FileStatShown {
            path,
            exists: stat.is_some(),
            kind: stat.as_ref().map(|stat| stat.kind.as_str()),
            bytes: stat.filter(|stat| stat.kind == FileKind::File).map(|stat| stat.bytes),
            hash: hash.map(|hash| hash.to_string()),
        })
    });
    json(&found.await?)
}

fn expectation(given: Option<&str>) -> Result<FileExpectation, Problem> {
    match given {
        None => Ok(FileExpectation::Anything),
        Some("absent") => Ok(FileExpectation::Absent),
        Some(hash) => ContentHash::parse(hash).map(FileExpectation::Content).ok_or_else(|| {
            let told = "`expected_hash` is the 32 digits that a write or stat of the file told, or `absent`";
            Problem::new(ProblemCode::InvalidFile, told)
        }),
    }
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
            FileError::NotEmpty { .. } | FileError::Changed { .. } => ProblemCode::Conflict,
            FileError::NotConfigured | FileError::NotAllowed { .. } | FileError::Path { .. } => {
                ProblemCode::InvalidFile
            }
            FileError::Io { .. } => ProblemCode::Internal,
            // A kind that this server does not know yet.
            _ => ProblemCode::Internal,
        };
        Problem::new(code, chain(&error))
    }
}
