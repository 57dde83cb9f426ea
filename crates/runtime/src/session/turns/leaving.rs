//! Calls leave the plan: they are over, or are not driven here any more.

use super::{Turns, TurnsState, go_on, take_out};
use crate::session::away::{AwayPlan, Stub};
use crate::session::held::Held;
use crate::session::inner::Inner;
use std::sync::Arc;
use windlass_core::ids::CallId;

/// A call that somebody here drives, or has driven.
#[derive(Clone, Copy)]
pub(crate) struct DrivenCall {
    pub(crate) id: CallId,
    /// Whether it was submitted to this runtime.
    pub(crate) fresh: bool,
}

impl DrivenCall {
    pub(crate) fn of(held: &Held) -> DrivenCall {
        DrivenCall { id: held.id, fresh: held.past.fresh }
    }
}

impl Turns {
    /// Calls are over, or will not be driven here any more: their claims are passed on.
    pub(crate) fn leave(&self, rt: &Arc<Inner>, calls: impl IntoIterator<Item = DrivenCall>) {
        let mut state = self.lock_as_it_is();
        let has_still = state.planner.has_still();
        for DrivenCall { id: call, fresh } in calls {
            if has_still {
                state.planner.pass_time(rt.clock.elapsed_us(), call);
            }
            // A call that never asked for a turn is no longer expected to.
            if !state.planner.leave(call) && fresh {
                state.expected = state.expected.saturating_sub(1);
            }
            take_out(&mut state.waiting, call);
            take_out(&mut state.returning, call);
            take_out(&mut state.refused, call);
        }
        let TurnsState { resting, planner, .. } = &mut *state;
        resting.retain(|call| planner.is_in(*call));
        rt.away.made_room();
        let next = state.next(rt, || rt.clock.elapsed_us(), |_| {});
        drop(state);
        go_on(rt, next);
    }

    /// Calls that are not in memory will not be driven here any more.
    pub(crate) fn drop_evicted(&self, rt: &Arc<Inner>, calls: &[(CallId, Stub)]) {
        let is_remembered = |stub: &Stub| stub.plan == AwayPlan::Remembered;
        for _ in calls.iter().filter(|(_, stub)| !is_remembered(stub)) {
            self.lock().planner.come_back();
        }
        let remembered = calls.iter().filter(|(_, stub)| is_remembered(stub));
        self.leave(rt, remembered.map(|(call, _)| DrivenCall { id: *call, fresh: false }));
    }
}
