//! Recovery after a write failed because of the disk, without a restart.
//!
//! A connection whose commit failed is not used for writing again. The part of the write-ahead log written by
//! its last transaction is in doubt: after a failed sync the kernel may show pages that never reached the
//! disk. So that part of the log is rewritten and synced; then a new connection reads where the log ends,
//! which shows whether the transaction is in it, and the group is answered or applied again. While that fails
//! it is retried, writers wait, and the store reports that it is stalled.

use super::identity::{FileGone, LogEnd};
use super::lookups::Indexer;
use super::writer::{GroupWriter, connect};
use super::{checkpoint, log};
use crate::health::Health;
use crate::queue::{self, WriteOutcome, WriteRequest};
use rusqlite::{Connection, ErrorCode};
use std::sync::Arc;
use std::time::Duration;

/// The pause before the second try; the first is immediate. Each further pause is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
/// The longest pause between two tries: a stalled store notices new disk space within this time.
const LONGEST_PAUSE: Duration = Duration::from_millis(640);

/// A group that could not be written, and what is known about it.
pub(super) struct FailedGroup {
    pub requests: Vec<WriteRequest>,
    /// The answers if the transaction is in the log; known once all of it was applied.
    pub told: Option<Vec<WriteOutcome>>,
    pub error: WriteError,
}

/// Why a group could not be written or not be acknowledged.
#[derive(Debug, thiserror::Error)]
pub(super) enum WriteError {
    #[error(transparent)]
    Sql(#[from] rusqlite::Error),
    #[error(transparent)]
    Gone(#[from] FileGone),
    #[error("the end of the write-ahead log could not be rewritten: {0}")]
    Log(#[from] std::io::Error),
}

impl WriteError {
    /// Whether the disk caused it, so that the same write may succeed later.
    fn may_pass(&self) -> bool {
        let WriteError::Sql(error) = self else { return true };
        matches!(
            error.sqlite_error_code(),
            Some(
                ErrorCode::DiskFull
                    | ErrorCode::SystemIoFailure
                    | ErrorCode::CannotOpen
                    | ErrorCode::ReadOnly
                    | ErrorCode::PermissionDenied
                    | ErrorCode::OutOfMemory
                    | ErrorCode::DatabaseBusy
                    | ErrorCode::DatabaseLocked
                    | ErrorCode::FileLockingProtocolFailed
            )
        )
    }
}

/// How the writer continues: on this connection, with a group that is still to be written.
pub(super) type Healed = (Connection, Option<Vec<WriteRequest>>);

impl GroupWriter {
    /// Reopens the file until that succeeds, and decides about the group. `None`: the store was closed
    /// meanwhile, or the error is not the disk's; all callers were answered.
    pub(super) fn heal(
        &mut self,
        old: &Connection,
        indexer: &mut Indexer,
        failed: FailedGroup,
    ) -> Option<Healed> {
        let FailedGroup { requests, told, mut error } = failed;
        // Whether the files are still under their paths is checked after the commit.
        let committed = matches!(error, WriteError::Gone(_));
        if !error.may_pass() {
            tracing::error!(%error, "a write failed; the store is closed until it is opened anew");
            self.give_up(requests, error);
            return None;
        }
        if !old.is_autocommit() {
            // If even this fails, closing the connection rolls the transaction back.
            let _undone = old.execute_batch("ROLLBACK");
        }
        loop {
            if self.tries > 0 {
                self.say_stalled(&error);
                let pause = FIRST_PAUSE.saturating_mul(1 << (self.tries - 1).min(8)).min(LONGEST_PAUSE);
                if self.queue.is_closed_within(pause) {
                    self.give_up(requests, error);
                    return None;
                }
            }
            self.tries += 1;
            match self.reopen() {
                Ok((conn, end)) => {
                    let landed = committed || self.has_landed(end);
                    self.log_end = end;
                    return Some((conn, self.decide(indexer, requests, told, landed)));
                }
                Err(failed) => error = failed,
            }
        }
    }

    /// Rewrites the doubtful end of the log and reopens the file.
    fn reopen(&mut self) -> Result<(Connection, Option<LogEnd>), WriteError> {
        self.file.check()?;
        self.log.check()?;
        let sure = self.log.sure_frames(self.log_end);
        log::write_anew(self.log.path(), sure)?;
        let conn = connect(&self.path, self.durability)?;
        let frames = checkpoint::length(&conn)?;
        Ok((conn, self.log.end(frames)))
    }

    /// Whether the failed transaction is in the log, which now ends there. Where that is not known it is not:
    /// SQLite reports a failed commit only if its index of the log does not have it. The index has it if it
    /// was lost too (it is on the same disk) and SQLite rebuilt it from the log.
    fn has_landed(&self, end: Option<LogEnd>) -> bool {
        matches!((self.log_end, end), (Some(before), Some(end)) if end.is_behind(before))
    }

    /// Answers a group that is in the log; otherwise it is still to be written.
    fn decide(
        &mut self,
        indexer: &mut Indexer,
        requests: Vec<WriteRequest>,
        told: Option<Vec<WriteOutcome>>,
        landed: bool,
    ) -> Option<Vec<WriteRequest>> {
        let Some(told) = told.filter(|_| landed) else {
            indexer.undone();
            return Some(requests);
        };
        indexer.committed();
        self.answer(requests, told);
        None
    }

    /// Answers a durable group: the store writes again.
    pub(super) fn answer(&mut self, requests: Vec<WriteRequest>, told: Vec<WriteOutcome>) {
        self.tries = 0;
        if self.health.is_bad() {
            self.queue.stall(None);
            self.health.set(Health::Ready);
            tracing::warn!("the store writes again");
        }
        for (request, told) in requests.into_iter().zip(told) {
            request.answer(told);
        }
    }

    fn say_stalled(&self, error: &WriteError) {
        let because: Arc<str> = error.to_string().into();
        self.queue.stall(Some(because.clone()));
        if self.health.set(Health::Stalled { because }) {
            tracing::error!(%error, "the store cannot write; it holds what waits and keeps trying");
        }
    }

    fn give_up(&self, requests: Vec<WriteRequest>, error: WriteError) {
        let because: Arc<str> = error.to_string().into();
        self.health.set(Health::Closed { because: because.clone() });
        self.queue.poison(&because);
        match error {
            WriteError::Sql(error) => queue::fail_group(requests, error),
            error @ (WriteError::Gone(_) | WriteError::Log(_)) => queue::fail_group(requests, error),
        }
    }
}
