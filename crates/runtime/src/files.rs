//! The files of a session: a folder of its own that nothing done through it can leave.
//!
//! A path is walked one part at a time from a descriptor of the folder it lies in, and no part may be a link. So there is
//! nothing between a check and a use: whoever puts a link in the way meanwhile is refused, not followed.

use crate::error::BatchError;
use crate::runtime::{Inner, Runtime, check_session_name};
use crate::tool::{Cx, ToolError};
use rustix::fs::{self, AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use windlass_core::failure::FailureClass;
use windlass_core::limits::Limits;

/// How names of files begin that are being written; nobody else can use or see them.
const UNFINISHED: &str = ".windlass-";
/// The longest part of a path, as file systems have it.
const PART_BYTES_MAX: usize = 255;

/// The files of one session. What it does waits for the disk: `quick` tools must not use it.
#[derive(Clone, Debug)]
pub struct SessionFiles {
    /// Where the folders of all sessions are.
    base: Arc<Path>,
    session: String,
    limits: Arc<Limits>,
}

/// Something in a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileEntry {
    /// Its name there.
    pub name: String,
    /// What it is.
    pub kind: FileKind,
    /// How many bytes a file has.
    pub bytes: u64,
}

/// What something in a folder is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A file.
    File,
    /// A folder.
    Folder,
    /// Something that is neither, such as a link: it can be removed, and nothing else.
    Other,
}

/// Why a file was not read or written.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The host keeps no files.
    #[error("there is no place for the files of sessions; set `files` of the runtime's configuration")]
    NotConfigured,
    /// No path can be so.
    #[error("{path:?} is no path of a session's file: {why}")]
    Path {
        /// What was given.
        path: String,
        /// What is wrong, and what to do.
        why: String,
    },
    /// It is not there.
    #[error("there is no {path:?} among the files of the session; list the folder to see what there is")]
    NotFound {
        /// What was asked for.
        path: String,
    },
    /// It is larger than what may be read or written.
    #[error(
        "{path:?} has more than {max} bytes, which is the most of one file; use an artifact, or several files"
    )]
    TooLarge {
        /// Which.
        path: String,
        /// The limit `file_bytes_max`.
        max: u64,
    },
    /// A folder that is to be removed has something in it.
    #[error("the folder {path:?} is not empty; remove what is in it first")]
    NotEmpty {
        /// Which.
        path: String,
    },
    /// The disk could not do it.
    #[error("the file {path:?} could not be read or written")]
    Io {
        /// Which.
        path: String,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
}

impl From<FileError> for ToolError {
    fn from(error: FileError) -> ToolError {
        match error {
            FileError::NotConfigured | FileError::Io { .. } => {
                ToolError::internal(crate::error::chain(&error))
            }
            FileError::TooLarge { .. } => {
                ToolError { class: FailureClass::ResourceLimit, ..ToolError::new(error.to_string()) }
            }
            FileError::Path { .. } | FileError::NotFound { .. } | FileError::NotEmpty { .. } => {
                ToolError::new(error.to_string())
            }
        }
    }
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
        SessionFiles::new(hold.rt.files.as_ref(), self.session(), hold.rt.limits.clone())
    }
}

impl Runtime {
    /// The files of the session of this name, which its tools see too.
    pub fn files(&self, session: &str) -> Result<SessionFiles, FileError> {
        SessionFiles::new(self.0.files.as_ref(), session, self.0.limits.clone())
    }
}

/// Removes the files of a session that is removed, if there are any.
pub(crate) async fn remove_session(rt: &Inner, session: &str) -> Result<(), FileError> {
    let files = match SessionFiles::new(rt.files.as_ref(), session, rt.limits.clone()) {
        Ok(files) => files,
        // None can be there.
        Err(FileError::NotConfigured | FileError::Path { .. }) => return Ok(()),
        Err(error) => return Err(error),
    };
    tokio::task::spawn_blocking(move || files.remove_all()).await.unwrap_or(Ok(()))
}

impl SessionFiles {
    fn new(base: Option<&Arc<Path>>, session: &str, limits: Arc<Limits>) -> Result<SessionFiles, FileError> {
        let base = base.ok_or(FileError::NotConfigured)?.clone();
        let named = check_session_name(session).map_err(|error: BatchError| error.to_string());
        let why = match named {
            Ok(()) if session == "." || session == ".." => {
                "a session of this name has no folder; use another session".to_string()
            }
            Ok(()) => return Ok(SessionFiles { base, session: session.to_string(), limits }),
            Err(why) => why,
        };
        Err(FileError::Path { path: session.to_string(), why })
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

    /// A file to read from, and how many bytes it has. It stays what it is when another is written in its place.
    pub fn open(&self, path: &str) -> Result<(File, u64), FileError> {
        let parts = self.parts(path)?;
        let (folder, name) = self.folder_of(path, &parts, Missing::Refused)?;
        // A pipe would be waited for.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = fs::openat(&folder, name, flags, Mode::empty()).map_err(|error| failed(path, error))?;
        let stat = fs::fstat(&file).map_err(|error| failed(path, error))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(refused(path, "it is a folder or something else that is no file; list it"));
        }
        Ok((File::from(file), stat.st_size.cast_unsigned()))
    }

