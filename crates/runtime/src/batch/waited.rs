//! Who waits for calls of a batch, and is told when one of them goes on alone.

use super::{OpenBatch, Stage};
use crate::error::Lost;
use crate::lane::Lane;
use std::sync::atomic::Ordering;
use windlass_core::ids::Ordinal;

/// Somebody waits for calls of a batch, until this is dropped.
pub(crate) struct Waiting<'a>(&'a OpenBatch);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

impl OpenBatch {
    /// Somebody waits for its calls. Those that may have outlasted that already look for themselves: what runs is told here,
    /// those that are parked are returned, to be woken.
    pub(crate) fn wait_for(&self) -> (Waiting<'_>, Vec<Ordinal>) {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let mut parked = Vec::new();
        for (slot, place) in self.lock().slots.iter().zip(0..) {
            match (&slot.stage, &slot.signal) {
                (Stage::Parked(call), _) if call.may_detach() => parked.push(Ordinal(place)),
                (Stage::Driven, Some(signal)) if !slot.is_task => signal.book.ring(),
                (Stage::Parked(_) | Stage::Driven | Stage::Ended(_), _) => {}
            }
        }
        (Waiting(self), parked)
    }

    /// Whether somebody waits for its calls.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) > 0
    }

    /// A call is a task, durably: whoever waits is told.
    pub(crate) fn detached(&self, ordinal: Ordinal) {
        if let Some(slot) = self.lock().slots.get_mut(usize::from(ordinal.0)) {
            slot.is_task = true;
        }
        self.ended.notify_waiters();
    }

    /// Waits until each of these calls has ended or is a task, or until nothing more can be recorded.
    pub(crate) async fn settled(
        &self,
        ordinals: impl Iterator<Item = Ordinal> + Clone,
        lane: &Lane,
    ) -> Result<(), Lost> {
        loop {
            let notified = self.ended.notified();
            if self.is_settled(ordinals.clone()) {
                return Ok(());
            }
            if let Some(lost) = lane.lost() {
                return Err(lost);
            }
            notified.await;
        }
    }

    fn is_settled(&self, mut ordinals: impl Iterator<Item = Ordinal>) -> bool {
        let state = self.lock();
        let slot = |ordinal: Ordinal| state.slots.get(usize::from(ordinal.0));
        ordinals.all(|ordinal| {
            slot(ordinal).is_none_or(|slot| slot.is_task || matches!(slot.stage, Stage::Ended(_)))
        })
    }

    /// Whether a call has ended.
    pub(crate) fn has_ended(&self, ordinal: Ordinal) -> bool {
        let state = self.lock();
        let slot = state.slots.get(usize::from(ordinal.0));
        slot.is_some_and(|slot| matches!(slot.stage, Stage::Ended(_)))
    }
}
