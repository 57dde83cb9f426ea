//! Copies the rest of a data folder: the files of sessions, the token, the configuration, and whatever else lies there.
//!
//! Tools write there meanwhile. Each folder is walked one part at a time from a descriptor of its parent, and no part may
//! be a link: a link that a tool puts in the place of a folder is copied, not followed. Only links in the data folder
//! itself are followed: the host placed them. What is removed before it is reached is not in the copy.

use super::pace::Pace;
use super::{BackupError, target};
use rustix::fs::{self, AtFlags, Dir, FileType, Mode, OFlags, Stat, Timespec, Timestamps};
use rustix::io::Errno;
use std::ffi::{CStr, CString, OsStr};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Names in the data folder that are not copied: the database, which is copied from a snapshot, and what belongs to the
/// process that owns the folder.
const NOT_COPIED: [&[u8]; 5] =
    [b"owner.lock", b"control.sock", b"ballast", b"windlass.db", target::LOCK.as_bytes()];
/// The prefix of files beside the database: its log, the log's index, a new database that is not complete.
const BESIDE_DATABASE: [&[u8]; 2] = [b"windlass.db-", b"windlass.db."];
/// The prefix of files of a session that are being written or removed.
const UNFINISHED: &[u8] = b".windlass-";
/// How often a file is copied that changes meanwhile.
const TRIES_MAX: u32 = 3;

/// The copied tree.
#[derive(Default)]
pub(super) struct CopiedTree {
    pub files: u64,
    pub left_out: Vec<PathBuf>,
    pub changed: Vec<PathBuf>,
}

/// A path below the data folder, part by part.
type TreePath = Vec<CString>;

/// Copies everything in `folder` but the database and the owner's own files to `copy`, and makes it durable.
pub(super) fn copy(folder: &Path, copy: &Path, pace: &mut Pace<'_>) -> Result<CopiedTree, BackupError> {
    let mut walk = TreeWalk {
        from: open_root(folder)?,
        to: open_root(copy)?,
        copy: copy.to_owned(),
        pace,
        done: CopiedTree::default(),
    };
    // No recursion: a tool can make folders of any depth.
    let mut left: Vec<TreePath> = vec![TreePath::new()];
    while let Some(parts) = left.pop() {
        walk.copy_folder(&parts, &mut left)?;
    }
    Ok(walk.done)
}

fn open_root(folder: &Path) -> Result<OwnedFd, BackupError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    fs::open(folder, flags, Mode::empty()).map_err(|error| super::failed("read", folder)(error.into()))
}

struct TreeWalk<'a, 'p> {
    from: OwnedFd,
    to: OwnedFd,
    /// The path of the copy, to recognise it in the tree that is copied.
    copy: PathBuf,
    pace: &'a mut Pace<'p>,
    done: CopiedTree,
}

/// The two sides of a folder, and its path.
struct FolderPair<'a> {
    from: OwnedFd,
    to: OwnedFd,
    parts: &'a TreePath,
}

impl TreeWalk<'_, '_> {
    /// Copies one folder. The folders in it are made, and added to those that are left.
    fn copy_folder(&mut self, parts: &TreePath, left: &mut Vec<TreePath>) -> Result<(), BackupError> {
        let Some(from) = descend(&self.from, parts).map_err(unreadable(parts))? else { return Ok(()) };
        let to = descend(&self.to, parts).map_err(unwritable(parts))?;
        let to = to.ok_or(Errno::NOENT).map_err(unwritable(parts))?;
        self.refuse_itself(&from)?;
        let pair = FolderPair { from, to, parts };
        for name in names(&pair.from).map_err(unreadable(parts))? {
            if is_copied(parts, &name) {
                self.copy_entry(&pair, &name, left)?;
            }
        }
        fs::fsync(&pair.to).map_err(unwritable(parts))
    }

