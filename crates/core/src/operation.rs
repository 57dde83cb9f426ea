//! Named operations of a tool inside a call, and their replay.
//!
//! Every operation is matched by its name and never by its order, so steps may run in parallel and end in any
//! order. A recorded one is returned; a new one is done now. An input that differs from the recorded one is a
//! [divergence](Mismatch): the body is another than the recorded one.

mod attached;
mod awaited;
mod fold;
mod handover;
mod mismatch;
mod pairs;
mod question;
mod signal;
mod told;

pub use handover::{HANDED, Handover};
pub use mismatch::Mismatch;
pub use question::Question;
pub use signal::{signal_of, signal_slot};
pub use told::Triggered;

use crate::failure::Failure;
use crate::outcome::{Effect, JsonText, KeptBytes, Part};
use crate::time::Timestamp;
use attached::AttachedBytes;
use awaited::AwaitedThing;
use mismatch::other_input;
use signal::CallSignals;
use std::collections::BTreeMap;
use std::sync::Arc;
use windlass_args::named;

/// The name of the wait for a result of a tool that its caller runs.
pub const CLIENT: &str = "windlass.client";

/// The prefix of our own names: no tool can use them.
pub const RESERVED: &str = "windlass.";

/// An operation of a tool, under its name.
#[derive(Clone, Debug, PartialEq)]
pub struct Operation {
    /// Unique in the call.
    pub name: Arc<str>,
    /// The operation.
    pub did: Did,
}

/// The kinds of operations.
#[derive(Clone, Debug, PartialEq)]
pub enum Did {
    /// A step that must not be repeated is about to run.
    StepStarted {
        /// Its input.
        input: JsonText,
    },
    /// A step ran.
    StepEnded {
        /// Its input.
        input: JsonText,
        /// Its result.
        result: StepResult,
    },
    /// A sleep began.
    SleepBegan(Until),
    /// A sleep ended.
    SleepEnded,
    /// A key for an external answer was issued.
    KeyTaken,
    /// A wait for the answer began, until then.
    WaitBegan(Until),
    /// The answer came.
    Completed(Completion),
    /// The answer did not come in time; a later one changes nothing.
    TimedOut,
    /// A call of other tools, in a batch of its own with its own journal.
    Called {
        /// How often, from 1: failed calls are made again when the call is retried.
        generation: u32,
    },
    /// A question to a person.
    Asked(Arc<Question>),
    /// A read of key-value pairs of its session.
    PairsRead {
        /// The request, as JSON.
        asked: JsonText,
        /// The result, as JSON.
        found: JsonText,
    },
    /// A write or delete of a pair of its session, together with this fact; or a refused one, because the
    /// pair had another generation than expected.
    PairWritten {
        /// The request, as JSON.
        asked: JsonText,
        /// Whether it was written.
        written: bool,
    },
    /// An event that its tool declares was emitted.
    Emitted {
        /// The kind of event.
        event: Arc<str>,
        /// The payload, as JSON.
        payload: JsonText,
        /// The calls that it started, in the order of the triggers.
        triggered: Arc<[Triggered]>,
        /// Its place among the events of the session.
        numbered: EventNumber,
    },
    /// An event that is emitted if the call succeeds.
    EventPlanned {
        /// The kind of event.
        event: Arc<str>,
        /// The payload, as JSON.
        payload: JsonText,
    },
    /// A wait for a task or a named event of the session, until then.
    Awaited {
        /// The task or the event, as JSON.
        what: JsonText,
        /// The end of the wait.
        until: Until,
    },
    /// A wait for a signal, until then. The name is that of the signal's [slot](signal_slot).
    SignalAwaited(Until),
    /// The signal of that slot came.
    Signalled {
        /// Its payload, as JSON.
        payload: JsonText,
    },
    /// Bytes attached to its call, and stored beside the journal.
    Attached {
        /// The content, as JSON: digest, length, and media type.
        content: JsonText,
        /// The stored bytes.
        kept: KeptBytes,
    },
    /// A task was started, with its own journal.
    Spawned {
        /// The request, as JSON.
        asked: JsonText,
    },
    /// A child session was opened, with its own journal.
    ChildOpened {
        /// The request, as JSON: its name under `session`, and its rights.
        asked: JsonText,
    },
    /// A message to its session.
    Said {
        /// The message, as JSON.
        message: JsonText,
    },
    /// The attempt is handed to a process of a toolbox.
    Handed(Handover),
}

/// The place of an event among those of its session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventNumber {
    /// Its number, from 1; 0 in journals that are older than numbers.
    pub number: u64,
    /// Whether an earlier event of the session had its key, so that this one is that event told of again.
    pub is_again: bool,
}

