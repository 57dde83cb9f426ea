//! Errors around a batch, for the caller of the library.

use crate::api::limits::SessionBoundError;
use std::sync::Arc;
use windlass_core::call::Illegal;
use windlass_store::{Refused, StoreError};

/// This runtime cannot record any more, so it does nothing any more. What was acknowledged is safe.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
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
    #[error("the session is removed; what it had is gone, and its name is not used again")]
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

/// Why the limits of a session were not set.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LimitError {
    /// The bound is 0, or above the limit for every session.
    #[error(transparent)]
    Bound(#[from] SessionBoundError),
    /// The session is unavailable.
    #[error(transparent)]
    Session(#[from] SessionError),
}

/// Why a session could not be opened, read or written. Every error about calls, tasks, files, pairs, notices, schedules and triggers
/// wraps it where the session itself is the reason.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// The request is malformed. Nothing was looked up.
    #[error("{what}")]
    Shape {
        /// Where and what, and what to do.
        what: String,
    },
    /// No session of this name exists.
    #[error(
        "there is no session {session:?}; `windlass sessions` lists them, and a first batch or POST /v1/sessions opens one"
    )]
    NotFound {
        /// The name.
        session: String,
    },
    /// The session is the child of a call that has ended, so it takes nothing new.
    #[error(
        "the session {session:?} is closed, because the call that opened it has ended; what is recorded can be read, and new \
         calls belong to another session"
    )]
    Closed {
        /// The session.
        session: String,
    },
    /// A session of this name was removed, and names are not used again.
    #[error("the session {session:?} was removed, and its name is not used again; choose another name")]
    Gone {
        /// The name.
        session: String,
    },
    /// It was answered before, and its record has expired.
    #[error("the record of {what} has expired; it was answered before, and is not run again")]
    Expired {
        /// The batch or call.
        what: String,
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
    /// The journal or a record of the session is damaged. The session stands still; others go on.
    #[error(
        "the records of this session cannot be read: {what}; restore the data folder from a backup, other sessions go on"
    )]
    Unreadable {
        /// Which record, and what is wrong with it.
        what: String,
        /// The error of the reader, if one was returned.
        #[source]
        source: Option<DamageCause>,
    },
    /// The store or the session is lost. Calls that were acknowledged are safe.
    #[error(transparent)]
    Lost(#[from] Lost),
}

/// The error of whatever read the store: the store itself, or the decoder of a record.
pub type DamageCause = Arc<dyn std::error::Error + Send + Sync>;

impl SessionError {
    /// Damage that is found by comparing records: nothing else failed.
    pub fn unreadable(what: impl Into<String>) -> SessionError {
        SessionError::Unreadable { what: what.into(), source: None }
    }

    /// A record that a decoder refuses.
    pub fn undecodable(
        what: impl Into<String>,
        source: impl std::error::Error + Send + Sync + 'static,
    ) -> SessionError {
        SessionError::Unreadable { what: what.into(), source: Some(Arc::new(source)) }
    }
}

impl From<StoreError> for SessionError {
    fn from(error: StoreError) -> SessionError {
        // Damage is one session's, or one artifact's; the store is well, and so are the others.
        let what = match &error {
            StoreError::Damaged { session, entry, .. } => format!("entry {entry} of session {session}"),
            StoreError::DamagedBlob { blob, .. } => format!("blob {blob}"),
            StoreError::Owned { .. }
            | StoreError::Open { .. }
            | StoreError::Newer { .. }
            | StoreError::UnsafeSqlite { .. }
            | StoreError::Io { .. }
            | StoreError::Poisoned { .. }
            | StoreError::Stalled { .. }
            | StoreError::ReadOnly { .. }
            | StoreError::Closed
            | _ => return SessionError::Lost(error.into()),
        };
        SessionError::undecodable(what, error)
    }
}

/// Why a batch was not taken. Nothing of it was recorded, nothing ran.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
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
    /// Too much waits already.
    #[error("{open} calls {of} and {max} may; try again in {retry_after_ms} ms")]
    Overloaded {
        /// Which calls: all that wait, those of the session that wait, or all that are parked.
        of: &'static str,
        /// How many wait for a claim or for room, or are parked.
        open: u64,
        /// The limit `calls_queued_max`, `session_calls_queued_max` or `calls_parked_max`.
        max: u64,
        /// When to come back.
        retry_after_ms: u64,
    },
    /// The store cannot write now; it goes on by itself once it can.
    #[error(
        "the store cannot write now ({because}), so nothing new is taken; try again in {retry_after_ms} ms"
    )]
    Stalled {
        /// Why it cannot, for operators.
        because: Arc<str>,
        /// When to come back.
        retry_after_ms: u64,
    },
    /// The session takes no batch.
    #[error(transparent)]
    Session(#[from] SessionError),
}

impl From<Lost> for BatchError {
    fn from(lost: Lost) -> BatchError {
        BatchError::Session(lost.into())
    }
}

impl From<StoreError> for BatchError {
    fn from(error: StoreError) -> BatchError {
        BatchError::Session(error.into())
    }
}

/// The machine has no randomness to give, so nothing unique can be made.
pub(crate) fn no_randomness(error: getrandom::Error) -> SessionError {
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
        let error = SessionError::from(damage);
        assert!(matches!(&error, SessionError::Unreadable { what, .. } if what == "entry 7 of session 2"));
        assert!(chain(&error).contains("session 2 is damaged at entry 7 (hash)"), "{}", chain(&error));
        let poisoned = || StoreError::Poisoned { because: "a fault".into() };
        assert!(matches!(SessionError::from(poisoned()), SessionError::Lost(_)));
        assert!(matches!(BatchError::from(poisoned()), BatchError::Session(SessionError::Lost(_))));
    }

    #[test]
    fn a_batch_refused_by_its_session_keeps_every_cause() {
        let cause = std::io::Error::other("the disk gave EIO");
        let error = BatchError::from(StoreError::Io { doing: "write", source: Box::new(cause) });
        let causes = std::iter::successors(Some(&error as &dyn std::error::Error), |error| error.source());
        assert_eq!(causes.last().unwrap().to_string(), "the disk gave EIO");
        let record = serde_json::from_str::<u64>("x").unwrap_err();
        let error = BatchError::from(SessionError::undecodable("the record \"limits\"", record));
        assert!(chain(&error).ends_with("expected value at line 1 column 1"), "{}", chain(&error));
    }
}
