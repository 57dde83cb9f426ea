//! One batch whose calls decide about each other: decided once, by the rule in its plainest words, and in one row.

use super::Histories;
use crate::proof::history::{RecordedBatch, dismissal};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use windlass::batch::{Decision, Siblings};
use windlass_core::call::{Fact, Result as Attempted};
use windlass_core::entry::EntryEvent;
use windlass_core::outcome::Outcome;

/// The end that decided a batch.
struct DecidingEnd {
    /// The row of the batch's journal.
    row: usize,
    decision: Decision,
    /// Places of the calls that had succeeded.
    winners: Vec<usize>,
}

/// A batch, by the rows of its journal.
#[derive(Default)]
struct Story {
    /// How many calls there are is not known yet.
    may_grow: bool,
    opened: Vec<usize>,
    ended: BTreeMap<usize, usize>,
    /// The first row in which somebody asked a call to stop.
    cancelled: BTreeMap<usize, usize>,
    /// Calls that were dismissed: the row, the call, and why.
    dismissed: Vec<(usize, usize, Decision)>,
    /// The result of each call's last attempt.
    returned: BTreeMap<usize, bool>,
    won: Vec<usize>,
    lost: usize,
    decided: Option<DecidingEnd>,
}

/// Every promise about its siblings that a batch broke.
pub(super) fn problems(histories: &Histories, batch: &RecordedBatch) -> Vec<String> {
    let mut story = Story { may_grow: batch.streamed, ..Story::default() };
    for (row, events) in batch.rows.iter().enumerate() {
        for event in events {
            match event {
                EntryEvent::Call { ordinal, fact } => {
                    story.add(batch.siblings, row, usize::from(ordinal.0), fact);
                }
                EntryEvent::Closed(_) => {
                    story.may_grow = false;
                    story.decide(batch.siblings, row);
                }
                EntryEvent::Batch(_) | EntryEvent::Answered(_) | EntryEvent::ClockMoved(_) => {}
            }
        }
    }
    let mut problems = match &story.decided {
        Some(decided) => story.after(batch, decided),
        None => story.undecided(batch),
    };
    if let (Some(decided), Siblings::Race | Siblings::Quorum(_)) = (&story.decided, batch.siblings) {
        problems.extend(told(histories, batch, decided));
    }
    problems
}

impl Story {
    fn add(&mut self, siblings: Siblings, row: usize, call: usize, fact: &Fact) {
        match fact {
            Fact::Opened(_) => self.opened.push(row),
            Fact::Returned(returned) => {
                self.returned.insert(call, matches!(returned.result, Attempted::Ok(_)));
            }
            Fact::CancelAsked(asked) => {
                self.cancelled.entry(call).or_insert(row);
                self.dismissed.extend(dismissal(asked).map(|why| (row, call, why)));
            }
            Fact::Ended(ended) => {
                self.ended.insert(call, row);
                let succeeded = match &ended.outcome {
                    Some(outcome) => matches!(outcome, Outcome::Succeeded(_)),
                    None => self.returned.get(&call) == Some(&true),
                };
                self.end(siblings, row, call, succeeded);
            }
            Fact::Prepared(_)
            | Fact::SameAs(_)
            | Fact::First
            | Fact::CopyFound
            | Fact::Operation(_)
            | Fact::Suspended(_)
            | Fact::Resumed(_)
            | Fact::Unconnected(_)
            | Fact::Connected(_)
            | Fact::Detached(_)
            | Fact::StartRefused
            | Fact::Started(_)
            | Fact::Lost(_)
            | Fact::Stopped(_)
            | Fact::Reconciled(_)
            | Fact::Parked(_)
            | Fact::Accepted(_)
            | Fact::SetAside(_)
            | Fact::Aborted(_)
            | Fact::Judged(_)
            | Fact::ApprovalAsked(_)
            | Fact::ApprovalAnswered(_)
            | Fact::Withheld(_)
            | Fact::Resolved(_) => {}
        }
    }

    fn end(&mut self, siblings: Siblings, row: usize, call: usize, succeeded: bool) {
        if self.decided.is_some() {
            return;
        }
        if succeeded {
            self.won.push(call);
        } else {
            self.lost += 1;
        }
        self.decide(siblings, row);
    }

    /// Tallies its calls.
    fn decide(&mut self, siblings: Siblings, row: usize) {
        if self.decided.is_some() {
            return;
        }
        let possible = if self.may_grow { usize::MAX } else { self.opened.len() - self.lost };
        let (reached, unreachable) = match siblings {
            Siblings::Independent => (false, false),
            Siblings::FailFast => (false, self.lost > 0),
            Siblings::Race => (!self.won.is_empty(), possible == 0),
            Siblings::Quorum(n) => (self.won.len() >= n as usize, possible < n as usize),
        };
        let decision = match (reached, unreachable) {
            (true, _) => Decision::Reached,
            (false, true) => Decision::Unreachable,
            (false, false) => return,
        };
        self.decided = Some(DecidingEnd { row, decision, winners: self.won.clone() });
    }

    /// Nobody is dismissed.
    fn undecided(&self, batch: &RecordedBatch) -> Vec<String> {
        let dismissed = self.dismissed.iter();
        let told = dismissed.map(|(row, call, _)| {
            format!("siblings: {} was dismissed in row {row}, and nothing was decided", batch.calls[*call])
        });
        told.collect()
    }

    /// Calls that had not ended are dismissed in the deciding row, later ones with their opening; and no others.
    fn after(&self, batch: &RecordedBatch, decided: &DecidingEnd) -> Vec<String> {
        let (mut problems, name) = (Vec::new(), &batch.name);
        for (call, opened) in self.opened.iter().enumerate() {
            let id = &batch.calls[call];
            let row = decided.row.max(*opened);
            let had_ended = self.ended.get(&call).is_some_and(|ended| *ended <= decided.row);
            let in_time = self.cancelled.get(&call).is_some_and(|cancelled| *cancelled <= row);
            if !had_ended && !in_time {
                problems
                    .push(format!("siblings: {name} was decided in row {row} without the cancel of {id}"));
            }
            let mut dismissals = self.dismissed.iter().filter(|(_, of, _)| *of == call);
            let first = dismissals.next();
            let fits = first.is_none_or(|(at, _, why)| *at == row && *why == decided.decision && !had_ended);
            if !fits || dismissals.next().is_some() {
                problems.push(format!("siblings: {id} was dismissed otherwise than in row {row}: {first:?}"));
            }
        }
        problems
    }
}

/// Every client was told the same winners, and they are those of the journal.
fn told(histories: &Histories, batch: &RecordedBatch, decided: &DecidingEnd) -> Vec<String> {
    let id = |call: &usize| batch.calls[*call].rsplit('/').next().unwrap_or_default().to_owned();
    let winners: Vec<String> = decided.winners.iter().map(id).collect();
    let expected: Value =
        json!({"siblings": batch.siblings, "decision": decided.decision, "winners": winners});
    let answers = histories.told.iter().flat_map(|told| told.answers.iter().map(move |a| (told.worker, a)));
    let of_it = answers
        .filter(|(_, answer)| !answer.alone && format!("{}/{}", answer.session, answer.batch) == batch.name);
    of_it
        .filter(|(_, answer)| answer.decided != expected)
        .map(|(worker, answer)| {
            format!(
                "siblings: {}: worker {worker} was told {}, recorded is {expected}",
                batch.name, answer.decided
            )
        })
        .collect()
}