/// The end of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Until {
    /// By the wall clock.
    pub wake_at: Timestamp,
    /// The maximum length in microseconds, whatever the wall clock says.
    pub length_us: u64,
}

/// The result of a step.
#[derive(Clone, Debug, PartialEq)]
pub enum StepResult {
    /// A value.
    Ok(JsonText),
    /// A failure, kept as evidence: the step runs again when the call is retried.
    Failed(Box<Failure>),
}

/// An external answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Completion {
    /// It succeeded.
    Ok {
        /// The value, as JSON.
        value: JsonText,
        /// Parts and raw output; most answers have none.
        extras: Option<Box<AnswerExtras>>,
    },
    /// It failed.
    Error {
        /// The error code of the external system.
        code: String,
        /// Written for the model.
        message: String,
        /// Parts and raw output; most errors have none.
        extras: Option<Box<AnswerExtras>>,
    },
    /// It was cancelled.
    Cancelled,
    /// It took too long, by the clock of whoever answers.
    TimedOut,
}

/// Parts and raw output of an external answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnswerExtras {
    /// For the model, in order.
    pub parts: Vec<Part>,
    /// The raw output, as JSON.
    pub raw: Option<JsonText>,
    /// The word to the host, as JSON.
    pub control: Option<JsonText>,
}

impl Completion {
    /// A value, and nothing else.
    pub fn ok(value: impl Into<JsonText>) -> Completion {
        Completion::Ok { value: value.into(), extras: None }
    }

    /// An error, and nothing else.
    pub fn error(code: impl Into<String>, message: impl Into<String>) -> Completion {
        Completion::Error { code: code.into(), message: message.into(), extras: None }
    }
}

named! {
    /// The kind of an operation.
    Kind {
        /// A step.
        Step = "step",
        /// A sleep.
        Sleep = "sleep",
        /// A completion.
        Completion = "completion",
        /// Calls of other tools.
        Call = "nested call",
        /// A question.
        Question = "question",
        /// A read of key-value pairs.
        PairsRead = "look at key-value pairs",
        /// A write of a key-value pair.
        PairWritten = "change of a key-value pair",
        /// An event.
        Event = "event",
        /// A signal.
        Signal = "signal",
        /// An attachment.
        Attached = "attachment",
        /// A task that was started.
        Spawned = "started task",
        /// A child session.
        Child = "child session",
        /// A message to the session.
        Said = "message",
        /// An event that is emitted if the call succeeds.
        PlannedEvent = "planned event",
        /// A wait for a task or a named event.
        Awaited = "wait for a task or event",
        /// The handover of an attempt to a toolbox.
        Handover = "handover",
    }
}

/// The record of an operation.
#[derive(Clone, Debug, PartialEq)]
enum RecordedOperation {
    Step {
        input: JsonText,
        state: StepState,
        /// It has failed once without saying that nothing happened.
        doubted: bool,
    },
    Sleep {
        until: Until,
        over: bool,
    },
    Completion {
        until: Option<Until>,
        end: Option<WaitOutcome>,
    },
    Call(Called),
    Question {
        question: Arc<Question>,
        end: Option<WaitOutcome>,
    },
    PairsRead {
        asked: JsonText,
        found: JsonText,
    },
    PairWritten {
        asked: JsonText,
        written: bool,
    },
    Event {
        event: Arc<str>,
        payload: JsonText,
        triggered: Arc<[Triggered]>,
        numbered: EventNumber,
    },
    PlannedEvent {
        event: Arc<str>,
        payload: JsonText,
    },
    Awaited(AwaitedThing),
    Signal {
        until: Option<Until>,
        end: Option<WaitOutcome>,
    },
    Attached(AttachedBytes),
    Handover(Handover),
    /// A task that was started, a child session that was opened, or a message.
    Told {
        kind: Kind,
        what: JsonText,
    },
}

#[derive(Clone, Debug, PartialEq)]
enum StepState {
    /// It must not be repeated, and was started.
    Open,
    Done(JsonText),
    /// The round of the call: a later one runs it again.
    Failed {
        failure: Box<Failure>,
        round: u32,
    },
}

/// How often other tools were called under a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Called {
    /// How often, from 1.
    pub generation: u32,
    /// The [round](crate::call::Call::round) of the call: a later one repeats failed calls.
    pub round: u32,
}

/// The end of a wait for an external answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitOutcome {
    /// An answer came.
    Given(Completion),
    /// No answer came in time.
    TimedOut,
}

