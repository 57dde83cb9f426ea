//! The only way to write a batch's entries: in one order, with everything that must be recorded before them.

use super::{BatchState, NotOver, OpenBatch, Sent, Stage};
use crate::api::error::Lost;
use crate::session::held::{EndedCall, Going};
use crate::session::inner::Inner;
use crate::session::lane::{Commit, Lane};
use crate::session::notices;
use crate::session::outgoing::{PersonWait, WebhookKind, wait_rows};
use crate::session::owner::Session;
use crate::session::turns::DrivenCall;
use crate::tools::request::inputs_text;
use std::sync::Arc;
use windlass_core::batch::Opening;
use windlass_core::call::{Call, Fact, Opened};
use windlass_core::entry::Packer;
use windlass_core::ids::{CallId, Ordinal};
use windlass_core::time::Timestamp;
use windlass_store::Row;

/// The rows by which webhooks hear of calls that end as unknown: a person finds out what became of each.
#[cold]
fn unknown_ends(lane: &Lane, going: &Going) -> Vec<Row> {
    let unknown = |ended: &&EndedCall| ended.call.end().is_some_and(|end| end.is_unknown());
    let rows = going.ended.iter().filter(unknown).flat_map(|ended| {
        let (kind, tool) = (WebhookKind::Unknown, &*ended.call.opened.tool);
        let wait = PersonWait { kind, call: ended.id, tool, name: "", what: "", until: None, at: ended.at };
        wait_rows(lane, &wait)
    });
    rows.collect()
}

