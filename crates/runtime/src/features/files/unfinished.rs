//! Files that are being written: under a name of their own, so that nobody sees half of one.
//!
//! The name follows from the name of the file, and its writer holds a lock on it. A file of that name without a lock was left by a
//! process that was killed, and the next writer removes it: the same call writes again after a crash, so little is ever left behind.

use super::walk::UNFINISHED;
use rustix::fs::{self, AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::os::fd::OwnedFd;

/// Creates a file that will become `name` in the folder. Returns it with its name until then.
pub(super) fn create(folder: &OwnedFd, name: &str, mode: Mode) -> Result<(File, String), Errno> {
    let own = BuildHasherDefault::<DefaultHasher>::default().hash_one(name);
    let own = unfinished_name(own);
    if let Some(file) = claim(folder, &own, mode) {
        return Ok((file, own));
    }
    // Somebody else writes the same file now, or the file system knows no locks.
    let mut chance = [0; 8];
    getrandom::fill(&mut chance).map_err(|_| Errno::IO)?;
    let free = unfinished_name(u64::from_le_bytes(chance));
    Ok((create_new(folder, &free, mode)?.into(), free))
}

fn unfinished_name(number: u64) -> String {
    format!("{UNFINISHED}{number:016x}")
}

/// Creates the file of this name, in place of one that a killed process left. `None`: somebody else writes it.
fn claim(folder: &OwnedFd, own: &str, mode: Mode) -> Option<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    if let Ok(left) = fs::openat(folder, own, flags, Mode::empty()) {
        lock(&left)?;
        fs::unlinkat(folder, own, AtFlags::empty()).ok()?;
    }
    let file = create_new(folder, own, mode).ok()?;
    lock(&file)?;
    // Somebody may have taken it for one that was left, before it was locked.
    let is_ours = fs::fstat(&file).is_ok_and(|stat| stat.st_nlink == 1);
    is_ours.then(|| file.into())
}

fn lock(file: &OwnedFd) -> Option<()> {
    fs::flock(file, FlockOperation::NonBlockingLockExclusive).ok()
}

fn create_new(folder: &OwnedFd, name: &str, mode: Mode) -> Result<OwnedFd, Errno> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    fs::openat(folder, name, flags, mode)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn entries(folder: &tempfile::TempDir) -> usize {
        std::fs::read_dir(folder.path()).unwrap().count()
    }

    #[test]
    fn a_file_that_was_left_is_taken_and_one_that_is_written_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let handle: OwnedFd = File::open(folder.path()).unwrap().into();
        let (first, own) = create(&handle, "a.txt", Mode::RWXU).unwrap();
        let (second, other) = create(&handle, "a.txt", Mode::RWXU).unwrap();
        assert_ne!(own, other, "the first is still being written");
        let (_third, another) = create(&handle, "b.txt", Mode::RWXU).unwrap();
        assert!(own != another && entries(&folder) == 3);
        // As if the process had been killed: the kernel releases its locks.
        drop((first, second));
        let (_again, name) = create(&handle, "a.txt", Mode::RWXU).unwrap();
        assert_eq!((name, entries(&folder)), (own, 3), "in place of the one that was left");
    }

    #[test]
    fn a_link_that_was_planted_is_not_written_through() {
        let (folder, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let handle: OwnedFd = File::open(folder.path()).unwrap().into();
        let (_, own) = create(&handle, "a.txt", Mode::RWXU).unwrap();
        type Plant = fn(&Path, &Path) -> std::io::Result<()>;
        let plants: [Plant; 2] =
            [|to, at| std::os::unix::fs::symlink(to, at), |to, at| std::fs::hard_link(to, at)];
        for plant in plants {
            std::fs::remove_file(folder.path().join(&own)).unwrap();
            let target = outside.path().join("target");
            std::fs::write(&target, "outside").unwrap();
            plant(&target, &folder.path().join(&own)).unwrap();
            let (mut file, name) = create(&handle, "a.txt", Mode::RWXU).unwrap();
            std::io::Write::write_all(&mut file, b"new").unwrap();
            assert_eq!(std::fs::read_to_string(&target).unwrap(), "outside", "{name}");
            drop(file);
            if name != own {
                std::fs::remove_file(folder.path().join(name)).unwrap();
            }
        }
    }
}
