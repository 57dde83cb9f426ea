//! Waits for a task or for a named event of the session, and their replay.

use super::mismatch::{Mismatch, other_input};
use super::{Operations, RecordedOperation, Until, WaitOutcome};
use crate::outcome::JsonText;

/// A wait for something of the session.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct AwaitedThing {
    /// The task or the event, as JSON.
    pub(super) what: JsonText,
    pub(super) until: Until,
    pub(super) end: Option<WaitOutcome>,
}

impl Operations {
    /// The end of the wait of this name, if it is recorded; a wait for something else is a mismatch.
    pub fn awaited(&self, name: &str, now: &str) -> Result<Option<Until>, Mismatch> {
        match self.by_name.get(name) {
            None => Ok(None),
            Some(RecordedOperation::Awaited(was)) if *was.what == *now => Ok(Some(was.until)),
            Some(RecordedOperation::Awaited(was)) => Err(other_input(&was.what, now)),
            Some(other) => Err(other.other()),
        }
    }

    /// Whether this name is such a wait.
    pub fn is_awaited(&self, name: &str) -> bool {
        matches!(self.by_name.get(name), Some(RecordedOperation::Awaited(_)))
    }
}
