//! The only access to time.

use rustix::time::{ClockId, Timespec, clock_gettime};
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;
use windlass_core::time::Timestamp;

/// Tells the time, and waits. All code that needs the time uses this.
pub trait Clock: Send + Sync + 'static {
    /// The time of day, for entries.
    fn now(&self) -> Timestamp;

    /// Microseconds by a clock that never jumps, for durations.
    fn elapsed_us(&self) -> u64;

    /// Waits this many microseconds of the clock that never jumps, or less.
    fn wait<'a>(&'a self, us: u64) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>>;
}

/// The machine's clocks.
///
/// A call reads them about ten times, so they are asked directly: the arithmetic of `SystemTime` and `Instant` costs
/// more than the reading.
#[derive(Debug)]
pub struct SystemClock {
    started_us: u64,
}

/// The longest single wait; callers check and wait again.
const WAIT_MAX: Duration = Duration::from_secs(3_600);

#[expect(clippy::disallowed_methods, reason = "this is the door")]
impl Default for SystemClock {
    fn default() -> SystemClock {
        SystemClock { started_us: micros(clock_gettime(ClockId::Monotonic)) }
    }
}

#[expect(clippy::disallowed_methods, reason = "this is the door")]
impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp(micros(clock_gettime(ClockId::Realtime)).cast_signed())
    }

    fn elapsed_us(&self) -> u64 {
        micros(clock_gettime(ClockId::Monotonic)).saturating_sub(self.started_us)
    }

    fn wait<'a>(&'a self, us: u64) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        // Timers round up to a millisecond; a slightly late deadline is no worse than a busy loop.
        Box::pin(tokio::time::sleep(Duration::from_micros(us).min(WAIT_MAX)))
    }
}

/// Microseconds in 63 bits, which is enough for 292,000 years. A clock before 1970 stands at its beginning.
fn micros(time: Timespec) -> u64 {
    let seconds = time.tv_sec.max(0).cast_unsigned().min(SECONDS_MAX);
    seconds * 1_000_000 + time.tv_nsec.cast_unsigned() / 1_000
}

/// More would not fit in a timestamp.
const SECONDS_MAX: u64 = i64::MAX as u64 / 1_000_000 - 1;
