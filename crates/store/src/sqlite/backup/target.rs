//! The place of a backup. It is made beside its target, under a name that no command uses, and renamed when it is complete:
//! so a backup that was killed leaves nothing that looks like a data folder, and the next one to the same target removes
//! what it left.

use super::{BackupError, failed};
use crate::sqlite::file;
use std::ffi::OsString;
use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Locked by the process that makes the backup.
pub(super) const LOCK: &str = "backup.lock";
/// The database of a backup that is not complete.
const DATABASE: &str = "database.unfinished";

/// A backup under way. Dropping it removes what there is of it.
pub(super) struct UnfinishedBackup {
    /// The folder in which it is made.
    path: PathBuf,
    target: PathBuf,
    parent: PathBuf,
    _lock: File,
    published: bool,
}

impl UnfinishedBackup {
    /// Reserves the target, and removes what a killed backup to it left.
    pub fn reserve(folder: &Path, target: &Path) -> Result<UnfinishedBackup, BackupError> {
        let target = resolve(target)?;
        let refused = |help: &str| BackupError::Target { target: target.clone(), help: help.to_owned() };
        let folder = folder.canonicalize().map_err(failed("find", folder))?;
        if target.starts_with(&folder) {
            return Err(refused("it is inside the data folder; name a folder elsewhere"));
        }
        check_empty(&target)?;
        let (Some(parent), Some(name)) = (target.parent(), target.file_name()) else {
            return Err(refused("it has no parent folder; name a folder in it"));
        };
        // Found out now and not after everything is copied.
        let device = |path: &Path| std::fs::metadata(path).map(|found| found.dev()).ok();
        if target.exists() && device(&target) != device(parent) {
            return Err(mount_point(&target));
        }
        let path = parent.join(unfinished_name(name.to_owned()));
        match DirBuilder::new().mode(0o700).create(&path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                if !path.symlink_metadata().is_ok_and(|found| found.is_dir()) {
                    let help = format!("{} is in the way; remove it", path.display());
                    return Err(refused(&help));
                }
            }
            made => made.map_err(failed("make", &path))?,
        }
        let lock = lock(&path, &target)?;
        let unfinished = UnfinishedBackup {
            path,
            parent: parent.to_owned(),
            target: target.clone(),
            _lock: lock,
            published: false,
        };
        unfinished.clean()?;
        Ok(unfinished)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of the database until the backup is complete.
    pub fn database(&self) -> PathBuf {
        self.path.join(DATABASE)
    }

    /// Gives the backup its name. It is complete and durable except for that.
    pub fn publish(mut self) -> Result<(), BackupError> {
        let database = file::path(&self.path);
        std::fs::rename(self.database(), &database).map_err(failed("rename", &database))?;
        sync(&self.path)?;
        std::fs::rename(&self.path, &self.target).map_err(|error| unnamed(&self.target, error))?;
        self.published = true;
        sync(&self.parent)?;
        // Not before: until the folder has its name, the lock keeps another backup from removing it.
        let lock = self.target.join(LOCK);
        std::fs::remove_file(&lock).map_err(failed("remove", &lock))?;
        sync(&self.target)
    }

    /// Removes everything but the lock.
    fn clean(&self) -> Result<(), BackupError> {
        for entry in std::fs::read_dir(&self.path).map_err(failed("read", &self.path))? {
            let entry = entry.map_err(failed("read", &self.path))?;
            if entry.file_name() == LOCK {
                continue;
            }
            let path = entry.path();
            let is_folder = entry.file_type().is_ok_and(|found| found.is_dir());
            let removed =
                if is_folder { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
            removed.map_err(failed("remove what a killed backup left,", &path))?;
        }
        Ok(())
    }
}

impl Drop for UnfinishedBackup {
    fn drop(&mut self) {
        if !self.published {
            // Nothing takes it for a data folder, and the next backup to the same target removes it.
            let _left = std::fs::remove_dir_all(&self.path);
        }
    }
}

/// The target without links, whether it exists or not.
fn resolve(target: &Path) -> Result<PathBuf, BackupError> {
    let refused = |help: &str| BackupError::Target { target: target.to_owned(), help: help.to_owned() };
    match target.canonicalize() {
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        found => return found.map_err(failed("find", target)),
    }
    if target.is_symlink() {
        return Err(refused("it is a link to nothing; name a folder"));
    }
    let Some(name) = target.file_name() else { return Err(refused("name a folder to make")) };
    let parent = target.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match parent.canonicalize() {
        Ok(parent) => Ok(parent.join(name)),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Err(refused("the folder it is to be in does not exist; create that first"))
        }
        Err(error) => Err(failed("find", parent)(error)),
    }
}

fn check_empty(target: &Path) -> Result<(), BackupError> {
    match std::fs::read_dir(target) {
        Ok(mut entries) => entries.next().map_or(Ok(()), |_| Err(not_empty(target))),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotADirectory => Err(BackupError::Target {
            target: target.to_owned(),
            help: "it is a file; name a new folder".to_owned(),
        }),
        Err(error) => Err(failed("read", target)(error)),
    }
}

/// Why the backup could not get its name.
fn unnamed(target: &Path, error: std::io::Error) -> BackupError {
    let kind = error.kind();
    if matches!(kind, ErrorKind::DirectoryNotEmpty | ErrorKind::AlreadyExists) {
        return not_empty(target);
    }
    if matches!(kind, ErrorKind::ResourceBusy | ErrorKind::CrossesDevices) {
        return mount_point(target);
    }
    failed("name", target)(error)
}

fn mount_point(target: &Path) -> BackupError {
    let help = "it is a mount point; name a new folder in it".to_owned();
    BackupError::Target { target: target.to_owned(), help }
}

fn not_empty(target: &Path) -> BackupError {
    let help = "it is not empty, and a backup replaces nothing; name a new folder, or remove this one";
    BackupError::Target { target: target.to_owned(), help: help.to_owned() }
}

/// The folder in which a backup of this name is made.
fn unfinished_name(name: OsString) -> OsString {
    let mut unfinished = OsString::from(".");
    unfinished.push(name);
    unfinished.push(".unfinished");
    unfinished
}

/// Locks the folder of an unfinished backup. A file, because not every file system has locks of folders.
fn lock(unfinished: &Path, target: &Path) -> Result<File, BackupError> {
    let path = unfinished.join(LOCK);
    let busy = || BackupError::Busy { target: target.to_owned() };
    let lock = file::private(OpenOptions::new().write(true).create(true).truncate(false))
        .open(&path)
        .map_err(failed("make", &path))?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(busy()),
        Err(TryLockError::Error(error)) => return Err(failed("lock", &path)(error)),
    }
    // Another backup may have been completed since the file was opened: then it is elsewhere by now.
    let ours = lock.metadata().map_err(failed("read", &path))?;
    match std::fs::metadata(&path) {
        Ok(found) if (found.dev(), found.ino()) == (ours.dev(), ours.ino()) => Ok(lock),
        Ok(_) | Err(_) => Err(busy()),
    }
}

fn sync(folder: &Path) -> Result<(), BackupError> {
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed("sync", folder))
}
