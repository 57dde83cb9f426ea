//! Counters of one tool's calls.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of one tool.
#[derive(Default)]
pub(crate) struct Meter {
    pub(crate) attempts: AtomicU64,
    pub(crate) retries: AtomicU64,
    /// By [`STATES`].
    pub(crate) ended: [AtomicU64; STATES.len()],
    pub(crate) queued: Histogram,
    pub(crate) ran: Histogram,
}

/// The final states of calls.
pub(crate) const STATES: [&str; 5] = ["succeeded", "failed", "denied", "cancelled", "unknown"];

/// The upper bounds of all buckets but the last, in microseconds.
pub(crate) const ENDS_US: [u64; 11] =
    [100, 1_000, 5_000, 25_000, 100_000, 500_000, 1_000_000, 5_000_000, 30_000_000, 120_000_000, 600_000_000];

/// A histogram of durations.
#[derive(Default)]
pub(crate) struct Histogram {
    buckets: [AtomicU64; ENDS_US.len() + 1],
    sum_us: AtomicU64,
}

impl Histogram {
    pub(crate) fn add(&self, us: u64) {
        let bucket = ENDS_US.partition_point(|end| *end < us);
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum_us.fetch_add(us, Ordering::Relaxed);
    }

    /// The cumulative counts by bound, the total count, and the sum in seconds.
    pub(crate) fn totals(&self) -> ([u64; ENDS_US.len()], u64, f64) {
        let mut count = 0;
        let mut ends = [0; ENDS_US.len()];
        for (bucket, end) in self.buckets.iter().zip(&mut ends) {
            count += bucket.load(Ordering::Relaxed);
            *end = count;
        }
        count += self.buckets[ENDS_US.len()].load(Ordering::Relaxed);
        (ends, count, self.sum_us.load(Ordering::Relaxed) as f64 / 1e6)
    }
}
