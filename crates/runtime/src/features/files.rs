//! The files of a session: a folder of its own that its operations cannot leave.
//!
//! A path is walked one part at a time from a descriptor of the parent folder, and no part may be a link. So
//! there is no gap between check and use: a link placed there meanwhile is refused, not followed.

mod tree;

use crate::api::data_error::FileError;
use crate::api::error::{Lost, SessionError};
use crate::api::limits::EnforcedLimits;
use crate::api::locks::{LockRank, OrderedMutex, OrderedRwLock, ReadGuard};
use crate::session::cx::Cx;
use crate::session::inner::{Inner, Runtime};
use crate::session::owner::Session;
use crate::session::principal::SessionRecords;
use crate::tools::request::check_session_name;
use rustix::fs::{self, AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

/// The prefix of files that are being written; no caller can use or see them.
const UNFINISHED: &str = ".windlass-";
/// The maximum length of a path's part on common file systems.
const PART_BYTES_MAX: usize = 255;

/// The files of one session. Its operations wait for the disk: `quick` tools must not use it.
#[derive(Clone, Debug)]
pub struct SessionFiles {
    /// The parent of all sessions' folders.
    base: Arc<Path>,
    session: String,
    limits: Arc<EnforcedLimits>,
    gate: Arc<FileGate>,
}

/// An entry of a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileEntry {
    /// Its name in the folder.
    pub name: String,
    /// Its kind.
    pub kind: FileKind,
    /// The size of a file.
    pub bytes: u64,
}

/// The kind of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A file.
    File,
    /// A folder.
    Folder,
    /// Neither, such as a link: it can only be removed.
    Other,
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

impl Runtime {
    /// The files of the session of this name, shared with its tools. A new session is opened.
    pub async fn files(&self, session: &str) -> Result<SessionFiles, FileError> {
        check(self.0.files.as_ref(), session)?;
        let opening = SessionRecords::local();
        let (session, _) =
            self.0.open_session(session, opening, async { Ok::<(), SessionError>(()) }).await?;
        SessionFiles::new(&self.0, &session)
    }
}

/// Removes the files of a removed session, if there are any, and lets no more be written.
pub(crate) async fn remove_session(rt: &Inner, session: &Session) -> Result<(), FileError> {
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
    check(rt.files.as_ref(), session).is_ok_and(|base| base.join(session).is_dir())
}

/// Lets the files of a session be written until the session is removed. Waiting for it means waiting for the
/// disk, as any writer does.
#[derive(Debug, Default)]
pub(crate) struct FileGate(OrderedRwLock<bool, { LockRank::FileGate as u8 }>);

impl FileGate {
    /// Held while a file is written. `None`: the session is removed.
    fn enter(&self) -> Option<ReadGuard<'_, bool>> {
        let closed = self.0.read();
        (!*closed).then_some(closed)
    }

    /// Waits for current writers, and admits no more.
    fn close(&self) {
        *self.0.write() = true;
    }
}

/// The gates of sessions, by name. A gate lives while it has writers, even when its session leaves memory and
/// is taken again.
#[derive(Default)]
pub(crate) struct FileGates(OrderedMutex<HashMap<String, Weak<FileGate>>, { LockRank::FileGates as u8 }>);

/// The number of gates remembered before unused ones are forgotten.
const GATES_MIN: usize = 256;

impl FileGates {
    /// The gate of the session of this name.
    pub(crate) fn of(&self, session: &str) -> Arc<FileGate> {
        let mut gates = self.0.lock();
        if let Some(gate) = gates.get(session).and_then(Weak::upgrade) {
            return gate;
        }
        if gates.len() >= GATES_MIN.max(gates.capacity() / 2) {
            gates.retain(|_, gate| gate.strong_count() > 0);
        }
        let gate = Arc::new(FileGate::default());
        gates.insert(session.to_string(), Arc::downgrade(&gate));
        gate
    }
}

/// The gate of a session: lets files be written until the session is removed.
fn gate_of(rt: &Inner, session: &Session) -> Arc<FileGate> {
    let gates = rt.slots.of::<FileGates>();
    session.slots.of_or(|| gates.of(&session.name))
}

/// The parent of sessions' folders, if a session of this name can have one.
fn check<'a>(base: Option<&'a Arc<Path>>, session: &str) -> Result<&'a Arc<Path>, FileError> {
    let base = base.ok_or(FileError::NotConfigured)?;
    let why = match check_session_name(session) {
        Ok(()) if session == "." || session == ".." => {
            "a session of this name has no folder; use another session".to_string()
        }
        Ok(()) => return Ok(base),
        Err(error) => error.to_string(),
    };
    Err(FileError::Path { path: session.to_string(), why })
}

