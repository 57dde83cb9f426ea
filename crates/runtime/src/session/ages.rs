//! The age of a recorded time, although the wall clock may have jumped since.
//!
//! Every look compares the wall clock with the clock that never jumps. While their difference stays the same, the clock
//! that never jumps gives the age of a time that this process recorded. Any other time is older than the process.

use crate::api::locks::{LockRank, OrderedMutex};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use windlass_core::time::Timestamp;

/// How many differences between the two clocks are remembered; before the oldest of them a time counts as older than the process.
const SPANS_MAX: usize = 64;

/// The wall clock as this process has seen it.
#[derive(Debug)]
pub(crate) struct Ages {
    /// When the process began, by the clock that never jumps.
    born_us: u64,
    /// A change of the difference by more than this is a jump.
    jump_us: u64,
    /// The current lead of the wall clock, and when it was last seen: so that no lock is needed while it does not jump.
    ahead_us: AtomicI64,
    seen_us: AtomicU64,
    /// The sum of all jumps, and whether there were any.
    moved_us: AtomicI64,
    has_jumped: AtomicBool,
    spans: OrderedMutex<Vec<SteadySpan>, { LockRank::Ages as u8 }>,
}

/// Readings of both clocks at about one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClockPair {
    /// Of the wall clock.
    pub(crate) now: Timestamp,
    /// Of the clock that never jumps.
    pub(crate) now_us: u64,
}

impl ClockPair {
    /// How far the wall clock is ahead of the clock that never jumps.
    fn ahead_us(self) -> i64 {
        self.now.0.saturating_sub(i64::try_from(self.now_us).unwrap_or(i64::MAX))
    }
}

/// A span in which the wall clock did not jump.
#[derive(Clone, Copy, Debug)]
struct SteadySpan {
    /// The lead of the wall clock over the clock that never jumps.
    ahead_us: i64,
    /// When it may have begun and when it was last seen, by the clock that never jumps.
    from_us: u64,
    until_us: u64,
}

impl Ages {
    pub(crate) fn new(seen: ClockPair, jump_ms: u64) -> Ages {
        let (ahead_us, now_us) = (seen.ahead_us(), seen.now_us);
        let span = SteadySpan { ahead_us, from_us: now_us, until_us: now_us };
        Ages {
            born_us: now_us,
            jump_us: jump_ms.saturating_mul(1_000),
            ahead_us: AtomicI64::new(ahead_us),
            seen_us: AtomicU64::new(now_us),
            moved_us: AtomicI64::new(0),
            has_jumped: AtomicBool::new(false),
            spans: OrderedMutex::new(vec![span]),
        }
    }

    /// Whether the wall clock has not jumped since somebody last looked.
    #[inline]
    pub(crate) fn is_steady(&self, seen: ClockPair) -> bool {
        let was_us = self.ahead_us.load(Ordering::Acquire);
        let is_steady = seen.ahead_us().saturating_sub(was_us).unsigned_abs() <= self.jump_us;
        if is_steady {
            self.seen_us.fetch_max(seen.now_us, Ordering::Relaxed);
        }
        is_steady
    }

    /// The sum of all jumps of the wall clock since the process began, up to the last look.
    #[inline]
    pub(crate) fn moved_us(&self) -> i64 {
        self.moved_us.load(Ordering::Relaxed)
    }

    /// A move of the wall clock, if it is large enough to matter.
    pub(crate) fn moved(&self, by_us: i64) -> i64 {
        if by_us.unsigned_abs() > self.jump_us { by_us } else { 0 }
    }

    /// Whether the wall clock has ever jumped.
    #[inline]
    pub(crate) fn has_jumped(&self) -> bool {
        self.has_jumped.load(Ordering::Relaxed)
    }

