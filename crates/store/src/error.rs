//! What can go wrong with a store, for operators.

use std::path::PathBuf;
use std::sync::Arc;
use windlass_core::ids::{BlobNo, SessionNo};

/// What can go wrong with a store. None of it is ever shown to a model.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another process owns the data folder.
    #[error("{folder} is in use by {holder}; wait for it to end, or stop it, and try again", folder = folder.display())]
    Owned {
        /// The data folder.
        folder: PathBuf,
        /// Who holds it, as it wrote itself into the lock.
        holder: String,
    },
    /// The folder or file cannot be used at all.
    #[error("could not open the store at {path}; {help}", path = path.display())]
    Open {
        /// What was to be opened.
        path: PathBuf,
        /// What to do.
        help: String,
        /// Why not.
        #[source]
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
    /// The file was written by a newer Windlass.
    #[error("{path} has format {found}, this Windlass reads up to {known}; use a newer Windlass", path = path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u32,
        /// The newest one known here.
        known: u32,
    },
    /// The SQLite library has a known fault that can damage files.
    #[error("SQLite {found} can damage a file while it checkpoints; Windlass needs {needed} or newer")]
    UnsafeSqlite {
        /// The version in use.
        found: String,
        /// The oldest safe one.
        needed: &'static str,
    },
    /// A record is not what was written.
    #[error(
        "the journal of session {session} is damaged at entry {entry} ({what}); restore it from a backup"
    )]
    Damaged {
        /// The session; others go on.
        session: SessionNo,
        /// The first entry that is wrong.
        entry: u64,
        /// What is wrong with it.
        what: String,
    },
    /// A piece of a blob is not what was written.
    #[error("blob {blob} is damaged in piece {piece}; restore it from a backup")]
    DamagedBlob {
        /// The blob; others can be read.
        blob: BlobNo,
        /// The first piece that is wrong.
        piece: u32,
    },
    /// The database said no while reading or writing.
    #[error("the store could not {doing}")]
    Io {
        /// What was being done.
        doing: &'static str,
        /// Why not.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A write failed before, so nobody knows what is on the disk until it is read again.
    #[error(
        "the store was closed after a failed write ({because}); open it anew, nothing acknowledged is lost"
    )]
    Poisoned {
        /// Why that failed.
        because: Arc<str>,
    },
    /// The store was opened with no right to write.
    #[error("the store at {folder} was opened for reading only", folder = folder.display())]
    ReadOnly {
        /// The data folder.
        folder: PathBuf,
    },
    /// The store was closed.
    #[error("the store is closed")]
    Closed,
}
