//! Clock events in a batch's journal: that it had no owner for a time, or that the wall clock jumped.
//!
//! Both are recorded before anything that is measured across them, in the same row. So a later owner never
//! takes a jump for elapsed time, wherever the last owner was cut off.

use super::{BatchState, OpenBatch};
use windlass_core::batch::ClockMove;
use windlass_core::entry::Packer;

impl OpenBatch {
    /// Sets the moves of the wall clock that the journal already has.
    pub(crate) fn told_of_moves(self, moved_us: i64) -> OpenBatch {
        self.lock().moved_us = moved_us;
        self
    }

    /// The moves of the wall clock recorded in its journal.
    pub(crate) fn moves_told(&self) -> i64 {
        self.lock().moved_us
    }

    /// Writes the moves of the clock since the last row before the entries of the next one.
    #[inline]
    pub(super) fn tell_clock(&self, state: &mut BatchState, entries: &mut Packer) {
        self.wheel.look();
        if self.wheel.has_jumped() || state.moved_us != self.wheel.moved_us() {
            self.tell_of_moves(state, entries);
        }
    }

    #[cold]
    fn tell_of_moves(&self, state: &mut BatchState, entries: &mut Packer) {
        let seen = self.wheel.see();
        // Some may have been noted before a jump, and are written after it.
        entries.restamp(|at| self.wheel.as_now(at, &seen));
        state.witness.restamped();
        let by_us = seen.moved_us.saturating_sub(state.moved_us);
        if by_us != 0 {
            state.moved_us = seen.moved_us;
            let mut before = Packer::default();
            before.clock_moved(seen.now, ClockMove { by_us });
            entries.prepend(before);
        }
    }
}
