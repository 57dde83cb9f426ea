//! Attempts that run in a process of a toolbox: whoever proves that it has one goes on with it under the next owner.

use super::{Operations, RecordedOperation, StepState};
use crate::ids::AttemptNo;
use crate::outcome::JsonText;
use std::sync::Arc;

/// The name of the handover of an attempt to a toolbox.
pub const HANDED: &str = "windlass.handed";

/// An attempt in the hands of a toolbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handover {
    /// The attempt.
    pub attempt: AttemptNo,
    /// The name of the toolbox.
    pub toolbox: Arc<str>,
    /// The hash of the token by which its process reports: the token itself is recorded nowhere.
    pub token: Arc<str>,
}

impl Operations {
    /// The steps that have a value, with their inputs.
    pub fn done_steps(&self) -> impl Iterator<Item = (Arc<str>, JsonText, JsonText)> {
        self.by_name.iter().filter_map(|(name, recorded)| {
            let RecordedOperation::Step { input, state: StepState::Done(value), .. } = recorded else {
                return None;
            };
            Some((name.clone(), input.clone(), value.clone()))
        })
    }

    /// The last handover.
    pub fn handover(&self) -> Option<&Handover> {
        let Some(RecordedOperation::Handover(handover)) = self.by_name.get(HANDED) else { return None };
        Some(handover)
    }
}
