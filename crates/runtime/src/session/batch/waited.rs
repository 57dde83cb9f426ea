//! Callers that wait for calls of a batch, and are notified when one of them becomes a task.

use super::{OpenBatch, Stage};
use crate::api::error::Lost;
use crate::session::lane::Lane;
use std::sync::atomic::Ordering;
use windlass_core::call::Reason;
use windlass_core::ids::Ordinal;

/// The standing of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallStanding {
    /// A driver has it.
    Driven,
    /// It waits: for the recorded reason, or for its turn.
    Parked(Option<Reason>),
    /// It is over, or a task: nobody waits for it.
    Over,
}

/// A caller that waits for calls of a batch, until dropped.
pub(crate) struct CallWaiter<'a>(&'a OpenBatch);

impl Drop for CallWaiter<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

impl OpenBatch {
    /// The standing of a call, for a caller that waits only while it makes progress by itself.
    pub(crate) fn standing(&self, ordinal: Ordinal) -> CallStanding {
        let state = self.lock();
        let slot = state.slots.get(usize::from(ordinal.0));
        match slot.map(|slot| &slot.stage) {
            Some(_) if slot.is_some_and(|slot| slot.is_task) => CallStanding::Over,
            Some(Stage::Driven) => CallStanding::Driven,
            Some(Stage::Parked(parked)) => {
                CallStanding::Parked(parked.call().parked.map(|(why, _)| why.reason))
            }
            Some(Stage::Ended(_)) | None => CallStanding::Over,
        }
    }

    /// Registers a waiting caller. Calls that may already exceed the wait check for themselves: running
    /// attempts are notified here, parked calls are returned, to be woken.
    pub(crate) fn wait_for(&self) -> (CallWaiter<'_>, Vec<Ordinal>) {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let mut parked = Vec::new();
        for (slot, place) in self.lock().slots.iter().zip(0..) {
            match (&slot.stage, &slot.signal) {
                (Stage::Parked(call), _) if call.may_detach() => parked.push(Ordinal(place)),
                (Stage::Driven, Some(signal)) if !slot.is_task => signal.book.ring(),
                (Stage::Parked(_) | Stage::Driven | Stage::Ended(_), _) => {}
            }
        }
        (CallWaiter(self), parked)
    }

    /// Whether a caller waits for its calls.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) > 0
    }

    /// Marks a call as a task, durably, and notifies waiters.
    pub(crate) fn detached(&self, ordinal: Ordinal) {
        if let Some(slot) = self.lock().slots.get_mut(usize::from(ordinal.0)) {
            slot.is_task = true;
        }
        self.ended.notify_waiters();
    }

    /// A call that should have become a task is refused: its callers wait for its end.
    pub(crate) fn refuse_start(&self, ordinal: Ordinal) {
        if let Some(slot) = self.lock().slots.get_mut(usize::from(ordinal.0)) {
            slot.is_task = false;
        }
    }

    /// Whether a call is a task, durably or before anything of it is.
    pub(crate) fn is_task(&self, ordinal: Ordinal) -> bool {
        self.lock().slots.get(usize::from(ordinal.0)).is_some_and(|slot| slot.is_task)
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
