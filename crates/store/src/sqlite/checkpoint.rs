//! Bringing the write-ahead log home, on a thread and a connection of its own: in the writer it would cost
//! every waiting call milliseconds.

use super::ballast::{Ballast, is_full};
use super::file::PAGE_BYTES;
use rusqlite::Connection;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The log is brought home after this many bytes of it.
const STEP_BYTES: u64 = 8 << 20;
/// And this long after a write, when less has come together.
const IDLE: Duration = Duration::from_secs(1);

/// What writer and checkpointer tell each other.
#[derive(Default)]
pub(super) struct Checkpoints {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// There is something in the log.
    dirty: bool,
    /// The writer asked for a checkpoint.
    wanted: bool,
    /// Checkpoints finished, for who waits for one.
    finished: u64,
    stop: bool,
    stopped: bool,
}

/// How long the log is, and how much of it is home already, in pages.
struct Log {
    pages: u64,
    home: u64,
}

impl Checkpoints {
    /// The writer's side, after each commit: asks for a checkpoint when enough has come together, and waits for
    /// one when the log is too long, so that it stays bounded.
    pub fn after_commit(&self, conn: &Connection, wal_bytes_max: u64) {
        let log = match checkpoint(conn, MEASURE) {
            Ok(log) => log,
            Err(error) => {
                tracing::warn!(%error, "the length of the write-ahead log is unknown");
                return;
            }
        };
        let ahead = (log.pages - log.home.min(log.pages)) * PAGE_BYTES;
        let full = log.pages * PAGE_BYTES >= wal_bytes_max && ahead > 0;
        let wanted = full || ahead >= STEP_BYTES.min(wal_bytes_max);
        let mut state = self.lock();
        if !state.dirty || (wanted && !state.wanted) {
            state.dirty = true;
            state.wanted |= wanted;
            self.changed.notify_all();
        }
        if !full {
            return;
        }
        // The one that runs may have begun before the last commit; the one after it has everything.
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

    /// Waits for something to do: `false` when it is time to stop.
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

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The checkpointer's thread.
pub(super) fn run(conn: &Connection, checkpoints: &Checkpoints, ballast: &Ballast) {
    let _told = StoppedOnEnd(checkpoints);
    while checkpoints.next() {
        let mut brought = point!("log.home", checkpoint(conn, BRING_HOME));
        if brought.as_ref().is_err_and(is_full) && ballast.release() {
            tracing::warn!("the disk is full; the ballast is released");
            brought = checkpoint(conn, BRING_HOME);
        }
        // What is in the log is durable: if it cannot be brought home now, it can be later.
        if let Err(error) = brought {
            tracing::warn!(%error, "a checkpoint failed; the write-ahead log grows until one succeeds");
        }
        checkpoints.finished();
    }
    if let Err(error) = point!("log.empty", checkpoint(conn, EMPTY)) {
        tracing::warn!(%error, "the last checkpoint failed; the next start makes up for it");
    }
}

/// Brings home what an earlier process left in the log, as far as readers allow.
pub(super) fn catch_up(conn: &Connection) -> Result<(), rusqlite::Error> {
    point!("log.catch-up", checkpoint(conn, BRING_HOME)).map(drop)
}

/// Only tells how long the log is.
const MEASURE: &str = "PRAGMA wal_checkpoint(NOOP)";
/// Brings home what it can without making anybody wait.
const BRING_HOME: &str = "PRAGMA wal_checkpoint(PASSIVE)";
/// Brings home everything and empties the log.
const EMPTY: &str = "PRAGMA wal_checkpoint(TRUNCATE)";

fn checkpoint(conn: &Connection, sql: &str) -> Result<Log, rusqlite::Error> {
    conn.prepare_cached(sql)?.query_row((), |row| {
        let (pages, home): (i64, i64) = (row.get(1)?, row.get(2)?);
        Ok(Log { pages: u64::try_from(pages).unwrap_or(0), home: u64::try_from(home).unwrap_or(0) })
    })
}

struct StoppedOnEnd<'a>(&'a Checkpoints);

impl Drop for StoppedOnEnd<'_> {
    fn drop(&mut self) {
        self.0.lock().stopped = true;
        self.0.changed.notify_all();
    }
}
