//! Looking at files: kinds, sizes, and the entries of folders.

use super::SessionFiles;
use super::walk::{MissingFolder, UNFINISHED, failed, refused};
use crate::api::content::ContentHash;
use crate::api::data_error::FileError;
use rustix::fs::{self, AtFlags, Dir, FileType, Stat};
use rustix::io::Errno;
use std::collections::BinaryHeap;
use std::os::fd::OwnedFd;
use std::time::{Duration, SystemTime};

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

impl FileKind {
    /// Its name: `file`, `folder` or `other`.
    pub fn as_str(self) -> &'static str {
        match self {
            FileKind::File => "file",
            FileKind::Folder => "folder",
            FileKind::Other => "other",
        }
    }
}

/// The facts about a path at which there is something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileStat {
    /// Its kind.
    pub kind: FileKind,
    /// The size of a file.
    pub bytes: u64,
    /// When its content was last changed.
    pub modified: SystemTime,
    /// Whether its owner may execute it.
    pub is_executable: bool,
}

/// Some entries of a folder, by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilePage {
    /// The entries.
    pub entries: Vec<FileEntry>,
    /// Whether there are more behind the last one.
    pub more: bool,
    /// How many entries the folder has.
    pub total: u64,
}

impl SessionFiles {
    /// The entries of a folder, by name; `""` is the session's own. A session without files has an empty one.
    pub fn list(&self, path: &str) -> Result<Vec<FileEntry>, FileError> {
        let max = self.limits.files_listed_max;
        let page = self.list_page(path, None, max as usize)?;
        if page.more {
            let why = format!("the folder has more than {max} entries; read its files by their names");
            return Err(refused(path, &why));
        }
        Ok(page.entries)
    }

    /// At most `max` entries of a folder, those that follow `after` by name; `""` is the session's own folder. However many entries
    /// there are, memory holds no more than `max`.
    pub fn list_page(&self, path: &str, after: Option<&str>, max: usize) -> Result<FilePage, FileError> {
        let parts = if path.is_empty() { Vec::new() } else { self.parts(path)? };
        let folder = match self.walk(path, &parts, MissingFolder::Refused) {
            Err(FileError::NotFound { .. }) if path.is_empty() => {
                return Ok(FilePage { entries: Vec::new(), more: false, total: 0 });
            }
            folder => folder?,
        };
        let (mut first, mut total) = (BinaryHeap::new(), 0);
        for entry in Dir::read_from(&folder).map_err(|error| failed(path, error))? {
            let entry = entry.map_err(|error| failed(path, error))?;
            let Ok(name) = entry.file_name().to_str() else { continue };
            if name == "." || name == ".." || name.starts_with(UNFINISHED) {
                continue;
            }
            total += 1;
            if after.is_some_and(|after| name <= after) {
                continue;
            }
            // One more than is shown, to know whether there is more.
            if first.len() <= max || first.peek().is_some_and(|last: &String| name < last.as_str()) {
                first.push(name.to_string());
                if first.len() > max + 1 {
                    drop(first.pop());
                }
            }
        }
        let mut names = first.into_sorted_vec();
        let more = names.len() > max;
        names.truncate(max);
        let entries = names.into_iter().filter_map(|name| entry(&folder, name));
        Ok(FilePage { entries: entries.collect(), more, total })
    }

    /// The facts about a path; `None` if there is nothing. A link is not followed.
    pub fn stat(&self, path: &str) -> Result<Option<FileStat>, FileError> {
        let parts = self.parts(path)?;
        let (folder, name) = match self.folder_of(path, &parts, MissingFolder::Refused) {
            Err(FileError::NotFound { .. }) => return Ok(None),
            found => found?,
        };
        match fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(FileStat::from(&stat))),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(failed(path, error)),
        }
    }

    /// The hash of a file's content. It reads the file, whose size is up to the caller.
    pub fn hash(&self, path: &str) -> Result<ContentHash, FileError> {
        let (file, _) = self.open(path)?;
        ContentHash::of_reader(file).map_err(|source| FileError::Io { path: path.to_string(), source })
    }
}

/// The entry of this name; `None` if it was removed meanwhile.
fn entry(folder: &OwnedFd, name: String) -> Option<FileEntry> {
    let stat = fs::statat(folder, &*name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    let FileStat { kind, bytes, .. } = FileStat::from(&stat);
    Some(FileEntry { name, kind, bytes })
}

impl FileStat {
    pub(super) fn from(stat: &Stat) -> FileStat {
        let found_as = FileType::from_raw_mode(stat.st_mode);
        let kind = match (found_as.is_file(), found_as.is_dir()) {
            (true, _) => FileKind::File,
            (_, true) => FileKind::Folder,
            (false, false) => FileKind::Other,
        };
        let bytes = if kind == FileKind::File { stat.st_size.cast_unsigned() } else { 0 };
        let since = Duration::from_secs(stat.st_mtime.unsigned_abs());
        let modified = match stat.st_mtime < 0 {
            true => SystemTime::UNIX_EPOCH.checked_sub(since),
            false => SystemTime::UNIX_EPOCH.checked_add(since),
        };
        let modified = modified.unwrap_or(SystemTime::UNIX_EPOCH);
        FileStat { kind, bytes, modified, is_executable: stat.st_mode & 0o100 != 0 }
    }
}