impl SessionFiles {
    fn new(rt: &Inner, session: &Session) -> Result<SessionFiles, FileError> {
        let base = check(rt.files.as_ref(), &session.name)?.clone();
        let (gate, limits) = (gate_of(rt, session), rt.limits.clone());
        Ok(SessionFiles { base, session: session.name.to_string(), limits, gate })
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

    /// Writes a whole file, and creates its parent folders: a reader sees the old content or all of the new,
    /// also after a crash.
    pub fn write(&self, path: &str, bytes: &[u8]) -> Result<(), FileError> {
        let max = self.limits.file_bytes_max;
        if bytes.len() as u64 > max {
            return Err(FileError::TooLarge { path: path.to_string(), max });
        }
        let parts = self.parts(path)?;
        let gone = || SessionError::from(Lost::Removed);
        let _open = self.gate.enter().ok_or_else(gone)?;
        let (folder, name) = self.folder_of(path, &parts, MissingFolder::Made)?;
        let unfinished = self.unfinished(path)?;
        let written = self.write_new(&folder, &unfinished, bytes).and_then(|()| {
            fs::renameat(&folder, &*unfinished, &folder, name)?;
            fs::fsync(&folder)
        });
        written.map_err(|error| {
            // A file that cannot be removed is hidden, and removed with the session.
            let _gone = fs::unlinkat(&folder, &*unfinished, AtFlags::empty());
            match error {
                Errno::ISDIR | Errno::EXIST | Errno::NOTEMPTY => {
                    refused(path, "it is a folder; choose another")
                }
                error => failed(path, error),
            }
        })
    }

    /// The entries of a folder, by name; `""` is the session's own. A session without files has an empty one.
    pub fn list(&self, path: &str) -> Result<Vec<FileEntry>, FileError> {
        let parts = if path.is_empty() { Vec::new() } else { self.parts(path)? };
        let folder = match self.walk(path, &parts, MissingFolder::Refused) {
            Err(FileError::NotFound { .. }) if path.is_empty() => return Ok(Vec::new()),
            folder => folder?,
        };
        let max = self.limits.files_listed_max as usize;
        let mut found = Vec::new();
        for entry in Dir::read_from(&folder).map_err(|error| failed(path, error))? {
            let entry = entry.map_err(|error| failed(path, error))?;
            let Ok(name) = entry.file_name().to_str() else { continue };
            if name == "." || name == ".." || name.starts_with(UNFINISHED) {
                continue;
            }
            if found.len() == max {
                let why = format!("the folder has more than {max} entries; read its files by their names");
                return Err(refused(path, &why));
            }
            // An entry that was removed meanwhile is not listed.
            let Ok(stat) = fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
            let found_as = FileType::from_raw_mode(stat.st_mode);
            let kind = match (found_as.is_file(), found_as.is_dir()) {
                (true, _) => FileKind::File,
                (_, true) => FileKind::Folder,
                (false, false) => FileKind::Other,
            };
            let bytes = if kind == FileKind::File { stat.st_size.cast_unsigned() } else { 0 };
            found.push(FileEntry { name: name.to_string(), kind, bytes });
        }
        found.sort_unstable_by(|left, right| left.name.cmp(&right.name));
        Ok(found)
    }

    /// Removes a file, or an empty folder. `false`: it did not exist.
    pub fn remove(&self, path: &str) -> Result<bool, FileError> {
        let parts = self.parts(path)?;
        let (folder, name) = match self.folder_of(path, &parts, MissingFolder::Refused) {
            Err(FileError::NotFound { .. }) => return Ok(false),
            found => found?,
        };
        let removed = match fs::unlinkat(&folder, name, AtFlags::empty()) {
            // Some systems report that a folder cannot be unlinked, others that it is one.
            Err(Errno::ISDIR | Errno::PERM) => fs::unlinkat(&folder, name, AtFlags::REMOVEDIR),
            removed => removed,
        };
        match removed {
            Ok(()) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(Errno::NOTEMPTY | Errno::EXIST) => Err(FileError::NotEmpty { path: path.to_string() }),
            Err(error) => Err(failed(path, error)),
        }
    }

    /// Removes all files of the session, and its folder.
    pub fn remove_all(&self) -> Result<(), FileError> {
        let base = match self.base_folder(MissingFolder::Refused) {
            Err(FileError::NotFound { .. }) => return Ok(()),
            base => base?,
        };
        tree::remove(&base, &self.session).map_err(|error| failed(&self.session, error))
    }

    /// The parts of a path that stays within the folder.
    fn parts<'a>(&self, path: &'a str) -> Result<Vec<&'a str>, FileError> {
        let (bytes_max, levels_max) = (self.limits.file_path_bytes_max, self.limits.file_levels_max);
        let parts: Vec<&str> = path.split('/').collect();
        let why = if path.is_empty() {
            "it is empty".to_string()
        } else if path.starts_with('/') {
            "it begins with /; paths begin at the session's folder".to_string()
        } else if path.len() as u64 > bytes_max || parts.len() as u64 > levels_max {
            format!("it has more than {bytes_max} bytes or {levels_max} levels; make it shorter")
        } else if path.contains(['\0', '\\']) || path.chars().any(char::is_control) {
            "it has a backslash or a control character; leave them out".to_string()
        } else if parts.iter().any(|part| matches!(*part, "" | "." | "..")) {
            "it has a part that is empty, . or ..; name each folder once".to_string()
        } else if parts.iter().any(|part| part.len() > PART_BYTES_MAX || part.starts_with(UNFINISHED)) {
            format!("a part has more than {PART_BYTES_MAX} bytes or begins with {UNFINISHED}; rename it")
        } else {
            return Ok(parts);
        };
        let shown = path.chars().take(256).collect();
        Err(FileError::Path { path: shown, why })
    }

    /// The parent folder of a file, and its name there.
    fn folder_of<'a>(
        &self,
        path: &str,
        parts: &[&'a str],
        missing: MissingFolder,
    ) -> Result<(OwnedFd, &'a str), FileError> {
        let (name, folders) = parts.split_last().ok_or_else(|| refused(path, "it is empty"))?;
        Ok((self.walk(path, folders, missing)?, name))
    }

    /// Walks from folder to folder, each by the descriptor of its parent.
    fn walk(&self, path: &str, folders: &[&str], missing: MissingFolder) -> Result<OwnedFd, FileError> {
        let mut at = self.base_folder(missing)?;
        for part in std::iter::once(&&*self.session).chain(folders) {
            at = enter(&at, part, missing).map_err(|error| failed(path, error))?;
        }
        Ok(at)
    }

    /// The parent of all sessions' folders. The host chose it, so links on the way there are the host's own.
    fn base_folder(&self, missing: MissingFolder) -> Result<OwnedFd, FileError> {
        let shown = || PathBuf::from(&*self.base).display().to_string();
        if missing == MissingFolder::Made {
            std::fs::create_dir_all(&self.base).map_err(|source| FileError::Io { path: shown(), source })?;
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        fs::open(&*self.base, flags, Mode::empty()).map_err(|error| failed(&shown(), error))
    }

    fn write_new(&self, folder: &OwnedFd, name: &str, bytes: &[u8]) -> Result<(), Errno> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file = File::from(fs::openat(folder, name, flags, Mode::RUSR | Mode::WUSR)?);
        let io = |error: std::io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
        file.write_all(bytes).map_err(io)?;
        file.sync_all().map_err(io)
    }

    fn unfinished(&self, path: &str) -> Result<String, FileError> {
        let mut chance = [0; 8];
        getrandom::fill(&mut chance).map_err(|error| FileError::Io {
            path: path.to_string(),
            source: std::io::Error::other(error.to_string()),
        })?;
        Ok(format!("{UNFINISHED}{:016x}", u64::from_le_bytes(chance)))
    }
}

/// How to handle a missing folder.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MissingFolder {
    Refused,
    Made,
}

/// Opens a folder in a folder, which must not be a link.
fn enter(at: &OwnedFd, part: &str, missing: MissingFolder) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match fs::openat(at, part, flags, Mode::empty()) {
        Err(Errno::NOENT) if missing == MissingFolder::Made => {
            match fs::mkdirat(at, part, Mode::RWXU) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(error),
            }
            fs::openat(at, part, flags, Mode::empty())
        }
        opened => opened,
    }
}

fn refused(path: &str, why: &str) -> FileError {
    FileError::Path { path: path.to_string(), why: why.to_string() }
}

fn failed(path: &str, error: Errno) -> FileError {
    match error {
        Errno::NOENT => FileError::NotFound { path: path.to_string() },
        Errno::LOOP | Errno::NOTDIR | Errno::MLINK => refused(
            path,
            "a part of it is a link or no folder; name what lies in the session's folder itself",
        ),
        error => FileError::Io { path: path.to_string(), source: error.into() },
    }
}
