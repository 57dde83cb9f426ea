//! Numbers in blocks: the sequence is advanced by a whole block in a transaction of its own, so a number costs no round trip, and
//! one that anybody saw is never handed out again.

use super::read;
use super::readers::ReaderConnections;
use crate::{Answer, Sequence};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// The numbers of a block. Those that are left when the process ends are never used.
const BLOCK: u64 = 1_024;

/// The blocks of this process.
#[derive(Default)]
pub(super) struct NumberBlocks {
    sessions: SharedBlock,
    batches: SharedBlock,
    blobs: SharedBlock,
}

#[derive(Clone, Default)]
struct SharedBlock {
    free: Arc<Mutex<Range<u64>>>,
    /// Held by the one who fetches the next block, so that others wait for it instead of fetching more.
    fetching: Arc<tokio::sync::Mutex<()>>,
}

impl NumberBlocks {
    /// Numbers of a sequence, `count` from the returned one on.
    pub fn reserve(&self, readers: &ReaderConnections, what: Sequence, count: u64) -> Answer<u64> {
        let block = match what {
            Sequence::Session => &self.sessions,
            Sequence::Batch => &self.batches,
            Sequence::Blob => &self.blobs,
        };
        if count > BLOCK {
            return read::reserve(readers, what, count);
        }
        if let Some(first) = block.take(count) {
            return Answer::ready(Ok(first));
        }
        let (block, readers) = (block.clone(), readers.clone());
        Answer::boxed(async move {
            let _fetching = block.fetching.lock().await;
            loop {
                // Somebody else may have fetched one meanwhile.
                if let Some(first) = block.take(count) {
                    return Ok(first);
                }
                let first = read::reserve(&readers, what, BLOCK).await?;
                block.fill(first..first.saturating_add(BLOCK));
            }
        })
    }
}

impl SharedBlock {
    fn take(&self, count: u64) -> Option<u64> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let first = free.start;
        (free.end - first >= count).then(|| {
            free.start += count;
            first
        })
    }

    fn fill(&self, numbers: Range<u64>) {
        *self.free.lock().unwrap_or_else(PoisonError::into_inner) = numbers;
    }
}
