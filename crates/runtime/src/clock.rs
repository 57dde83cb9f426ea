//! The one door to time.

use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use windlass_core::time::Timestamp;

/// Tells the time, and waits for it. Everything that needs it asks here.
pub trait Clock: Send + Sync + 'static {
    /// The time of day, for entries.
    fn now(&self) -> Timestamp;

    /// Microseconds by a clock that never jumps, for durations.
    fn elapsed_us(&self) -> u64;

    /// Waits so many microseconds of the clock that never jumps, or less.
    fn wait<'a>(&'a self, us: u64) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>>;
}

/// The machine's clocks.
#[derive(Debug)]
pub struct SystemClock {
    started: Instant,
}

/// Nobody waits longer at once; whoever has to looks again.
const WAIT_MAX: Duration = Duration::from_secs(3_600);

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
        Timestamp(i64::try_from(micros(since)).unwrap_or(i64::MAX))
    }

    fn elapsed_us(&self) -> u64 {
        micros(self.started.elapsed())
    }

    fn wait<'a>(&'a self, us: u64) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        // Timers round up to a millisecond; a deadline that is a little late is no worse than one that spins.
        Box::pin(tokio::time::sleep(Duration::from_micros(us).min(WAIT_MAX)))
    }
}

/// Microseconds in 64 bits, which is enough for half a million years and quicker than the 128 of `as_micros`.
fn micros(time: Duration) -> u64 {
    time.as_secs().saturating_mul(1_000_000).saturating_add(u64::from(time.subsec_micros()))
}
