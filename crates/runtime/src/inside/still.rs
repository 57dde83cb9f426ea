//! The clocks of a call stand still while all it does is wait for calls inside it that wait for the world outside: nobody's time
//! is up because a person sleeps.
//!
//! Whatever changes that looks again, from the call that changed outwards. What an earlier owner saw of it is known from the
//! journals of the calls inside.

use super::nested;
use crate::error::BatchError;
use crate::runtime::Inner;
use crate::session::Session;
use std::sync::{Mutex, MutexGuard, PoisonError};
use windlass_core::call::Call;
use windlass_core::handle::{Handle, Kind, Secret};
use windlass_core::ids::{CallId, Lookup, Ordinal};
use windlass_core::time::Timestamp;

/// How long the clocks of one attempt have stood still.
#[derive(Debug, Default)]
pub(super) struct Still(Mutex<Stood>);

#[derive(Debug, Default)]
struct Stood {
    /// Since when they stand still, by the clock that never jumps, if they do.
    since_us: Option<u64>,
    /// How long they did before.
    before_us: u64,
}

impl Still {
    /// Whether they stand still now.
    pub(super) fn stands(&self) -> bool {
        self.lock().since_us.is_some()
    }

    /// How long they have stood still.
    pub(super) fn excused_us(&self, now_us: u64) -> u64 {
        let Stood { since_us, before_us } = *self.lock();
        before_us.saturating_add(since_us.map_or(0, |since_us| now_us.saturating_sub(since_us)))
    }

    /// Looks again whether they stand still. `true`: that has changed. Looked at under the lock: of two who do, the last one
    /// sees what both have changed.
    pub(super) fn look(&self, now_us: impl FnOnce() -> u64, stands: impl FnOnce() -> bool) -> bool {
        let mut stood = self.lock();
        match (stood.since_us, stands()) {
            (None, true) => stood.since_us = Some(now_us()),
            (Some(since_us), false) => {
                stood.before_us = stood.before_us.saturating_add(now_us().saturating_sub(since_us));
                stood.since_us = None;
            }
            (None, false) | (Some(_), true) => return false,
        }
        true
    }

    fn lock(&self) -> MutexGuard<'_, Stood> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Something has changed for a call that may wait for calls inside it: looks whether its clocks stand still, and if that is new,
/// those of the call around it.
pub(crate) fn look(rt: &Inner, session: &Session, call: CallId) {
    let mut around = Some(call);
    while let Some(call) = around {
        let Some(batch) = session.find_no(call.batch) else { return };
        let Some(signal) = batch.signal_of(call.ordinal) else { return };
        let all_wait = |waited_for: usize| {
            let inside = session.inside(call);
            // One that is not there is being submitted or has just ended.
            inside.len() >= waited_for && inside.iter().all(|batch| batch.waits_for_the_world())
        };
        if !signal.book.look_still(|| rt.clock.elapsed_us(), all_wait) {
            return;
        }
        around = batch.head.parent.map(|parent| parent.call);
    }
}

/// How much of the time until `seen_at`, which is counted for a call, its clocks stood still, as the journals of the calls inside
/// it tell.
pub(crate) async fn recorded(
    session: &Session,
    (id, call): (CallId, &Call),
    seen_at: Timestamp,
) -> Result<u64, BatchError> {
    let Some(operations) = call.operations.as_deref() else { return Ok(0) };
    let mut excused_us = 0_u64;
    for (name, called) in operations.calls() {
        for generation in 1..=called.generation {
            let key = nested::key(handle(session.lane.store().secret(), id), name, generation);
            let lookup = Lookup::of(session.lane.session(), &key);
            let Some(row) = session.lane.store().batch(lookup).await? else { continue };
            let (batch, _) = session.read(&row).await?;
            // What it waited for since then is not counted anyway.
            if batch.opened_at >= seen_at {
                continue;
            }
            let mut longest_us = 0;
            for (call, place) in batch.calls.iter().zip(0..) {
                let id = CallId { batch: row.no, ordinal: Ordinal(place) };
                let inside_us = Box::pin(recorded(session, (id, call), seen_at)).await?;
                longest_us = longest_us.max(own_us(call, seen_at).saturating_add(inside_us));
            }
            excused_us = excused_us.saturating_add(longest_us);
        }
    }
    Ok(excused_us)
}

/// How long a call itself has waited for the world outside.
fn own_us(call: &Call, seen_at: Timestamp) -> u64 {
    let waits = call.parked.filter(|(parked, _)| parked.reason.is_outside());
    call.excused_us.saturating_add(waits.map_or(0, |(_, since)| seen_at.since(since)))
}

fn handle(secret: &Secret, call: CallId) -> Handle {
    Handle::seal(secret, Kind::Call, call.packed())
}
