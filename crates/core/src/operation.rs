//! What a tool did by name inside a call, and what a replay of its body is told of that.
//!
//! Every operation is matched by its name and never by its order, so steps may run in parallel and end in any order.
//! What is recorded is returned; what is not is done now. An input that is not the recorded one is a
//! [divergence](Mismatch): the body is another than the one that was recorded.

mod attached;
mod fold;
mod mismatch;
mod pairs;
mod question;
mod signal;
mod told;

pub use mismatch::Mismatch;
pub use question::Question;
pub use signal::{signal_of, signal_slot};
pub use told::Triggered;

use crate::failure::{Failure, named};
use crate::outcome::{Effect, JsonText, Kept};
use crate::time::Timestamp;
use attached::Attached;
use mismatch::other_input;
use signal::Signals;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The name under which the result of a tool that its caller runs is waited for.
pub const CLIENT: &str = "windlass.client";

/// Names that begin so are ours: no tool can use them for what it does.
pub const RESERVED: &str = "windlass.";

/// Something a tool did, under its name.
#[derive(Clone, Debug, PartialEq)]
pub struct Operation {
    /// Unique in the call.
    pub name: Arc<str>,
    /// What.
    pub did: Did,
}

/// What a tool did.
#[derive(Clone, Debug, PartialEq)]
pub enum Did {
    /// A step that must not be repeated is about to run.
    StepStarted {
        /// What it is given.
        input: JsonText,
    },
    /// A step ran.
    StepEnded {
        /// What it was given.
        input: JsonText,
        /// What came of it.
        result: StepResult,
    },
    /// It sleeps.
    SleepBegan(Until),
    /// It has slept.
    SleepEnded,
    /// The key by which the world outside answers was given out.
    KeyTaken,
    /// It waits for the answer, until then.
    WaitBegan(Until),
    /// The answer came.
    Completed(Completion),
    /// The answer did not come in time; what comes later changes nothing.
    TimedOut,
    /// It calls other tools, in a batch of its own whose journal says what became of that.
    Called {
        /// How often, from 1: what failed is called again when the call is tried again.
        generation: u32,
    },
    /// It asks a person.
    Asked(Arc<Question>),
    /// It read key-value pairs of its session.
    PairsRead {
        /// Which, as JSON.
        asked: JsonText,
        /// What was there, as JSON.
        found: JsonText,
    },
    /// It wrote or deleted a pair of its session, together with this fact; or it did not, because the pair had another
    /// generation than was expected.
    PairWritten {
        /// What, as JSON.
        asked: JsonText,
        /// Whether it did.
        written: bool,
    },
    /// It told of an event that its tool declares.
    Emitted {
        /// The kind of event.
        event: Arc<str>,
        /// What happened, as JSON.
        payload: JsonText,
        /// The calls that this started, in the order of the triggers.
        triggered: Arc<[Triggered]>,
    },
    /// It waits for a signal, until then. The name is that of the signal's [slot](signal_slot).
    SignalAwaited(Until),
    /// The signal of that slot came.
    Signalled {
        /// What it says, as JSON.
        payload: JsonText,
    },
    /// It attached bytes to its call, and they are kept beside the journal.
    Attached {
        /// Which, as JSON: their digest, how many they are, and their media type.
        content: JsonText,
        /// Where they are.
        kept: Kept,
    },
    /// It started a task, whose own journal says what became of that.
    Spawned {
        /// Which, as JSON.
        asked: JsonText,
    },
    /// It opened a child session, whose own journal says what became of that.
    ChildOpened {
        /// Which, as JSON: its name under `session`, and what it may.
        asked: JsonText,
    },
    /// It said something to its session.
    Said {
        /// What, as JSON.
        message: JsonText,
    },
}

/// Until when something is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Until {
    /// By the wall clock.
    pub wake_at: Timestamp,
    /// How long at most, in microseconds, whatever the wall clock says.
    pub length_us: u64,
}

/// What came of a step.
#[derive(Clone, Debug, PartialEq)]
pub enum StepResult {
    /// A value.
    Ok(JsonText),
    /// A failure, kept as evidence: the step runs again when the call is tried again.
    Failed(Box<Failure>),
}

/// What the world outside answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Completion {
    /// It is done, with this value.
    Ok(JsonText),
    /// It went wrong.
    Error {
        /// A code of the other side's.
        code: String,
        /// Written for the model.
        message: String,
    },
    /// It was called off.
    Cancelled,
}

