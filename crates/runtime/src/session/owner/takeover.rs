//! Taking over the calls that an earlier owner left open.

use super::Session;
use crate::api::error::SessionError;
use crate::session::away;
use crate::session::batch::OpenBatch;
use crate::session::held::{CallPast, DriveContext, Held};
use crate::session::inner::Inner;
use crate::session::parking;
use crate::session::still;
use crate::session::turns::Turns;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use windlass_core::call::{Call, CallClock, Fact, Parked};
use windlass_core::ids::{CallId, Ordinal};
use windlass_core::operation::Operations;
use windlass_core::time::Timestamp;
use windlass_store::BatchRow;

impl Session {
    /// Takes over a batch that an earlier owner left open.
    pub(super) async fn adopt(
        self: &Arc<Session>,
        rt: &Arc<Inner>,
        row: BatchRow,
    ) -> Result<Vec<Box<Held>>, SessionError> {
        let (folded, rows) = self.read(&row).await?;
        let batch = OpenBatch::recorded(self.head(&row, &folded)?, &folded, rows, &rt.wheel);
        // Nobody else has it yet, so nothing of it is written.
        let moved_us = batch.moves_told();
        let batch = self.insert(batch);
        let hold = Arc::new(DriveContext { rt: rt.clone(), session: self.clone(), batch });
        let calls = folded.calls.into_iter().zip(0..);
        let (mut left, mut still_us): (Vec<Box<Held>>, u64) = (Vec::new(), 0);
        for (call, place) in calls.filter(|(call, _)| call.end().is_none()) {
            let id = CallId { batch: row.no, ordinal: Ordinal(place) };
            let mut past = CallPast { moved_us, ..taken_over(rt, &call, folded.seen_at) };
            if call.attempts == 0 {
                // Earlier calls waited for external answers, and this one may have waited for them.
                past.clock.counted_us = past.clock.counted_us.saturating_sub(still_us);
            }
            still_us = still_us.max(still::own_us(&call, folded.seen_at));
            if call.operations.as_deref().is_some_and(Operations::has_call) {
                // Boxed, so that calls without nested calls need no space for it.
                let excused_us = Box::pin(still::recorded(self, id, &call, folded.seen_at)).await?;
                past.clock.counted_us = past.clock.counted_us.saturating_sub(excused_us);
            }
            let mut held = hold.call(id, Arc::new(call), past);
            held.begin_stage();
            if rt.store.is_copy() && held.call.is_under_way(&held.moment()) {
                // Recorded with its end: if the process is cut off before, the next one finds the call under way again.
                held.note(Fact::CopyFound)?;
                rt.copied_calls.fetch_add(1, Ordering::Relaxed);
            }
            self.firsts.register_first(&held);
            left.push(held);
        }
        drop(hold);
        Ok(self.park_waiting(left))
    }

    /// Parks at once the calls of one batch if each only waits, so that a session with many of them is never
    /// in memory whole; others are returned, to be driven.
    fn park_waiting(&self, mut left: Vec<Box<Held>>) -> Vec<Box<Held>> {
        let Some(on) = left.first().map(|held| held.on.clone()) else { return left };
        let waits: Option<Vec<Parked>> = left.iter().map(|held| held.only_waits()).collect();
        // A nested call, or one with nested calls, is entered together with them.
        let is_alone = on.batch.head.parent.is_none() && !left.iter().any(|held| held.has_called());
        let Some(waits) = waits.filter(|_| is_alone) else { return left };
        on.rt.count_taken_over(left.len() as u64);
        // All of them have started: they must be entered before those that have not.
        Turns::enter_left(&mut left);
        for (held, parked) in left.into_iter().zip(waits) {
            parking::until(held, parked);
        }
        let rt = on.rt.clone();
        drop(on);
        away::evict_offered(&rt);
        Vec::new()
    }
}

/// The clocks of a taken-over call: they continue from when it last had an owner.
fn taken_over(rt: &Inner, call: &Call, seen_at: Timestamp) -> CallPast {
    let counted_us = call.open_us(seen_at);
    let clock = CallClock { since_us: rt.clock.elapsed_us(), counted_us, ..CallClock::default() };
    CallPast { clock, waited: true, ..CallPast::default() }
}
