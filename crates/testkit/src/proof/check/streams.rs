//! Batches whose calls are pushed: what was acknowledged is recorded, in order, and the batch is closed once.

use super::Histories;
use crate::proof::history::RecordedBatch;
use crate::proof::ledger::Effect;
use std::collections::BTreeSet;
use windlass_core::batch::ClosedBy;

/// Whether the ledger may have seen a call of which nothing is recorded: what only reads may run before it is durable that it
/// was pushed, and then a restart closes its batch.
pub(super) fn may_be_gone(histories: &Histories, effect: &Effect) -> bool {
    let mut pushed = histories.plan.calls().filter(|(_, batch, _)| batch.streamed);
    effect.kind == "read"
        && pushed.any(|(session, batch, call)| {
            format!("{}/{}/{}", session.name, batch.key, call.id) == effect.call
        })
}

/// Every promise that was broken.
pub(super) fn problems(histories: &Histories, found: &mut Vec<String>) {
    let recorded: BTreeSet<&str> = histories.journal.calls.iter().map(|call| call.name.as_str()).collect();
    for told in &histories.told {
        let lost = told.pushed.iter().filter(|call| !recorded.contains(call.as_str()));
        found.extend(lost.map(|call| format!("R1: worker {} pushed {call}, and it is gone", told.worker)));
        let taken = told.refused.iter().filter(|call| recorded.contains(call.as_str()));
        found.extend(
            taken.map(|call| format!("R1: worker {} was refused {call}, and it is recorded", told.worker)),
        );
    }
    for session in &histories.plan.sessions {
        for batch in &session.batches {
            let name = format!("{}/{}", session.name, batch.key);
            let of_it = histories.journal.batches.iter().find(|recorded| recorded.name == name);
            let Some(recorded) = of_it else {
                found.extend(batch.streamed.then(|| format!("R1: nothing of {name} is recorded")));
                continue;
            };
            if recorded.streamed != batch.streamed {
                found.push(format!("R1: {name} is recorded as another kind of batch"));
            }
            if batch.streamed {
                let asked = batch.calls.iter().map(|call| format!("{name}/{}", call.id));
                one(histories, recorded, &asked.collect::<Vec<_>>(), found);
            }
        }
    }
}

fn one(histories: &Histories, batch: &RecordedBatch, asked: &[String], found: &mut Vec<String>) {
    let RecordedBatch { name, calls, closed, .. } = batch;
    if !asked.starts_with(calls) {
        found.push(format!("R1: {name} has {calls:?}, and {asked:?} were pushed"));
    }
    let by_restart = closed == &[ClosedBy::Restart];
    if (!by_restart && closed != &[ClosedBy::Caller]) || (by_restart && histories.deaths == 0) {
        found.push(format!("streams: {name} was closed by {closed:?}"));
    }
    // Only a restart closes it before all are pushed.
    if calls.len() < asked.len() && !by_restart {
        found.push(format!("R1: {name} has {} calls, and {} were pushed", calls.len(), asked.len()));
    }
    let mut refused = histories.told.iter().flat_map(|told| &told.refused);
    if !by_restart && refused.any(|call| asked.contains(call)) {
        found.push(format!("streams: {name} was closed by its client, and refused a call of it"));
    }
}
