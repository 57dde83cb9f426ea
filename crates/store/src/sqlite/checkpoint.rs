//! Checkpoints of the write-ahead log, on a thread and a connection of their own: in the writer they would
//! cost every waiting call milliseconds.

use super::ballast::{Ballast, is_full};
use super::file::{BUSY, PAGE_BYTES};
use super::heal::WriteError;
use super::identity::OpenLog;
use super::log;
use rusqlite::{Connection, Transaction, TransactionBehavior};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A checkpoint runs after this many bytes of log, and a log of this length is begun anew.
const STEP_BYTES: u64 = 8 << 20;
/// A log is begun anew once no more than this is to be checkpointed: the writer waits meanwhile.
const REST_PAGES: u64 = 512;
/// How often the rest of a log is tried to be made that small, beside a writer that adds to it.
const REST_ROUNDS: u32 = 4;
/// Beginning the log anew waits this long for a writer to end its transaction, and for readers of older pages.
const ANEW_WAIT: Duration = Duration::from_millis(20);
/// And this long after a write, if there is less.
const IDLE: Duration = Duration::from_secs(1);
/// The last checkpoint waits this long for readers: longer than a query takes, but not for a backup, which holds its
/// snapshot until it is done. The next start makes up for it.
const READERS_WAIT: Duration = Duration::from_millis(100);

/// State shared by writer and checkpointer.
#[derive(Default)]
pub(super) struct Checkpoints {
    state: Mutex<CheckpointState>,
    changed: Condvar,
}

#[derive(Default)]
struct CheckpointState {
    /// The log is not empty.
    dirty: bool,
    /// The writer asked for a checkpoint.
    wanted: bool,
    /// The number of finished checkpoints, for waiters.
    finished: u64,
    stop: bool,
    stopped: bool,
}

/// The length of the log, and how much of it is checkpointed, in pages.
struct LogExtent {
    pages: u64,
    home: u64,
}

impl LogExtent {
    /// The pages that are still to be checkpointed.
    fn rest(&self) -> u64 {
        self.pages.saturating_sub(self.home)
    }
}

/// The log after a commit.
pub(super) struct LogAfterCommit {
    /// Its length, if known.
    pub frames: Option<u64>,
    /// It is too long: the writer waits for a checkpoint.
    pub is_full: bool,
}

impl Checkpoints {
    /// The writer's side, after each commit: requests a checkpoint when there is enough log.
    pub fn after_commit(&self, conn: &Connection, wal_bytes_max: u64) -> LogAfterCommit {
        let log = match checkpoint(conn, MEASURE) {
            Ok(log) => log,
            Err(error) => {
                tracing::warn!(%error, "the length of the write-ahead log is unknown");
                return LogAfterCommit { frames: None, is_full: false };
            }
        };
        let ahead = log.rest() * PAGE_BYTES;
        let is_full = log.pages * PAGE_BYTES >= wal_bytes_max && ahead > 0;
        let wanted = is_full || ahead >= STEP_BYTES.min(wal_bytes_max);
        let mut state = self.lock();
        if !state.dirty || (wanted && !state.wanted) {
            state.dirty = true;
            state.wanted |= wanted;
            self.changed.notify_all();
        }
        LogAfterCommit { frames: Some(log.pages), is_full }
    }

