//! Which connections cannot work now, and why: the health of the store.

use super::connection::DatabaseFailure;
use super::states::SqlMeaning;
use crate::health::{Health, HealthMonitor};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A connection that could not work for so long makes the store not ready. Shorter breaks are ordinary: a server process was ended,
/// a connection was moved.
const STALLED_AFTER: Duration = Duration::from_secs(1);

/// A user of a connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ConnectionUser {
    /// A lane, by its number.
    Lane(usize),
    /// Those who read.
    Readers,
}

/// The stalled users of connections.
#[derive(Default)]
pub(super) struct Stalls {
    stalled: Mutex<BTreeMap<ConnectionUser, Arc<str>>>,
    health: HealthMonitor,
}

impl Stalls {
    /// Publishes the health of the store.
    pub fn health(&self) -> &HealthMonitor {
        &self.health
    }

    /// Notes that somebody has failed for so long, if that is worth telling. Returns the reason that is told.
    pub fn note(
        &self,
        user: ConnectionUser,
        failure: &DatabaseFailure,
        lasted: Duration,
    ) -> Option<Arc<str>> {
        let is_stall = matches!(failure.meaning(), SqlMeaning::Lost | SqlMeaning::Again);
        if !is_stall || lasted < STALLED_AFTER {
            return None;
        }
        let because: Arc<str> = failure.told().into();
        let mut stalled = self.stalled.lock().unwrap_or_else(PoisonError::into_inner);
        if stalled.insert(user, Arc::clone(&because)).is_none() {
            tracing::warn!(%because, "the database cannot be used; it is tried until it can");
        }
        self.publish(&stalled);
        Some(because)
    }

    /// Notes that somebody works.
    pub fn clear(&self, user: ConnectionUser) {
        let mut stalled = self.stalled.lock().unwrap_or_else(PoisonError::into_inner);
        if stalled.remove(&user).is_some() {
            tracing::info!("the database can be used again");
            self.publish(&stalled);
        }
    }

    /// Notes that nothing is written any more, until the store is opened again.
    pub fn close(&self, because: &Arc<str>) {
        let _stalled = self.stalled.lock().unwrap_or_else(PoisonError::into_inner);
        self.health.set(Health::Closed { because: Arc::clone(because) });
    }

    fn publish(&self, stalled: &BTreeMap<ConnectionUser, Arc<str>>) {
        if matches!(*self.health.watch().borrow(), Health::Closed { .. }) {
            return;
        }
        self.health.set(match stalled.values().next() {
            Some(because) => Health::Stalled { because: Arc::clone(because) },
            None => Health::Ready,
        });
    }
}
