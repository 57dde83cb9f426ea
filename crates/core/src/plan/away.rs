//! Parked calls that are only counted: nobody can wait for them, or nobody who could is there.

use super::slab::NONE;
use super::{CallFlags, Planner};
use crate::claim::Claims;
use crate::ids::CallId;

impl Planner {
    /// Forgets a parked call that nobody can wait for: it has no claims, and is neither nested nor has nested calls. It is counted
    /// as parked until it [comes back](Self::come_back). `false`: it must be remembered.
    pub fn forget_parked(&mut self, call: CallId) -> bool {
        let claims_nothing = self.claims(call).is_some_and(Claims::is_empty);
        claims_nothing && self.is_parked_alone(call) && self.forget(call)
    }

    /// Forgets the parked calls of a session without other calls: they are entered again before any new call of the session. All
    /// of them or, if one keeps other sessions waiting or must be remembered for another reason, none: `false`.
    pub fn forget_parked_session(&mut self, calls: &[CallId]) -> bool {
        let is_its_own = |call: &CallId| {
            // One that never started keeps its place by when it came, and would lose it.
            self.find(*call)
                .map(|number| self.calls[number].flags)
                .is_some_and(|flags| flags.started && !flags.claims_global)
                && self.is_parked_alone(*call)
        };
        calls.iter().all(is_its_own) && calls.iter().all(|call| self.forget(*call))
    }

    /// Whether it is parked, and is neither nested nor has nested calls.
    fn is_parked_alone(&self, call: CallId) -> bool {
        let Some(call) = self.find(call).map(|number| &self.calls[number]) else { return false };
        let CallFlags { parked, unprepared, .. } = call.flags;
        parked && !unprepared && call.inside.is_none() && call.parent == NONE
    }

    fn forget(&mut self, call: CallId) -> bool {
        self.away += 1;
        self.leave(call)
    }

    /// A call that was put away will be [entered](Self::enter) again, or is over.
    pub fn come_back(&mut self) {
        self.away = self.away.saturating_sub(1);
    }

    /// The number of calls that have started before and wait for room.
    pub fn again(&self) -> u64 {
        self.again
    }
}
