//! Whether what a body tells others is recorded: events, tasks that it starts, messages.

use super::Book;
use crate::batch::{OpenBatch, With};
use crate::error::BatchError;
use crate::inside::{Misuse, StepError};
use crate::lane::{Commit, Lane};
use windlass_core::operation::Did;
use windlass_core::time::Timestamp;

/// Why an event was not recorded.
#[derive(Debug)]
pub(crate) enum Unsent {
    Misused(Misuse),
    Refused(BatchError),
}

impl Unsent {
    /// As the body is told that tells of the event under this name.
    pub(in crate::inside) fn told(self, name: &str) -> StepError {
        match self {
            Unsent::Misused(misuse) => misuse.into(),
            Unsent::Refused(BatchError::Lost(lost)) => StepError::Lost(lost),
            Unsent::Refused(error) => Misuse::unkept(name, error).into(),
        }
    }
}

impl From<Misuse> for Unsent {
    fn from(misuse: Misuse) -> Unsent {
        Unsent::Misused(misuse)
    }
}

impl From<BatchError> for Unsent {
    fn from(error: BatchError) -> Unsent {
        Unsent::Refused(error)
    }
}

impl Book {
    /// Whether this event is recorded.
    pub(in crate::inside) fn has_emitted(
        &self,
        name: &str,
        event: (&str, &str),
        max: u64,
    ) -> Result<bool, Misuse> {
        let mut page = self.open()?;
        page.use_name(name, max)?;
        page.operations().has_emitted(name, event).map_err(|found| Misuse::of(name, found))
    }

    /// Notes an event and sends it, as one change with the calls that `start` makes of it. While that is asked, the attempt
    /// goes on: either all of this is recorded, or nothing was started.
    pub(crate) fn send_event<'a, T>(
        &self,
        (batch, lane): (&OpenBatch, &'a Lane),
        (at, name): (Timestamp, &str),
        start: impl FnOnce() -> Result<(Did, With, T), BatchError>,
    ) -> Result<(Commit<'a>, T), Unsent> {
        let mut page = self.open()?;
        if page.operations().knows(name) {
            return Err(Misuse::Unfit { name: name.into() }.into());
        }
        let (did, with, started) = start()?;
        page.note(at, name, did)?;
        Ok((page.send(batch, lane, with), started))
    }

    /// Whether this task was started.
    pub(in crate::inside) fn has_spawned(&self, name: &str, asked: &str, max: u64) -> Result<bool, Misuse> {
        let mut page = self.open()?;
        page.use_name(name, max)?;
        page.operations().has_spawned(name, asked).map_err(|found| Misuse::of(name, found))
    }

    /// Whether this child session was opened.
    pub(in crate::inside) fn has_opened(&self, name: &str, asked: &str, max: u64) -> Result<bool, Misuse> {
        let mut page = self.open()?;
        page.use_name(name, max)?;
        page.operations().has_opened(name, asked).map_err(|found| Misuse::of(name, found))
    }

    /// Whether this was said.
    pub(in crate::inside) fn has_said(&self, name: &str, message: &str, max: u64) -> Result<bool, Misuse> {
        let mut page = self.open()?;
        page.use_name(name, max)?;
        page.operations().has_said(name, message).map_err(|found| Misuse::of(name, found))
    }
}
