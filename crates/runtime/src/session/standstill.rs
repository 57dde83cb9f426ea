//! Whether calls make progress by themselves.

use crate::session::batch::CallStanding;
use crate::session::inner::Inner;
use crate::session::owner::Session;
use windlass_core::call::Reason;
use windlass_core::ids::CallId;
use windlass_core::plan::Why;

/// Whether none of these calls continues without an external event: each is over, waits for an external
/// answer, or for a call of its session that does.
pub(crate) fn stand_still(rt: &Inner, session: &Session, calls: impl Iterator<Item = CallId>) -> bool {
    calls.into_iter().all(|call| stands_still(rt, session, call))
}

fn stands_still(rt: &Inner, session: &Session, mut call: CallId) -> bool {
    // Each step leads to an earlier call, so it ends.
    loop {
        let Some(batch) = session.find_no(call.batch) else { return true };
        let reason = match batch.standing(call.ordinal) {
            CallStanding::Over => return true,
            CallStanding::Driven => return false,
            CallStanding::Parked(recorded) => recorded,
        };
        let why = rt.turns.why(rt.clock.elapsed_us(), std::iter::once(call)).pop().flatten();
        match why {
            // Also a call whose wait is over and that takes its claims again.
            Some(Why::Claim { held_by, .. }) if session.find_no(held_by.batch).is_some() => call = held_by,
            Some(Why::Claim { .. }) => return false,
            Some(Why::Limit(_) | Why::Rate { .. } | Why::Turn) => return false,
            _ => return reason.is_some_and(waits_for_world),
        }
    }
}

/// Whether an external event must come before the call continues; waits for a time do not count.
fn waits_for_world(reason: Reason) -> bool {
    match reason {
        Reason::Completion
        | Reason::Input
        | Reason::Connection
        | Reason::Client
        | Reason::Signal
        | Reason::Awaited
        | Reason::Approval
        | Reason::ToolChanged
        | Reason::NoSuchTool
        | Reason::ToolPaused
        | Reason::NoWorker => true,
        Reason::Retry | Reason::Sleep => false,
    }
}
