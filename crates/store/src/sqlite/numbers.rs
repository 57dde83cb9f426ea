//! Numbers that are handed out before they are recorded. A handle contains the number of a batch or blob and may be visible
//! before anything is written, so a crash must not make the next owner hand the number out again: numbers are reserved durably,
//! in blocks. The next block travels with any commit while half of the last one is left, so nobody waits for it.

use super::remove::{self, RemovedNumbers};
use crate::Sequence;
use crate::queue::{WriteQueue, WriteRequest};
use crate::{Answer, StoreError};
use rusqlite::{Connection, Error, OptionalExtension};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::oneshot;

/// How many numbers are reserved at a time. A crash leaves at most that many unused, and numbers have at least 39 bits.
const BLOCK: u64 = 4_096;

/// How many batches a file can make before it meets the numbers of a copy of it. Batches have 43 bits.
const LEAP: u64 = 1 << 32;

/// The numbers that handles contain, by [`Sequence`]. Sessions have none: they are known by name.
const IN_HANDLES: [Sequence; 2] = [Sequence::Batch, Sequence::Blob];

/// The numbers of an open store.
pub(super) struct Reservations {
    /// The next of each sequence.
    next: [AtomicU64; 3],
    /// Numbers below this are reserved on the disk.
    durable: [AtomicU64; 3],
}

impl Reservations {
    /// For a file that uses numbers up to `last`. Reserves the first block, in the current transaction.
    pub fn begin(conn: &Connection, last: RemovedNumbers) -> Result<Option<Reservations>, Error> {
        let sql = "SELECT value FROM meta WHERE key = 'reserved'";
        let kept = conn.query_row(sql, (), |row| row.get::<_, Vec<u8>>(0)).optional()?;
        let kept = match kept {
            None => [0; 3],
            Some(kept) => match remove::read_numbers(&kept) {
                Some(kept) => kept,
                None => return Ok(None),
            },
        };
        let next = [0, 1, 2].map(|place| (last[place] + 1).max(kept[place]));
        let durable = [u64::MAX, next[1] + BLOCK, next[2] + BLOCK];
        let reserved = remove::write_numbers([0, durable[1], durable[2]]);
        let sql = "INSERT OR REPLACE INTO meta (key, value) VALUES ('reserved', ?1)";
        point!("open.reserve", conn.execute(sql, [reserved]))?;
        Ok(Some(Reservations { next: next.map(AtomicU64::new), durable: durable.map(AtomicU64::new) }))
    }

    /// Hands out this many numbers, once they are reserved.
    pub fn take(
        self: &Arc<Reservations>,
        what: Sequence,
        count: u64,
        queue: &Arc<WriteQueue>,
    ) -> Answer<u64> {
        let first = self.next[what as usize].fetch_add(count, Ordering::Relaxed);
        if self.covers(what, first + count) {
            return Answer::ready(Ok(first));
        }
        let (reserved, queue) = (Arc::clone(self), Arc::clone(queue));
        Answer::boxed(async move {
            while !reserved.covers(what, first + count) {
                // An empty change: the next block travels with it.
                let (reply, answer) = oneshot::channel();
                queue.push(WriteRequest::Commit { changes: Vec::new(), reply });
                answer.await.unwrap_or(Err(StoreError::Closed))?;
            }
            Ok(first)
        })
    }

    /// Leaves a range of batch numbers to the file that this one is a copy of, and returns the next number.
    pub fn leap(&self) -> u64 {
        self.next[Sequence::Batch as usize].fetch_add(LEAP, Ordering::Relaxed) + LEAP
    }

    /// Whether this batch number may have been handed out.
    pub fn may_have(&self, batch: u64) -> bool {
        batch < self.durable[Sequence::Batch as usize].load(Ordering::Acquire)
    }

    fn covers(&self, what: Sequence, end: u64) -> bool {
        // Acquire: a reader of the number also sees that it is on the disk.
        end <= self.durable[what as usize].load(Ordering::Acquire)
    }

    /// The numbers that the current transaction must reserve, if it is time.
    pub fn due(&self) -> Option<RemovedNumbers> {
        let low = |what: Sequence| {
            let (next, durable) = (&self.next[what as usize], &self.durable[what as usize]);
            next.load(Ordering::Relaxed) + BLOCK / 2 > durable.load(Ordering::Relaxed)
        };
        if !IN_HANDLES.into_iter().any(low) {
            return None;
        }
        let end = |what: Sequence| {
            let (next, durable) = (&self.next[what as usize], &self.durable[what as usize]);
            (next.load(Ordering::Relaxed) + BLOCK).max(durable.load(Ordering::Relaxed))
        };
        Some([0, end(Sequence::Batch), end(Sequence::Blob)])
    }

    /// These numbers are on the disk now.
    pub fn reserved(&self, numbers: RemovedNumbers) {
        for what in IN_HANDLES {
            self.durable[what as usize].fetch_max(numbers[what as usize], Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::file;

    fn begin(conn: &Connection) -> Arc<Reservations> {
        Arc::new(Reservations::begin(conn, [0; 3]).unwrap().unwrap())
    }

    fn take(reserved: &Arc<Reservations>, queue: &Arc<WriteQueue>, count: u64) -> Option<u64> {
        reserved.take(Sequence::Batch, count, queue).known().ok().map(Result::unwrap)
    }

    #[test]
    fn no_number_is_handed_out_before_it_is_reserved() {
        let folder = tempfile::tempdir().unwrap();
        file::create(folder.path(), &file::path(folder.path())).unwrap();
        let conn = file::connect(&file::path(folder.path())).unwrap();
        let (reserved, queue) = (begin(&conn), Arc::new(WriteQueue::new(8)));
        assert_eq!(take(&reserved, &queue, 1), Some(1));
        assert_eq!(reserved.due(), None, "most of the block is left");
        assert_eq!(take(&reserved, &queue, BLOCK / 2), Some(2));
        let due = reserved.due().expect("half of it is used");
        assert_eq!(take(&reserved, &queue, BLOCK / 2), None, "not reserved yet");
        reserved.reserved(due);
        let next = take(&reserved, &queue, 1).unwrap();
        assert_eq!(next, 2 + BLOCK, "what waits keeps its numbers");
        drop(reserved);
        // Nothing of it was recorded: the next owner begins after all numbers that may have been seen.
        let first = take(&begin(&conn), &queue, 1).unwrap();
        assert_eq!(first, 1 + BLOCK, "this rig never wrote the second block");
    }
}
