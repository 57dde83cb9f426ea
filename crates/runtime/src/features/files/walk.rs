//! The way to a file: the parts of a path, and the descriptors of the folders on it.

use super::SessionFiles;
use super::root::FilesRoot;
use crate::api::data_error::FileError;
use rustix::fs::{self, Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::OwnedFd;

/// The prefix of files that are being written; no caller can use or see them.
pub(super) const UNFINISHED: &str = ".windlass-";
/// The maximum length of a path's part on common file systems.
const PART_BYTES_MAX: usize = 255;

/// How to handle a missing folder.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum MissingFolder {
    Refused,
    Made,
}

impl SessionFiles {
    /// The parts of a path that stays within the folder.
    pub(super) fn parts<'a>(&self, path: &'a str) -> Result<Vec<&'a str>, FileError> {
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
    pub(super) fn folder_of<'a>(
        &self,
        path: &str,
        parts: &[&'a str],
        missing: MissingFolder,
    ) -> Result<(OwnedFd, &'a str), FileError> {
        let (name, folders) = parts.split_last().ok_or_else(|| refused(path, "it is empty"))?;
        Ok((self.walk(path, folders, missing)?, name))
    }

    /// Walks from folder to folder, each by the descriptor of its parent.
    pub(super) fn walk(
        &self,
        path: &str,
        folders: &[&str],
        missing: MissingFolder,
    ) -> Result<OwnedFd, FileError> {
        let mut at = self.root.open(path, missing)?;
        for part in folders {
            at = self.root.enter(&at, part, missing).map_err(|error| failed(path, error))?;
        }
        Ok(at)
    }
}

impl FilesRoot {
    /// Opens a folder in a folder, which must not be a link.
    pub(super) fn enter(&self, at: &OwnedFd, part: &str, missing: MissingFolder) -> Result<OwnedFd, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match fs::openat(at, part, flags, Mode::empty()) {
            Err(Errno::NOENT) if missing == MissingFolder::Made => {
                match fs::mkdirat(at, part, self.folder_mode()) {
                    // A file in a folder that a power cut takes away would be gone with it.
                    Ok(()) => fs::fsync(at)?,
                    Err(Errno::EXIST) => {}
                    Err(error) => return Err(error),
                }
                fs::openat(at, part, flags, Mode::empty())
            }
            opened => opened,
        }
    }
}

pub(super) fn refused(path: &str, why: &str) -> FileError {
    FileError::Path { path: path.to_string(), why: why.to_string() }
}

pub(super) fn failed(path: &str, error: Errno) -> FileError {
    match error {
        Errno::NOENT => FileError::NotFound { path: path.to_string() },
        Errno::LOOP | Errno::NOTDIR | Errno::MLINK => {
            refused(path, "a part of it is a file or a link where a folder must be; links are not followed")
        }
        error => FileError::Io { path: path.to_string(), source: error.into() },
    }
}
