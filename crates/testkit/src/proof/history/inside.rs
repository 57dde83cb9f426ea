//! The named operations of a call, from its journal: its steps, its waits and its nested calls.

use serde_json::{Value, json};
use std::collections::BTreeMap;
use windlass_core::ids::EntryNo;
use windlass_core::operation::{Completion, Did, Operation, StepResult};

/// The named operations of a call, by its entries.
#[derive(Clone, Debug, Default)]
pub struct InsideHistory {
    /// Its steps.
    pub steps: BTreeMap<String, RecordedStep>,
    /// The answers under each name, in order: once.
    pub answers: BTreeMap<String, Vec<Value>>,
    /// How often it asked what it asks.
    pub questions: u32,
    /// The signals that came, in order.
    pub signals: Vec<Value>,
    /// How often it slept.
    pub sleeps: u32,
    /// How often it wrote its pair, and told of that.
    pub pairs: u32,
    /// See above.
    pub events: u32,
    /// See above.
    pub attached: u32,
    /// The nested calls under each name, in order.
    pub called: BTreeMap<String, Vec<NestedCalls>>,
}

/// That a call called others.
#[derive(Clone, Copy, Debug)]
pub struct NestedCalls {
    /// How often, from 1.
    pub generation: u32,
    /// In which entry.
    pub at: EntryNo,
    /// How many tries of the call were over then.
    pub round: u32,
}

/// The record of a step.
#[derive(Clone, Debug, Default)]
pub struct RecordedStep {
    /// The attempts in which it failed.
    pub failed_in: Vec<u32>,
    /// The attempts in which it succeeded: one.
    pub done_in: Vec<u32>,
}

impl InsideHistory {
    pub(super) fn add(&mut self, at: EntryNo, attempt: u32, round: u32, operation: &Operation) {
        let name = || operation.name.to_string();
        match &operation.did {
            Did::StepStarted { .. } => _ = self.steps.entry(name()).or_default(),
            Did::StepEnded { result, .. } => {
                let step = self.steps.entry(name()).or_default();
                match result {
                    StepResult::Ok(_) => step.done_in.push(attempt),
                    StepResult::Failed(_) => step.failed_in.push(attempt),
                }
            }
            Did::Completed(Completion::Ok { value: answer, .. }) => {
                let answer = serde_json::from_str(answer).unwrap_or_default();
                self.answers.entry(name()).or_default().push(answer);
            }
            Did::Completed(other) => {
                self.answers.entry(name()).or_default().push(json!(format!("{other:?}")));
            }
            Did::SleepEnded => self.sleeps += 1,
            Did::PairWritten { written, .. } => self.pairs += u32::from(*written),
            Did::Attached { .. } => self.attached += 1,
            Did::Emitted { numbered, .. } => self.events += u32::from(!numbered.is_again),
            Did::Called { generation } => {
                let called = NestedCalls { generation: *generation, at, round };
                self.called.entry(name()).or_default().push(called);
            }
            Did::Asked(_) => self.questions += 1,
            Did::Signalled { payload } => {
                self.signals.push(serde_json::from_str(payload).unwrap_or_default());
            }
            Did::SleepBegan(_)
            | Did::Spawned { .. }
            | Did::Said { .. }
            | Did::Handed(_)
            | Did::KeyTaken
            | Did::WaitBegan(_)
            | Did::TimedOut
            | Did::PairsRead { .. }
            | Did::ChildOpened { .. }
            | Did::EventPlanned { .. }
            | Did::Awaited { .. }
            | Did::SignalAwaited(_) => {}
        }
    }
}