named! {
    /// What an operation is.
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
        /// A look at key-value pairs.
        PairsRead = "look at key-value pairs",
        /// A change of a key-value pair.
        PairWritten = "change of a key-value pair",
        /// An event.
        Event = "event",
        /// A signal.
        Signal = "signal",
        /// Bytes that are kept.
        Attached = "attachment",
        /// A task that was started.
        Spawned = "started task",
        /// A child session.
        Child = "child session",
        /// Something that was said to the session.
        Said = "message",
    }
}

/// What is recorded of an operation.
#[derive(Clone, Debug, PartialEq)]
enum Recorded {
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
        end: Option<Answer>,
    },
    Call(Called),
    Question {
        question: Arc<Question>,
        end: Option<Answer>,
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
    },
    Signal {
        until: Option<Until>,
        end: Option<Answer>,
    },
    Attached(Attached),
    /// A task that was started, a child session that was opened, or something that was said.
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
    /// In which round of the call: a later one runs it again.
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
    /// In which [round](crate::call::Call::round) of the call: a later one calls again what failed.
    pub round: u32,
}

/// How a wait for the world outside ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It answered.
    Given(Completion),
    /// It did not, in time.
    TimedOut,
}

/// The operations of a call, by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Operations {
    by_name: BTreeMap<Arc<str>, Recorded>,
    /// Whether a nested call is recorded.
    has_call: bool,
    /// Whether a child session is.
    has_child: bool,
    /// Where the signals stand, if there are any.
    signals: Signals,
}

