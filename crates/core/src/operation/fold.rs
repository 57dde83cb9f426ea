//! Folding operations, one after the other.

use super::attached::AttachedBytes;
use super::awaited::AwaitedThing;
use super::signal::{signal_of, signal_slot};
use super::told;
use super::{
    Called, Completion, Did, HANDED, Kind, Operation, Operations, RecordedOperation, StepResult, StepState,
    WaitOutcome,
};
use crate::outcome::JsonText;
use std::sync::Arc;

impl Operations {
    /// Whether this operation can follow the recorded ones.
    pub fn can_follow(&self, operation: &Operation) -> bool {
        match (self.by_name.get(&operation.name), &operation.did) {
            (None, Did::StepStarted { .. } | Did::StepEnded { .. } | Did::SleepBegan(_) | Did::KeyTaken) => {
                true
            }
            (None, Did::Asked(_) | Did::PairsRead { .. } | Did::PairWritten { .. }) => true,
            (None, Did::Emitted { .. } | Did::Attached { .. }) => true,
            (None, Did::EventPlanned { .. } | Did::Awaited { .. }) => true,
            (Some(RecordedOperation::Awaited(awaited)), Did::Completed(_) | Did::TimedOut) => {
                awaited.end.is_none()
            }
            (None, Did::Spawned { .. } | Did::ChildOpened { .. } | Did::Said { .. }) => true,
            (Some(RecordedOperation::Attached(_)), Did::Attached { .. }) => true,
            (None | Some(RecordedOperation::Handover(_)), Did::Handed(_)) => &*operation.name == HANDED,
            (None, Did::SignalAwaited(_) | Did::Signalled { .. }) => signal_of(&operation.name).is_some(),
            (Some(RecordedOperation::Signal { until, .. }), Did::SignalAwaited(_)) => until.is_none(),
            (Some(RecordedOperation::Signal { end, .. }), Did::Signalled { .. }) => end.is_none(),
            (Some(RecordedOperation::Signal { until, end }), Did::TimedOut) => {
                until.is_some() && end.is_none()
            }
            (
                Some(RecordedOperation::Question { end, .. }),
                Did::Completed(Completion::Ok { .. }) | Did::TimedOut,
            ) => end.is_none(),
            (Some(RecordedOperation::Step { input: was, state, .. }), Did::StepEnded { input, .. }) => {
                !matches!(state, StepState::Done(_)) && was == input
            }
            (Some(RecordedOperation::Step { input: was, state, .. }), Did::StepStarted { input }) => {
                matches!(state, StepState::Failed { .. }) && was == input
            }
            (None, Did::Called { generation }) => *generation == 1,
            (Some(RecordedOperation::Call(called)), Did::Called { generation }) => {
                *generation == called.generation + 1
            }
            (Some(RecordedOperation::Sleep { over, .. }), Did::SleepEnded) => !over,
            (Some(RecordedOperation::Completion { until, end }), Did::WaitBegan(_)) => {
                until.is_none() && end.is_none()
            }
            (Some(RecordedOperation::Completion { end, .. }), Did::Completed(_) | Did::TimedOut) => {
                end.is_none()
            }
            _ => false,
        }
    }

