//! What a tool did with key-value pairs, and what a replay is told of that.

use super::mismatch::{Mismatch, other_input};
use super::{Operations, Recorded};
use crate::outcome::JsonText;

impl Operations {
    /// What was read under this name, if anything was.
    pub fn pairs_read(&self, name: &str, now: &str) -> Result<Option<&JsonText>, Mismatch> {
        match self.by_name.get(name) {
            None => Ok(None),
            Some(Recorded::PairsRead { asked, found }) if **asked == *now => Ok(Some(found)),
            Some(Recorded::PairsRead { asked, .. }) => Err(other_input(asked, now)),
            Some(other) => Err(other.other()),
        }
    }

    /// Whether a pair was written under this name; `None`: that was not tried.
    pub fn pair_written(&self, name: &str, now: &str) -> Result<Option<bool>, Mismatch> {
        match self.by_name.get(name) {
            None => Ok(None),
            Some(Recorded::PairWritten { asked, written }) if **asked == *now => Ok(Some(*written)),
            Some(Recorded::PairWritten { asked, .. }) => Err(other_input(asked, now)),
            Some(other) => Err(other.other()),
        }
    }
}
