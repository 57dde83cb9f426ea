//! Backups: a consistent copy of a data folder, made while its owner works or while nobody owns it.
//!
//! `target` reserves the place, `pages` copies the database from one read snapshot, `verify` checks the copy, `tree`
//! copies everything else. The owner is not asked and not told: it only sees one more reader of its database.
//!
//! The database is copied before the files. A tool writes a file before its call is recorded as ended, so every file
//! that the copied journal speaks of is there, in the state of the snapshot or a later one. That is the state a crash
//! leaves. In the other order the journal could speak of files that the copy does not have.

mod mark;
mod pace;
mod pages;
mod target;
mod tree;
mod verify;

pub(super) use mark::BackupMark;

use crate::StoreError;
use pace::Pace;
use std::path::{Path, PathBuf};
use target::UnfinishedBackup;
use windlass_core::time::Timestamp;

/// How a backup is made.
#[derive(Clone, Debug)]
pub struct BackupOptions {
    /// The data folder.
    pub folder: PathBuf,
    /// The folder to make: missing or empty, in a folder that exists, and not inside the data folder.
    pub target: PathBuf,
    /// The maximum number of bytes copied per second; `None` is as fast as the disks allow.
    pub rate: Option<u64>,
}

/// The part of a backup that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackupPhase {
    /// The database is copied.
    Database,
    /// The copied database is verified.
    Verification,
    /// The files are copied.
    Files,
}

/// How far a backup has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackupProgress {
    /// The current part.
    pub phase: BackupPhase,
    /// The bytes copied so far.
    pub bytes: u64,
    /// The bytes to copy, as far as they are known: files are counted when they are reached.
    pub total: u64,
}

/// A finished backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupSummary {
    /// Everything acknowledged before this time is in the copy.
    pub taken: Timestamp,
    /// The sessions in the copy; 0 if an older Windlass made the folder, because this one cannot read it before it
    /// has brought it up to date.
    pub sessions: u64,
    /// The journal entries in the copy; 0 as for `sessions`.
    pub entries: u64,
    /// The files copied besides the database.
    pub files: u64,
    /// The size of the copy.
    pub bytes: u64,
    /// Paths in the data folder that were left out because they are no files, folders or links: sockets, pipes, devices.
    pub left_out: Vec<PathBuf>,
    /// Paths of files that a program changed in place each time they were copied: their content may be mixed.
    pub changed: Vec<PathBuf>,
    /// Whether the rate was given up while the database was copied, because the owner's log grew meanwhile.
    pub rate_exceeded: bool,
}

/// Why there is no backup. The target is as it was before.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackupError {
    /// The target cannot be used.
    #[error("{target} cannot be the backup: {help}", target = target.display())]
    Target {
        /// The target.
        target: PathBuf,
        /// The reason and what to do.
        help: String,
    },
    /// Another process makes a backup there.
    #[error("another backup to {target} is under way; wait for it, or name another folder", target = target.display())]
    Busy {
        /// The target.
        target: PathBuf,
    },
    /// The data folder cannot be read.
    #[error("the data folder cannot be backed up")]
    Source(#[from] StoreError),
    /// The database could not be copied.
    #[error("the database could not be copied; {help}")]
    Copy {
        /// Advice for the operator.
        help: &'static str,
        /// The cause.
        #[source]
        source: rusqlite::Error,
    },
    /// A file could not be copied.
    #[error("could not {doing} {path}", path = path.display())]
    File {
        /// The operation.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The copy differs from what was once written, and so does the data folder.
    #[error(
        "the data folder is damaged: {what}. `windlass doctor` shows where; to keep what can be read, stop its owner and copy \
         the folder with `cp -a`"
    )]
    Damaged {
        /// The damage.
        what: String,
    },
}

/// Makes a backup, and waits for the disk. The data folder may have an owner; it must be another process, because the
/// locks of a database file are lost when its own process opens and closes the file once more.
///
/// The copy appears under its name when it is complete, verified and durable, or not at all. It is a copy as far as its
/// first start is concerned: see [`Store::is_copy`](crate::Store::is_copy).
pub fn backup(
    options: &BackupOptions,
    report: &mut dyn FnMut(BackupProgress),
) -> Result<BackupSummary, BackupError> {
    let BackupOptions { folder, target, rate } = options;
    let source = super::file::path(folder);
    pages::check_source(folder, &source)?;
    let unfinished = UnfinishedBackup::reserve(folder, target)?;
    let mut pace = Pace::new(*rate, report);
    let taken = now();
    let copy = unfinished.database();
    pages::copy(&source, &copy, &mut pace)?;
    pace.enter(BackupPhase::Verification);
    let verified = verify::verify(&copy, BackupMark { taken })?;
    pace.enter(BackupPhase::Files);
    let tree = tree::copy(folder, unfinished.path(), &mut pace)?;
    unfinished.publish()?;
    Ok(BackupSummary {
        taken,
        sessions: verified.sessions,
        entries: verified.entries,
        files: tree.files,
        bytes: pace.bytes(),
        left_out: tree.left_out,
        changed: tree.changed,
        rate_exceeded: pace.was_exceeded(),
    })
}

/// The time by the wall clock.
fn now() -> Timestamp {
    Timestamp(jiff::Timestamp::now().as_microsecond())
}

fn failed<'a>(doing: &'static str, path: &'a Path) -> impl Fn(std::io::Error) -> BackupError + 'a {
    move |source| BackupError::File { doing, path: path.to_owned(), source }
}