    /// Records a jump, if there was one. Both clocks are read under the lock: an older reading would look like a jump back.
    pub(crate) fn look(&self, read: impl FnOnce() -> ClockPair) {
        let mut spans = self.spans.lock();
        let seen = read();
        let (ahead_us, now_us) = (seen.ahead_us(), seen.now_us);
        let Some(last) = spans.last_mut() else { return };
        let seen_us = last.until_us.max(self.seen_us.load(Ordering::Relaxed));
        last.until_us = seen_us;
        let by_us = ahead_us.saturating_sub(last.ahead_us);
        if by_us.unsigned_abs() <= self.jump_us {
            last.until_us = seen_us.max(now_us);
            return;
        }
        spans.push(SteadySpan { ahead_us, from_us: seen_us, until_us: now_us.max(seen_us) });
        let excess = spans.len().saturating_sub(SPANS_MAX);
        spans.drain(..excess);
        self.has_jumped.store(true, Ordering::Relaxed);
        self.moved_us.store(self.moved_us().saturating_add(by_us), Ordering::Relaxed);
        // Stored last: a reader that finds the clock steady knows of every earlier jump.
        self.ahead_us.store(ahead_us, Ordering::Release);
    }

    /// How long ago this time was recorded. If the clock was set back and two ages are possible, the shorter
    /// one. A time that this process did not record is at least as old as the process.
    pub(crate) fn age_us(&self, at: Timestamp, now_us: u64) -> u64 {
        let mut spans = self.spans.lock();
        if let Some(last) = spans.last_mut() {
            last.until_us = last.until_us.max(self.seen_us.load(Ordering::Relaxed));
        }
        let told = spans.iter().rev().find_map(|span| {
            // Drift that is no jump may shift a time a little.
            let at_us = at.0.saturating_sub(span.ahead_us);
            let (from_us, until_us) = (span.from_us as i64 - self.jump_us as i64, span.until_us as i64);
            let is_within = (from_us..=until_us.saturating_add(self.jump_us as i64)).contains(&at_us);
            is_within.then(|| now_us.saturating_sub(u64::try_from(at_us).unwrap_or(0)))
        });
        told.unwrap_or_else(|| {
            let first = spans.first().map_or(0, |span| span.ahead_us);
            let steady = Timestamp(i64::try_from(now_us).unwrap_or(i64::MAX).saturating_add(first));
            now_us.saturating_sub(self.born_us).max(steady.since(at))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000;
    const HOUR: i64 = 3_600 * SECOND;
    /// When the process begins, by the wall clock.
    const BORN: i64 = 1_000 * HOUR;

    /// Readings of both clocks at a time after the process began, after jumps of the wall clock.
    fn clocks(passed: i64, jumped: i64) -> ClockPair {
        ClockPair { now: Timestamp(BORN + passed + jumped), now_us: passed as u64 }
    }

    #[test]
    fn a_time_of_this_process_has_its_age_whatever_the_wall_clock_is_set_to() {
        for jump in [24 * HOUR, -24 * HOUR, 1_000 * HOUR, -999 * HOUR, 0] {
            let ages = Ages::new(clocks(0, 0), 5_000);
            ages.look(|| clocks(50 * SECOND, 0));
            let before = clocks(40 * SECOND, 0).now;
            ages.look(|| clocks(60 * SECOND, jump));
            assert_eq!(
                ages.age_us(before, 60 * SECOND as u64),
                20 * SECOND as u64,
                "{jump}: from before the jump"
            );
            let after = clocks(70 * SECOND, jump).now;
            ages.look(|| clocks(90 * SECOND, jump));
            assert_eq!(ages.age_us(after, 90 * SECOND as u64), 20 * SECOND as u64, "{jump}: from after it");
        }
    }

    #[test]
    fn a_time_of_an_earlier_process_is_at_least_as_old_as_this_one() {
        let ages = Ages::new(clocks(0, 0), 5_000);
        let hour_ago = Timestamp(BORN - HOUR);
        assert_eq!(ages.age_us(hour_ago, SECOND as u64), (HOUR + SECOND) as u64);
        // The clock was set back before the process began.
        let to_come = Timestamp(BORN + 24 * HOUR);
        assert_eq!(ages.age_us(to_come, 0), 0);
        assert_eq!(ages.age_us(to_come, HOUR as u64), HOUR as u64);
        // A jump in this process does not make it older.
        ages.look(|| clocks(2 * SECOND, 24 * HOUR));
        assert_eq!(ages.age_us(hour_ago, 2 * SECOND as u64), (HOUR + 2 * SECOND) as u64);
    }

    #[test]
    fn only_so_many_jumps_are_remembered() {
        let ages = Ages::new(clocks(0, 0), 5_000);
        for jump in 1..1_000 {
            ages.look(|| clocks(jump * SECOND, jump * HOUR));
        }
        assert_eq!(ages.spans.lock().len(), SPANS_MAX);
    }
}
