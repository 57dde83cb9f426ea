//! Attachments of a tool, and their replay.

use super::mismatch::{Mismatch, other_input};
use super::{Operations, RecordedOperation};
use crate::outcome::{JsonText, KeptBytes};

/// Bytes attached under a name.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct AttachedBytes {
    pub(super) content: JsonText,
    pub(super) kept: KeptBytes,
    /// The round of the call: a later one may attach something else.
    pub(super) round: u32,
}

impl Operations {
    /// The [round](crate::call::Call::round) of the attachment under this name, if there is one.
    pub fn attached_in(&self, name: &str) -> Result<Option<u32>, Mismatch> {
        match self.by_name.get(name) {
            None => Ok(None),
            Some(RecordedOperation::Attached(was)) => Ok(Some(was.round)),
            Some(other) => Err(other.other()),
        }
    }

    /// The stored bytes of all attachments.
    pub fn attachments(&self) -> impl Iterator<Item = KeptBytes> {
        self.by_name.values().filter_map(|operation| {
            if let RecordedOperation::Attached(attached) = operation { Some(attached.kept) } else { None }
        })
    }

    /// The stored bytes of this content, if it was attached under this name. Another content is a mismatch in
    /// the [round](crate::call::Call::round) of the attachment; a later round replaces it.
    pub fn attached(&self, name: &str, content: &str, now: u32) -> Result<Option<KeptBytes>, Mismatch> {
        match self.by_name.get(name) {
            None => Ok(None),
            Some(RecordedOperation::Attached(was)) if *was.content == *content => Ok(Some(was.kept)),
            Some(RecordedOperation::Attached(was)) if was.round == now => {
                Err(other_input(&was.content, content))
            }
            Some(RecordedOperation::Attached(_)) => Ok(None),
            Some(other) => Err(other.other()),
        }
    }
}
