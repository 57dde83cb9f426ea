//! Errors of a store, for operators.

use std::path::PathBuf;
use std::sync::Arc;
use windlass_core::ids::{BlobNo, SessionNo};

/// An error of a store. Never shown to a model.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Another process owns the data folder.
    #[error("{folder} is in use by {holder}; wait for it to end, or stop it, and try again", folder = folder.display())]
    Owned {
        /// The data folder.
        folder: PathBuf,
        /// The owner, as it wrote itself into the lock.
        holder: String,
    },
    /// The folder or file cannot be used.
    #[error("could not open the store at {path}; {help}", path = path.display())]
    Open {
        /// Its path.
        path: PathBuf,
        /// Advice for the operator.
        help: String,
        /// The cause.
        #[source]
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
    /// The database cannot be reached now, or is starting: it may be there later.
    #[error("could not reach the database {path}; {help}", path = path.display())]
    Away {
        /// Its name.
        path: PathBuf,
        /// Advice for the operator.
        help: String,
        /// The cause.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The file was written by a newer Windlass.
    #[error("{path} has format {found}, this Windlass reads up to {known}; use a newer Windlass", path = path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// The file's format.
        found: u32,
        /// The newest known format.
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
    /// A record differs from what was written.
    #[error(
        "the journal of session {session} is damaged at entry {entry} ({what}); restore it from a backup"
    )]
    Damaged {
        /// The session; others are not affected.
        session: SessionNo,
        /// The first damaged entry.
        entry: u64,
        /// The damage.
        what: String,
    },
    /// A piece of a blob differs from what was written.
    #[error("blob {blob} is damaged in piece {piece}; restore it from a backup")]
    DamagedBlob {
        /// The blob; others can be read.
        blob: BlobNo,
        /// The first damaged piece.
        piece: u32,
    },
    /// The database failed while reading or writing.
    #[error("the store could not {doing}")]
    Io {
        /// The operation.
        doing: &'static str,
        /// The cause.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A write failed before, and not because of the disk: it would fail again.
    #[error(
        "the store was closed after a failed write ({because}); open it again, nothing acknowledged is lost"
    )]
    Poisoned {
        /// The cause of that failure.
        because: Arc<str>,
    },
    /// The store cannot write now and its queue is full; it continues by itself.
    #[error(
        "the store cannot write now ({because}) and its queue is full; it recovers by itself, try again later"
    )]
    Stalled {
        /// The reason.
        because: Arc<str>,
    },
    /// The store was opened for reading only.
    #[error("the store at {folder} was opened for reading only", folder = folder.display())]
    ReadOnly {
        /// The data folder.
        folder: PathBuf,
    },
    /// The store was closed.
    #[error("the store is closed")]
    Closed,
}