    /// Writes a file whole, with the folders it lies in: whoever reads it sees what was there or all of this, also after a
    /// crash.
    pub fn write(&self, path: &str, bytes: &[u8]) -> Result<(), FileError> {
        let max = self.limits.file_bytes_max;
        if bytes.len() as u64 > max {
            return Err(FileError::TooLarge { path: path.to_string(), max });
        }
        let parts = self.parts(path)?;
        let (folder, name) = self.folder_of(path, &parts, Missing::Made)?;
        let unfinished = self.unfinished(path)?;
        let written = self.write_new(&folder, &unfinished, bytes).and_then(|()| {
            fs::renameat(&folder, &*unfinished, &folder, name)?;
            fs::fsync(&folder)
        });
        written.map_err(|error| {
            // What cannot be removed is not seen, and goes with the session.
            let _gone = fs::unlinkat(&folder, &*unfinished, AtFlags::empty());
            match error {
                Errno::ISDIR | Errno::EXIST | Errno::NOTEMPTY => {
                    refused(path, "it is a folder; choose another")
                }
                error => failed(path, error),
            }
        })
    }

    /// What is in a folder, by name; `""` is the session's own. A session that has no files has an empty one.
    pub fn list(&self, path: &str) -> Result<Vec<FileEntry>, FileError> {
        let parts = if path.is_empty() { Vec::new() } else { self.parts(path)? };
        let folder = match self.walk(path, &parts, Missing::Refused) {
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
            // What went meanwhile is not listed.
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

    /// Removes a file, or a folder that is empty. `false`: it is not there.
    pub fn remove(&self, path: &str) -> Result<bool, FileError> {
        let parts = self.parts(path)?;
        let (folder, name) = match self.folder_of(path, &parts, Missing::Refused) {
            Err(FileError::NotFound { .. }) => return Ok(false),
            found => found?,
        };
        let removed = match fs::unlinkat(&folder, name, AtFlags::empty()) {
            // Some systems say that a folder is not to be unlinked, others that it is one.
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
        let base = match self.base_folder(Missing::Refused) {
            Err(FileError::NotFound { .. }) => return Ok(()),
            base => base?,
        };
        empty_out(&base, &self.session, 0).map_err(|error| failed(&self.session, error))
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

    /// The folder that a file lies in, and its name there.
    fn folder_of<'a>(
        &self,
        path: &str,
        parts: &[&'a str],
        missing: Missing,
    ) -> Result<(OwnedFd, &'a str), FileError> {
        let (name, folders) = parts.split_last().ok_or_else(|| refused(path, "it is empty"))?;
        Ok((self.walk(path, folders, missing)?, name))
    }

    /// Goes from folder to folder, each by the descriptor of the one before.
    fn walk(&self, path: &str, folders: &[&str], missing: Missing) -> Result<OwnedFd, FileError> {
        let mut at = self.base_folder(missing)?;
        for part in std::iter::once(&&*self.session).chain(folders) {
            at = enter(&at, part, missing).map_err(|error| failed(path, error))?;
        }
        Ok(at)
    }

    /// Where the folders of all sessions are. The host chose it, so links on the way there are its own.
    fn base_folder(&self, missing: Missing) -> Result<OwnedFd, FileError> {
        let shown = || PathBuf::from(&*self.base).display().to_string();
        if missing == Missing::Made {
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

/// What is done about a folder that is not there.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Missing {
    Refused,
    Made,
}

/// Opens a folder in a folder, which must not be a link.
fn enter(at: &OwnedFd, part: &str, missing: Missing) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match fs::openat(at, part, flags, Mode::empty()) {
        Err(Errno::NOENT) if missing == Missing::Made => {
            match fs::mkdirat(at, part, Mode::RWXU) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(error),
            }
            fs::openat(at, part, flags, Mode::empty())
        }
        opened => opened,
    }
}

/// Folders in folders that are removed; deeper ones nobody made through here.
const DEPTH_MAX: u32 = 256;

/// Removes a folder and all that is in it, without following a link.
fn empty_out(at: &impl AsFd, name: &str, depth: u32) -> Result<(), Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = match fs::openat(at, name, flags, Mode::empty()) {
        Ok(folder) if depth < DEPTH_MAX => folder,
        Ok(_) => return Err(Errno::NAMETOOLONG),
        Err(Errno::NOENT) => return Ok(()),
        // A link or a file.
        Err(Errno::LOOP | Errno::NOTDIR) => return fs::unlinkat(at, name, AtFlags::empty()),
        Err(error) => return Err(error),
    };
    for entry in Dir::read_from(&folder)? {
        let entry = entry?;
        let inside = entry.file_name();
        if inside.to_bytes() == b"." || inside.to_bytes() == b".." {
            continue;
        }
        match fs::unlinkat(&folder, inside, AtFlags::empty()) {
            Err(Errno::ISDIR | Errno::PERM) => match inside.to_str() {
                Ok(inside) => empty_out(&folder, inside, depth + 1)?,
                Err(_) => return Err(Errno::ILSEQ),
            },
            removed => removed?,
        }
    }
    fs::unlinkat(at, name, AtFlags::REMOVEDIR)
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
