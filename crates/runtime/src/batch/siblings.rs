//! How the calls of a batch decide about each other: the end that decides it and the cancel of all others are one change.

use super::{Asked, Heard, OpenBatch, Stage, State};
use crate::held::Going;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use windlass_core::batch::Batch;
use windlass_core::call::{CancelAsked, Cause, Fact};
use windlass_core::entry::Packer;
use windlass_core::ids::Ordinal;
use windlass_core::outcome::Outcome;
use windlass_core::siblings::{Decision, Siblings, Tally};
use windlass_core::time::Timestamp;

/// What a batch that asks something of its calls together has come to.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Decided {
    /// What it asked.
    pub siblings: Siblings,
    /// How it was decided.
    pub decision: Decision,
    /// The ids of the calls that had succeeded then, in the order in which they ended.
    pub winners: Vec<Arc<str>>,
}

impl Decided {
    /// What the ends of a batch's calls have come to; `calls` once it is known how many there are.
    fn of(tally: &Tally, calls: Option<usize>, id: impl Fn(usize) -> Option<Arc<str>>) -> Option<Decided> {
        let decision = tally.verdict(calls)?;
        let winners = tally.won().iter().filter_map(|call| id(usize::from(call.0))).collect();
        Some(Decided { siblings: tally.siblings(), decision, winners })
    }

    /// The same of a batch that was read back.
    pub(crate) fn recorded(batch: &Batch) -> Option<Decided> {
        let may_grow = batch.opening.streamed && batch.closed.is_none();
        let id = |place: usize| batch.calls.get(place).map(|call| Arc::from(&call.opened.id));
        Decided::of(batch.tally.as_deref()?, (!may_grow).then_some(batch.calls.len()), id)
    }
}

/// A batch was decided, at this time.
pub(super) struct Deciding {
    pub(super) decision: Decision,
    pub(super) at: Timestamp,
}

impl OpenBatch {
    /// Whether the end of one call may cancel the others.
    pub(crate) fn asks_of_siblings(&self) -> bool {
        self.head.siblings != Siblings::Independent
    }

    /// What it has come to, if it asks something of its calls together and that is decided.
    pub(crate) fn decided(&self) -> Option<Decided> {
        let state = self.lock();
        let id = |place: usize| state.slots.get(place).map(|slot| Arc::from(&slot.opened.id));
        Decided::of(state.tally.as_deref()?, state.calls_known(), id)
    }

    /// Records that every call that has not ended is to stop, and tells it: what runs is told at once, before this can
    /// become durable. Those that are parked are returned, to be woken.
    pub(super) fn dismiss(
        &self,
        state: &mut State,
        deciding: &Deciding,
        packer: &mut Packer,
    ) -> Vec<Ordinal> {
        let fact = Fact::CancelAsked(cancel(deciding.decision));
        let mut parked = Vec::new();
        for (slot, place) in
            state.slots.iter_mut().zip(0..).filter(|(slot, _)| !slot.ended && !slot.cancelled)
        {
            packer.fact(deciding.at, Ordinal(place), &fact);
            slot.cancelled = true;
            if let Some(signal) = &slot.signal {
                signal.stop(Cause::Cancel);
            }
            slot.hear_first(deciding.decision);
            if matches!(slot.stage, Stage::Parked(_)) {
                parked.push(Ordinal(place));
            }
        }
        self.asked.store(true, Ordering::SeqCst);
        parked
    }

    /// A call that is added to a decided batch is to stop before it does anything. That is recorded with its opening.
    pub(super) fn dismiss_added(&self, state: &mut State, place: usize) {
        let decided = state.tally.as_deref().and_then(Tally::decision);
        if let (Some(decision), Some(slot)) = (decided, state.slots.get_mut(place)) {
            slot.hear_first(decision);
            self.asked.store(true, Ordering::SeqCst);
        }
    }
}

impl State {
    /// Counts the ends of calls that are being sent, and says what they decide.
    pub(super) fn count(&mut self, going: &mut Going) -> Option<Deciding> {
        let calls = self.calls_known();
        let tally = self.tally.as_deref_mut()?;
        let cancelled = going.cancelled.and_then(|ordinal| self.slots.get_mut(usize::from(ordinal.0)));
        cancelled.into_iter().for_each(|slot| slot.cancelled = true);
        let mut decided = None;
        for ended in &mut going.ended {
            let Some(slot) = self.slots.get_mut(usize::from(ended.id.ordinal.0)) else { continue };
            slot.ended = true;
            // It was dismissed while its end was on its way: that stands before its end in the journal.
            let unheard = slot.asked.iter().find_map(|heard| heard.what.decision());
            if let (Some(decision), Some(call)) = (unheard, Arc::get_mut(&mut ended.call)) {
                call.cancel = Some(cancel(decision));
            }
            slot.cancelled |= ended.call.cancel.is_some();
            let succeeded = matches!(ended.call.outcome(), Some(Outcome::Succeeded(_)));
            let decision = tally.end(ended.id.ordinal, succeeded, calls);
            decided = decision.map(|decision| Deciding { decision, at: ended.at }).or(decided);
        }
        decided
    }

    /// Why a call that is added now is to stop, if it is.
    pub(super) fn cancel_added(&self) -> Option<Fact> {
        let decision = self.tally.as_deref()?.decision()?;
        Some(Fact::CancelAsked(cancel(decision)))
    }
}

impl super::Slot {
    /// What is recorded is heard before what is to be.
    fn hear_first(&mut self, decision: Decision) {
        self.asked.insert(0, Heard { what: Asked::Decided(decision), ack: None });
    }
}

impl Asked {
    fn decision(&self) -> Option<Decision> {
        match self {
            Asked::Decided(decision) => Some(*decision),
            Asked::Cancel(_)
            | Asked::Accept
            | Asked::Same(_)
            | Asked::Look
            | Asked::Complete { .. }
            | Asked::Signal(_)
            | Asked::Connect { .. } => None,
        }
    }

    /// Whether an attempt is to stop.
    pub(super) fn stops(&self) -> bool {
        match self {
            Asked::Cancel(_) | Asked::Decided(_) => true,
            Asked::Accept | Asked::Same(_) | Asked::Look => false,
            Asked::Complete { .. } | Asked::Signal(_) | Asked::Connect { .. } => false,
        }
    }
}

/// The cancel of a call whose batch was decided without it.
pub(crate) fn cancel(decision: Decision) -> CancelAsked {
    CancelAsked { reason: Some(decision.reason().into()) }
}
