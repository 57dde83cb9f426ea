//! Whether more calls may wait.

use super::{Maxima, Planner};
use crate::ids::SessionNo;

/// Too many calls are waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many calls are waiting: try again in {} ms", retry_after_us.div_ceil(1_000))]
pub struct Overloaded {
    /// The estimated time until there is room.
    pub retry_after_us: u64,
    /// The bound that is reached.
    pub bound: Bound,
}

/// A bound on waiting calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// Queued calls of the session.
    Session {
        /// The current number.
        queued: u64,
        /// The maximum.
        max: u64,
    },
    /// Queued calls of the process.
    Process {
        /// The current number.
        queued: u64,
        /// The maximum.
        max: u64,
    },
    /// Parked calls of the process.
    Parked {
        /// The current number.
        parked: u64,
        /// The maximum.
        max: u64,
    },
}

impl Planner {
    /// Whether there is room for a batch of new calls, with `expected` others of the process on their way.
    /// Nested calls and due schedules are entered without asking.
    pub fn admit(
        &self,
        now_us: u64,
        session: SessionNo,
        calls: u64,
        expected: u64,
    ) -> Result<(), Overloaded> {
        let Maxima { queued: max, session_queued: session_max, parked: parked_max, .. } = self.limits;
        let own = self.session_nos.get(&session).map_or(0, |&number| self.sessions[number].queued);
        let (queued, parked) = (self.counts.queued + expected, self.counts.parked + self.away);
        let bounds = [
            (queued + calls, max, Bound::Process { queued, max }),
            (own + calls, session_max, Bound::Session { queued: own, max: session_max }),
            // An admitted call is queued first, and may be parked or not.
            (parked + 1, parked_max, Bound::Parked { parked, max: parked_max }),
        ];
        let over = bounds.into_iter().map(|(count, max, bound)| (count.saturating_sub(max), bound));
        let Some((over, bound)) = over.max_by_key(|(over, _)| *over).filter(|(over, _)| *over > 0) else {
            return Ok(());
        };
        // A queue that stands still is no faster than it has been standing.
        let between_us = self.pace.between_us.max(now_us.saturating_sub(self.pace.started_us));
        let (least, most) = self.limits.retry_us;
        let retry_after_us = over.saturating_mul(between_us).clamp(least, most.max(least));
        Err(Overloaded { retry_after_us, bound })
    }
}
