//! Copied data: the owner of the original may continue the open calls, so this copy does not.

use crate::api::error::SessionError;
use crate::features::schedules;
use crate::features::webhooks;
use crate::session::inner::Runtime;
use std::sync::atomic::Ordering;
use std::time::Duration;
use windlass_store::Original;

/// The decision about a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JudgedCopy {
    /// Calls that were under way, and ended as unknown.
    pub unknown: u64,
    /// Parked calls, which stay parked.
    pub parked: u64,
    /// Schedules that were disabled.
    pub schedules: u64,
    /// Webhooks that are held: their messages are queued and not sent.
    pub webhooks: u64,
}

/// How often the calls that were under way are checked for their end, which takes a commit.
const LOOKS_EVERY: Duration = Duration::from_millis(5);

impl Runtime {
    /// Judges a store that is a copy of one whose owner may live: every open call that is not parked ends as unknown, every
    /// schedule is disabled, every webhook held, and then the store is no longer a copy. `None`: it was none.
    ///
    /// Parked calls wait for an external answer: a completion, a question, a signal, a connection, the caller. Calls that are
    /// queued, run, sleep or wait for their next attempt are not parked. Call this before anything is submitted, or
    /// [`resume`](Self::resume), which does it: a session that is taken earlier is judged when it is taken, but the store stays a
    /// copy. If the process is cut off in the middle, the store is still a copy, and the next process continues.
    pub async fn judge_copy(&self) -> Result<Option<JudgedCopy>, SessionError> {
        if !self.0.store.is_copy() {
            return Ok(None);
        }
        let open = || self.0.taken_over.load(Ordering::Relaxed);
        let (open_before, unknown_before) = (open(), self.0.copied_calls.load(Ordering::Relaxed));
        self.take_all_left().await?;
        let schedules = schedules::disable_all(&self.0).await?;
        let webhooks = webhooks::hold_all(&self.0).await?;
        loop {
            let counts = self.counts();
            if counts.running == [0, 0] && counts.queued == 0 {
                break;
            }
            tokio::time::sleep(LOOKS_EVERY).await;
        }
        // After all ends in the order of the store, so it is durable after them.
        self.0.store.own_file(Original::MayLive).await?;
        let unknown = self.0.copied_calls.load(Ordering::Relaxed) - unknown_before;
        let parked = (open() - open_before).saturating_sub(unknown);
        Ok(Some(JudgedCopy { unknown, parked, schedules, webhooks }))
    }
}
