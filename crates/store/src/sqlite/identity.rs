//! The identity of a store's file. A copied file holds the same journal and the same secret as its original,
//! and must not act for it; so the file's own inode and birth time are recorded in it. While it is open, the
//! file under its path must stay the one that is open: writes into a removed folder are lost.

use super::seal::numbers_seal;
use crate::StoreError;
use crate::chain::uint;
use rusqlite::{Connection, Error, OptionalExtension};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

/// The identity that distinguishes a file from its copies. Device, path and boot do not count: remounts, moves and reboots are ordinary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileIdentity {
    inode: u64,
    /// Nanoseconds since 1970; 0 where the file system does not record it.
    born_ns: u64,
    /// Batches from this one on were made in this file, and not in one that it is a copy of.
    own_from: u64,
}

impl FileIdentity {
    /// The identity of the file at this path.
    pub fn of(path: &Path) -> Result<FileIdentity, std::io::Error> {
        let metadata = std::fs::metadata(path)?;
        let born = metadata.created().ok().and_then(|born| born.duration_since(UNIX_EPOCH).ok());
        let born_ns = born.map_or(0, |born| u64::try_from(born.as_nanos()).unwrap_or(0));
        Ok(FileIdentity { inode: FileLocation::of(path)?.inode, born_ns, own_from: 0 })
    }

    /// An identity that no file has, for a file that was just copied: it is a copy wherever it lies, even where the file
    /// system gave it the inode of its original.
    pub fn of_nobody() -> FileIdentity {
        FileIdentity { inode: 0, born_ns: 0, own_from: 0 }
    }

    /// This identity, with batches from this one on made in this file.
    pub fn owning(self, own_from: u64) -> FileIdentity {
        FileIdentity { own_from, ..self }
    }

    /// The first batch made in this file.
    pub fn own_from(self) -> u64 {
        self.own_from
    }

    /// Whether the file with this identity is the one that recorded `recorded`.
    pub fn is(self, recorded: FileIdentity) -> bool {
        let known = self.born_ns != 0 && recorded.born_ns != 0;
        self.inode == recorded.inode && (!known || self.born_ns == recorded.born_ns)
    }

    /// The identity recorded in a file; `None` if there is none. `Err` inside: it is not what was written.
    pub fn recorded(conn: &Connection) -> Result<Result<Option<FileIdentity>, ()>, Error> {
        let sql = "SELECT value FROM meta WHERE key = 'identity'";
        let kept = conn.query_row(sql, (), |row| row.get::<_, Vec<u8>>(0)).optional()?;
        Ok(match kept {
            None => Ok(None),
            Some(kept) => FileIdentity::decode(&kept).map(Some).ok_or(()),
        })
    }

    /// Records it, in the current transaction.
    pub fn record(self, conn: &Connection) -> Result<(), Error> {
        let sql = "INSERT OR REPLACE INTO meta (key, value) VALUES ('identity', ?1)";
        point!("open.identity", conn.execute(sql, [self.encode()])).map(drop)
    }

    fn encode(self) -> Vec<u8> {
        let mut bytes: Vec<u8> =
            [self.inode, self.born_ns, self.own_from].iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.extend(numbers_seal(&bytes).to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<FileIdentity> {
        let (words, seal) = bytes.split_at_checked(24)?;
        let word = |bytes: &[u8]| bytes.try_into().map(u64::from_le_bytes).ok();
        let seal = word(seal)?;
        let is_whole = uint(numbers_seal(words)) == seal;
        let (inode, born_ns) = (word(&words[..8])?, word(&words[8..16])?);
        is_whole.then_some(FileIdentity { inode, born_ns, own_from: word(&words[16..])? })
    }
}

/// The location of a file: its device and inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileLocation {
    device: u64,
    inode: u64,
}

impl FileLocation {
    /// Where the file at this path is, and nothing else: since Linux 6.13 a file that was asked when it changed notes its next change
    /// with a time of its own, which every sync behind it must write too. That doubles what a commit takes.
    #[cfg(target_os = "linux")]
    fn of(path: &Path) -> Result<FileLocation, std::io::Error> {
        use rustix::fs::{AtFlags, CWD, StatxFlags, makedev, statx};
        let found = statx(CWD, path, AtFlags::empty(), StatxFlags::INO)?;
        Ok(FileLocation { device: makedev(found.stx_dev_major, found.stx_dev_minor), inode: found.stx_ino })
    }

    #[cfg(all(unix, not(target_os = "linux")))]
    fn of(path: &Path) -> Result<FileLocation, std::io::Error> {
        use std::os::unix::fs::MetadataExt;
        let found = std::fs::metadata(path)?;
        Ok(FileLocation { device: found.dev(), inode: found.ino() })
    }

    #[cfg(not(unix))]
    fn of(path: &Path) -> Result<FileLocation, std::io::Error> {
        std::fs::metadata(path).map(|_| FileLocation { device: 0, inode: 0 })
    }
}

/// The database file that is open, to be compared with the file under its path.
#[derive(Clone, Debug)]
pub(super) struct OpenFile {
    path: PathBuf,
    placed: FileLocation,
}

impl OpenFile {
    /// The file at this path, which is about to be opened.
    pub fn at(path: &Path) -> Result<OpenFile, std::io::Error> {
        Ok(OpenFile { path: path.to_owned(), placed: FileLocation::of(path)? })
    }

