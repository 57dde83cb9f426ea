//! A streamed batch, which takes calls until it is closed.

use super::siblings::Deciding;
use super::{BatchState, OpenBatch, Sent};
use crate::api::limits::EnforcedLimits;
use crate::session::lane::Lane;
use crate::session::wheel::Alarm;
use windlass_core::batch::{Batch, ClosedBy, Compared, compare};
use windlass_core::call::Opened;
use windlass_core::entry::Packer;
use windlass_core::siblings::Tally;
use windlass_core::time::Timestamp;
use windlass_store::Row;

/// The state of a streamed batch.
pub(super) struct BatchStream {
    closed: bool,
    /// When it is closed without a push, by the clock that never jumps.
    due_us: u64,
    alarm: Option<Alarm>,
}

impl BatchStream {
    pub(super) fn new() -> BatchStream {
        BatchStream { closed: false, due_us: u64::MAX, alarm: None }
    }

    /// The state of a batch read from its journal.
    pub(super) fn recorded(batch: &Batch) -> Option<BatchStream> {
        batch.opening.streamed.then(|| BatchStream { closed: batch.closed.is_some(), ..BatchStream::new() })
    }
}

impl OpenBatch {
    /// Whether it was streamed and takes no more calls.
    pub(crate) fn is_closed(&self) -> bool {
        self.lock().stream.as_ref().is_some_and(|stream| stream.closed)
    }

    /// Whether this very call was submitted before.
    pub(crate) fn knows(&self, asked: &Opened, limits: &EnforcedLimits) -> bool {
        let state = self.lock();
        let places = state.alike(&asked.id).places;
        places
            .iter()
            .any(|place| compare(&state.slots[*place].opened, asked, limits.call()) == Compared::Same)
    }

    /// Sets the time at which it is closed without a push. Returns the alarm that this one replaces.
    pub(crate) fn wait_for_push(&self, due_us: u64, alarm: impl FnOnce() -> Alarm) -> Option<Alarm> {
        let mut state = self.lock();
        let stream = state.stream.as_mut().filter(|stream| !stream.closed)?;
        stream.due_us = due_us;
        stream.alarm.replace(alarm())
    }

    /// Whether nobody has pushed for too long.
    pub(crate) fn is_push_overdue(&self, now_us: u64) -> bool {
        let state = self.lock();
        state.may_grow() && state.stream.as_ref().is_some_and(|stream| stream.due_us <= now_us)
    }

    /// Closes the batch, and sends that. Nothing is sent if it is closed already, or not recorded. Also
    /// returns the alarm to clear.
    pub(crate) fn close<'a>(
        &self,
        lane: &'a Lane,
        at: Timestamp,
        by: ClosedBy,
    ) -> (Option<Sent<'a>>, Option<Alarm>) {
        let mut state = self.lock();
        let Some(stream) = state.stream.as_mut().filter(|stream| !stream.closed) else { return (None, None) };
        stream.closed = true;
        let alarm = stream.alarm.take();
        if state.slots.is_empty() {
            return (None, alarm);
        }
        let (mut packer, mut rows) = (Packer::default(), Vec::new());
        self.admit(&mut state, &mut packer, &mut rows);
        packer.closed(at, by);
        let calls = state.slots.len();
        let decision = state.tally.as_deref_mut().and_then(|tally: &mut Tally| tally.count(calls));
        let parked = decision
            .map(|decision| self.dismiss(&mut state, &Deciding { decision, at }, &mut packer))
            .unwrap_or_default();
        rows.push(self.journal(&mut state, packer));
        rows.extend(self.close_row(&mut state));
        (Some(Sent { commit: lane.send(Vec::new(), rows), parked, notices: 0 }), alarm)
    }

    /// The row that closes the batch, once it is over.
    pub(super) fn close_row(&self, state: &mut BatchState) -> Option<Row> {
        let over = state.written.ended == state.slots.len() && !state.may_grow();
        over.then(|| {
            state.written.open = false;
            Row::Close(self.head.no)
        })
    }
}

impl BatchState {
    /// Whether more calls may be pushed.
    pub(super) fn may_grow(&self) -> bool {
        self.stream.as_ref().is_some_and(|stream| !stream.closed)
    }

    /// The number of calls, once it is final.
    pub(super) fn calls_known(&self) -> Option<usize> {
        (!self.may_grow()).then_some(self.slots.len())
    }

    /// Whether nothing more can come.
    pub(super) fn is_over(&self) -> bool {
        self.open == 0 && !self.may_grow()
    }
}
