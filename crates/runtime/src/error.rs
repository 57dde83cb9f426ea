//! What can go wrong around a batch, for the caller of the library.

use crate::runtime::ZeroLimit;
use std::sync::Arc;
use windlass_core::call::Illegal;
use windlass_store::{Refused, StoreError};

/// This runtime cannot record any more, so it does nothing any more. What was acknowledged is safe.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Lost {
    /// The store failed.
    #[error("the store is lost to this runtime; what was acknowledged is safe, open it anew")]
    Store(#[source] Arc<StoreError>),
    /// Somebody else owns the session now.
    #[error("the session is lost to this runtime; its new owner goes on with it")]
    Refused(#[source] Refused),
    /// This worker was not heard of for a whole lease, so its sessions are others' by now, or will be.
    #[error("this worker lost its lease; its calls go on with another worker, ask again")]
    Lease,
    /// The session was removed, or is about to be.
    #[error("the session is removed; what it had is gone, and its name can be used anew once it is")]
    Removed,
    /// A call was about to get a fact that cannot follow what is recorded; it was not recorded.
    #[error("this runtime broke its own rules and stops; what was acknowledged is safe, report this")]
    Broken(#[source] Illegal),
}

impl From<StoreError> for Lost {
    fn from(error: StoreError) -> Lost {
        Lost::Store(Arc::new(error))
    }
}

/// Why a session was not bounded.
#[derive(Clone, Debug, thiserror::Error)]
pub enum LimitError {
    /// With that nothing could be done.
    #[error(transparent)]
    Zero(#[from] ZeroLimit),
    /// It has no such name, or the store is lost.
    #[error(transparent)]
    Batch(#[from] BatchError),
}

/// Why a batch was not taken. Nothing of it was recorded, nothing ran.
#[derive(Clone, Debug, thiserror::Error)]
pub enum BatchError {
    /// Its shape is wrong.
    #[error("{what}")]
    Shape {
        /// Where and what, and what to do.
        what: String,
    },
    /// The batch takes no more calls.
    #[error("the batch {key:?} is closed and takes no more calls; give them a batch of their own")]
    Closed {
        /// The batch's key.
        key: String,
    },
    /// It is the child of a call that has ended, so it takes nothing new.
    #[error(
        "the session {session:?} is closed, because the call that opened it has ended; what is recorded can be read, and new \
         calls belong to another session"
    )]
    SessionClosed {
        /// The session.
        session: String,
    },
    /// Too much waits already.
    #[error("{open} calls wait and {max} may; try again in {retry_after_ms} ms")]
    Overloaded {
        /// How many wait for a claim or for room.
        open: u64,
        /// The limit `calls_queued_max`.
        max: u64,
        /// When to come back.
        retry_after_ms: u64,
    },
    /// Another worker of the same store owns the session, and is alive.
    #[error(
        "the session {session:?} is owned by the worker {worker}, which is alive; send the batch there, or wait until it \
         lets go of the session or its lease has run out"
    )]
    Owned {
        /// The session.
        session: String,
        /// Its owner.
        worker: String,
    },
    /// A journal cannot be read; that session stands still, others go on.
    #[error("the journal of this session cannot be read: {what}")]
    Unreadable {
        /// Which entry, and what is wrong with it.
        what: String,
    },
    /// The store or the session is lost. Calls that were acknowledged are safe.
    #[error(transparent)]
    Lost(#[from] Lost),
}

impl From<StoreError> for BatchError {
    fn from(error: StoreError) -> BatchError {
        // Damage is one session's, or one artifact's; the store is well, and so are the others.
        if matches!(error, StoreError::Damaged { .. } | StoreError::DamagedBlob { .. }) {
            return BatchError::Unreadable { what: error.to_string() };
        }
        BatchError::Lost(error.into())
    }
}

/// The machine has no randomness to give, so nothing unique can be made.
pub(crate) fn no_randomness(error: getrandom::Error) -> BatchError {
    StoreError::Io { doing: "get random numbers from the machine", source: Box::new(error) }.into()
}

/// An error with all its causes on one line, for logs and operators.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_core::ids::SessionNo;

    #[test]
    fn damage_is_the_sessions_and_not_the_stores() {
        let damage = StoreError::Damaged { session: SessionNo(2), entry: 7, what: "hash".into() };
        let error = BatchError::from(damage);
        assert!(
            matches!(&error, BatchError::Unreadable { what } if what.contains("session 2 is damaged at entry 7"))
        );
        assert!(matches!(
            BatchError::from(StoreError::Poisoned { because: "a fault".into() }),
            BatchError::Lost(_)
        ));
    }
}
