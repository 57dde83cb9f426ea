//! Wakes between processes that share a store: hints that somebody should look, which may be lost.

use tokio::sync::watch;

/// The wakes of one target. Wakes may be lost, so whoever waits for them looks from time to time all the same.
#[derive(Debug)]
pub struct Wakes(Option<watch::Receiver<u64>>);

impl Wakes {
    /// Wakes that never come.
    pub fn never() -> Wakes {
        Wakes(None)
    }

    #[cfg(feature = "postgres")]
    pub(crate) fn of(counted: watch::Receiver<u64>) -> Wakes {
        Wakes(Some(counted))
    }

    /// Waits for a wake since the last one that was waited for. Nothing is lost if the future is dropped.
    pub async fn next(&mut self) {
        let woken = match &mut self.0 {
            Some(counted) => counted.changed().await.is_ok(),
            None => false,
        };
        if !woken {
            std::future::pending().await
        }
    }
}

/// How wakes reach other processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WakeWay {
    /// It is being found out.
    Testing,
    /// They do not: whoever waits for something has to look for it.
    Poll,
    /// The database passes them on.
    Notify,
}

impl std::fmt::Display for WakeWay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            WakeWay::Testing => "testing",
            WakeWay::Poll => "poll",
            WakeWay::Notify => "notify",
        })
    }
}