    /// Waits until all of the log is checkpointed, so that it stays bounded.
    pub fn wait_for_room(&self) {
        let mut state = self.lock();
        // A running checkpoint may have begun before the last commit; the one after it covers everything.
        let after = state.finished + 2;
        while state.finished < after && !state.stopped {
            state.wanted = true;
            self.changed.notify_all();
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Ends the checkpointer after one last checkpoint.
    pub fn stop(&self) {
        self.lock().stop = true;
        self.changed.notify_all();
    }

    /// Waits for work: `false` when it is time to stop.
    fn next(&self) -> bool {
        let mut state = self.lock();
        loop {
            if state.stop {
                return false;
            }
            if std::mem::take(&mut state.wanted) {
                state.dirty = false;
                return true;
            }
            if !state.dirty {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let (woken, timer) =
                self.changed.wait_timeout(state, IDLE).unwrap_or_else(PoisonError::into_inner);
            state = woken;
            if timer.timed_out() && !state.stop {
                state.wanted = true;
            }
        }
    }

    fn finished(&self) {
        self.lock().finished += 1;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, CheckpointState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The checkpointer's thread.
pub(super) fn run(mut checkpointer: Checkpointer, checkpoints: &Checkpoints, ballast: &Ballast) {
    let _told = StoppedOnEnd(checkpoints);
    while checkpoints.next() {
        // A failed checkpoint can succeed later.
        match checkpointer.bring_home(ballast) {
            Ok(()) => ballast.make_again(),
            Err(error) => {
                tracing::warn!(%error, "a checkpoint failed; the write-ahead log grows until one succeeds");
            }
        }
        checkpoints.finished();
    }
    if let Err(error) = checkpointer.empty() {
        tracing::warn!(%error, "the last checkpoint failed; the next start makes up for it");
    }
}

/// The checkpointer's connection and its log.
pub(super) struct Checkpointer {
    conn: Connection,
    log: OpenLog,
    /// A checkpoint failed, perhaps because the log could not be synced.
    doubtful: bool,
}

impl Checkpointer {
    pub fn new(conn: Connection, log: OpenLog) -> Checkpointer {
        Checkpointer { conn, log, doubtful: false }
    }

    fn bring_home(&mut self, ballast: &Ballast) -> Result<(), WriteError> {
        self.make_sure()?;
        let mut brought = point!("log.home", checkpoint(&self.conn, BRING_HOME));
        if brought.as_ref().is_err_and(is_full) && ballast.release() {
            tracing::warn!("the disk is full; the ballast is released");
            brought = checkpoint(&self.conn, BRING_HOME);
        }
        let log = self.note(brought)?;
        if log.pages * PAGE_BYTES >= STEP_BYTES { self.begin_anew(log) } else { Ok(()) }
    }

    /// Has the writer begin the log anew at its start. Left to itself a log beside a busy writer grows, since there is always a rest
    /// that is not checkpointed; and where a file grows each sync allocates blocks, which takes about as long as the sync itself.
    fn begin_anew(&mut self, mut log: LogExtent) -> Result<(), WriteError> {
        for _ in 0..REST_ROUNDS {
            if log.rest() <= REST_PAGES {
                break;
            }
            let brought = checkpoint(&self.conn, BRING_HOME);
            log = self.note(brought)?;
        }
        // Somebody reads older pages, or the writer is faster than the checkpoints.
        if log.rest() > REST_PAGES {
            return Ok(());
        }
        self.conn.busy_timeout(ANEW_WAIT)?;
        let brought = checkpoint(&self.conn, BRING_ALL_HOME);
        self.conn.busy_timeout(BUSY)?;
        self.note(brought).map(drop)
    }

    fn empty(&mut self) -> Result<(), WriteError> {
        self.make_sure()?;
        self.conn.busy_timeout(READERS_WAIT)?;
        let emptied = point!("log.empty", checkpoint(&self.conn, EMPTY));
        self.conn.busy_timeout(BUSY)?;
        let emptied = self.note(emptied).map(drop);
        // Closing the last connection checkpoints the log, in doubt or not.
        self.make_sure().and(emptied)
    }

    /// A full disk is found when the database is written, and by then the log is on the disk.
    fn note(&mut self, checkpoint: Result<LogExtent, rusqlite::Error>) -> Result<LogExtent, WriteError> {
        self.doubtful = checkpoint.as_ref().is_err_and(|error| !is_full(error));
        Ok(checkpoint?)
    }

    /// Rewrites the log if it is in doubt. With relaxed durability a checkpoint is the first to sync committed pages.
    /// If that sync fails, the next one succeeds without the lost pages, and the database would be written from a log
    /// that is not on the disk: a power cut in the middle of that would damage it.
    fn make_sure(&mut self) -> Result<(), WriteError> {
        if !self.doubtful {
            return Ok(());
        }
        self.log.check()?;
        // Keeps the writer away: it might restart the log meanwhile.
        let held = Transaction::new_unchecked(&self.conn, TransactionBehavior::Immediate)?;
        log::write_anew(self.log.path(), 0)?;
        held.rollback()?;
        self.doubtful = false;
        Ok(())
    }
}

/// The number of frames in the log.
pub(super) fn length(conn: &Connection) -> Result<u64, rusqlite::Error> {
    checkpoint(conn, MEASURE).map(|log| log.pages)
}

/// Checkpoints the log that an earlier process left, as far as readers allow.
pub(super) fn catch_up(conn: &Connection) -> Result<(), rusqlite::Error> {
    point!("log.catch-up", checkpoint(conn, BRING_HOME)).map(drop)
}

/// Checkpoints the log that an earlier process left, all of it, and empties it. `false`: another process reads from it.
pub(super) fn empty(conn: &Connection) -> Result<bool, rusqlite::Error> {
    let left = checkpoint(conn, EMPTY)?;
    Ok(left.pages == left.home)
}

/// Only reads the length of the log.
const MEASURE: &str = "PRAGMA wal_checkpoint(NOOP)";
/// Checkpoints what it can without blocking anybody.
const BRING_HOME: &str = "PRAGMA wal_checkpoint(PASSIVE)";
/// Checkpoints everything while the writer waits.
const BRING_ALL_HOME: &str = "PRAGMA wal_checkpoint(FULL)";
/// Checkpoints everything and empties the log.
const EMPTY: &str = "PRAGMA wal_checkpoint(TRUNCATE)";

fn checkpoint(conn: &Connection, sql: &str) -> Result<LogExtent, rusqlite::Error> {
    conn.prepare_cached(sql)?.query_row((), |row| {
        let (pages, home): (i64, i64) = (row.get(1)?, row.get(2)?);
        Ok(LogExtent { pages: u64::try_from(pages).unwrap_or(0), home: u64::try_from(home).unwrap_or(0) })
    })
}

struct StoppedOnEnd<'a>(&'a Checkpoints);

impl Drop for StoppedOnEnd<'_> {
    fn drop(&mut self) {
        self.0.lock().stopped = true;
        self.0.changed.notify_all();
    }
}
