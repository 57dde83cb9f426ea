//! What operations add up to, one after the other.

use super::attached::Attached;
use super::signal::{signal_of, signal_slot};
use super::{Answer, Called, Completion, Did, Kind, Operation, Operations, Recorded, StepResult, StepState};
use crate::outcome::JsonText;
use std::sync::Arc;

impl Operations {
    /// Whether this can follow what is recorded.
    pub fn can_follow(&self, operation: &Operation) -> bool {
        match (self.by_name.get(&operation.name), &operation.did) {
            (None, Did::StepStarted { .. } | Did::StepEnded { .. } | Did::SleepBegan(_) | Did::KeyTaken) => {
                true
            }
            (None, Did::Asked(_) | Did::PairsRead { .. } | Did::PairWritten { .. }) => true,
            (None, Did::Emitted { .. } | Did::Attached { .. }) => true,
            (None, Did::Spawned { .. } | Did::ChildOpened { .. } | Did::Said { .. }) => true,
            (Some(Recorded::Attached(_)), Did::Attached { .. }) => true,
            (None, Did::SignalAwaited(_) | Did::Signalled { .. }) => signal_of(&operation.name).is_some(),
            (Some(Recorded::Signal { until, .. }), Did::SignalAwaited(_)) => until.is_none(),
            (Some(Recorded::Signal { end, .. }), Did::Signalled { .. }) => end.is_none(),
            (Some(Recorded::Signal { until, end }), Did::TimedOut) => until.is_some() && end.is_none(),
            (Some(Recorded::Question { end, .. }), Did::Completed(Completion::Ok(_)) | Did::TimedOut) => {
                end.is_none()
            }
            (Some(Recorded::Step { input: was, state, .. }), Did::StepEnded { input, .. }) => {
                !matches!(state, StepState::Done(_)) && was == input
            }
            (Some(Recorded::Step { input: was, state, .. }), Did::StepStarted { input }) => {
                matches!(state, StepState::Failed { .. }) && was == input
            }
            (None, Did::Called { generation }) => *generation == 1,
            (Some(Recorded::Call(called)), Did::Called { generation }) => {
                *generation == called.generation + 1
            }
            (Some(Recorded::Sleep { over, .. }), Did::SleepEnded) => !over,
            (Some(Recorded::Completion { until, end }), Did::WaitBegan(_)) => {
                until.is_none() && end.is_none()
            }
            (Some(Recorded::Completion { end, .. }), Did::Completed(_) | Did::TimedOut) => end.is_none(),
            _ => false,
        }
    }

    /// Adds what [can follow](Self::can_follow), in this round of its call.
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
                self.by_name.insert(name, Recorded::Sleep { until: *until, over: false });
            }
            Did::SleepEnded => {
                if let Some(Recorded::Sleep { over, .. }) = self.by_name.get_mut(&name) {
                    *over = true;
                }
            }
            Did::KeyTaken => {
                self.by_name.insert(name, Recorded::Completion { until: None, end: None });
            }
            Did::WaitBegan(begun) => {
                if let Some(Recorded::Completion { until, .. }) = self.by_name.get_mut(&name) {
                    *until = Some(*begun);
                }
            }
            Did::Completed(completion) => self.answered(&name, Answer::Given(completion.clone())),
            Did::TimedOut => self.answered(&name, Answer::TimedOut),
            Did::Called { generation } => {
                self.has_call = true;
                self.by_name.insert(name, Recorded::Call(Called { generation: *generation, round }));
            }
            Did::Asked(question) => {
                self.by_name.insert(name, Recorded::Question { question: question.clone(), end: None });
            }
            Did::PairsRead { asked, found } => {
                let (asked, found) = (asked.clone(), found.clone());
                self.by_name.insert(name, Recorded::PairsRead { asked, found });
            }
            Did::PairWritten { asked, written } => {
                self.by_name.insert(name, Recorded::PairWritten { asked: asked.clone(), written: *written });
            }
            Did::Emitted { event, payload, triggered } => {
                let (event, payload, triggered) = (event.clone(), payload.clone(), triggered.clone());
                self.by_name.insert(name, Recorded::Event { event, payload, triggered });
            }
            Did::Attached { content, kept } => {
                let attached = Attached { content: content.clone(), kept: *kept, round };
                self.by_name.insert(name, Recorded::Attached(attached));
            }
            Did::Spawned { asked: what } => self.told(name, Kind::Spawned, what),
            Did::ChildOpened { asked: what } => self.told(name, Kind::Child, what),
            Did::Said { message: what } => self.told(name, Kind::Said, what),
            Did::SignalAwaited(begun) => {
                let slot = self.by_name.entry(name).or_insert(Recorded::Signal { until: None, end: None });
                if let Recorded::Signal { until, end } = slot {
                    *until = Some(*begun);
                    self.signals.unheard -= u64::from(end.is_some());
                }
            }
            Did::Signalled { payload } => {
                let slot =
                    self.by_name.entry(name.clone()).or_insert(Recorded::Signal { until: None, end: None });
                let is_early = matches!(slot, Recorded::Signal { until: None, .. });
                self.signals.unheard += u64::from(is_early);
                self.answered(&name, Answer::Given(Completion::Ok(payload.clone())));
            }
        }
    }

    fn stepped(&mut self, name: Arc<str>, input: &JsonText, state: StepState) {
        let before = matches!(self.by_name.get(&name), Some(Recorded::Step { doubted: true, .. }));
        let now = matches!(&state, StepState::Failed { failure, .. } if !failure.did_not_happen);
        let step = Recorded::Step { input: input.clone(), state, doubted: before || now };
        self.by_name.insert(name, step);
    }

    fn told(&mut self, name: Arc<str>, kind: Kind, what: &JsonText) {
        self.has_child |= kind == Kind::Child;
        self.by_name.insert(name, Recorded::Told { kind, what: what.clone() });
    }

    fn answered(&mut self, name: &str, answer: Answer) {
        if let Some(
            Recorded::Completion { end, .. } | Recorded::Question { end, .. } | Recorded::Signal { end, .. },
        ) = self.by_name.get_mut(name)
        {
            *end = Some(answer);
        }
        if let Some((signal, number)) = signal_of(name) {
            let by_name = &self.by_name;
            let has_ended = |number| {
                let slot = by_name.get(&*signal_slot(signal, number));
                matches!(slot, Some(Recorded::Signal { end: Some(_), .. }))
            };
            self.signals.ended(signal, number, has_ended);
        }
    }
}
