//! Changing files: written whole or not at all, also under the condition that nobody else has changed them.

use super::SessionFiles;
use super::tree;
use super::unfinished;
use super::walk::{MissingFolder, failed, refused};
use crate::api::content::{ContentHash, FileExpectation};
use crate::api::data_error::FileError;
use crate::api::error::{Lost, SessionError};
use crate::api::locks::{LockGuard, LockRank, OrderedMutex};
use rustix::fs::{self, AtFlags, FileType, Mode, Stat};
use rustix::io::Errno;
use std::fs::File;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::io::Write;
use std::os::fd::OwnedFd;

/// A file that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrittenFile {
    /// Whether it did not exist before.
    pub is_new: bool,
    /// The hash of its content now.
    pub hash: ContentHash,
}

/// Locks for changes of the same file, so that nothing here comes between the look at a file and its change. Two files may share one.
pub(crate) struct ChangeLocks([OrderedMutex<(), { LockRank::FileChange as u8 }>; ChangeLocks::COUNT]);

impl ChangeLocks {
    /// More than threads that write at once.
    const COUNT: usize = 64;
}

impl Default for ChangeLocks {
    fn default() -> ChangeLocks {
        ChangeLocks(std::array::from_fn(|_| OrderedMutex::default()))
    }
}

impl std::fmt::Debug for ChangeLocks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ChangeLocks")
    }
}

/// Everything that the owner, the group and others may do with a file, but no right to become another user.
const RIGHTS: u32 = 0o777;

impl SessionFiles {
    /// Writes a whole file, and creates its parent folders: a reader sees the old content or all of the new,
    /// also after a crash.
    pub fn write(&self, path: &str, bytes: &[u8]) -> Result<(), FileError> {
        self.write_if(path, bytes, FileExpectation::Anything).map(drop)
    }

    /// Writes a whole file as [`write`](Self::write) does, if it is as expected; else [`FileError::Changed`]. No other change made
    /// through a runtime of this process comes between. The permissions of an existing file stay; other names of the same file (hard
    /// links) keep the old content.
    pub fn write_if(
        &self,
        path: &str,
        bytes: &[u8],
        expected: FileExpectation,
    ) -> Result<WrittenFile, FileError> {
        let max = self.limits.file_bytes_max;
        if bytes.len() as u64 > max {
            return Err(FileError::TooLarge { path: path.to_string(), max });
        }
        let parts = self.parts(path)?;
        let gone = || SessionError::from(Lost::Removed);
        let _open = self.gate.enter().ok_or_else(gone)?;
        let (folder, name) = self.folder_of(path, &parts, MissingFolder::Made)?;
        // Before its content is written, which may take long.
        self.check(path, &folder, name, expected)?;
        let (file, unfinished) =
            unfinished::create(&folder, name, self.root.file_mode()).map_err(|error| failed(path, error))?;
        let written = write_all(&file, &folder, name, bytes);
        let written = written.map_err(|error| failed(path, error)).and_then(|()| {
            let _alone = self.alone(path);
            let is_new = self.check(path, &folder, name, expected)?.is_none();
            fs::renameat(&folder, &*unfinished, &folder, name).and_then(|()| fs::fsync(&folder)).map_err(
                |error| match error {
                    Errno::ISDIR | Errno::EXIST | Errno::NOTEMPTY => {
                        refused(path, "it is a folder; choose another")
                    }
                    error => failed(path, error),
                },
            )?;
            Ok(WrittenFile { is_new, hash: ContentHash::of(bytes) })
        });
        if written.is_err() {
            // A file that cannot be removed is hidden, and removed with the session.
            let _gone = fs::unlinkat(&folder, &*unfinished, AtFlags::empty());
        }
        written
    }

    /// Creates a folder, with its parents. `false`: it existed.
    pub fn make_folder(&self, path: &str) -> Result<bool, FileError> {
        let parts = self.parts(path)?;
        let gone = || SessionError::from(Lost::Removed);
        let _open = self.gate.enter().ok_or_else(gone)?;
        let (folder, name) = self.folder_of(path, &parts, MissingFolder::Made)?;
        match fs::mkdirat(&folder, name, self.root.folder_mode()) {
            Ok(()) => fs::fsync(&folder).map(|()| true).map_err(|error| failed(path, error)),
            Err(Errno::EXIST) => match stat(&folder, name) {
                Ok(Some(stat)) if FileType::from_raw_mode(stat.st_mode).is_dir() => Ok(false),
                _ => Err(refused(path, "it is a file or a link; choose another")),
            },
            Err(error) => Err(failed(path, error)),
        }
    }