    fn copy_entry(
        &mut self,
        pair: &FolderPair<'_>,
        name: &CStr,
        left: &mut Vec<TreePath>,
    ) -> Result<(), BackupError> {
        let parts: TreePath = pair.parts.iter().cloned().chain([name.to_owned()]).collect();
        let linked = if pair.parts.is_empty() { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
        let stat = match fs::statat(&pair.from, name, linked) {
            // Gone, or a link of the host to nothing.
            Err(Errno::NOENT) => fs::statat(&pair.from, name, AtFlags::SYMLINK_NOFOLLOW),
            found => found,
        };
        let stat = match stat {
            Ok(stat) => stat,
            Err(Errno::NOENT) => return Ok(()),
            Err(error) => return Err(unreadable(&parts)(error)),
        };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => self.copy_file(pair, name, &parts),
            FileType::Directory => {
                // Ours to write in, whatever its permissions are.
                let mode = Mode::from_raw_mode(stat.st_mode) | Mode::RWXU;
                fs::mkdirat(&pair.to, name, mode).map_err(unwritable(&parts))?;
                left.push(parts);
                Ok(())
            }
            FileType::Symlink => match fs::readlinkat(&pair.from, name, Vec::new()) {
                Ok(link) => fs::symlinkat(&*link, &pair.to, name).map_err(unwritable(&parts)),
                // Replaced or removed meanwhile.
                Err(Errno::NOENT | Errno::INVAL) => Ok(()),
                Err(error) => Err(unreadable(&parts)(error)),
            },
            FileType::Fifo
            | FileType::Socket
            | FileType::CharacterDevice
            | FileType::BlockDevice
            | FileType::Unknown => {
                self.done.left_out.push(path_of(&parts));
                Ok(())
            }
        }
    }

    /// Copies a file. Files that are replaced whole are copied as they were when they were opened; one that a program
    /// changes in place is copied again.
    fn copy_file(&mut self, pair: &FolderPair<'_>, name: &CStr, parts: &TreePath) -> Result<(), BackupError> {
        let follow = if pair.parts.is_empty() { OFlags::empty() } else { OFlags::NOFOLLOW };
        // A pipe in its place would block.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | follow;
        let from = match fs::openat(&pair.from, name, flags, Mode::empty()) {
            Ok(from) => File::from(from),
            Err(Errno::NOENT | Errno::LOOP | Errno::NXIO) => return Ok(()),
            Err(error) => return Err(unreadable(parts)(error)),
        };
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let to = fs::openat(&pair.to, name, flags, Mode::RUSR | Mode::WUSR).map_err(unwritable(parts))?;
        let mut to = File::from(to);
        let mut stat = fs::fstat(&from).map_err(unreadable(parts))?;
        for attempt in 1.. {
            self.copy_bytes(&from, &mut to, &stat, parts)?;
            let after = fs::fstat(&from).map_err(unreadable(parts))?;
            if is_unchanged(&stat, &after) {
                break;
            }
            stat = after;
            if attempt == TRIES_MAX {
                self.done.changed.push(path_of(parts));
                break;
            }
        }
        let finish = || {
            fs::fchmod(&to, Mode::from_raw_mode(stat.st_mode))?;
            fs::futimens(&to, &times(&stat))?;
            fs::fsync(&to)
        };
        finish().map_err(unwritable(parts))?;
        self.done.files += 1;
        Ok(())
    }

    /// Copies as many bytes as the file had, so that a file that grows is not followed for ever.
    fn copy_bytes(
        &mut self,
        from: &File,
        to: &mut File,
        stat: &Stat,
        parts: &TreePath,
    ) -> Result<(), BackupError> {
        let path = path_of(parts);
        let size = stat.st_size.cast_unsigned();
        to.set_len(0)
            .and_then(|()| to.seek(SeekFrom::Start(0)))
            .map_err(super::failed("write the copy of", &path))?;
        let mut from = from;
        from.seek(SeekFrom::Start(0)).map_err(super::failed("read", &path))?;
        self.pace.expect(size);
        let mut buffer = vec![0; usize::try_from(self.pace.piece_bytes().min(size.max(1))).unwrap_or(1)];
        let mut rest = size;
        while rest > 0 {
            let want = buffer.len().min(usize::try_from(rest).unwrap_or(usize::MAX));
            let got = from.read(&mut buffer[..want]).map_err(super::failed("read", &path))?;
            if got == 0 {
                break;
            }
            to.write_all(&buffer[..got]).map_err(super::failed("write the copy of", &path))?;
            rest -= got as u64;
            self.pace.copied(got as u64);
        }
        Ok(())
    }