    /// Applies an operation that [can follow](Self::can_follow), in this round of its call.
    pub fn apply(&mut self, operation: &Operation, round: u32) {
        let name = operation.name.clone();
        match &operation.did {
            Did::StepStarted { input } => self.stepped(name, input, StepState::Open),
            Did::StepEnded { input, result: StepResult::Ok(value) } => {
                self.stepped(name, input, StepState::Done(value.clone()));
            }
            Did::StepEnded { input, result: StepResult::Failed(failure) } => {
                self.stepped(name, input, StepState::Failed { failure: failure.clone(), round });
            }
            Did::SleepBegan(until) => {
                self.by_name.insert(name, RecordedOperation::Sleep { until: *until, over: false });
            }
            Did::Handed(handover) => {
                self.by_name.insert(name, RecordedOperation::Handover(handover.clone()));
            }
            Did::SleepEnded => {
                if let Some(RecordedOperation::Sleep { over, .. }) = self.by_name.get_mut(&name) {
                    *over = true;
                }
            }
            Did::KeyTaken => {
                self.by_name.insert(name, RecordedOperation::Completion { until: None, end: None });
            }
            Did::WaitBegan(begun) => {
                if let Some(RecordedOperation::Completion { until, .. }) = self.by_name.get_mut(&name) {
                    *until = Some(*begun);
                }
            }
            Did::Completed(completion) => self.answered(&name, WaitOutcome::Given(completion.clone())),
            Did::TimedOut => self.answered(&name, WaitOutcome::TimedOut),
            Did::Called { generation } => {
                self.has_call = true;
                self.by_name.insert(name, RecordedOperation::Call(Called { generation: *generation, round }));
            }
            Did::Asked(question) => {
                self.by_name
                    .insert(name, RecordedOperation::Question { question: question.clone(), end: None });
            }
            Did::PairsRead { asked, found } => {
                let (asked, found) = (asked.clone(), found.clone());
                self.by_name.insert(name, RecordedOperation::PairsRead { asked, found });
            }
            Did::PairWritten { asked, written } => {
                self.by_name
                    .insert(name, RecordedOperation::PairWritten { asked: asked.clone(), written: *written });
            }
            Did::Emitted { .. } | Did::EventPlanned { .. } | Did::Awaited { .. } => {
                self.record_event(name, &operation.did);
            }
            Did::Attached { content, kept } => {
                let attached = AttachedBytes { content: content.clone(), kept: *kept, round };
                self.by_name.insert(name, RecordedOperation::Attached(attached));
            }
            Did::Spawned { asked: what } => self.record_told(name, Kind::Spawned, what),
            Did::ChildOpened { asked: what } => self.record_told(name, Kind::Child, what),
            Did::Said { message: what } => self.record_told(name, Kind::Said, what),
            Did::SignalAwaited(begun) => {
                if let RecordedOperation::Signal { until, end } = self.signal(name) {
                    *until = Some(*begun);
                    let has_come = end.is_some();
                    self.signals.unheard -= u64::from(has_come);
                }
            }
            Did::Signalled { payload } => {
                let is_early =
                    matches!(self.signal(name.clone()), RecordedOperation::Signal { until: None, .. });
                self.signals.unheard += u64::from(is_early);
                self.answered(&name, WaitOutcome::Given(Completion::ok(payload.clone())));
            }
        }
    }

    /// The record of a signal under this name.
    fn signal(&mut self, name: Arc<str>) -> &mut RecordedOperation {
        self.by_name.entry(name).or_insert(RecordedOperation::Signal { until: None, end: None })
    }

    fn stepped(&mut self, name: Arc<str>, input: &JsonText, state: StepState) {
        let before = matches!(self.by_name.get(&name), Some(RecordedOperation::Step { doubted: true, .. }));
        let now = matches!(&state, StepState::Failed { failure, .. } if !failure.did_not_happen);
        let step = RecordedOperation::Step { input: input.clone(), state, doubted: before || now };
        self.by_name.insert(name, step);
    }

    /// Records an event, or a wait for a task or a named event.
    fn record_event(&mut self, name: Arc<str>, did: &Did) {
        if let Did::Emitted { event, payload, triggered, numbered } = did {
            let (event, payload, triggered) = (event.clone(), payload.clone(), triggered.clone());
            let numbered = *numbered;
            self.by_name.insert(name, RecordedOperation::Event { event, payload, triggered, numbered });
        } else if let Did::EventPlanned { event, payload } = did {
            self.has_planned_event = true;
            let (event, payload) = (event.clone(), payload.clone());
            self.by_name.insert(name, RecordedOperation::PlannedEvent { event, payload });
        } else if let Did::Awaited { what, until } = did {
            let awaited = AwaitedThing { what: what.clone(), until: *until, end: None };
            self.by_name.insert(name, RecordedOperation::Awaited(awaited));
        }
    }

    fn record_told(&mut self, name: Arc<str>, kind: Kind, what: &JsonText) {
        self.has_child |= kind == Kind::Child;
        self.has_attached_task |= kind == Kind::Spawned && told::is_attached(what);
        self.by_name.insert(name, RecordedOperation::Told { kind, what: what.clone() });
    }

    fn answered(&mut self, name: &str, answer: WaitOutcome) {
        if let Some(
            RecordedOperation::Completion { end, .. }
            | RecordedOperation::Question { end, .. }
            | RecordedOperation::Signal { end, .. }
            | RecordedOperation::Awaited(AwaitedThing { end, .. }),
        ) = self.by_name.get_mut(name)
        {
            *end = Some(answer);
        }
        if let Some((signal, number)) = signal_of(name) {
            let by_name = &self.by_name;
            let has_ended = |number| {
                let slot = by_name.get(&*signal_slot(signal, number));
                matches!(slot, Some(RecordedOperation::Signal { end: Some(_), .. }))
            };
            self.signals.ended(signal, number, has_ended);
        }
    }
}
