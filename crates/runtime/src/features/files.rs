//! The files of a session: a folder that its operations cannot leave.
//!
//! A path is walked one part at a time from a descriptor of the parent folder, and no part may be a link. So
//! there is no gap between check and use: a link placed there meanwhile is refused, not followed.

mod change;
mod folder;
mod gate;
mod host;
mod look;
mod root;
mod tree;
mod unfinished;
mod walk;

pub use change::WrittenFile;
pub use folder::SessionFolder;
pub use look::{FileEntry, FileKind, FilePage, FileStat};

use crate::api::data_error::FileError;
use crate::api::error::SessionError;
use crate::api::limits::EnforcedLimits;
use crate::session::cx::Cx;
use crate::session::inner::{Inner, Runtime};
use crate::session::owner::Session;
use crate::session::principal::SessionRecords;
use crate::tools::tool::PrepareCx;
use change::ChangeLocks;
use gate::{FileGate, gate_of};
pub(crate) use root::name_folder;
use root::{FilesRoot, NamedFolder};
use rustix::fs::{self, FileType, Mode, OFlags};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::sync::Arc;
use walk::{MissingFolder, failed, refused};

/// The files of one session. Its operations wait for the disk: `quick` tools must not use it.
#[derive(Clone, Debug)]
pub struct SessionFiles {
    root: FilesRoot,
    limits: Arc<EnforcedLimits>,
    gate: Arc<FileGate>,
    changes: Arc<ChangeLocks>,
}

impl Cx {
    /// The files of the session. A tool that uses them [needs](windlass_core::tool::ToolSpec::needs) `files`.
    ///
    /// ```
    /// # use windlass::{Cx, Output, ToolError}; use serde_json::{Value, json};
    /// async fn note(args: Value, cx: &Cx) -> Result<Output, ToolError> {
    ///     let files = cx.files()?;
    ///     files.write("notes/today.txt", args["text"].to_string().as_bytes())?;
    ///     Ok(json!({ "notes": files.list("notes")?.len() }).into())
    /// }
    /// ```
    pub fn files(&self) -> Result<SessionFiles, FileError> {
        let hold = self.hold.upgrade().ok_or(FileError::NotConfigured)?;
        SessionFiles::new(&hold.rt, &hold.session)
    }
}

impl PrepareCx<'_> {
    /// The files of the session.
    pub fn files(&self) -> Result<SessionFiles, FileError> {
        SessionFiles::new(&self.at.on.rt, &self.at.on.session)
    }
}

impl Runtime {
    /// The files of the session of this name, shared with its tools. A new session is opened.
    pub async fn files(&self, session: &str) -> Result<SessionFiles, FileError> {
        root::check(self.0.files.as_ref(), session)?;
        let opening = SessionRecords::local();
        let (session, _) =
            self.0.open_session(session, opening, async { Ok::<(), SessionError>(()) }).await?;
        SessionFiles::new(&self.0, &session)
    }
}

/// Removes the files of a removed session, if there are any, and lets no more be written. A folder that the session was opened
/// with stays as it is: it existed before the session.
pub(crate) async fn remove_session(rt: &Inner, session: &Session) -> Result<(), FileError> {
    if session.slots.of::<NamedFolder>().get().is_some() {
        let gate = gate_of(rt, session);
        let closing = tokio::task::spawn_blocking(move || gate.close());
        return closing.await.map_err(|error| FileError::Io {
            path: session.name.to_string(),
            source: std::io::Error::other(error),
        });
    }
    let files = match SessionFiles::new(rt, session) {
        Ok(files) => files,
        // There can be none.
        Err(FileError::NotConfigured | FileError::Path { .. }) => return Ok(()),
        Err(error) => return Err(error),
    };
    let removing = tokio::task::spawn_blocking(move || {
        files.gate.close();
        files.remove_all()
    });
    removing.await.unwrap_or_else(|error| {
        let source = std::io::Error::other(error);
        Err(FileError::Io { path: session.name.to_string(), source })
    })
}

/// Whether there is a folder with files of a session of this name.
pub(crate) fn has_folder(rt: &Inner, session: &str) -> bool {
    root::check(rt.files.as_ref(), session).is_ok_and(|base| base.join(session).is_dir())
}

impl SessionFiles {
    fn new(rt: &Inner, session: &Session) -> Result<SessionFiles, FileError> {
        let root = FilesRoot::of(rt, session)?;
        let (gate, limits) = (gate_of(rt, session), rt.limits.clone());
        Ok(SessionFiles { root, limits, gate, changes: rt.slots.of::<ChangeLocks>() })
    }

    /// A whole file.
    pub fn read(&self, path: &str) -> Result<Vec<u8>, FileError> {
        let max = self.limits.file_bytes_max;
        let bytes = self.read_at(path, 0, max + 1)?;
        if bytes.len() as u64 > max {
            return Err(FileError::TooLarge { path: path.to_string(), max });
        }
        Ok(bytes)
    }

    /// At most `len` bytes of a file from `offset`; none past its end.
    pub fn read_at(&self, path: &str, offset: u64, len: u64) -> Result<Vec<u8>, FileError> {
        let (mut file, _) = self.open(path)?;
        let read = || {
            let mut bytes = Vec::new();
            file.seek(SeekFrom::Start(offset))?;
            file.take(len).read_to_end(&mut bytes)?;
            Ok(bytes)
        };
        read().map_err(|source| FileError::Io { path: path.to_string(), source })
    }

    /// A file to read from, and its size. It stays unchanged when it is replaced.
    pub fn open(&self, path: &str) -> Result<(File, u64), FileError> {
        let parts = self.parts(path)?;
        let (folder, name) = self.folder_of(path, &parts, MissingFolder::Refused)?;
        // A pipe would block.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = fs::openat(&folder, name, flags, Mode::empty()).map_err(|error| failed(path, error))?;
        let stat = fs::fstat(&file).map_err(|error| failed(path, error))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(refused(path, "it is a folder or something else that is no file; list it"));
        }
        Ok((File::from(file), stat.st_size.cast_unsigned()))
    }

    /// A folder to search in; `""` is the session's own. It stays the same folder when its name changes.
    pub fn folder(&self, path: &str) -> Result<SessionFolder, FileError> {
        let parts = if path.is_empty() { Vec::new() } else { self.parts(path)? };
        Ok(SessionFolder::new(self.walk(path, &parts, MissingFolder::Refused)?))
    }
}
