//! Calls that others need not wait for: those that wait for external answers, and those whose callers were answered.

use super::{Turns, TurnsState};
use crate::api::error::BatchError;
use crate::session::held::Held;
use crate::session::inner::Inner;
use std::sync::Arc;
use tokio::sync::oneshot;
use windlass_core::ids::{BatchNo, CallId};
use windlass_core::plan::{Bound, Overloaded};

impl Turns {
    /// A batch was answered, or nobody waits for that: its waiting calls no longer hold up others.
    pub(crate) fn answered(&self, rt: &Arc<Inner>, batch: BatchNo) {
        self.change(rt, |state, _| state.planner.answered(batch));
    }

    /// How long a call has waited behind others whose clocks stood still.
    pub(crate) fn stood_us(&self, now_us: u64, call: CallId) -> u64 {
        self.lock().planner.stood_us(now_us, call)
    }

    /// Whether a call only waits for nested calls that wait for external answers. Evaluated under the lock:
    /// the last of two updates sees both changes.
    pub(crate) fn wait_inside(&self, now_us: u64, call: CallId, waits: impl FnOnce() -> bool) {
        let mut state = self.lock();
        let waits = waits();
        state.planner.wait_inside(now_us, call, waits);
    }

    /// A running body waits for an external answer.
    pub(crate) fn step_outside(rt: &Arc<Inner>, call: CallId, is_left_alone: bool) {
        rt.turns.change(rt, |state, now_us| {
            if is_left_alone {
                state.planner.answered(call.batch);
            }
            state.planner.step_outside(now_us, call);
        });
    }

    /// A body that waited for an external answer wants to continue; the receiver says when it may. `None`: at once.
    pub(crate) fn come_back_inside(rt: &Arc<Inner>, call: CallId) -> Option<oneshot::Receiver<()>> {
        let mut told = None;
        rt.turns.change(rt, |state, now_us| {
            if state.planner.come_back_inside(now_us, call) {
                let (tell, tells) = oneshot::channel();
                state.returning.insert(call, tell);
                told = Some(tells);
            }
        });
        told
    }
}

impl TurnsState {
    /// A call was parked: if it waits for an external answer, or never started and its caller was answered, it lets others pass.
    pub(super) fn gives_way(&mut self, held: &Held, now_us: u64) {
        let is_outside = held.call.waits_outside();
        if !is_outside && held.call.attempts > 0 {
            return;
        }
        if held.on.batch.is_left_alone() {
            self.planner.answered(held.id.batch);
        }
        if is_outside && held.call.attempts > 0 {
            self.planner.step_outside(now_us, held.id);
        } else if is_outside {
            // It never started, so it keeps its place; whoever waits behind it is not too late because of that.
            self.planner.wait_inside(now_us, held.id, true);
        }
    }
}

/// The error for a refused batch.
pub(super) fn refused(over: Overloaded) -> BatchError {
    let (of, open, max) = match over.bound {
        Bound::Process { queued, max } => ("wait", queued, max),
        Bound::Session { queued, max } => ("of this session wait", queued, max),
        Bound::Parked { parked, max } => ("are parked", parked, max),
    };
    BatchError::Overloaded { of, open, max, retry_after_ms: over.retry_after_us.div_ceil(1_000) }
}
