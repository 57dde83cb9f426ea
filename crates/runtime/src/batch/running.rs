//! The attempts of a batch that run, and how they are told to stop.

use super::OpenBatch;
use crate::signal::Signal;
use std::sync::Arc;
use windlass_core::call::Cause;
use windlass_core::ids::Ordinal;

impl OpenBatch {
    /// An attempt of a call runs and can be told to stop, until what is returned is dropped. If a cancel was asked for
    /// before, or nothing can be recorded any more, it is told at once.
    pub(crate) fn runs(&self, ordinal: Ordinal, signal: &Arc<Signal>) -> Runs<'_> {
        let mut state = self.lock();
        let is_lost = state.lost;
        if let Some(slot) = state.slots.get_mut(usize::from(ordinal.0)) {
            if is_lost || slot.asked.iter().any(|heard| heard.what.stops()) {
                signal.stop(Cause::Cancel);
            }
            // What was answered before it could be told.
            if slot.asked.iter().any(|heard| heard.what.is_answer()) {
                signal.book.ring();
            }
            slot.signal = Some(signal.clone());
        }
        Runs { batch: self, ordinal }
    }

    /// By what the running attempt of a call is reached, if one runs.
    pub(crate) fn signal_of(&self, ordinal: Ordinal) -> Option<Arc<Signal>> {
        self.lock().slots.get(usize::from(ordinal.0))?.signal.clone()
    }

    /// Nothing of it can be recorded any more: what runs is to stop, and what begins to run is told so.
    pub(crate) fn stop_running(&self) {
        let mut state = self.lock();
        state.lost = true;
        for signal in state.slots.iter().filter_map(|slot| slot.signal.as_ref()) {
            signal.stop(Cause::Cancel);
        }
    }
}

/// An attempt that runs, until this is dropped.
pub(crate) struct Runs<'a> {
    batch: &'a OpenBatch,
    ordinal: Ordinal,
}

impl Drop for Runs<'_> {
    fn drop(&mut self) {
        if let Some(slot) = self.batch.lock().slots.get_mut(usize::from(self.ordinal.0)) {
            slot.signal = None;
        }
    }
}
