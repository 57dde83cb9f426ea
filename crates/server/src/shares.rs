//! A bounded resource that many users share: one user never gets all of it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A number of units, of which each user has at most a share.
pub(crate) struct SharedUnits {
    units: Arc<Semaphore>,
    share_max: u32,
    /// The rest of the share of each user who holds units.
    shares: Mutex<HashMap<Arc<str>, Weak<Semaphore>>>,
}

/// Units held by a user, until dropped.
pub(crate) struct Portion {
    _own: OwnedSemaphorePermit,
    _units: OwnedSemaphorePermit,
}

/// No units became free in time.
#[derive(Debug)]
pub(crate) struct NoneLeft;

impl SharedUnits {
    /// At least one unit; one user has at most `share_max` of them, at least one.
    pub(crate) fn new(units: u64, share_max: u64) -> SharedUnits {
        let units = usize::try_from(units).unwrap_or(usize::MAX).clamp(1, Semaphore::MAX_PERMITS);
        let share_max = u32::try_from(share_max.min(units as u64)).unwrap_or(u32::MAX).max(1);
        SharedUnits { units: Arc::new(Semaphore::new(units)), share_max, shares: Mutex::default() }
    }

    /// Takes units for a user, waiting if necessary; a request larger than a share takes a whole share.
    pub(crate) async fn take(
        &self,
        user: &Arc<str>,
        units: u64,
        wait: Duration,
    ) -> Result<Portion, NoneLeft> {
        let units = u32::try_from(units).unwrap_or(u32::MAX).min(self.share_max);
        let share = self.share_of(user);
        // The user's own share first: waiting for that keeps nothing from other users.
        let taking = async {
            let own = share.acquire_many_owned(units).await.map_err(|_| NoneLeft)?;
            let units = self.units.clone().acquire_many_owned(units).await.map_err(|_| NoneLeft)?;
            Ok(Portion { _own: own, _units: units })
        };
        tokio::time::timeout(wait, taking).await.unwrap_or(Err(NoneLeft))
    }

    fn share_of(&self, user: &Arc<str>) -> Arc<Semaphore> {
        let mut shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(share) = shares.get(user).and_then(Weak::upgrade) {
            return share;
        }
        // An unused share is a full one, so it need not be stored.
        shares.retain(|_, share| share.strong_count() > 0);
        let share = Arc::new(Semaphore::new(self.share_max as usize));
        shares.insert(user.clone(), Arc::downgrade(&share));
        share
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT_ONCE: Duration = Duration::ZERO;

    #[tokio::test]
    async fn one_user_never_gets_all_of_it() {
        let shared = SharedUnits::new(10, 6);
        let [a, b]: [Arc<str>; 2] = ["a".into(), "b".into()];
        let first = shared.take(&a, 100, AT_ONCE).await.expect("a whole share");
        assert!(shared.take(&a, 1, AT_ONCE).await.is_err(), "its share is used up");
        let second = shared.take(&b, 4, AT_ONCE).await.expect("what is left");
        assert!(shared.take(&b, 1, AT_ONCE).await.is_err(), "nothing is left");
        drop(first);
        let third = shared.take(&a, 6, AT_ONCE).await.expect("it was given back");
        drop((second, third));
        shared.take(&"c".into(), 1, AT_ONCE).await.expect("there is room");
        assert_eq!(shared.shares.lock().expect("no panic").len(), 1, "shares that nobody uses are forgotten");
    }

    #[tokio::test]
    async fn whoever_gave_up_waiting_holds_nothing() {
        let shared = SharedUnits::new(2, 2);
        let [a, b]: [Arc<str>; 2] = ["a".into(), "b".into()];
        let all = shared.take(&a, 2, AT_ONCE).await.expect("there is room");
        assert!(shared.take(&b, 1, AT_ONCE).await.is_err());
        drop(all);
        shared.take(&b, 2, AT_ONCE).await.expect("all of it");
    }
}
