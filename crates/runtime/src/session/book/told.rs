//! Whether the messages of a body are recorded: events, tasks that it starts, messages.

use super::Book;
use crate::api::error::{BatchError, SessionError};
use crate::api::misuse::{Misuse, StepError};
use crate::session::batch::OpenBatch;
use crate::session::lane::{Commit, Lane};
use windlass_core::operation::{Did, EventNumber, Triggered};
use windlass_core::time::Timestamp;
use windlass_store::Row;

/// Why an event was not recorded.
#[derive(Debug)]
pub(crate) enum Unsent {
    Misused(Misuse),
    Refused(BatchError),
}

impl Unsent {
    /// The error for a body that emits the event under this name.
    pub(crate) fn into_step_error(self, name: &str) -> StepError {
        match self {
            Unsent::Misused(misuse) => misuse.into(),
            Unsent::Refused(BatchError::Session(SessionError::Lost(lost))) => StepError::Lost(lost),
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

impl From<SessionError> for Unsent {
    fn from(error: SessionError) -> Unsent {
        Unsent::Refused(error.into())
    }
}

impl Book {
    /// The record of this event, and the calls that it started.
    pub(crate) fn emitted(
        &self,
        name: &str,
        kind: &str,
        payload: &str,
        max: u64,
    ) -> Result<Option<(EventNumber, Vec<Triggered>)>, Misuse> {
        let mut page = self.open()?;
        page.use_name(name, max)?;
        let payload = page.recorded(payload);
        let emitted =
            page.operations().emitted(name, kind, &payload).map_err(|found| Misuse::of(name, found))?;
        Ok(emitted.map(|(numbered, triggered)| (numbered, triggered.to_vec())))
    }

    /// Whether this event is planned.
    pub(crate) fn has_planned(
        &self,
        name: &str,
        kind: &str,
        payload: &str,
        max: u64,
    ) -> Result<bool, Misuse> {
        let mut page = self.open()?;
        page.use_name(name, max)?;
        let payload = page.recorded(payload);
        page.operations().has_planned(name, kind, &payload).map_err(|found| Misuse::of(name, found))
    }

    /// Notes an event and sends it, in one change with the calls that `start` makes of it. Meanwhile the
    /// attempt runs on: either all of this is recorded, or nothing was started.
    pub(crate) fn send_event<'a, T>(
        &self,
        batch: &OpenBatch,
        lane: &'a Lane,
        at: Timestamp,
        name: &str,
        start: impl FnOnce() -> Result<(Did, Vec<Row>, T), BatchError>,
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
    pub(crate) fn has_spawned(&self, name: &str, asked: &str, max: u64) -> Result<bool, Misuse> {
        let mut page = self.open()?;
        page.use_name(name, max)?;
        let asked = page.recorded(asked);
        page.operations().has_spawned(name, &asked).map_err(|found| Misuse::of(name, found))
    }

    /// Whether this child session was opened.
    pub(crate) fn has_opened(&self, name: &str, asked: &str, max: u64) -> Result<bool, Misuse> {
        let mut page = self.open()?;
        page.use_name(name, max)?;
        let asked = page.recorded(asked);
        page.operations().has_opened(name, &asked).map_err(|found| Misuse::of(name, found))
    }

    /// Whether this message was sent.
    pub(crate) fn has_said(&self, name: &str, message: &str, max: u64) -> Result<bool, Misuse> {
        let mut page = self.open()?;
        page.use_name(name, max)?;
        let message = page.recorded(message);
        page.operations().has_said(name, &message).map_err(|found| Misuse::of(name, found))
    }
}
