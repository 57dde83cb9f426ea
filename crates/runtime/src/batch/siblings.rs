//! How the calls of a batch decide about each other: the end that decides it and the cancel of all others are one change.

use super::{Asked, Heard, OpenBatch, Stage, State};
use crate::held::Held;
use std::sync::Arc;
use std::sync::atomic::Ordering;
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
        let tally = state.tally.as_deref()?;
        let decision = tally.verdict(state.calls_known())?;
        let slots = tally.won().iter().filter_map(|call| state.slots.get(usize::from(call.0)));
        let winners = slots.map(|slot| slot.opened.id.clone()).collect();
        Some(Decided { siblings: tally.siblings(), decision, winners })
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
    /// Counts the end of a call that is being sent, and says what that decides.
    pub(super) fn count(&mut self, held: &mut Held) -> Option<Deciding> {
        let calls = self.calls_known();
        let tally = self.tally.as_deref_mut()?;
        let slot = self.slots.get_mut(usize::from(held.id.ordinal.0))?;
        if held.call.end().is_some() {
            slot.ended = true;
            // It was dismissed while its end was on its way: that stands before its end in the journal.
            let unheard = slot.asked.iter().find_map(|heard| heard.what.decision());
            unheard.into_iter().for_each(|decision| held.dismissed(decision));
        }
        slot.cancelled |= held.call.cancel.is_some();
        let succeeded = matches!(held.call.outcome()?, Outcome::Succeeded(_));
        let decision = tally.end(held.id.ordinal, succeeded, calls)?;
        Some(Deciding { decision, at: held.now() })
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
