//! A clock that a test moves.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use windlass::time::Clock;
use windlass_core::time::Timestamp;

/// Stands still until it is moved. One runtime at a time can wait on it; clones are one clock.
#[derive(Clone, Debug, Default)]
pub struct ManualClock(Arc<ManualClockState>);

#[derive(Debug, Default)]
struct ManualClockState {
    times: Mutex<ManualTimes>,
    moved: Notify,
}

#[derive(Clone, Copy, Debug)]
struct ManualTimes {
    wall: i64,
    elapsed_us: u64,
}

impl Default for ManualTimes {
    fn default() -> ManualTimes {
        ManualTimes { wall: 1_800_000_000_000_000, elapsed_us: 0 }
    }
}

impl ManualClock {
    /// Time passes.
    pub fn advance(&self, by: Duration) {
        let us = by.as_micros() as u64;
        self.change(|times| {
            times.wall += us as i64;
            times.elapsed_us += us;
        });
    }

    /// Somebody sets the wall clock.
    pub fn set_wall(&self, by_us: i64) {
        self.change(|times| times.wall += by_us);
    }

    fn change(&self, change: impl FnOnce(&mut ManualTimes)) {
        change(&mut self.0.times.lock().unwrap_or_else(PoisonError::into_inner));
        // Kept for whoever is just about to wait.
        self.0.moved.notify_one();
    }

    fn times(&self) -> ManualTimes {
        *self.0.times.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.times().wall)
    }

    fn elapsed_us(&self) -> u64 {
        self.times().elapsed_us
    }

    fn wait<'a>(&'a self, _us: u64) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        Box::pin(self.0.moved.notified())
    }
}