    /// Removes a file, or an empty folder. `false`: it did not exist.
    pub fn remove(&self, path: &str) -> Result<bool, FileError> {
        self.remove_if(path, FileExpectation::Anything)
    }

    /// Removes a file, or an empty folder, if it is as expected; else [`FileError::Changed`]. `false`: it did not exist.
    pub fn remove_if(&self, path: &str, expected: FileExpectation) -> Result<bool, FileError> {
        let parts = self.parts(path)?;
        let (folder, name) = match self.folder_of(path, &parts, MissingFolder::Refused) {
            Err(FileError::NotFound { .. }) => return Ok(false),
            found => found?,
        };
        let _alone = self.alone(path);
        if stat(&folder, name).map_err(|error| failed(path, error))?.is_some() {
            self.check(path, &folder, name, expected)?;
        }
        let removed = match fs::unlinkat(&folder, name, AtFlags::empty()) {
            // Some systems report that a folder cannot be unlinked, others that it is one.
            Err(Errno::ISDIR | Errno::PERM) => fs::unlinkat(&folder, name, AtFlags::REMOVEDIR),
            removed => removed,
        };
        match removed.and_then(|()| fs::fsync(&folder)) {
            Ok(()) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(Errno::NOTEMPTY | Errno::EXIST) => Err(FileError::NotEmpty { path: path.to_string() }),
            Err(error) => Err(failed(path, error)),
        }
    }

    /// Removes a file, or a folder with all that is in it. Links in it are removed, and what they lead to stays. `false`: it did not
    /// exist.
    pub fn remove_tree(&self, path: &str) -> Result<bool, FileError> {
        let parts = self.parts(path)?;
        let (folder, name) = match self.folder_of(path, &parts, MissingFolder::Refused) {
            Err(FileError::NotFound { .. }) => return Ok(false),
            found => found?,
        };
        if stat(&folder, name).map_err(|error| failed(path, error))?.is_none() {
            return Ok(false);
        }
        let removed = tree::remove(&folder, name).and_then(|()| fs::fsync(&folder));
        removed.map(|()| true).map_err(|error| failed(path, error))
    }

    /// Removes all files of the session, and its folder. A folder that the session was opened with is not removed.
    pub fn remove_all(&self) -> Result<(), FileError> {
        let name = self.root.name();
        if !self.root.is_own {
            return Err(refused(name, "it existed before the session, so remove it where it was made"));
        }
        let base = match self.root.open_top(MissingFolder::Refused) {
            Err(FileError::NotFound { .. }) => return Ok(()),
            base => base?,
        };
        tree::remove(&base, name).map_err(|error| failed(name, error))
    }

    /// The entry at this name, if it is as expected.
    fn check(
        &self,
        path: &str,
        folder: &OwnedFd,
        name: &str,
        expected: FileExpectation,
    ) -> Result<Option<Stat>, FileError> {
        let found = stat(folder, name).map_err(|error| failed(path, error))?;
        let changed = |found| FileError::Changed { path: path.to_string(), expected, found };
        match (expected, &found) {
            (FileExpectation::Anything, _) | (FileExpectation::Absent, None) => Ok(found),
            (FileExpectation::Content(_), None) => Err(changed(None)),
            (FileExpectation::Absent | FileExpectation::Content(_), Some(_)) => {
                let hash = match self.hash(path) {
                    Ok(hash) => hash,
                    Err(FileError::NotFound { .. }) => return Err(changed(None)),
                    Err(error) => return Err(error),
                };
                match expected == FileExpectation::Content(hash) {
                    true => Ok(found),
                    false => Err(changed(Some(hash))),
                }
            }
        }
    }

    /// Held while nothing else here may change the file.
    fn alone(&self, path: &str) -> LockGuard<'_, ()> {
        let place = (self.root.identity(), path);
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(place);
        self.changes.0[hash as usize % ChangeLocks::COUNT].lock()
    }
}

/// Writes a file that nobody sees yet, with the permissions of the file it replaces.
fn write_all(mut file: &File, folder: &OwnedFd, name: &str, bytes: &[u8]) -> Result<(), Errno> {
    let io = |error: std::io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
    if let Some(old) = stat(folder, name)?
        && FileType::from_raw_mode(old.st_mode).is_file()
    {
        fs::fchmod(file, Mode::from_raw_mode(old.st_mode & RIGHTS))?;
    }
    file.write_all(bytes).map_err(io)?;
    file.sync_all().map_err(io)
}

/// The entry of this name, if there is one.
fn stat(folder: &OwnedFd, name: &str) -> Result<Option<Stat>, Errno> {
    match fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error),
    }
}
