//! What a tool attached, and what a replay is told of that.

use super::mismatch::{Mismatch, other_input};
use super::{Operations, Recorded};
use crate::outcome::{JsonText, Kept};

/// Bytes that were attached under a name.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Attached {
    pub(super) content: JsonText,
    pub(super) kept: Kept,
    /// In which round of the call: a later one may attach something else.
    pub(super) round: u32,
}

impl Operations {
    /// In which [round](crate::call::Call::round) something was attached under this name, if that was done.
    pub fn attached_in(&self, name: &str) -> Result<Option<u32>, Mismatch> {
        match self.by_name.get(name) {
            None => Ok(None),
            Some(Recorded::Attached(was)) => Ok(Some(was.round)),
            Some(other) => Err(other.other()),
        }
    }

    /// Where this content is, if it was attached under this name. Another content is a mismatch in the
    /// [round](crate::call::Call::round) in which that was; a later one attaches it in the other's place.
    pub fn attached(&self, name: &str, content: &str, now: u32) -> Result<Option<Kept>, Mismatch> {
        match self.by_name.get(name) {
            None => Ok(None),
            Some(Recorded::Attached(was)) if *was.content == *content => Ok(Some(was.kept)),
            Some(Recorded::Attached(was)) if was.round == now => Err(other_input(&was.content, content)),
            Some(Recorded::Attached(_)) => Ok(None),
            Some(other) => Err(other.other()),
        }
    }
}
