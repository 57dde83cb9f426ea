//! A folder of a session to search in, by its descriptor.

use rustix::fs::{self, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// A folder of a session's files. Whoever walks through it may be shown anything by a racing writer; what is opened here lies in the
/// folder, and no link led to it.
#[derive(Clone, Debug)]
pub struct SessionFolder {
    folder: Arc<OwnedFd>,
}

impl SessionFolder {
    pub(super) fn new(folder: OwnedFd) -> SessionFolder {
        SessionFolder { folder: Arc::new(folder) }
    }

    /// A path by which this process reaches the folder, wherever it lies by now. It is good for finding names: what they name is
    /// opened with [`open`](Self::open).
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}/", self.folder.as_raw_fd()))
    }

    /// Opens a file below the folder, and its size. `None`: it is no regular file, a link is on the way, or it is gone.
    pub fn open(&self, below: &Path) -> std::io::Result<Option<(File, u64)>> {
        if !below.components().all(|part| matches!(part, Component::Normal(_))) {
            return Ok(None);
        }
        // A pipe would block.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let opened = match fs::openat2(&*self.folder, below, flags, Mode::empty(), resolve) {
            // An older kernel, or a filter that does not know the call.
            Err(Errno::NOSYS | Errno::PERM) => self.walk(below, flags),
            opened => opened,
        };
        let file = match opened {
            Ok(file) => file,
            Err(Errno::NOENT | Errno::LOOP | Errno::NOTDIR | Errno::MLINK | Errno::XDEV | Errno::NXIO) => {
                return Ok(None);
            }
            Err(error) => return Err(error.into()),
        };
        let stat = fs::fstat(&file)?;
        let is_file = FileType::from_raw_mode(stat.st_mode).is_file();
        Ok(is_file.then(|| (File::from(file), stat.st_size.cast_unsigned())))
    }

    /// Opens a file part by part.
    fn walk(&self, below: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
        let folder = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut parts = below.components().peekable();
        let mut at: Option<OwnedFd> = None;
        while let Some(part) = parts.next() {
            let flags = if parts.peek().is_some() { folder } else { flags };
            let above = at.as_ref().unwrap_or(&self.folder);
            at = Some(fs::openat(above, part.as_os_str(), flags, Mode::empty())?);
        }
        at.ok_or(Errno::NOENT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_open_files_and_follow_no_link() {
        let (inside, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::create_dir(inside.path().join("a")).unwrap();
        std::fs::write(inside.path().join("a/b"), "x").unwrap();
        std::fs::write(outside.path().join("b"), "x").unwrap();
        std::os::unix::fs::symlink(outside.path(), inside.path().join("out")).unwrap();
        std::os::unix::fs::symlink("a/b", inside.path().join("link")).unwrap();
        let folder = SessionFolder::new(File::open(inside.path()).unwrap().into());
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW;
        for (path, is_opened) in [("a/b", true), ("out/b", false), ("link", false), ("a/c", false)] {
            assert_eq!(folder.open(path.as_ref()).unwrap().is_some(), is_opened, "{path}");
            assert_eq!(folder.walk(path.as_ref(), flags).is_ok(), is_opened, "{path}");
        }
        assert!(
            folder.open("../b".as_ref()).unwrap().is_none()
                && folder.open("/etc".as_ref()).unwrap().is_none()
        );
        assert!(folder.open("a".as_ref()).unwrap().is_none());
        assert!(folder.path().join("a/b").exists());
    }
}
