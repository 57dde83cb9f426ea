//! The one door to time.

use std::time::{Instant, SystemTime, UNIX_EPOCH};
use windlass_core::time::Timestamp;

/// Tells the time. Everything that needs it asks here.
pub trait Clock: Send + Sync + 'static {
    /// The time of day, for entries.
    fn now(&self) -> Timestamp;

    /// Microseconds by a clock that never jumps, for durations.
    fn elapsed_us(&self) -> u64;
}

/// The machine's clocks.
#[derive(Debug)]
pub struct SystemClock {
    started: Instant,
}

#[expect(clippy::disallowed_methods, reason = "this is the door")]
impl Default for SystemClock {
    fn default() -> SystemClock {
        SystemClock { started: Instant::now() }
    }
}

#[expect(clippy::disallowed_methods, reason = "this is the door")]
impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
    }

    fn elapsed_us(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}
