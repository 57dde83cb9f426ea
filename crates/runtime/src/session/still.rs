//! The clocks of a call stand still while it only waits for nested calls that wait for external answers: no
//! deadline passes because a person sleeps.
//!
//! Each change is checked again, from the changed call outwards. The journals of the nested calls show what
//! an earlier owner saw.

use crate::api::error::SessionError;
use crate::api::keys;
use crate::api::locks::{LockRank, OrderedMutex};
use crate::session::inner::Inner;
use crate::session::owner::Session;
use std::sync::atomic::{AtomicBool, Ordering};
use windlass_core::call::Call;
use windlass_core::handle::{Handle, HandleKind, Secret};
use windlass_core::ids::{CallId, Lookup, Ordinal};
use windlass_core::time::Timestamp;

/// How long the clocks of one attempt have stood still.
#[derive(Debug, Default)]
pub(crate) struct Still {
    call: OrderedMutex<StillCall, { LockRank::Still as u8 }>,
    /// Whether they stand still now. Written under the lock and read without it: the planner asks while it is locked, and whoever
    /// has this lock may be waiting for the planner.
    stands: AtomicBool,
}

#[derive(Debug, Default)]
struct StillCall {
    /// Since when they stand still, by the clock that never jumps, if they do.
    since_us: Option<u64>,
    /// How long they stood still before.
    before_us: u64,
}

impl Still {
    /// Whether they stand still now.
    pub(crate) fn stands(&self) -> bool {
        self.stands.load(Ordering::SeqCst)
    }

    /// How long they have stood still.
    pub(crate) fn excused_us(&self, now_us: u64) -> u64 {
        let StillCall { since_us, before_us } = *self.call.lock();
        before_us.saturating_add(since_us.map_or(0, |since_us| now_us.saturating_sub(since_us)))
    }

    /// Checks again whether they stand still. `true`: that has changed. Checked under the lock: the last of
    /// two checks sees both changes.
    pub(crate) fn look(&self, now_us: impl FnOnce() -> u64, stands: impl FnOnce() -> bool) -> bool {
        let mut stood = self.call.lock();
        match (stood.since_us, stands()) {
            (None, true) => stood.since_us = Some(now_us()),
            (Some(since_us), false) => {
                stood.before_us = stood.before_us.saturating_add(now_us().saturating_sub(since_us));
                stood.since_us = None;
            }
            (None, false) | (Some(_), true) => return false,
        }
        self.stands.store(stood.since_us.is_some(), Ordering::SeqCst);
        true
    }
}

/// A call that may wait for nested calls has changed: checks whether its clocks stand still, and if that has
/// changed, those of the call around it.
pub(crate) fn look(rt: &Inner, session: &Session, call: CallId) {
    let mut around = Some(call);
    while let Some(call) = around {
        let Some(batch) = session.find_no(call.batch) else { return };
        let Some(signal) = batch.signal_of(call.ordinal) else { return };
        let all_wait = |waited_for: usize| {
            let inside = session.inside(call);
            // A missing one is being submitted or has just ended.
            inside.len() >= waited_for && inside.iter().all(|batch| batch.waits_for_the_world())
        };
        if !signal.book.look_still(|| rt.clock.elapsed_us(), all_wait) {
            return;
        }
        rt.turns.wait_inside(rt.clock.elapsed_us(), call, || signal.book.stands_still());
        around = batch.head.parent.map(|parent| parent.call);
    }
}

/// How much of a call's counted time until `seen_at` its clocks stood still, by the journals of its nested
/// calls.
pub(crate) async fn recorded(
    session: &Session,
    id: CallId,
    call: &Call,
    seen_at: Timestamp,
) -> Result<u64, SessionError> {
    let Some(operations) = call.operations.as_deref() else { return Ok(0) };
    let mut excused_us = 0_u64;
    for (name, called) in operations.calls() {
        for generation in 1..=called.generation {
            let key = keys::nested(handle(session.lane.store().secret(), id), name, generation);
            let lookup = Lookup::of(session.lane.session(), &key);
            let Some(row) = session.lane.store().batch(lookup).await? else { continue };
            let (batch, _) = session.read(&row).await?;
            // Waits after that are not counted anyway.
            if batch.opened_at >= seen_at {
                continue;
            }
            let mut longest_us = 0;
            for (call, place) in batch.calls.iter().zip(0..) {
                let id = CallId { batch: row.no, ordinal: Ordinal(place) };
                let inside_us = Box::pin(recorded(session, id, call, seen_at)).await?;
                longest_us = longest_us.max(own_us(call, seen_at).saturating_add(inside_us));
            }
            excused_us = excused_us.saturating_add(longest_us);
        }
    }
    Ok(excused_us)
}

/// How long a call itself has waited for external answers.
pub(crate) fn own_us(call: &Call, seen_at: Timestamp) -> u64 {
    let waits = call.parked.filter(|(parked, _)| parked.reason.is_outside());
    call.excused_us.saturating_add(waits.map_or(0, |(_, since)| seen_at.since(since)))
}

fn handle(secret: &Secret, call: CallId) -> Handle {
    Handle::seal(secret, HandleKind::Call, call.packed())
}