/// The operations of a call, by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Operations {
    by_name: BTreeMap<Arc<str>, RecordedOperation>,
    /// Whether a nested call is recorded.
    has_call: bool,
    /// Whether a child session is.
    has_child: bool,
    /// Whether a task is that ends with the call.
    has_attached_task: bool,
    /// Whether an event is that is emitted if the call succeeds.
    has_planned_event: bool,
    /// The state of the signals, if there are any.
    signals: CallSignals,
}

/// The replay of a step.
#[derive(Clone, Debug, PartialEq)]
pub enum ReplayStep<'a> {
    /// It must run.
    Run,
    /// It ran, with this result.
    Done(&'a JsonText),
    /// It failed in this round of the call.
    Failed(&'a Failure),
    /// It was started before a crash, must not be repeated, and its outcome is not known.
    Unknown,
}

impl Operations {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Whether this name is recorded.
    pub fn knows(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    /// The combined effect of the recorded steps and nested calls: `Landed` only if that is known of all of
    /// them. A failed step has no effect only if it says so, each time. The outcome of a nested call is in
    /// its own journal; here it counts as having taken effect.
    pub fn effect(&self) -> Effect {
        let mut effect = Effect::None;
        for recorded in self.by_name.values() {
            match recorded {
                RecordedOperation::Step { state: StepState::Open, .. }
                | RecordedOperation::Step { state: StepState::Failed { .. }, doubted: true, .. } => {
                    return Effect::Unknown;
                }
                RecordedOperation::Step { state: StepState::Done(_), .. }
                | RecordedOperation::Call(_)
                | RecordedOperation::Event { .. }
                | RecordedOperation::Told { .. }
                | RecordedOperation::PairWritten { written: true, .. } => effect = Effect::Landed,
                RecordedOperation::Step { state: StepState::Failed { .. }, doubted: false, .. }
                | RecordedOperation::Sleep { .. }
                | RecordedOperation::Completion { .. }
                | RecordedOperation::Question { .. }
                | RecordedOperation::PairsRead { .. }
                | RecordedOperation::PairWritten { written: false, .. }
                | RecordedOperation::Signal { .. }
                | RecordedOperation::PlannedEvent { .. }
                | RecordedOperation::Awaited(_)
                | RecordedOperation::Handover(_)
                | RecordedOperation::Attached(_) => {}
            }
        }
        effect
    }

    /// Whether a nested call is recorded.
    pub fn has_call(&self) -> bool {
        self.has_call
    }

    /// How often other tools were called under each name.
    pub fn calls(&self) -> impl Iterator<Item = (&str, Called)> {
        self.by_name.iter().filter_map(|(name, recorded)| {
            if let RecordedOperation::Call(called) = recorded { Some((&**name, *called)) } else { None }
        })
    }

    /// How often other tools were called under this name; `None`: never.
    pub fn called(&self, name: &str) -> Result<Option<Called>, Mismatch> {
        match self.by_name.get(name) {
            None => Ok(None),
            Some(RecordedOperation::Call(called)) => Ok(Some(*called)),
            Some(other) => Err(other.other()),
        }
    }

    /// The step of this name, given this input, in this [round](crate::call::Call::round) of its call.
    pub fn step(&self, name: &str, input: &str, now: u32) -> Result<ReplayStep<'_>, Mismatch> {
        let Some(recorded) = self.by_name.get(name) else { return Ok(ReplayStep::Run) };
        let RecordedOperation::Step { input: was, state, .. } = recorded else {
            return Err(recorded.other());
        };
        if **was != *input {
            return Err(other_input(was, input));
        }
        Ok(match state {
            StepState::Open => ReplayStep::Unknown,
            StepState::Done(value) => ReplayStep::Done(value),
            StepState::Failed { failure, round } if *round == now => ReplayStep::Failed(failure),
            StepState::Failed { .. } => ReplayStep::Run,
        })
    }

    /// The end of the sleep of this name, and whether it is over; `None`: it has not begun.
    pub fn sleep(&self, name: &str) -> Result<Option<(Until, bool)>, Mismatch> {
        match self.by_name.get(name) {
            None => Ok(None),
            Some(RecordedOperation::Sleep { until, over }) => Ok(Some((*until, *over))),
            Some(other) => Err(other.other()),
        }
    }

    /// Whether the key of this name was issued.
    pub fn has_key(&self, name: &str) -> Result<bool, Mismatch> {
        match self.by_name.get(name) {
            None => Ok(false),
            Some(RecordedOperation::Completion { .. }) => Ok(true),
            Some(other) => Err(other.other()),
        }
    }

    /// The end of the wait of this name, and its outcome, as far as there is one.
    pub fn wait(&self, name: &str) -> (Option<Until>, Option<&WaitOutcome>) {
        match self.by_name.get(name) {
            Some(RecordedOperation::Completion { until, end }) => (*until, end.as_ref()),
            Some(RecordedOperation::Question { question, end }) => (Some(question.until), end.as_ref()),
            Some(RecordedOperation::Signal { until, end }) => (*until, end.as_ref()),
            Some(RecordedOperation::Awaited(awaited)) => (Some(awaited.until), awaited.end.as_ref()),
            _ => (None, None),
        }
    }

    /// The names of the issued keys.
    pub fn keys(&self) -> impl Iterator<Item = &Arc<str>> {
        self.by_name
            .iter()
            .filter(|(_, recorded)| matches!(recorded, RecordedOperation::Completion { .. }))
            .map(|(name, _)| name)
    }

    /// The question of this name, if it was asked; a different question now is a mismatch.
    pub fn asked(&self, name: &str, now: &Question) -> Result<Option<&Arc<Question>>, Mismatch> {
        match self.by_name.get(name) {
            None => Ok(None),
            Some(RecordedOperation::Question { question, .. }) => match (question.identity(), now.identity())
            {
                (was, is) if was == is => Ok(Some(question)),
                (was, is) => Err(other_input(&was, &is)),
            },
            Some(other) => Err(other.other()),
        }
    }

    /// Whether a person was asked under this name.
    pub fn is_question(&self, name: &str) -> bool {
        matches!(self.by_name.get(name), Some(RecordedOperation::Question { .. }))
    }

    /// The questions that were asked, by name.
    pub fn questions(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<Question>)> {
        self.by_name.iter().filter_map(|(name, recorded)| {
            if let RecordedOperation::Question { question, .. } = recorded {
                Some((name, question))
            } else {
                None
            }
        })
    }

    /// The slot of the next signal of this name.
    pub fn next_signal(&self, signal: &str) -> String {
        signal_slot(signal, self.signals.first_open(signal))
    }

    /// The number of signals that have come and are not received yet.
    pub fn signals_unheard(&self) -> u64 {
        self.signals.unheard
    }

    /// Whether this name is a wait for a signal.
    pub fn is_signal(&self, name: &str) -> bool {
        matches!(self.by_name.get(name), Some(RecordedOperation::Signal { .. }))
    }

    /// Whether the wait of this name is over.
    pub fn is_over(&self, name: &str, now: Timestamp) -> bool {
        match self.by_name.get(name) {
            Some(RecordedOperation::Sleep { until, over }) => *over || now >= until.wake_at,
            Some(RecordedOperation::Completion { until, end }) => {
                end.is_some() || until.is_some_and(|until| now >= until.wake_at)
            }
            Some(RecordedOperation::Question { question, end }) => {
                end.is_some() || now >= question.until.wake_at
            }
            Some(RecordedOperation::Signal { until, end }) => {
                end.is_some() || until.is_some_and(|until| now >= until.wake_at)
            }
            Some(
                RecordedOperation::Step { .. } | RecordedOperation::Call(_) | RecordedOperation::Event { .. },
            )
            | None => false,
            Some(RecordedOperation::Awaited(awaited)) => {
                awaited.end.is_some() || now >= awaited.until.wake_at
            }
            Some(RecordedOperation::Told { .. } | RecordedOperation::PlannedEvent { .. }) => false,
            Some(
                RecordedOperation::PairsRead { .. }
                | RecordedOperation::PairWritten { .. }
                | RecordedOperation::Handover(_)
                | RecordedOperation::Attached(_),
            ) => false,
        }
    }
}

impl RecordedOperation {
    fn other(&self) -> Mismatch {
        let recorded = match self {
            RecordedOperation::Step { .. } => Kind::Step,
            RecordedOperation::Sleep { .. } => Kind::Sleep,
            RecordedOperation::Completion { .. } => Kind::Completion,
            RecordedOperation::Call(_) => Kind::Call,
            RecordedOperation::Question { .. } => Kind::Question,
            RecordedOperation::PairsRead { .. } => Kind::PairsRead,
            RecordedOperation::PairWritten { .. } => Kind::PairWritten,
            RecordedOperation::Event { .. } => Kind::Event,
            RecordedOperation::Signal { .. } => Kind::Signal,
            RecordedOperation::Attached(_) => Kind::Attached,
            RecordedOperation::PlannedEvent { .. } => Kind::PlannedEvent,
            RecordedOperation::Awaited(_) => Kind::Awaited,
            RecordedOperation::Handover(_) => Kind::Handover,
            RecordedOperation::Told { kind, .. } => *kind,
        };
        Mismatch::OtherKind { recorded }
    }
}
