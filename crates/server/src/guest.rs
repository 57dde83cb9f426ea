//! Whoever is connected: the place it takes, the token it shows, and how it is told to go.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, watch};

/// A connection, as its requests see it. Whoever serves connections puts one into the extensions of each request.
#[derive(Clone)]
pub struct Guest(Arc<Inner>);

struct Inner {
    place: Mutex<Option<OwnedSemaphorePermit>>,
    /// The token of its last request, and what is kept of that.
    shown: Mutex<Option<(String, Arc<str>)>>,
    stopping: watch::Receiver<bool>,
}

impl Guest {
    /// One that was let in, and hears when it is to go.
    pub fn new(place: OwnedSemaphorePermit, stopping: watch::Receiver<bool>) -> Guest {
        Guest(Arc::new(Inner { place: Mutex::new(Some(place)), shown: Mutex::default(), stopping }))
    }

    /// It stays for long, and is counted elsewhere: somebody else may come in.
    pub fn stays(&self) {
        lock(&self.0.place).take();
    }

    /// The hash of a token that it shows. Most show the same with every request, so it is made once.
    pub(crate) fn hash_of(&self, token: &str, hash: impl FnOnce() -> String) -> Arc<str> {
        let mut shown = lock(&self.0.shown);
        match &*shown {
            Some((last, hash)) if last == token => hash.clone(),
            Some(_) | None => shown.insert((token.to_string(), hash().into())).1.clone(),
        }
    }

    /// Waits until it is to go.
    pub async fn told_to_go(&self) {
        // Whoever served it and is gone tells nobody.
        let _ = self.0.stopping.clone().wait_for(|stopping| *stopping).await;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use tokio::sync::Semaphore;

    #[tokio::test]
    async fn a_token_is_hashed_once_while_it_is_the_same() {
        let place = Arc::new(Semaphore::new(1)).acquire_owned().await.expect("there is room");
        let (guest, made) = (Guest::new(place, watch::channel(false).1), Cell::new(0));
        for (token, so_far) in [("a", 1), ("a", 1), ("b", 2), ("a", 3)] {
            let hash = guest.hash_of(token, || {
                made.set(made.get() + 1);
                format!("of {token}")
            });
            assert_eq!((&*hash, made.get()), (&*format!("of {token}"), so_far));
        }
    }
}
