//! Whether what a body tells others is recorded: events, tasks that it starts, messages.

use super::Book;
use crate::inside::Misuse;

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

    /// Whether this task was started.
    pub(in crate::inside) fn has_spawned(&self, name: &str, asked: &str, max: u64) -> Result<bool, Misuse> {
        let mut page = self.open()?;
        page.use_name(name, max)?;
        page.operations().has_spawned(name, asked).map_err(|found| Misuse::of(name, found))
    }

    /// Whether this was said.
    pub(in crate::inside) fn has_said(&self, name: &str, message: &str, max: u64) -> Result<bool, Misuse> {
        let mut page = self.open()?;
        page.use_name(name, max)?;
        page.operations().has_said(name, message).map_err(|found| Misuse::of(name, found))
    }
}
