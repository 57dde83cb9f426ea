//! Operations on key-value pairs, and their replay.

use super::mismatch::{Mismatch, other_input};
use super::{Operations, RecordedOperation};
use crate::outcome::JsonText;

impl Operations {
    /// The values read under this name, if there was a read.
    pub fn pairs_read(&self, name: &str, now: &str) -> Result<Option<&JsonText>, Mismatch> {
        match self.by_name.get(name) {
            None => Ok(None),
            Some(RecordedOperation::PairsRead { asked, found }) if **asked == *now => Ok(Some(found)),
            Some(RecordedOperation::PairsRead { asked, .. }) => Err(other_input(asked, now)),
            Some(other) => Err(other.other()),
        }
    }

    /// Whether a pair was written under this name; `None`: not tried.
    pub fn pair_written(&self, name: &str, now: &str) -> Result<Option<bool>, Mismatch> {
        match self.by_name.get(name) {
            None => Ok(None),
            Some(RecordedOperation::PairWritten { asked, written }) if **asked == *now => Ok(Some(*written)),
            Some(RecordedOperation::PairWritten { asked, .. }) => Err(other_input(asked, now)),
            Some(other) => Err(other.other()),
        }
    }
}
