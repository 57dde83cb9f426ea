//! Moving a batch out of memory and back: the stubs of its calls.

use super::{OpenBatch, Stage};
use crate::session::away::{APPROVAL_WAIT, Stub, provider_mark};
use crate::session::held::ParkedCall;
use crate::session::inner::Inner;
use crate::session::owner::Session;
use crate::session::wheel::Alarm;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use windlass_core::ids::{CallId, Ordinal, SessionNo};

/// A use of a batch: it stays in memory until the last use is dropped.
#[derive(Clone)]
pub(crate) struct Used(Option<Arc<OpenBatch>>);

impl Used {
    pub(crate) fn new(batch: Arc<OpenBatch>) -> Used {
        Used(Some(batch))
    }
}

impl Deref for Used {
    type Target = OpenBatch;

    fn deref(&self) -> &OpenBatch {
        match &self.0 {
            Some(batch) => batch,
            None => unreachable!("a batch is only taken out when nobody can use it any more"),
        }
    }
}

impl Drop for Used {
    fn drop(&mut self) {
        if let Some(batch) = self.0.take()
            && batch.is_evictable.load(Ordering::Relaxed)
            && let Some(session) = batch.session()
        {
            session.away.offer(batch);
        }
    }
}

/// The remains of a batch that leaves memory.
pub(crate) struct DepartingBatch {
    /// The stubs of its calls.
    pub(crate) stubs: Vec<(CallId, Stub)>,
    /// Their alarms.
    pub(crate) alarms: Vec<(CallId, Alarm)>,
}

impl OpenBatch {
    /// Adds it to the open batches of its session.
    pub(crate) fn join(&mut self, session: &Arc<Session>) {
        self.session = Arc::downgrade(session);
    }

    /// Its session, while that is in memory and the batch is one of its open ones.
    pub(crate) fn session(&self) -> Option<Arc<Session>> {
        self.session.upgrade()
    }

    /// One of its calls waits for an external answer or a recorded time: the batch may leave memory.
    pub(crate) fn mark_evictable(&self) {
        self.is_evictable.store(true, Ordering::Relaxed);
    }

    /// Returns the stubs of its calls, and their alarms. `None`: it must stay in memory, because of state
    /// that is not recorded: the overlay of its caller, notes and messages of a call, calls that the loop
    /// guard does not know. A nested call also stays, because its caller waits for it here.
    pub(crate) fn departing(
        &self,
        rt: &Inner,
        session: SessionNo,
        has_open_inside: impl Fn(CallId) -> bool,
    ) -> Option<DepartingBatch> {
        let place = &self.head.place;
        if self.head.parent.is_some() || place.overlay().is_some() || place.is_observed() {
            return None;
        }
        let state = self.lock();
        if state.written.calls < state.slots.len() || state.noted > 0 || state.may_grow() {
            return None;
        }
        let (mut parked, mut alarms) = (Vec::new(), Vec::new());
        for (slot, place) in state.slots.iter().zip(0..) {
            match &slot.stage {
                Stage::Ended(_) if !slot.polls => {}
                Stage::Parked(call) if slot.asked.is_empty() && call.may_leave() => {
                    let id = CallId { batch: self.head.no, ordinal: Ordinal(place) };
                    if call.has_called() && has_open_inside(id) {
                        return None;
                    }
                    alarms.push((id, call.alarm?));
                    parked.push(call);
                }
                Stage::Ended(_) | Stage::Parked(_) | Stage::Driven => return None,
            }
        }
        if parked.is_empty() {
            return None;
        }
        // No alarm of a call that is due, or that waits for its turn: the wall clock wakes only calls with a recorded wait.
        let dues = rt.wheel.dues(&alarms)?;
        let stubs = alarms.iter().zip(parked).zip(dues);
        let moved_us = state.moved_us;
        let stub = |call: &ParkedCall, due| Stub { moved_us, ..call.stub(Stub::new(session, due)) };
        let stubs = stubs.map(|(((id, _), call), due)| (*id, stub(call, due))).collect();
        Some(DepartingBatch { stubs, alarms })
    }

    /// Parks a call that was read back. `false`: a message came meanwhile, so it must be woken.
    pub(crate) fn lay(&self, ordinal: Ordinal, parked: ParkedCall) -> bool {
        match self.lock().slots.get_mut(usize::from(ordinal.0)) {
            Some(slot) => {
                slot.stage = Stage::Parked(Box::new(parked));
                slot.asked.is_empty()
            }
            None => true,
        }
    }
}

impl ParkedCall {
    /// Whether everything about it is recorded, and its wait works without it in memory.
    fn may_leave(&self) -> bool {
        self.waits_outside() && self.is_recorded()
    }

    /// Its stub.
    fn stub(&self, stub: Stub) -> Stub {
        let past = self.past();
        let provider = match self.call().open_approval() {
            Some(_) => provider_mark(APPROVAL_WAIT),
            None => self.call().unconnected().map_or(0, |said| provider_mark(&said.provider)),
        };
        let parked_us = past.clock.parked_us.unwrap_or(stub.parked_us);
        let since_us = past.clock.since_us.saturating_add(past.clock.stood_us);
        Stub { since_us, counted_us: past.clock.counted_us, parked_us, provider, ..stub }
    }
}
