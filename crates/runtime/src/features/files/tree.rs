//! Removing a folder with all its content: of any depth, with any names, and without permissions as long as
//! we own it.
//!
//! Nested folders are moved to the top before they are emptied. So no more than three descriptors are open,
//! there is no recursion, and no path is longer than a name. Links are removed, never followed.

use rustix::fs::{self, AtFlags, CWD, Dir, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// The prefix of folders that were moved to the top. An existing folder of that name is emptied too.
const MOVED: &str = ".windlass-gone-";
/// The maximum number of passes: a permanent writer is not waited for.
const LOOKS_MAX: u32 = 1_000;
/// How many entries of a folder are read and removed at a time.
const ENTRIES_MAX: usize = 4_096;

/// Removes the entry of this name in the folder `base`, if it exists.
pub(super) fn remove(base: &OwnedFd, name: &str) -> Result<(), Errno> {
    let name = CString::new(name).map_err(|_| Errno::INVAL)?;
    let Some(top) = open(base, &name)? else { return Ok(()) };
    let (mut moved, mut looks) = (0_u64, 0);
    while looks < LOOKS_MAX {
        let (inside, before) = (entries(&top)?, moved);
        for entry in &inside {
            remove_entry(&top, entry, &mut moved)?;
        }
        if moved > before || inside.len() == ENTRIES_MAX {
            continue;
        }
        looks += 1;
        match fs::unlinkat(base, &*name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => return Ok(()),
            // Another process wrote meanwhile.
            Err(Errno::NOTEMPTY | Errno::EXIST) => {}
            Err(error) => return Err(error),
        }
    }
    Err(Errno::BUSY)
}

/// Removes one entry of the top folder; the folders in it are moved to the top.
fn remove_entry(top: &OwnedFd, entry: &CStr, moved: &mut u64) -> Result<(), Errno> {
    if unlink(top, entry)? {
        return Ok(());
    }
    let Some(folder) = open(top, entry)? else { return Ok(()) };
    loop {
        let inside = entries(&folder)?;
        if inside.is_empty() {
            break;
        }
        for entry in inside {
            if !unlink(&folder, &entry)? {
                lift(&folder, &entry, top, moved)?;
            }
        }
    }
    match fs::unlinkat(top, entry, AtFlags::REMOVEDIR) {
        // Another process wrote meanwhile: the next pass finds it.
        Ok(()) | Err(Errno::NOENT | Errno::NOTEMPTY | Errno::EXIST) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Moves a folder to the top, under a free name.
fn lift(from: &OwnedFd, entry: &CStr, top: &OwnedFd, moved: &mut u64) -> Result<(), Errno> {
    // Permissions first: a folder that cannot be written cannot be moved either.
    if open(from, entry)?.is_none() {
        return Ok(());
    }
    loop {
        *moved += 1;
        match fs::renameat(from, entry, top, format!("{MOVED}{moved}").as_str()) {
            Ok(()) | Err(Errno::NOENT) => return Ok(()),
            Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR | Errno::ISDIR) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Removes an entry that is not a folder. `false`: it is one.
fn unlink(at: &OwnedFd, entry: &CStr) -> Result<bool, Errno> {
    match fs::unlinkat(at, entry, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(true),
        // Some systems report that a folder cannot be unlinked, others that it is one.
        Err(Errno::ISDIR | Errno::PERM) => match fs::statat(at, entry, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if fs::FileType::from_raw_mode(stat.st_mode).is_dir() => Ok(false),
            Ok(_) => Err(Errno::PERM),
            Err(Errno::NOENT) => Ok(true),
            Err(error) => Err(error),
        },
        Err(error) => Err(error),
    }
}

/// Opens a folder with all permissions. A link or a file in its place is removed. `None`: it is gone.
fn open(at: &OwnedFd, name: &CStr) -> Result<Option<OwnedFd>, Errno> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = fs::openat(at, name, OFlags::RDONLY | flags, Mode::empty());
    let opened = match opened {
        Err(Errno::ACCESS) => {
            // Named by its descriptor, so that nothing else can be in its place.
            let there = fs::openat(at, name, OFlags::PATH | flags, Mode::empty())?;
            allow(&there)?;
            fs::openat(at, name, OFlags::RDONLY | flags, Mode::empty())
        }
        opened => opened,
    };
    match opened {
        Ok(folder) => {
            let rights = Mode::from_raw_mode(fs::fstat(&folder)?.st_mode);
            if !rights.contains(Mode::RWXU) {
                fs::fchmod(&folder, Mode::RWXU)?;
            }
            Ok(Some(folder))
        }
        Err(Errno::NOENT) => Ok(None),
        Err(Errno::LOOP | Errno::NOTDIR | Errno::MLINK) => {
            fs::unlinkat(at, name, AtFlags::empty()).map(|()| None)
        }
        Err(error) => Err(error),
    }
}

/// Gives ourselves all permissions for a folder that cannot be read.
fn allow(folder: &impl AsFd) -> Result<(), Errno> {
    let path = format!("/proc/self/fd/{}", folder.as_fd().as_raw_fd());
    fs::chmodat(CWD, path.as_str(), Mode::RWXU, AtFlags::empty())
}

/// Entries of a folder, at most [`ENTRIES_MAX`].
fn entries(folder: &OwnedFd) -> Result<Vec<CString>, Errno> {
    let mut found = Vec::new();
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        if name.to_bytes() != b"." && name.to_bytes() != b".." {
            found.push(name.to_owned());
        }
        if found.len() == ENTRIES_MAX {
            break;
        }
    }
    Ok(found)
}
