//! A clock that a test moves.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use windlass::time::{Clock, Timestamp};

/// A clock that stands still until a test moves it. Clones are one clock.
#[derive(Clone, Debug)]
pub struct TestClock {
    elapsed_us: Arc<Mutex<u64>>,
    moved: watch::Sender<()>,
}

/// The time of day at which every test begins: 2027-01-15, in microseconds since 1970.
const BEGIN_US: i64 = 1_800_000_000_000_000;

impl Default for TestClock {
    fn default() -> TestClock {
        TestClock { elapsed_us: Arc::default(), moved: watch::Sender::new(()) }
    }
}

impl TestClock {
    /// Lets time pass: deadlines, retries and sleeps that are due by then are due.
    pub fn advance(&self, by: Duration) {
        *self.elapsed_us.lock().unwrap_or_else(PoisonError::into_inner) += by.as_micros() as u64;
        self.moved.send_replace(());
    }
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        Timestamp(BEGIN_US.saturating_add_unsigned(self.elapsed_us()))
    }

    fn elapsed_us(&self) -> u64 {
        *self.elapsed_us.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&'a self, us: u64) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        let due = self.elapsed_us().saturating_add(us);
        let mut moved = self.moved.subscribe();
        Box::pin(async move {
            while self.elapsed_us() < due {
                // The sender lives as long as the clock.
                if moved.changed().await.is_err() {
                    return;
                }
            }
        })
    }
}