impl OpenBatch {
    /// Sends the ends of calls, then gives their claims on: whatever starts now commits its intent behind them.
    pub(crate) async fn send_ends<'a>(
        &self,
        rt: &Arc<Inner>,
        session: &'a Session,
        going: &mut Going,
    ) -> Sent<'a> {
        let driven = |ended: &EndedCall| DrivenCall { id: ended.id, fresh: ended.fresh };
        let release = |going: &Going| rt.turns.leave(rt, going.ended.iter().map(driven));
        if windlass_core::mutant::breaks("claim-released-early") {
            release(going);
            tokio::task::yield_now().await;
            return self.send(&session.lane, going);
        }
        let sent = self.send(&session.lane, going);
        release(going);
        sent
    }

    /// Sends the notes of calls, with everything that must be recorded before them. The order is fixed when
    /// this returns. If one of them ends and that decides the batch, the cancel of all others is in the same
    /// change.
    pub(crate) fn send<'a>(&self, lane: &'a Lane, going: &mut Going) -> Sent<'a> {
        let mut state = self.lock();
        let mut packer = Packer::default();
        packer.reserve(going.notes.len() + self.unwritten_bytes(&state));
        let mut rows = Vec::with_capacity(3);
        self.admit(&mut state, &mut packer, &mut rows);
        packer.append(&mut going.notes);
        rows.append(&mut going.rows);
        state.written.ended += going.ended.len();
        let told = state.end_sent(going, self.head.wake);
        let notices = told.len() as u64;
        if windlass_core::mutant::breaks("notice-apart") {
            self.tell_later(told);
        } else {
            rows.extend(told);
        }
        if lane.outbox().is_needed() {
            rows.extend(unknown_ends(lane, going));
        }
        let decided = state.count(going);
        let mut later = Packer::default();
        let parked = decided.map_or_else(Vec::new, |deciding| {
            let apart = windlass_core::mutant::breaks("losers-later");
            self.dismiss(&mut state, &deciding, if apart { &mut later } else { &mut packer })
        });
        rows.push(self.journal(&mut state, packer));
        rows.extend(self.close_row(&mut state));
        // The calls of a larger batch are driven one after the other: their intents are written together.
        let commit = match state.slots.len() {
            1 => lane.send_here(rows),
            _ => lane.send(Vec::new(), rows),
        };
        if !later.is_empty() {
            drop(lane.send(Vec::new(), vec![self.journal(&mut state, later)]));
        }
        Sent { commit, parked, notices }
    }

    /// The next row of its journal.
    pub(super) fn journal(&self, state: &mut BatchState, mut packer: Packer) -> Row {
        self.tell_clock(state, &mut packer);
        let (batch, row) = (self.head.no, state.written.row);
        state.written.row += 1;
        let (count, data) = (packer.count(), packer.finish());
        state.witness.wrote(&data);
        Row::Journal { batch, row, count, data }
    }

    /// Sends the notes of one call, with everything that must be recorded before them, and the rows that belong after them.
    pub(crate) fn send_notes<'a>(
        &self,
        lane: &'a Lane,
        notes: &mut Packer,
        mut rows: Vec<Row>,
        behind: Vec<Row>,
    ) -> Commit<'a> {
        let mut state = self.lock();
        let mut packer = Packer::default();
        self.admit(&mut state, &mut packer, &mut rows);
        packer.append(notes);
        if !packer.is_empty() {
            rows.push(self.journal(&mut state, packer));
        }
        rows.extend(behind);
        lane.send(Vec::new(), rows)
    }

    /// Records the batch and its calls before any of them acts, and waits until that is durable: so that they
    /// can be found there.
    pub(crate) async fn record(&self, lane: &Lane) -> Result<(), Lost> {
        self.send_calls(lane).durable().await
    }

    /// Sends the batch and its calls, as far as they were not sent.
    pub(crate) fn send_calls<'a>(&self, lane: &'a Lane) -> Commit<'a> {
        let mut state = self.lock();
        let rows = self.unsent(&mut state);
        // If all of it was sent before, this comes after it.
        lane.send(Vec::new(), rows)
    }

    /// The batch and its calls, to be sent with the change that starts them.
    pub(crate) fn take_unsent(&self) -> Vec<Row> {
        self.unsent(&mut self.lock())
    }

    fn unsent(&self, state: &mut BatchState) -> Vec<Row> {
        let (mut packer, mut rows) = (Packer::default(), Vec::new());
        if state.written.calls < state.slots.len() {
            self.admit(state, &mut packer, &mut rows);
            rows.push(self.journal(state, packer));
        }
        rows
    }

    /// The batch and its calls travel with the first commit of any of them.
    pub(super) fn admit(&self, state: &mut BatchState, packer: &mut Packer, rows: &mut Vec<Row>) {
        let head = &self.head;
        if !state.written.recorded {
            rows.push(Row::Batch { no: head.no, lookup: head.lookup });
            let opening = Opening {
                key: head.place.batch_key.clone(),
                turn: head.turn.clone(),
                inputs: head.place.inputs.as_ref().map(inputs_text),
                siblings: head.siblings,
                streamed: head.streamed,
                parent: head.parent,
                wake: head.wake,
                traceparent: head.trace.parent().map(|parent| parent.to_string().into()),
                trace_link: head.trace.link().map(|link| link.to_string().into()),
                task_deadlines: head.task_deadlines,
            };
            packer.batch(head.opened_at, &opening);
        } else if !state.written.open {
            rows.push(Row::Reopen(head.no));
        }
        let cancel = state.cancel_added();
        for (slot, place) in state.slots.iter_mut().zip(0..).skip(state.written.calls) {
            packer.opened(slot.opened_at, Ordinal(place), &slot.opened);
            if slot.opened.task.is_some() {
                rows.push(notices::task_row(CallId { batch: head.no, ordinal: Ordinal(place) }));
            }
            if let Some(cancel) = &cancel {
                packer.fact(slot.opened_at, Ordinal(place), cancel);
                slot.cancelled = true;
            }
        }
        state.written.recorded = true;
        state.written.open = true;
        state.written.calls = state.slots.len();
    }

    /// An estimate of the unrecorded entries in bytes: rather high, since a row that outgrows it is moved.
    pub(super) fn unwritten_bytes(&self, state: &BatchState) -> usize {
        /// The size of an entry without its texts.
        const ENTRY_BYTES: usize = 64;
        let texts = |opened: &Opened| opened.id.len() + opened.tool.len() + opened.args.text.len();
        let unwritten = state.slots.iter().skip(state.written.calls);
        let calls: usize = unwritten.map(|slot| ENTRY_BYTES + texts(&slot.opened)).sum();
        2 * ENTRY_BYTES + self.head.place.batch_key.len() + calls
    }

    /// Adds a fact to a call that is over, with the rows that belong to it.
    pub(crate) fn amend<'a>(
        &self,
        lane: &'a Lane,
        ordinal: Ordinal,
        at: Timestamp,
        fact: &Fact,
        mut rows: Vec<Row>,
    ) -> Result<(Commit<'a>, Arc<Call>), NotOver> {
        let mut state = self.lock();
        let slot = state.slots.get(usize::from(ordinal.0)).ok_or(NotOver)?;
        let Stage::Ended(call) = &slot.stage else { return Err(NotOver) };
        let mut call = Call::clone(call);
        call.apply(at, fact).map_err(|_| NotOver)?;
        let mut packer = Packer::default();
        packer.fact(at, ordinal, fact);
        rows.push(self.journal(&mut state, packer));
        Ok((lane.send(Vec::new(), rows), Arc::new(call)))
    }
}
