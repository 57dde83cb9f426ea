//! Copies the database of a backup: page by page, from one read snapshot.
//!
//! The whole copy is one read transaction, so it is the state at one moment, however much the owner commits meanwhile.
//! Without that transaction SQLite's backup begins again with every commit of another process, and never ends on a busy
//! folder. `VACUUM INTO` would be a snapshot too, but it moves tables to other pages, which the seal of the schema
//! covers, and it can neither be paced nor report progress.
//!
//! The owner does not wait for a reader, but a checkpoint cannot pass a snapshot, so its write-ahead log grows while the
//! snapshot is held. A low rate must not make it grow for hours: once it has grown by [`LOG_GROWTH_MAX`], the rest of the
//! database is copied without pauses.

use super::BackupError;
use super::pace::Pace;
use crate::StoreError;
use crate::sqlite::file::{self, PAGE_BYTES};
use crate::sqlite::{checkpoint, lock, schema};
use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, OpenFlags};
use std::fs::OpenOptions;
use std::path::Path;
use std::time::Duration;

/// The log may grow by so many frames before the rate is given up: as much as a log has without a backup
/// (`wal_bytes_max`).
const LOG_GROWTH_MAX: u64 = (64 << 20) / PAGE_BYTES;
/// The pause before a step is repeated that found the database locked.
const LOCKED_PAUSE: Duration = Duration::from_millis(5);

/// Refuses a folder that has no store, or a damaged or newer one, before anything is made.
pub(super) fn check_source(folder: &Path, source: &Path) -> Result<(), StoreError> {
    file::check_library()?;
    if !source.exists() {
        return Err(file::refused(source, "there is no store; name the data folder with --data"));
    }
    file::recognise(source)?;
    // An owner has checked the log when it opened it, and writes to it now. Without an owner SQLite would silently leave
    // out everything after a damaged frame. An owner that came meanwhile has done its own check.
    if lock::is_free(folder)
        && let Err(damaged) = file::check_log(source)
        && lock::is_free(folder)
    {
        return Err(damaged);
    }
    Ok(())
}

/// Copies the database at `source` to the new file `copy`, as it is now.
pub(super) fn copy(source: &Path, copy: &Path, pace: &mut Pace<'_>) -> Result<(), BackupError> {
    let unreadable = |error| file::sql_failed(source, error);
    let from = file::connect_reader(source).map_err(unreadable)?;
    // Held until all is copied. The first read takes the snapshot.
    let snapshot = from.unchecked_transaction().map_err(unreadable)?;
    let format = schema::format(&from).map_err(unreadable)?;
    file::check_format(source, format)?;
    let pages: i64 = from.pragma_query_value(None, "page_count", |row| row.get(0)).map_err(unreadable)?;
    pace.expect(pages.cast_unsigned() * PAGE_BYTES);
    let mut log = LogGrowth::watch(source, pace)?;
    let mut to = new_file(copy)?;
    let pages_per_step = i32::try_from(pace.piece_bytes() / PAGE_BYTES).unwrap_or(1);
    let steps = Backup::new(&from, &mut to).map_err(uncopied)?;
    let mut left = pages.cast_unsigned();
    loop {
        match steps.step(pages_per_step).map_err(uncopied)? {
            StepResult::Done => break,
            StepResult::More => {
                let now_left = u64::try_from(steps.progress().remaining).unwrap_or(0);
                let bytes = left.saturating_sub(now_left) * PAGE_BYTES;
                left = now_left;
                if log.is_too_long() { pace.rushed(bytes) } else { pace.copied(bytes) }
            }
            // Only the copy could be locked, and nobody else opens it.
            StepResult::Busy | StepResult::Locked | _ => std::thread::sleep(LOCKED_PAUSE),
        }
    }
    drop(steps);
    to.close().map_err(|(_, error)| uncopied(error))?;
    snapshot.rollback().map_err(unreadable)?;
    pace.copied(left * PAGE_BYTES);
    Ok(())
}

/// A connection to a new file. It is synced when it is complete: until then it is worth nothing, and SQLite need not protect
/// it.
fn new_file(copy: &Path) -> Result<Connection, BackupError> {
    let made = file::private(OpenOptions::new().write(true).create_new(true)).open(copy);
    made.map_err(super::failed("make", copy))?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let to = Connection::open_with_flags(copy, flags).map_err(uncopied)?;
    to.pragma_update(None, "journal_mode", "OFF").map_err(uncopied)?;
    to.pragma_update(None, "synchronous", "OFF").map_err(uncopied)?;
    Ok(to)
}

fn uncopied(source: rusqlite::Error) -> BackupError {
    let help = match source.sqlite_error_code() {
        Some(rusqlite::ErrorCode::DiskFull) => {
            "the disk of the backup is full; make room, or name another folder"
        }
        _ => "check both disks",
    };
    BackupError::Copy { help, source }
}

/// The growth of the owner's log since the snapshot was taken.
struct LogGrowth {
    /// A connection of its own: one inside a transaction sees no growth. `None`: there are no pauses, so nobody asks.
    conn: Option<Connection>,
    frames: u64,
    too_long: bool,
}

impl LogGrowth {
    fn watch(source: &Path, pace: &Pace<'_>) -> Result<LogGrowth, BackupError> {
        if !pace.is_limited() {
            return Ok(LogGrowth { conn: None, frames: 0, too_long: false });
        }
        let unreadable = |error| file::sql_failed(source, error);
        let conn = file::connect_reader(source).map_err(unreadable)?;
        let frames = checkpoint::length(&conn).map_err(unreadable)?;
        Ok(LogGrowth { conn: Some(conn), frames, too_long: false })
    }

    /// Whether the log has grown by more than [`LOG_GROWTH_MAX`]. It stays so.
    fn is_too_long(&mut self) -> bool {
        if let Some(conn) = self.conn.as_ref().filter(|_| !self.too_long) {
            // If the length is unknown, the log may be long.
            let frames = checkpoint::length(conn).unwrap_or(u64::MAX);
            self.too_long = frames.saturating_sub(self.frames) > LOG_GROWTH_MAX;
        }
        self.too_long
    }
}
