//! The behaviour of each class at each event, as data: the table of effect classes in rows that can be run.
//!
//! A row is one call, to which the ledger, its tool and its client do something. [`rows`](super::rows) runs
//! each in a process that is killed at every write; the tests run each in their own process too.

use super::kind::{AttemptPace, CallKind, Class, EffectWitness};
use super::plan::{BatchPlan, CallPlan, CancelPlan, CancelTime, ProofPlan, Says, SessionPlan, Then};
use std::ops::RangeInclusive;

/// One row.
#[derive(Clone, Debug)]
pub struct ProofRow {
    /// The class of the tool.
    pub class: Class,
    /// The event.
    pub event: TableEvent,
    /// The tool's reply when it is asked whether the call took effect.
    pub reconcile: ReconcileReply,
    /// How it ends if nothing else happens.
    pub end: TableEnd,
}

/// An event in the life of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableEvent {
    /// Its worker dies while it runs.
    Crash,
    /// Each attempt takes too long.
    Timeout,
    /// It is cancelled while it waits for its turn.
    CancelBeforeStart,
    /// It is cancelled while it runs, and does not stop.
    CancelWhileRunning,
    /// It is cancelled while it runs, and returns in time.
    CancelWithinGrace,
    /// It panics.
    Panic,
    /// Each attempt fails, and says that it may be made again.
    FailsSafe,
    /// Each attempt fails, and says that nothing happened.
    FailsWithoutEffect,
    /// It fails, and says nothing of that.
    Fails,
    /// Its worker dies when all its steps are recorded.
    CrashBehindSteps,
    /// Each attempt takes too long, and its steps are recorded.
    TimeoutBehindSteps,
    /// It is cancelled while it runs, before its first step.
    CancelBeforeSteps,
    /// It is cancelled while it runs, and all its steps are recorded.
    CancelBehindSteps,
}

/// A tool's reply when it is asked whether a call took effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReconcileReply {
    /// It cannot be asked.
    Without,
    /// That it did; and it had.
    Landed,
    /// That it did not; and it had not.
    DidNotHappen,
    /// That it does not know.
    Unknown,
}

/// How a call ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableEnd {
    /// The state.
    pub state: &'static str,
    /// The code of its failure, or the effect it had when it was cancelled.
    pub detail: &'static str,
    /// How many attempts are recorded.
    pub attempts: RangeInclusive<u32>,
    /// How often the ledger applied it.
    pub applied: usize,
    /// The first words the model is told.
    pub told: &'static str,
}

/// Which reconcilers a line of the table stands for.
#[derive(Clone, Copy)]
enum ReconcilerSet {
    /// With and without one.
    Any,
    Only(ReconcileReply),
}

type TableLine = (TableEvent, Class, ReconcilerSet, (&'static str, &'static str), (u32, usize));

