//! A connection: its slot, its token, and its shutdown signal.

use crate::accepted::SocketWatch;
use crate::crowd::{NewConnection, Stay};
use crate::problem::{Problem, ProblemCode};
use crate::shares::Portion;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// A connection, as its requests see it: an extension of each of its requests.
#[derive(Clone)]
pub struct Guest(Arc<GuestParts>);

struct GuestParts {
    arrival: NewConnection,
    place: Mutex<GuestPlace>,
    /// The token of its last request, and that token's hash.
    shown: Mutex<Option<(String, Arc<str>)>>,
    stopping: watch::Receiver<bool>,
    socket: SocketWatch,
}

enum GuestPlace {
    /// Not authenticated: neither a token nor a key was shown.
    Unknown,
    /// It has a slot of this principal.
    Known { principal: Arc<str>, _portion: Portion, _stay: Stay },
    /// Long-lived, and counted elsewhere.
    Counted { _stay: Option<Stay> },
}

impl Guest {
    /// A new connection, with its shutdown signal.
    pub(crate) fn new(arrival: NewConnection, stopping: watch::Receiver<bool>, socket: SocketWatch) -> Guest {
        let place = Mutex::new(GuestPlace::Unknown);
        Guest(Arc::new(GuestParts { arrival, place, shown: Mutex::default(), stopping, socket }))
    }

    /// Whether the client has closed the connection.
    pub(crate) fn is_gone(&self) -> bool {
        self.0.socket.is_gone()
    }

    /// The connection may act as this principal: from now on it has one of the principal's slots.
    pub(crate) async fn is_known(&self, principal: &Arc<str>) -> Result<(), Problem> {
        match &*lock(&self.0.place) {
            GuestPlace::Known { principal: known, .. } if known == principal => return Ok(()),
            GuestPlace::Counted { .. } => return Ok(()),
            GuestPlace::Known { .. } | GuestPlace::Unknown => {}
        }
        let portion = self.0.arrival.crowd().place(principal).await.map_err(|_| {
            let told = "too many connections are open; try again in a second";
            Problem { retry_after_ms: Some(1_000), ..Problem::new(ProblemCode::Overloaded, told) }
        })?;
        let mut place = lock(&self.0.place);
        let stay = match std::mem::replace(&mut *place, GuestPlace::Unknown) {
            GuestPlace::Unknown => self.0.arrival.known(),
            GuestPlace::Known { _stay, .. } => _stay,
            counted @ GuestPlace::Counted { .. } => {
                *place = counted;
                return Ok(());
            }
        };
        *place = GuestPlace::Known { principal: principal.clone(), _portion: portion, _stay: stay };
        Ok(())
    }

    /// The connection is long-lived and counted elsewhere: its slot is free for others.
    pub(crate) fn stays(&self) {
        let mut place = lock(&self.0.place);
        let stay = match std::mem::replace(&mut *place, GuestPlace::Unknown) {
            GuestPlace::Known { _stay, .. } => Some(_stay),
            GuestPlace::Unknown => Some(self.0.arrival.known()),
            GuestPlace::Counted { _stay } => _stay,
        };
        *place = GuestPlace::Counted { _stay: stay };
    }

    /// The hash of a token. Most connections show the same token with every request, so it is cached.
    pub(crate) fn hash_of(&self, token: &str, hash: impl FnOnce() -> String) -> Arc<str> {
        let mut shown = lock(&self.0.shown);
        match &*shown {
            Some((last, hash)) if last == token => hash.clone(),
            Some(_) | None => shown.insert((token.to_string(), hash().into())).1.clone(),
        }
    }

    /// Waits for the signal to close.
    pub(crate) async fn told_to_go(&self) {
        // If the sender is gone, no signal comes.
        let _ = self.0.stopping.clone().wait_for(|stopping| *stopping).await;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crowd::Crowd;
    use std::cell::Cell;
    use windlass::Limits;

    #[test]
    fn a_token_is_hashed_once_while_it_is_the_same() {
        let (arrival, _displaced) = Crowd::new(&Limits::default(), true).enter();
        let (guest, made) =
            (Guest::new(arrival, watch::channel(false).1, SocketWatch::default()), Cell::new(0));
        for (token, so_far) in [("a", 1), ("a", 1), ("b", 2), ("a", 3)] {
            let hash = guest.hash_of(token, || {
                made.set(made.get() + 1);
                format!("of {token}")
            });
            assert_eq!((&*hash, made.get()), (&*format!("of {token}"), so_far));
        }
    }
}
