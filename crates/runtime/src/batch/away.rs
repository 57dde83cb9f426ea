//! How a batch leaves memory and comes back: what is left of its calls, and what they become of it.

use super::{OpenBatch, Stage};
use crate::away::{Stub, provider_mark};
use crate::held::Parked;
use crate::runtime::Inner;
use crate::session::Session;
use crate::wheel::Alarm;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use windlass_core::ids::{CallId, Ordinal, SessionNo};

/// Somebody uses a batch: it stays in memory until the last of them lets go.
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
            && batch.rests.load(Ordering::Relaxed)
            && let Some(session) = batch.session()
        {
            session.away.let_go(batch);
        }
    }
}

/// What is kept of a batch that leaves memory.
pub(crate) struct Leaving {
    /// Of each call.
    pub(crate) stubs: Vec<(CallId, Stub)>,
    /// What wakes them.
    pub(crate) alarms: Vec<(CallId, Alarm)>,
}

impl OpenBatch {
    /// It is one of the open ones of its session from now on.
    pub(crate) fn join(&mut self, session: &Arc<Session>) {
        self.session = Arc::downgrade(session);
    }

    /// Its session, while that is in memory and the batch is one of its open ones.
    pub(crate) fn session(&self) -> Option<Arc<Session>> {
        self.session.upgrade()
    }

    /// One of its calls waits for the world outside or a recorded time: it may leave memory.
    pub(crate) fn rests(&self) {
        self.rests.store(true, Ordering::Relaxed);
    }

    /// Says what is to be kept of its calls, and what wakes them. `None`: it must stay in memory. What is not recorded must:
    /// what its caller lent it, what a call has noted or was asked, which of its calls the loop guard knows. So must a call
    /// inside another, whose caller waits for it here.
    pub(crate) fn leaving(
        &self,
        (rt, session): (&Inner, SessionNo),
        has_open_inside: impl Fn(CallId) -> bool,
    ) -> Option<Leaving> {
        let place = &self.head.place;
        if self.head.parent.is_some() || place.overlay().is_some() || place.observer().is_some() {
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
        // None of one that is due, or that waits for its turn: the wall clock wakes only who waits for what is recorded.
        let dues = rt.wheel.dues(&alarms)?;
        let stubs = alarms.iter().zip(parked).zip(dues);
        let stubs = stubs.map(|(((id, _), call), due)| (*id, call.stub(Stub::new(session, due)))).collect();
        Some(Leaving { stubs, alarms })
    }

    /// Lays a call that was read back in its place. `false`: something was asked of it meanwhile, so it must be woken.
    pub(crate) fn lay(&self, ordinal: Ordinal, parked: Parked) -> bool {
        match self.lock().slots.get_mut(usize::from(ordinal.0)) {
            Some(slot) => {
                slot.stage = Stage::Parked(Box::new(parked));
                slot.asked.is_empty()
            }
            None => true,
        }
    }
}

impl Parked {
    /// Whether all that is to be known of it is recorded, and what it waits for can be waited for without it.
    fn may_leave(&self) -> bool {
        self.waits_outside() && self.is_recorded()
    }

    /// The stub of it.
    fn stub(&self, stub: Stub) -> Stub {
        let past = self.past();
        let provider = self.call().unconnected().map_or(0, |said| provider_mark(&said.provider));
        let parked_at = past.parked_at.unwrap_or(stub.parked_at);
        Stub { since_us: past.since_us, counted_us: past.counted_us, parked_at, provider, ..stub }
    }
}
