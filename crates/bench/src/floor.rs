//! The floors. Each takes for how long to measure, makes its files in a folder of its own inside `dir`, and removes
//! them. They may be called from anywhere, also from inside an async runtime: those that need one run it on a
//! thread of their own.

mod call;
mod disk;
mod handoff;
mod sqlite;

pub(crate) use call::echo;
pub use call::{ArgumentShape, COUNTED_CALLS, PerCall, args, dyn_call, lean_call, parse, schema};
pub use disk::fsync;
pub(crate) use handoff::Handoff;
pub use handoff::sqlite_handoff;
pub use sqlite::{sqlite_attempts, sqlite_rows};

/// Why a floor could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum FloorError {
    /// The folder does not take files.
    #[error("could not write to the folder of the bench")]
    Io(#[from] std::io::Error),
    /// SQLite does not do what is asked.
    #[error("SQLite failed in the bench")]
    Sqlite(#[from] rusqlite::Error),
    /// The file system cannot hold a write-ahead log.
    #[error(
        "SQLite uses the journal mode {found:?} in this folder, not a write-ahead log: choose another folder"
    )]
    NoWal {
        /// The mode in use.
        found: String,
    },
    /// A guarded write changed another number of rows than the one it named.
    #[error("a guarded write changed {changed} rows instead of one")]
    Guard {
        /// How many.
        changed: usize,
    },
    /// The schema of the bench does not compile, or refuses its own arguments.
    #[error("the schema of the bench is wrong: {0}")]
    Schema(String),
}

/// Runs `work` on a thread of its own, so that it may start an async runtime wherever it is called from.
pub(crate) fn apart<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| match scope.spawn(work).join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}
