//! The gate before a webhook: so many deliveries at once, and none for a while after one has failed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::Semaphore;

/// The longest that a webhook is left alone after failures: then one delivery shows whether its receiver is back.
const CLOSED_US_MAX: u64 = 60_000_000;

/// The deliveries to one webhook, over all sessions of a process.
pub(super) struct WebhookGate {
    /// The deliveries that may go on at once.
    pub(super) room: Arc<Semaphore>,
    failures: AtomicU64,
    /// Until when it is closed, by the clock that never jumps.
    closed_until_us: AtomicU64,
}

impl WebhookGate {
    pub(super) fn new(sends_max: u64) -> WebhookGate {
        WebhookGate {
            room: Arc::new(Semaphore::new(usize::try_from(sends_max).unwrap_or(1))),
            failures: AtomicU64::new(0),
            closed_until_us: AtomicU64::new(0),
        }
    }

    /// When the next delivery may begin, if it may not now.
    pub(super) fn closed(&self, now_us: u64) -> Option<u64> {
        let until_us = self.closed_until_us.load(Ordering::SeqCst);
        (until_us > now_us).then_some(until_us)
    }

    /// The receiver takes messages.
    pub(super) fn open(&self) {
        self.failures.store(0, Ordering::SeqCst);
        self.closed_until_us.store(0, Ordering::SeqCst);
    }

    /// A delivery failed: the next one waits, longer after each failure.
    pub(super) fn failed(&self, now_us: u64, retry_ms: u64) {
        let failures = self.failures.fetch_add(1, Ordering::SeqCst);
        // One message may be to blame; the first failure holds up the others least.
        let length_us = backoff_us(failures, retry_ms * 1_000 / 2, CLOSED_US_MAX);
        self.closed_until_us.fetch_max(now_us.saturating_add(length_us), Ordering::SeqCst);
    }
}

/// The wait after so many earlier failures: doubled each time, up to a maximum.
pub(super) fn backoff_us(failures: u64, first_us: u64, max_us: u64) -> u64 {
    let doubled = u32::try_from(failures.min(40)).unwrap_or(40);
    first_us.saturating_mul(1 << doubled).min(max_us)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gate_closes_longer_after_each_failure_and_opens_with_a_success() {
        let gate = WebhookGate::new(4);
        assert_eq!(gate.closed(7), None);
        let mut lengths = Vec::new();
        for _ in 0..12 {
            gate.failed(1_000, 1_000);
            lengths.push(gate.closed(1_000).unwrap() - 1_000);
        }
        assert_eq!(lengths[..3], [500_000, 1_000_000, 2_000_000]);
        assert_eq!(lengths[11], CLOSED_US_MAX);
        assert_eq!(gate.closed(1_000 + CLOSED_US_MAX), None);
        gate.open();
        assert_eq!(gate.closed(0), None);
        assert_eq!(backoff_us(u64::MAX, 1, 9), 9);
    }
}