    /// Refuses if the file under the path is no longer the open one.
    pub fn check(&self) -> Result<(), FileGone> {
        match FileLocation::of(&self.path) {
            Ok(found) if found == self.placed => Ok(()),
            Ok(_) | Err(_) => Err(FileGone { path: self.path.clone() }),
        }
    }
}

/// The open file is no longer under its path.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{path} was removed, replaced or moved away; put it back, or restart", path = path.display())]
pub(super) struct FileGone {
    path: PathBuf,
}

impl FileGone {
    /// The error for a reader.
    pub fn reading(self, doing: &'static str) -> StoreError {
        StoreError::Io { doing, source: Box::new(self) }
    }
}

/// The write-ahead log in use, to be compared with the file under its path. Writes into a removed log are
/// lost with the process.
pub(super) struct OpenLog {
    path: PathBuf,
    file: File,
    placed: FileLocation,
}

/// The end of the log after a commit. A transaction in the log moves it: by its frames, and by the salt if it
/// restarted the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LogEnd {
    frames: u64,
    salt: [u8; 8],
}

impl LogEnd {
    /// Whether a transaction was committed since the log ended at `before`. One that restarts the log and fails leaves it empty.
    pub fn is_behind(self, before: LogEnd) -> bool {
        if self.salt == before.salt { self.frames > before.frames } else { self.frames > 0 }
    }
}

/// The offset of the salt in the header of a log.
const SALT_AT: u64 = 16;

impl OpenLog {
    /// The log of this database, which a connection uses.
    pub fn open(database: &Path) -> Result<OpenLog, FileGone> {
        let path = super::file::beside(database, "-wal");
        // Should it be replaced in between, the next check refuses it.
        let placed = FileLocation::of(&path);
        match placed.and_then(|placed| Ok((placed, File::open(&path)?))) {
            Ok((placed, file)) => Ok(OpenLog { path, file, placed }),
            Err(_) => Err(FileGone { path }),
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Refuses if the log under its path is not the open one.
    pub fn check(&self) -> Result<(), FileGone> {
        match FileLocation::of(&self.path) {
            Ok(found) if found == self.placed => Ok(()),
            Ok(_) | Err(_) => Err(FileGone { path: self.path.clone() }),
        }
    }

    /// The end of the log if it has this many frames. `None`: it cannot be read.
    pub fn end(&mut self, frames: u64) -> Option<LogEnd> {
        let mut salt = [0; 8];
        self.file.seek(SeekFrom::Start(SALT_AT)).ok()?;
        // An emptied log has no header.
        let salt = self.file.read_exact(&mut salt).map_or([0; 8], |()| salt);
        Some(LogEnd { frames, salt })
    }

    /// The number of frames that are not in doubt, if the log ended there after the last successful commit.
    pub fn sure_frames(&mut self, end: Option<LogEnd>) -> u64 {
        let same_round = |end: &LogEnd| self.end(end.frames).as_ref() == Some(end);
        end.filter(same_round).map_or(0, |end| end.frames)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_told_from_its_original_by_inode_or_birth() {
        let original = FileIdentity { inode: 7, born_ns: 100, own_from: 9 };
        for (inode, born_ns, same) in
            [(7, 100, true), (8, 100, false), (7, 101, false), (7, 0, true), (8, 0, false)]
        {
            let found = FileIdentity { inode, born_ns, own_from: 0 };
            assert_eq!(found.is(original), same, "{inode} {born_ns}");
        }
    }

    #[test]
    fn an_identity_that_is_not_what_was_written_is_noticed() {
        let identity = FileIdentity { inode: 7, born_ns: 100, own_from: 9 };
        let kept = identity.encode();
        assert_eq!(FileIdentity::decode(&kept), Some(identity));
        for place in 0..kept.len() {
            let mut damaged = kept.clone();
            damaged[place] ^= 1;
            assert_eq!(FileIdentity::decode(&damaged), None, "byte {place}");
        }
        assert_eq!(FileIdentity::decode(&kept[1..]), None);
    }

    #[test]
    fn a_commit_moves_the_end_of_the_log_and_a_failed_beginning_does_not() {
        let (old, new) = ([1; 8], [2; 8]);
        let before = LogEnd { frames: 5, salt: old };
        for (frames, salt, landed) in [
            (5, old, false),
            (7, old, true),
            (0, old, false),
            (0, new, false),
            (5, new, true),
            (2, new, true),
        ] {
            assert_eq!(LogEnd { frames, salt }.is_behind(before), landed, "{frames} {salt:?}");
        }
    }

    #[test]
    fn a_moved_file_is_the_same_and_a_copied_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let (first, moved, copy) =
            (folder.path().join("a"), folder.path().join("b"), folder.path().join("c"));
        std::fs::write(&first, b"x").unwrap();
        let recorded = FileIdentity::of(&first).unwrap();
        std::fs::rename(&first, &moved).unwrap();
        std::fs::copy(&moved, &copy).unwrap();
        assert!(FileIdentity::of(&moved).unwrap().is(recorded));
        assert!(!FileIdentity::of(&copy).unwrap().is(recorded));
    }
}
