//! The one way in which a batch's entries are written: in one order, with everything that must be recorded before them.

use super::{NotOver, OpenBatch, Sent, Stage, State};
use crate::error::Lost;
use crate::held::Going;
use crate::lane::{Commit, Lane};
use crate::request::inputs_text;
use crate::tasks;
use std::sync::Arc;
use windlass_core::batch::Opening;
use windlass_core::call::{Call, Fact, Opened};
use windlass_core::entry::Packer;
use windlass_core::ids::{CallId, Ordinal};
use windlass_core::time::Timestamp;
use windlass_store::{Guard, Row};

/// What goes to the store in the same change as something else.
#[derive(Debug, Default)]
pub(crate) struct With {
    pub(crate) guards: Vec<Guard>,
    pub(crate) rows: Vec<Row>,
}

impl OpenBatch {
    /// Sends what calls have noted, with everything that must be recorded before it. The order is
    /// fixed when this returns. If one of them ends and that decides the batch, the cancel of all others is in the same
    /// change.
    pub(crate) fn send<'a>(&self, lane: &'a Lane, going: &mut Going) -> Sent<'a> {
        let mut state = self.lock();
        let mut packer = Packer::default();
        packer.reserve(going.notes.len() + self.unwritten_bytes(&state));
        let (mut guards, mut rows) = (Vec::new(), Vec::with_capacity(3));
        self.admit(&mut state, &mut packer, (&mut guards, &mut rows));
        packer.append(&mut going.notes);
        rows.append(&mut going.rows);
        state.written.ended += going.ended.len();
        let decided = state.count(going);
        let mut later = Packer::default();
        let parked = decided.map_or_else(Vec::new, |deciding| {
            let apart = windlass_core::mutant::breaks("losers-later");
            self.dismiss(&mut state, &deciding, if apart { &mut later } else { &mut packer })
        });
        rows.push(self.journal(&mut state, packer));
        rows.extend(self.close_row(&mut state));
        let commit = lane.send(guards, rows);
        if !later.is_empty() {
            drop(lane.send(Vec::new(), vec![self.journal(&mut state, later)]));
        }
        Sent { commit, parked }
    }

    /// The next row of its journal.
    pub(super) fn journal(&self, state: &mut State, packer: Packer) -> Row {
        let (batch, row) = (self.head.no, state.written.row);
        state.written.row += 1;
        Row::Journal { batch, row, count: packer.count(), data: packer.finish() }
    }

    /// Sends what one call has noted, with everything that must be recorded before it, and what belongs behind it.
    pub(crate) fn send_notes<'a>(
        &self,
        lane: &'a Lane,
        (notes, mut rows): (&mut Packer, Vec<Row>),
        behind: With,
    ) -> Commit<'a> {
        let mut state = self.lock();
        let (mut packer, mut guards) = (Packer::default(), behind.guards);
        self.admit(&mut state, &mut packer, (&mut guards, &mut rows));
        packer.append(notes);
        if !packer.is_empty() {
            rows.push(self.journal(&mut state, packer));
        }
        rows.extend(behind.rows);
        lane.send(guards, rows)
    }

    /// Records the batch and its calls before any of them acts, and waits until that is durable: so that they can be
    /// found there.
    pub(crate) async fn record(&self, lane: &Lane) -> Result<(), Lost> {
        self.send_calls(lane).durable().await
    }

    /// Sends the batch and its calls, as far as they were not sent.
    pub(crate) fn send_calls<'a>(&self, lane: &'a Lane) -> Commit<'a> {
        let mut state = self.lock();
        let With { guards, rows } = self.unsent(&mut state);
        // If all of it was sent before, this comes behind it.
        lane.send(guards, rows)
    }

    /// The batch and its calls, to be sent at once with what starts them.
    pub(crate) fn take_unsent(&self) -> With {
        self.unsent(&mut self.lock())
    }

    fn unsent(&self, state: &mut State) -> With {
        let (mut packer, mut with) = (Packer::default(), With::default());
        if state.written.calls < state.slots.len() {
            self.admit(state, &mut packer, (&mut with.guards, &mut with.rows));
            with.rows.push(self.journal(state, packer));
        }
        with
    }

    /// The batch and its calls travel with the first commit of any of them.
    pub(super) fn admit(
        &self,
        state: &mut State,
        packer: &mut Packer,
        (guards, rows): (&mut Vec<Guard>, &mut Vec<Row>),
    ) {
        let head = &self.head;
        if !state.written.recorded {
            guards.push(Guard::Absent(head.lookup));
            rows.push(Row::Batch { no: head.no, lookup: head.lookup });
            let opening = Opening {
                key: head.place.batch_key.clone(),
                turn: head.turn.clone(),
                inputs: head.place.inputs.as_ref().map(inputs_text),
                siblings: head.siblings,
                streamed: head.streamed,
                parent: head.parent,
            };
            packer.batch(head.opened_at, &opening);
        } else if !state.written.open {
            rows.push(Row::Reopen(head.no));
        }
        let cancel = state.cancel_added();
        for (slot, place) in state.slots.iter_mut().zip(0..).skip(state.written.calls) {
            packer.opened(slot.opened_at, Ordinal(place), &slot.opened);
            if slot.opened.task.is_some() {
                rows.push(tasks::row(CallId { batch: head.no, ordinal: Ordinal(place) }));
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

    /// About how many bytes the entries of the batch and of calls take that are not recorded yet: rather more than less, since
    /// the row that outgrows them is moved.
    fn unwritten_bytes(&self, state: &State) -> usize {
        /// Everything but the texts.
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
        (ordinal, at, fact): (Ordinal, Timestamp, &Fact),
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
