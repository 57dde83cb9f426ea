//! The connections of a listener: those that have shown a token or a key, and those that have not. The first have slots, of which
//! no principal gets all. The number of the others is bounded: when one more comes, the oldest is closed, if it had time to send
//! something. So a client that opens many silent connections keeps nobody out, and a burst of clients is let in.

use crate::shares::{NoneLeft, Portion, SharedUnits};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;
use windlass::Limits;

/// The fraction of the slots that one principal may have.
const SHARE: (u64, u64) = (3, 4);
/// A connection has at least this long to authenticate before it is closed for a newer one.
const UNKNOWN_TIME: Duration = Duration::from_millis(250);

/// The connections of a listener.
pub(crate) struct Crowd {
    places: SharedUnits,
    wait: Duration,
    unknown_max: usize,
    unknown: Mutex<Unknown>,
    /// Notified when an unauthenticated connection authenticates or leaves.
    fewer: Notify,
}

#[derive(Default)]
struct Unknown {
    arrivals: u64,
    /// By order of arrival, with the time. Dropping an entry closes its connection.
    open: BTreeMap<u64, (Instant, oneshot::Sender<()>)>,
}

/// A connection that has not authenticated yet.
pub(crate) struct NewConnection {
    crowd: Arc<Crowd>,
    number: u64,
}

/// Keeps a connection from being closed for newer ones.
pub(crate) struct Stay {
    _open: Option<oneshot::Sender<()>>,
}

/// Completes when a connection must close because newer ones have come.
pub(crate) type Displaced = oneshot::Receiver<()>;

impl Crowd {
    /// `is_shared`: whether a principal has a share or all slots; the folder's own socket has only one principal.
    pub(crate) fn new(limits: &Limits, is_shared: bool) -> Arc<Crowd> {
        let places = limits.connections_max.max(1);
        let share = if is_shared { (places * SHARE.0).div_ceil(SHARE.1) } else { places };
        Arc::new(Crowd {
            places: SharedUnits::new(places, share),
            wait: Duration::from_millis(limits.connection_wait_ms),
            unknown_max: usize::try_from(places).unwrap_or(usize::MAX),
            unknown: Mutex::default(),
            fewer: Notify::new(),
        })
    }

    /// Waits until one more connection may come in. If there are too many unauthenticated ones, the oldest is closed.
    pub(crate) async fn make_room(&self) {
        loop {
            let fewer = self.fewer.notified();
            let until = {
                let mut unknown = self.lock();
                let oldest = unknown.open.first_key_value().map(|(_, (at, _))| *at + UNKNOWN_TIME);
                match oldest {
                    Some(until) if unknown.open.len() >= self.unknown_max => {
                        if Instant::now() >= until {
                            unknown.open.pop_first();
                            return;
                        }
                        until
                    }
                    Some(_) | None => return,
                }
            };
            tokio::select! {
                () = fewer => {}
                () = tokio::time::sleep_until(until) => {}
            }
        }
    }

    /// Registers a connection, for which there is space.
    pub(crate) fn enter(self: &Arc<Crowd>) -> (NewConnection, Displaced) {
        let (stay, displaced) = oneshot::channel();
        let mut unknown = self.lock();
        unknown.arrivals += 1;
        let number = unknown.arrivals;
        unknown.open.insert(number, (Instant::now(), stay));
        drop(unknown);
        (NewConnection { crowd: self.clone(), number }, displaced)
    }

    /// A slot for a connection of this principal.
    pub(crate) async fn place(&self, principal: &Arc<str>) -> Result<Portion, NoneLeft> {
        self.places.take(principal, 1, self.wait).await
    }

    fn lock(&self) -> MutexGuard<'_, Unknown> {
        self.unknown.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl NewConnection {
    pub(crate) fn crowd(&self) -> Arc<Crowd> {
        self.crowd.clone()
    }

    /// The connection has authenticated, and is no longer closed for others.
    pub(crate) fn known(&self) -> Stay {
        Stay { _open: self.leave() }
    }

    fn leave(&self) -> Option<oneshot::Sender<()>> {
        let open = self.crowd.lock().open.remove(&self.number);
        self.crowd.fewer.notify_one();
        open.map(|(_, stay)| stay)
    }
}

impl Drop for NewConnection {
    fn drop(&mut self) {
        drop(self.leave());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_open(displaced: &mut Displaced) -> bool {
        matches!(displaced.try_recv(), Err(oneshot::error::TryRecvError::Empty))
    }

    #[tokio::test]
    async fn the_oldest_that_has_shown_nothing_goes_first_once_it_had_time() {
        let crowd = Crowd::new(&Limits { connections_max: 2, ..Limits::default() }, true);
        let began = Instant::now();
        let (first, mut closed) = crowd.enter();
        let (known, mut stays) = crowd.enter();
        let kept = known.known();
        crowd.make_room().await;
        let (_third, mut third) = crowd.enter();
        assert!(is_open(&mut closed), "there is room for two");
        crowd.make_room().await;
        assert!(began.elapsed() >= UNKNOWN_TIME, "whoever just came has time");
        assert!(!is_open(&mut closed), "it came first");
        assert!(is_open(&mut stays) && is_open(&mut third));
        drop((first, known, kept));
        assert!(!is_open(&mut stays), "who left is not kept");
    }

    #[tokio::test]
    async fn who_says_something_makes_room_at_once() {
        let crowd = Crowd::new(&Limits { connections_max: 1, ..Limits::default() }, true);
        let (arrival, _displaced) = crowd.enter();
        let ((), mut stay) = tokio::join!(crowd.make_room(), async { arrival.known() });
        assert!(stay._open.take().is_some_and(|open| !open.is_closed()), "it was not closed for that");
    }
}
