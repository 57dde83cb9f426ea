//! Admission to a session: held while a batch is looked up and its calls are queued, so that batches queue in the order they came.

use crate::api::error::Lost;
use crate::session::owner::Session;
use std::sync::Arc;
use tokio::sync::MutexGuard;

/// The right to look up a batch of a session and to queue its calls, until this is dropped. Functions that need it take it as a
/// parameter.
pub(crate) struct Admission<'a> {
    session: &'a Arc<Session>,
    _held: MutexGuard<'a, ()>,
}

impl Session {
    /// Waits for the admission.
    pub(crate) async fn admit(self: &Arc<Session>) -> Admission<'_> {
        Admission { session: self, _held: self.admission.lock().await }
    }
}

impl<'a> Admission<'a> {
    /// The session it is for.
    pub(crate) fn session(&self) -> &'a Arc<Session> {
        self.session
    }

    /// Refuses what is new in a session that is to be removed. Once it has begun a removal waits for the admission, so this stays true
    /// until that is dropped.
    pub(crate) fn check_stays(&self) -> Result<(), Lost> {
        self.session.check_stays()
    }
}
