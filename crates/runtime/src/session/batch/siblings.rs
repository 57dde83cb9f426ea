//! The sibling rule of a batch: the end that decides it and the cancel of all others are one change.

use super::{BatchState, CallDemand, HeardDemand, OpenBatch, Stage};
use crate::api::decided::Decided;
use crate::session::held::Going;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use windlass_core::call::{CancelAsked, Cause, Fact};
use windlass_core::entry::Packer;
use windlass_core::ids::Ordinal;
use windlass_core::outcome::Outcome;
use windlass_core::siblings::{Decision, Siblings, Tally};
use windlass_core::time::Timestamp;

/// The decision of a batch, and its time.
pub(super) struct Deciding {
    pub(super) decision: Decision,
    pub(super) at: Timestamp,
}

impl OpenBatch {
    /// Whether the end of one call may cancel the others.
    pub(crate) fn asks_of_siblings(&self) -> bool {
        self.head.siblings != Siblings::Independent
    }

    /// The decision, if it has a sibling rule and is decided.
    pub(crate) fn decided(&self) -> Option<Decided> {
        let state = self.lock();
        let id = |place: usize| state.slots.get(place).map(|slot| Arc::from(&slot.opened.id));
        Decided::of(state.tally.as_deref()?, state.calls_known(), id)
    }

    /// Records that every call that has not ended must stop, and tells it: running attempts at once, before
    /// this can become durable. Returns the parked ones, to be woken.
    pub(super) fn dismiss(
        &self,
        state: &mut BatchState,
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

    /// A call added to a decided batch must stop before it does anything. That is recorded with its opening.
    pub(super) fn dismiss_added(&self, state: &mut BatchState, place: usize) {
        let decided = state.tally.as_deref().and_then(Tally::decision);
        if let (Some(decision), Some(slot)) = (decided, state.slots.get_mut(place)) {
            slot.hear_first(decision);
            self.asked.store(true, Ordering::SeqCst);
        }
    }
}

impl BatchState {
    /// Counts the ends that are being sent, and returns what they decide.
    pub(super) fn count(&mut self, going: &mut Going) -> Option<Deciding> {
        let calls = self.calls_known();
        let tally = self.tally.as_deref_mut()?;
        let cancelled = going.cancelled.and_then(|ordinal| self.slots.get_mut(usize::from(ordinal.0)));
        cancelled.into_iter().for_each(|slot| slot.cancelled = true);
        let mut decided = None;
        for ended in &mut going.ended {
            let Some(slot) = self.slots.get_mut(usize::from(ended.id.ordinal.0)) else { continue };
            // It was dismissed while its end was on its way: that comes before its end in the journal.
            let unheard = slot.asked.iter().find_map(|heard| heard.what.decision());
            if let Some(decision) = unheard {
                ended.call.dismissed(decision);
            }
            slot.cancelled |= ended.call.cancel.is_some();
            let succeeded = matches!(ended.call.outcome(), Some(Outcome::Succeeded(_)));
            let decision = tally.end(ended.id.ordinal, succeeded, calls);
            decided = decision.map(|decision| Deciding { decision, at: ended.at }).or(decided);
        }
        decided
    }

    /// Why a call that is added now must stop, if it must.
    pub(super) fn cancel_added(&self) -> Option<Fact> {
        let decision = self.tally.as_deref()?.decision()?;
        Some(Fact::CancelAsked(cancel(decision)))
    }
}

impl super::Slot {
    /// Recorded messages are received before unrecorded ones.
    fn hear_first(&mut self, decision: Decision) {
        self.asked.insert(0, HeardDemand { what: CallDemand::Decided(decision), ack: None });
    }
}

impl CallDemand {
    fn decision(&self) -> Option<Decision> {
        match self {
            CallDemand::Decided(decision) => Some(*decision),
            CallDemand::Cancel(_)
            | CallDemand::Approval(_)
            | CallDemand::Rejudge
            | CallDemand::Accept
            | CallDemand::Same(_)
            | CallDemand::Look
            | CallDemand::Complete { .. }
            | CallDemand::Signal(_)
            | CallDemand::Connect { .. } => None,
        }
    }

    /// Whether an attempt must stop.
    pub(super) fn stops(&self) -> bool {
        match self {
            CallDemand::Cancel(_) | CallDemand::Decided(_) => true,
            CallDemand::Accept | CallDemand::Same(_) | CallDemand::Look => false,
            CallDemand::Approval(_) | CallDemand::Rejudge => false,
            CallDemand::Complete { .. } | CallDemand::Signal(_) | CallDemand::Connect { .. } => false,
        }
    }
}

/// The cancel of a call whose batch was decided without it.
pub(crate) fn cancel(decision: Decision) -> CancelAsked {
    CancelAsked { reason: Some(decision.reason().into()) }
}
