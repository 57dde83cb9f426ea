//! Whether a store takes writes now.

use std::sync::Arc;
use tokio::sync::watch;

/// Whether a store takes writes now. Reading is not affected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Health {
    /// Writes are committed.
    #[default]
    Ready,
    /// The last write failed. The store queues pending writes, keeps retrying, and continues by itself once it can write again.
    Stalled {
        /// The reason, for operators.
        because: Arc<str>,
    },
    /// A write failed permanently: every write is refused until the store is opened again.
    Closed {
        /// The reason, for operators.
        because: Arc<str>,
    },
}

impl Health {
    /// The reason why writes are not committed; `None` if they are.
    pub fn problem(&self) -> Option<&Arc<str>> {
        match self {
            Health::Ready => None,
            Health::Stalled { because } | Health::Closed { because } => Some(because),
        }
    }
}

/// Publishes the health of a store.
#[derive(Clone, Default)]
pub(crate) struct HealthMonitor(Arc<watch::Sender<Health>>);

impl HealthMonitor {
    /// Sets the health; watchers hear only of changes. Returns whether it changed.
    pub fn set(&self, health: Health) -> bool {
        self.0.send_if_modified(|now| {
            let differs = *now != health;
            *now = health;
            differs
        })
    }

    /// Whether writes are not committed now.
    pub fn is_bad(&self) -> bool {
        *self.0.borrow() != Health::Ready
    }

    pub fn watch(&self) -> watch::Receiver<Health> {
        self.0.subscribe()
    }
}
