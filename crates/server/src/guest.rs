//! Whoever is connected: the place it takes, and how it is told to go.

use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, watch};

/// A connection, as its requests see it. Whoever serves connections puts one into the extensions of each request.
#[derive(Clone)]
pub struct Guest {
    place: Arc<Mutex<Option<OwnedSemaphorePermit>>>,
    stopping: watch::Receiver<bool>,
}

impl Guest {
    /// One that was let in, and hears when it is to go.
    pub fn new(place: OwnedSemaphorePermit, stopping: watch::Receiver<bool>) -> Guest {
        Guest { place: Arc::new(Mutex::new(Some(place))), stopping }
    }

    /// It stays for long, and is counted elsewhere: somebody else may come in.
    pub fn stays(&self) {
        self.place.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// Waits until it is to go.
    pub async fn told_to_go(&mut self) {
        // Whoever served it and is gone tells nobody.
        let _ = self.stopping.wait_for(|stopping| *stopping).await;
    }
}
