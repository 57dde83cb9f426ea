//! The running attempts of a batch, and how they are stopped.

use super::OpenBatch;
use crate::session::signal::AttemptSignal;
use std::sync::Arc;
use windlass_core::call::Cause;
use windlass_core::ids::Ordinal;

impl OpenBatch {
    /// Registers a running attempt, which can be stopped until the returned guard is dropped. If a cancel
    /// came before, or nothing can be recorded any more, it is stopped at once.
    pub(crate) fn runs(&self, ordinal: Ordinal, signal: &Arc<AttemptSignal>) -> AttemptRun<'_> {
        let mut state = self.lock();
        let is_lost = state.lost;
        if let Some(slot) = state.slots.get_mut(usize::from(ordinal.0)) {
            if is_lost || slot.asked.iter().any(|heard| heard.what.stops()) {
                signal.stop(Cause::Cancel);
            }
            // An answer came before the attempt could receive it.
            if slot.asked.iter().any(|heard| heard.what.is_answer()) {
                signal.book.ring();
            }
            slot.signal = Some(signal.clone());
        }
        AttemptRun { batch: self, ordinal }
    }

    /// The signal of a call's running attempt, if there is one.
    pub(crate) fn signal_of(&self, ordinal: Ordinal) -> Option<Arc<AttemptSignal>> {
        self.lock().slots.get(usize::from(ordinal.0))?.signal.clone()
    }

    /// Nothing of it can be recorded any more: stops running attempts, and those that start later.
    pub(crate) fn stop_running(&self) {
        let mut state = self.lock();
        state.lost = true;
        for signal in state.slots.iter().filter_map(|slot| slot.signal.as_ref()) {
            signal.stop(Cause::Cancel);
        }
    }
}

/// A running attempt, until dropped.
pub(crate) struct AttemptRun<'a> {
    batch: &'a OpenBatch,
    ordinal: Ordinal,
}

impl Drop for AttemptRun<'_> {
    fn drop(&mut self) {
        if let Some(slot) = self.batch.lock().slots.get_mut(usize::from(self.ordinal.0)) {
            slot.signal = None;
        }
    }
}