/// What a replay is told of a step.
#[derive(Clone, Debug, PartialEq)]
pub enum Step<'a> {
    /// It is to run.
    Run,
    /// It ran, with this result.
    Done(&'a JsonText),
    /// It failed in this try of the call.
    Failed(&'a Failure),
    /// It was started before a crash, must not be repeated, and nobody knows what came of it.
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

    /// Whether something is recorded under this name.
    pub fn knows(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    /// What the steps and nested calls that are recorded have done together: `Landed` only if that is known of all of them. A
    /// step that failed has done nothing only if it says so, each time. What became of a nested call its own journal says;
    /// here it counts as one that has taken effect.
    pub fn effect(&self) -> Effect {
        let mut effect = Effect::None;
        for recorded in self.by_name.values() {
            match recorded {
                Recorded::Step { state: StepState::Open, .. }
                | Recorded::Step { state: StepState::Failed { .. }, doubted: true, .. } => {
                    return Effect::Unknown;
                }
                Recorded::Step { state: StepState::Done(_), .. }
                | Recorded::Call(_)
                | Recorded::Event { .. }
                | Recorded::Told { .. }
                | Recorded::PairWritten { written: true, .. } => effect = Effect::Landed,
                Recorded::Step { state: StepState::Failed { .. }, doubted: false, .. }
                | Recorded::Sleep { .. }
                | Recorded::Completion { .. }
                | Recorded::Question { .. }
                | Recorded::PairsRead { .. }
                | Recorded::PairWritten { written: false, .. }
                | Recorded::Signal { .. }
                | Recorded::Attached(_) => {}
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
            if let Recorded::Call(called) = recorded { Some((&**name, *called)) } else { None }
        })
    }

    /// How often other tools were called under this name; `None`: never.
    pub fn called(&self, name: &str) -> Result<Option<Called>, Mismatch> {
        match self.by_name.get(name) {
            None => Ok(None),
            Some(Recorded::Call(called)) => Ok(Some(*called)),
            Some(other) => Err(other.other()),
        }
    }

    /// The step of this name, given this input, in this [round](crate::call::Call::round) of its call.
    pub fn step(&self, name: &str, input: &str, now: u32) -> Result<Step<'_>, Mismatch> {
        let Some(recorded) = self.by_name.get(name) else { return Ok(Step::Run) };
        let Recorded::Step { input: was, state, .. } = recorded else { return Err(recorded.other()) };
        if **was != *input {
            return Err(other_input(was, input));
        }
        Ok(match state {
            StepState::Open => Step::Unknown,
            StepState::Done(value) => Step::Done(value),
            StepState::Failed { failure, round } if *round == now => Step::Failed(failure),
            StepState::Failed { .. } => Step::Run,
        })
    }

    /// Until when the sleep of this name is, and whether it is over; `None`: it has not begun.
    pub fn sleep(&self, name: &str) -> Result<Option<(Until, bool)>, Mismatch> {
        match self.by_name.get(name) {
            None => Ok(None),
            Some(Recorded::Sleep { until, over }) => Ok(Some((*until, *over))),
            Some(other) => Err(other.other()),
        }
    }

    /// Whether the key of this name was given out.
    pub fn has_key(&self, name: &str) -> Result<bool, Mismatch> {
        match self.by_name.get(name) {
            None => Ok(false),
            Some(Recorded::Completion { .. }) => Ok(true),
            Some(other) => Err(other.other()),
        }
    }

    /// Until when the answer of this name is waited for, and how that ended, as far as it did.
    pub fn wait(&self, name: &str) -> (Option<Until>, Option<&Answer>) {
        match self.by_name.get(name) {
            Some(Recorded::Completion { until, end }) => (*until, end.as_ref()),
            Some(Recorded::Question { question, end }) => (Some(question.until), end.as_ref()),
            Some(Recorded::Signal { until, end }) => (*until, end.as_ref()),
            _ => (None, None),
        }
    }

    /// The names of the keys that were given out.
    pub fn keys(&self) -> impl Iterator<Item = &Arc<str>> {
        self.by_name
            .iter()
            .filter(|(_, recorded)| matches!(recorded, Recorded::Completion { .. }))
            .map(|(name, _)| name)
    }

    /// The question of this name, if it was asked; one that is asked otherwise now is a mismatch.
    pub fn asked(&self, name: &str, now: &Question) -> Result<Option<&Arc<Question>>, Mismatch> {
        match self.by_name.get(name) {
            None => Ok(None),
            Some(Recorded::Question { question, .. }) => match (question.identity(), now.identity()) {
                (was, is) if was == is => Ok(Some(question)),
                (was, is) => Err(other_input(&was, &is)),
            },
            Some(other) => Err(other.other()),
        }
    }

    /// Whether a person was asked under this name.
    pub fn is_question(&self, name: &str) -> bool {
        matches!(self.by_name.get(name), Some(Recorded::Question { .. }))
    }

    /// The questions that were asked, by name.
    pub fn questions(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<Question>)> {
        self.by_name.iter().filter_map(|(name, recorded)| match recorded {
            Recorded::Question { question, .. } => Some((name, question)),
            Recorded::Step { .. }
            | Recorded::Sleep { .. }
            | Recorded::Completion { .. }
            | Recorded::Call(_)
            | Recorded::PairsRead { .. }
            | Recorded::PairWritten { .. }
            | Recorded::Event { .. }
            | Recorded::Signal { .. }
            | Recorded::Told { .. }
            | Recorded::Attached(_) => None,
        })
    }

    /// The slot that the next signal of this name takes.
    pub fn next_signal(&self, signal: &str) -> String {
        signal_slot(signal, self.signals.first_open(signal))
    }

    /// How many signals have come and are not received yet.
    pub fn signals_unheard(&self) -> u64 {
        self.signals.unheard
    }

    /// Whether a signal is waited for under this name.
    pub fn is_signal(&self, name: &str) -> bool {
        matches!(self.by_name.get(name), Some(Recorded::Signal { .. }))
    }

    /// Whether what was waited for under this name is over.
    pub fn is_over(&self, name: &str, now: Timestamp) -> bool {
        match self.by_name.get(name) {
            Some(Recorded::Sleep { until, over }) => *over || now >= until.wake_at,
            Some(Recorded::Completion { until, end }) => {
                end.is_some() || until.is_some_and(|until| now >= until.wake_at)
            }
            Some(Recorded::Question { question, end }) => end.is_some() || now >= question.until.wake_at,
            Some(Recorded::Signal { until, end }) => {
                end.is_some() || until.is_some_and(|until| now >= until.wake_at)
            }
            Some(Recorded::Step { .. } | Recorded::Call(_) | Recorded::Event { .. }) | None => false,
            Some(Recorded::Told { .. }) => false,
            Some(Recorded::PairsRead { .. } | Recorded::PairWritten { .. } | Recorded::Attached(_)) => false,
        }
    }
}

impl Recorded {
    fn other(&self) -> Mismatch {
        let recorded = match self {
            Recorded::Step { .. } => Kind::Step,
            Recorded::Sleep { .. } => Kind::Sleep,
            Recorded::Completion { .. } => Kind::Completion,
            Recorded::Call(_) => Kind::Call,
            Recorded::Question { .. } => Kind::Question,
            Recorded::PairsRead { .. } => Kind::PairsRead,
            Recorded::PairWritten { .. } => Kind::PairWritten,
            Recorded::Event { .. } => Kind::Event,
            Recorded::Signal { .. } => Kind::Signal,
            Recorded::Attached(_) => Kind::Attached,
            Recorded::Told { kind, .. } => *kind,
        };
        Mismatch::OtherKind { recorded }
    }
}