    /// Refuses to copy the copy into itself: a link of the host may lead to where it is made.
    fn refuse_itself(&self, from: &OwnedFd) -> Result<(), BackupError> {
        let same = || {
            let (from, to) = (fs::fstat(from)?, fs::fstat(&self.to)?);
            Ok::<_, Errno>((from.st_dev, from.st_ino) == (to.st_dev, to.st_ino))
        };
        if !same().map_err(|error| super::failed("read", &self.copy)(error.into()))? {
            return Ok(());
        }
        let help =
            "a link in the data folder leads to the folder it is in; name a folder elsewhere".to_owned();
        Err(BackupError::Target { target: self.copy.clone(), help })
    }
}

/// Opens the folder at a path. `None`: it is gone, or is no folder any more. Each part is opened from its parent; only
/// the first may be a link.
fn descend(root: &OwnedFd, parts: &TreePath) -> Result<Option<OwnedFd>, Errno> {
    let mut at = root
        .as_fd()
        .try_clone_to_owned()
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    for (level, part) in parts.iter().enumerate() {
        let follow = if level == 0 { OFlags::empty() } else { OFlags::NOFOLLOW };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | follow;
        at = match fs::openat(&at, &**part, flags, Mode::empty()) {
            Ok(opened) => opened,
            Err(Errno::NOENT | Errno::LOOP | Errno::NOTDIR) => return Ok(None),
            Err(error) => return Err(error),
        };
    }
    Ok(Some(at))
}

fn names(folder: &OwnedFd) -> Result<Vec<CString>, Errno> {
    let entries = Dir::read_from(folder)?.map(|entry| Ok(entry?.file_name().to_owned()));
    let is_entry = |name: &Result<CString, Errno>| {
        name.as_ref().map_or(true, |name| !matches!(name.to_bytes(), b"." | b".."))
    };
    entries.filter(is_entry).collect()
}

fn is_copied(parts: &TreePath, name: &CStr) -> bool {
    let name = name.to_bytes();
    if parts.is_empty() {
        return !NOT_COPIED.contains(&name) && !BESIDE_DATABASE.iter().any(|prefix| name.starts_with(prefix));
    }
    !name.starts_with(UNFINISHED)
}

fn is_unchanged(before: &Stat, after: &Stat) -> bool {
    let seen = |stat: &Stat| (stat.st_size, stat.st_mtime, stat.st_mtime_nsec);
    seen(before) == seen(after)
}

fn times(stat: &Stat) -> Timestamps {
    let time = |tv_sec, tv_nsec: u64| Timespec { tv_sec, tv_nsec: i64::try_from(tv_nsec).unwrap_or(0) };
    Timestamps {
        last_access: time(stat.st_atime, stat.st_atime_nsec),
        last_modification: time(stat.st_mtime, stat.st_mtime_nsec),
    }
}

/// The path below the data folder, for people.
fn path_of(parts: &TreePath) -> PathBuf {
    parts.iter().map(|part| OsStr::from_bytes(part.to_bytes())).collect()
}

fn unreadable(parts: &TreePath) -> impl Fn(Errno) -> BackupError + '_ {
    |error| super::failed("read", &path_of(parts))(error.into())
}

fn unwritable(parts: &TreePath) -> impl Fn(Errno) -> BackupError + '_ {
    |error| super::failed("write the copy of", &path_of(parts))(error.into())
}
