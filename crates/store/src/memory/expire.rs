//! Expired batches: their rows are gone, and each run of removed rows is remembered by where it began and what was before it.

use super::rows::MemoryRow;
use super::{MemorySession, MemoryState};
use crate::{BatchRow, JournalRow, KeptBatch, StoreUsage};
use windlass_core::ids::{BatchNo, SessionNo};

/// Neighbouring rows of a session that expired.
pub(super) struct ExpiredRun {
    /// The number of their entries.
    count: u64,
    /// The place of the row before them.
    before: Option<usize>,
}

impl MemorySession {
    /// The row that is kept before an entry, if the rows directly before it expired.
    pub(super) fn over_run(&self, entry: u64) -> Option<Option<usize>> {
        let (first, run) = self.runs.range(..entry).next_back()?;
        (first + run.count == entry).then_some(run.before)
    }

    /// The first entry of the expired run that ends before an entry.
    pub(super) fn run_before(&self, entry: u64) -> Option<u64> {
        let (first, run) = self.runs.range(..entry).next_back()?;
        (first + run.count == entry).then_some(*first)
    }

    /// Adds an expired row to the runs that it touches.
    fn add_run(&mut self, MemoryRow { row, in_session, .. }: &MemoryRow) {
        let (mut first, mut run) =
            (row.first.0, ExpiredRun { count: u64::from(row.count), before: *in_session });
        if let Some(after) = self.runs.remove(&(first + run.count)) {
            run.count += after.count;
        }
        if let Some(earlier) = self.run_before(first)
            && let Some(before) = self.runs.remove(&earlier)
        {
            run = ExpiredRun { count: before.count + run.count, before: before.before };
            first = earlier;
        }
        self.runs.insert(first, run);
    }
}

impl MemoryState {
    /// The rows of a session from a place back, without the expired ones. The place itself is kept, or the last of a session.
    pub(super) fn rows_of<'a>(
        &'a self,
        session: &'a MemorySession,
        start: Option<usize>,
    ) -> impl Iterator<Item = &'a JournalRow> {
        let start = if start == session.last { self.last_of(session) } else { start };
        let chain = std::iter::successors(start.map(|at| self.rows.at(at)), move |this| {
            let before = session.over_run(this.row.first.0).unwrap_or(this.in_session);
            before.map(|at| self.rows.at(at))
        });
        chain.map(|kept| &kept.row)
    }

    /// The last row of a session that is kept.
    fn last_of(&self, session: &MemorySession) -> Option<usize> {
        session.over_run(session.head + 1).unwrap_or(session.last)
    }

    /// Removes the rows of a batch; what it is known by stays.
    pub(super) fn expire(&mut self, session: SessionNo, no: BatchNo) {
        let Some(batch) = self.batches.remove(&no) else { return };
        let Some(kept) = self.sessions.get_mut(&session) else { return };
        let mut next = batch.last;
        while let Some(at) = next {
            let row = self.rows.take(at);
            next = row.in_batch;
            kept.posts.expired(row.row.first);
            kept.add_run(&row);
        }
        if let Some(recorded) = batch.recorded {
            self.expired.insert(no, BatchRow { expired: true, ..recorded });
        }
    }

    /// The kept batches after one, by number. It looks at all that are kept.
    pub(super) fn kept_batches(&self, after: BatchNo, limit: u64) -> Vec<KeptBatch> {
        let later = self.batches.iter().filter(|(no, batch)| **no > after && batch.last.is_some());
        let mut found: Vec<_> = later.map(|(no, batch)| (*no, batch.last)).collect();
        found.sort_unstable_by_key(|(no, _)| *no);
        found.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
        let measured = found.into_iter().filter_map(|(no, last)| {
            let bytes = self.rows.of_batch(last).map(|row| row.data.len() as u64).sum();
            let session = self.rows.of_batch(last).next()?.session;
            Some(KeptBatch { no, session, bytes })
        });
        measured.collect()
    }

    /// The space in use.
    pub(super) fn usage(&self) -> StoreUsage {
        let of_batch = |last| self.rows.of_batch(last).map(|row| row.data.len() as u64).sum::<u64>();
        let bodies = self.messages.values().filter_map(|message| message.body.as_ref());
        StoreUsage {
            journal_bytes: self.batches.values().map(|batch| of_batch(batch.last)).sum(),
            blob_bytes: self.pieces.values().map(|piece| piece.len() as u64).sum(),
            record_bytes: self.records.bytes(),
            message_bytes: bodies.map(|body| body.len() as u64).sum(),
            batches: (self.batches.len() + self.expired.len()) as u64,
            expired_batches: self.expired.len() as u64,
            file_bytes: 0,
            free_bytes: 0,
        }
    }
}