const VALUE: &str = r#"{"call":"c1""#;
const TOLD: [(&str, &str, &str); 9] = [
    ("succeeded", "", VALUE),
    ("unknown", "", r#"{"error":"It is not known whether this took effect; do not repeat it blindly."#),
    ("failed", "timeout", r#"{"error":"The tool did not finish within "#),
    ("failed", "did_not_happen", r#"{"error":"The call was interrupted and certainly did not take effect"#),
    ("failed", "tool_failed", r#"{"error":"the ledger refused","code":"tool_failed"}"#),
    (
        "failed",
        "tool_panicked",
        r#"{"error":"An internal error occurred; the operator finds it under reference"#,
    ),
    ("cancelled", "none", r#"{"error":"This call was cancelled; it had no effect."#),
    ("cancelled", "landed", r#"{"error":"This call was cancelled after it had taken effect."#),
    ("cancelled", "unknown", r#"{"error":"This call was cancelled; it is not known whether it took effect"#),
];

/// The table: event, class, reconciler, end, attempts and applications. `once` is tried twice at most, the others three
/// times.
fn lines() -> Vec<TableLine> {
    use Class::{Keyed, Once, Read, Stepped};
    use ReconcileReply as R;
    use ReconcilerSet::{Any, Only};
    use TableEvent as E;
    const SUCCEEDED: (&str, &str) = ("succeeded", "");
    const UNKNOWN: (&str, &str) = ("unknown", "");
    const TIMEOUT: (&str, &str) = ("failed", "timeout");
    const FAILED: (&str, &str) = ("failed", "tool_failed");
    const NOTHING: (&str, &str) = ("cancelled", "none");
    vec![
        (E::Crash, Read, Any, SUCCEEDED, (2, 0)),
        (E::Crash, Keyed, Any, SUCCEEDED, (2, 1)),
        (E::Crash, Once, Only(R::Without), UNKNOWN, (1, 1)),
        (E::Crash, Once, Only(R::Landed), SUCCEEDED, (1, 1)),
        (E::Crash, Once, Only(R::DidNotHappen), SUCCEEDED, (2, 1)),
        (E::Crash, Once, Only(R::Unknown), UNKNOWN, (1, 1)),
        (E::Timeout, Read, Any, TIMEOUT, (3, 0)),
        (E::Timeout, Keyed, Any, TIMEOUT, (3, 1)),
        (E::Timeout, Once, Only(R::Without), UNKNOWN, (1, 1)),
        (E::Timeout, Once, Only(R::Landed), SUCCEEDED, (1, 1)),
        (E::Timeout, Once, Only(R::DidNotHappen), ("failed", "did_not_happen"), (2, 0)),
        (E::Timeout, Once, Only(R::Unknown), UNKNOWN, (1, 1)),
        (E::CancelBeforeStart, Read, Any, NOTHING, (0, 0)),
        (E::CancelBeforeStart, Keyed, Any, NOTHING, (0, 0)),
        (E::CancelBeforeStart, Once, Any, NOTHING, (0, 0)),
        (E::CancelWhileRunning, Read, Any, NOTHING, (1, 0)),
        (E::CancelWhileRunning, Keyed, Any, ("cancelled", "unknown"), (1, 1)),
        (E::CancelWhileRunning, Once, Only(R::Without), ("cancelled", "unknown"), (1, 1)),
        (E::CancelWhileRunning, Once, Only(R::Landed), ("cancelled", "landed"), (1, 1)),
        (E::CancelWhileRunning, Once, Only(R::DidNotHappen), NOTHING, (1, 0)),
        (E::CancelWhileRunning, Once, Only(R::Unknown), ("cancelled", "unknown"), (1, 1)),
        (E::CancelWithinGrace, Read, Any, SUCCEEDED, (1, 0)),
        (E::CancelWithinGrace, Keyed, Any, SUCCEEDED, (1, 1)),
        (E::CancelWithinGrace, Once, Any, SUCCEEDED, (1, 1)),
        (E::Panic, Read, Any, ("failed", "tool_panicked"), (1, 0)),
        (E::Panic, Keyed, Any, ("failed", "tool_panicked"), (1, 1)),
        (E::Panic, Once, Any, ("failed", "tool_panicked"), (1, 1)),
        (E::FailsSafe, Read, Any, FAILED, (3, 0)),
        (E::FailsSafe, Keyed, Any, FAILED, (3, 0)),
        (E::FailsSafe, Once, Any, FAILED, (1, 0)),
        (E::FailsWithoutEffect, Read, Any, FAILED, (3, 0)),
        (E::FailsWithoutEffect, Keyed, Any, FAILED, (3, 0)),
        (E::FailsWithoutEffect, Once, Any, FAILED, (2, 0)),
        (E::Fails, Read, Any, FAILED, (1, 0)),
        (E::Fails, Keyed, Any, FAILED, (1, 0)),
        (E::Fails, Once, Any, FAILED, (1, 0)),
        (E::Crash, Stepped, Any, SUCCEEDED, (2, 1)),
        (E::Timeout, Stepped, Any, TIMEOUT, (3, 1)),
        (E::CancelBeforeStart, Stepped, Any, NOTHING, (0, 0)),
        (E::CancelWhileRunning, Stepped, Any, ("cancelled", "unknown"), (1, 1)),
        (E::CancelWithinGrace, Stepped, Any, SUCCEEDED, (1, 1)),
        (E::Panic, Stepped, Any, ("failed", "tool_panicked"), (1, 1)),
        (E::FailsSafe, Stepped, Any, FAILED, (3, 0)),
        (E::FailsWithoutEffect, Stepped, Any, FAILED, (3, 0)),
        (E::Fails, Stepped, Any, FAILED, (1, 0)),
        // What only the steps make a difference to.
        (E::CrashBehindSteps, Stepped, Any, SUCCEEDED, (2, 1)),
        (E::TimeoutBehindSteps, Stepped, Any, TIMEOUT, (3, 1)),
        (E::CancelBeforeSteps, Stepped, Any, NOTHING, (1, 0)),
        (E::CancelBehindSteps, Stepped, Any, ("cancelled", "landed"), (1, 1)),
    ]
}

/// Every row. Those in which a reconciler makes no difference come without and with one.
pub fn rows() -> Vec<ProofRow> {
    lines()
        .into_iter()
        .flat_map(|(event, class, with, (state, detail), (attempts, applied))| {
            let told = TOLD.iter().find(|told| (told.0, told.1) == (state, detail)).map_or("", |told| told.2);
            // Whether a lost attempt of what only reads was recorded depends on whether there was a death before.
            let least = if event == TableEvent::Crash && class == Class::Read { 1 } else { attempts };
            let end = TableEnd { state, detail, attempts: least..=attempts, applied, told };
            let both = [ReconcileReply::Without, ReconcileReply::Landed];
            let reconcilers = match with {
                ReconcilerSet::Any => both.to_vec(),
                ReconcilerSet::Only(one) => vec![one],
            };
            reconcilers.into_iter().map(move |reconcile| ProofRow {
                class,
                event,
                reconcile,
                end: end.clone(),
            })
        })
        .collect()
}

impl ProofRow {
    /// The call that the row is about.
    pub const CALL: &'static str = "c1";

    /// The row as something that can be run.
    pub fn plan(&self) -> ProofPlan {
        let mut calls = vec![self.call()];
        let when = match self.event {
            TableEvent::CancelBeforeStart => {
                let before = CallPlan { then: Then::Wait, ..CallPlan::new("c0", CallKind::KEYED) };
                calls.insert(0, before);
                Some(CancelTime::Queued)
            }
            TableEvent::CancelWhileRunning
            | TableEvent::CancelWithinGrace
            | TableEvent::CancelBeforeSteps
            | TableEvent::CancelBehindSteps => Some(CancelTime::Running),
            TableEvent::Crash
            | TableEvent::CrashBehindSteps
            | TableEvent::TimeoutBehindSteps
            | TableEvent::Timeout
            | TableEvent::Panic
            | TableEvent::FailsSafe
            | TableEvent::FailsWithoutEffect
            | TableEvent::Fails => None,
        };
        let (session, batch) = ("s1".to_owned(), "b1".to_owned());
        let cancel = |when| CancelPlan {
            session: session.clone(),
            batch: Some(batch.clone()),
            call: Some(ProofRow::CALL.to_owned()),
            when,
        };
        let cancels = when.map(cancel).into_iter().collect();
        let batches = vec![BatchPlan { key: batch, calls, ..BatchPlan::default() }];
        let sessions = vec![SessionPlan { name: session, batches, ahead: 1 }];
        ProofPlan { sessions, cancels, ..ProofPlan::default() }
    }

    fn call(&self) -> CallPlan {
        let asks = match self.reconcile {
            ReconcileReply::Without => EffectWitness::Nobody,
            ReconcileReply::Landed | ReconcileReply::DidNotHappen => EffectWitness::Ledger,
            ReconcileReply::Unknown => EffectWitness::InVain,
        };
        let pace = match self.event {
            TableEvent::Timeout | TableEvent::TimeoutBehindSteps => AttemptPace::Brief,
            TableEvent::CancelWithinGrace => AttemptPace::Patient,
            TableEvent::Crash
            | TableEvent::CrashBehindSteps
            | TableEvent::CancelBeforeSteps
            | TableEvent::CancelBehindSteps
            | TableEvent::CancelBeforeStart
            | TableEvent::CancelWhileRunning
            | TableEvent::Panic
            | TableEvent::FailsSafe
            | TableEvent::FailsWithoutEffect
            | TableEvent::Fails => AttemptPace::Usual,
        };
        let kind = CallKind { asks, pace, ..CallKind::new(self.class) };
        let call = CallPlan::new(ProofRow::CALL, kind);
        let order = if self.reconcile == ReconcileReply::DidNotHappen { "after" } else { "ok" }.to_owned();
        let refused = |says| CallPlan { order: "reject".to_owned(), says, ..call.clone() };
        match self.event {
            TableEvent::Crash => CallPlan { then: Then::Die, order, ..call },
            TableEvent::Timeout | TableEvent::CancelWhileRunning => {
                CallPlan { then: Then::Hang, order, ..call }
            }
            TableEvent::CancelBeforeStart => call,
            TableEvent::CancelWithinGrace => CallPlan { then: Then::Obey, ..call },
            TableEvent::Panic => CallPlan { then: Then::Panic, ..call },
            TableEvent::FailsSafe => refused(Says::Safe),
            TableEvent::FailsWithoutEffect => refused(Says::Never),
            TableEvent::Fails => refused(Says::Plain),
            TableEvent::CrashBehindSteps => CallPlan { then: Then::DieLater, ..call },
            TableEvent::TimeoutBehindSteps | TableEvent::CancelBehindSteps => {
                CallPlan { then: Then::HangLater, ..call }
            }
            TableEvent::CancelBeforeSteps => CallPlan { then: Then::HangFirst, ..call },
        }
    }

    /// How else it may end if its worker dies at any moment: a crash comes on top of what happens to it, and a cancel
    /// that is recorded stands.
    pub fn may_end_so(&self, state: &str, detail: &str, applied: usize) -> bool {
        if (state, detail) == (self.end.state, self.end.detail) {
            return true;
        }
        let cancelled = matches!(
            self.event,
            TableEvent::CancelWhileRunning
                | TableEvent::CancelWithinGrace
                | TableEvent::CancelBeforeSteps
                | TableEvent::CancelBehindSteps
        );
        let (once, stepped) = (self.class == Class::Once, self.class == Class::Stepped);
        match (state, detail) {
            // The cancel of a call that was cut may not have come so far.
            ("unknown", _) => once && !self.asks_the_ledger(),
            ("cancelled", "none") => cancelled && (self.class == Class::Read || applied == 0),
            ("cancelled", "landed") => cancelled && (once || stepped) && applied == 1,
            ("cancelled", "unknown") => cancelled && self.class != Class::Read,
            // It was asked after, and had landed; or it had not, and its attempts are used up.
            ("succeeded", _) => once && applied == 1 && self.reconcile == ReconcileReply::Landed,
            ("failed", "did_not_happen") => once && applied == 0 && self.asks_the_ledger(),
            _ => false,
        }
    }

    fn asks_the_ledger(&self) -> bool {
        matches!(self.reconcile, ReconcileReply::Landed | ReconcileReply::DidNotHappen)
    }

    /// Whether the worker dies of its own tool.
    pub fn dies(&self) -> bool {
        matches!(self.event, TableEvent::Crash | TableEvent::CrashBehindSteps)
    }

    /// Whether it is told apart from another by more than a reconciler that makes no difference.
    pub fn is_distinct(&self) -> bool {
        let asked_after =
            matches!(self.event, TableEvent::Crash | TableEvent::Timeout | TableEvent::CancelWhileRunning);
        self.reconcile == ReconcileReply::Without || (self.class == Class::Once && asked_after)
    }

    /// For people.
    pub fn name(&self) -> String {
        format!("{:?} {:?} {:?}", self.class, self.event, self.reconcile)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_meets_every_event_with_and_without_reconciler() {
        let rows = rows();
        let events = [
            TableEvent::Crash,
            TableEvent::Timeout,
            TableEvent::CancelBeforeStart,
            TableEvent::CancelWhileRunning,
            TableEvent::CancelWithinGrace,
            TableEvent::Panic,
            TableEvent::FailsSafe,
            TableEvent::FailsWithoutEffect,
            TableEvent::Fails,
        ];
        for class in [Class::Read, Class::Keyed, Class::Once, Class::Stepped] {
            for event in events {
                for reconcile in [ReconcileReply::Without, ReconcileReply::Landed] {
                    let is_it =
                        |row: &&ProofRow| (row.class, row.event, row.reconcile) == (class, event, reconcile);
                    assert_eq!(rows.iter().filter(is_it).count(), 1, "{class:?} {event:?} {reconcile:?}");
                }
            }
        }
        assert!(rows.iter().all(|row| !row.end.told.is_empty()));
    }
}
