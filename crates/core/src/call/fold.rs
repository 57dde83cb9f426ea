//! The state that facts add up to.

use super::fact::{Ended, Fact, Kind, Model, Opened, Prepared, Result, Returned, Spent, Started};
use crate::ids::AttemptNo;
use crate::outcome::{ModelAnswer, Outcome, Part, Value};
use crate::time::Timestamp;
use crate::tool::{Digest, EffectClass};

/// A call, as its journal adds up to it.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// What was asked for.
    pub opened: Opened,
    /// When.
    pub opened_at: Timestamp,
    /// What it is pinned to, once prepared.
    pub pin: Option<Pin>,
    /// How many attempts were started.
    pub attempts: u32,
    /// How many of them were lost with their owner.
    pub deaths: u32,
    /// When the first attempt started.
    pub first_started_at: Option<Timestamp>,
    /// How long its attempts ran, in microseconds.
    pub ran_us: u64,
    /// Where it stands.
    pub state: State,
}

/// What a call is pinned to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pin {
    /// The tool's contract.
    pub contract: Digest,
    /// The tool's class, which decides what may happen after a crash.
    pub class: EffectClass,
}

/// Where a call stands.
#[derive(Clone, Debug, PartialEq)]
pub enum State {
    /// Asked for.
    Opened,
    /// Prepared, and not started yet.
    Ready,
    /// An attempt runs, or was running when its owner died.
    Running {
        /// Which one.
        attempt: AttemptNo,
    },
    /// An attempt was lost with its owner.
    Interrupted {
        /// Which one.
        attempt: AttemptNo,
    },
    /// An attempt returned.
    Returned {
        /// Which one.
        attempt: AttemptNo,
        /// What.
        result: Result,
    },
    /// It is over.
    Ended(Box<End>),
}

impl State {
    /// Its name, for people and for the API.
    pub fn name(&self) -> &'static str {
        match self {
            State::Opened | State::Ready => "queued",
            State::Running { .. } | State::Interrupted { .. } | State::Returned { .. } => "running",
            State::Ended(end) => end.outcome.name(),
        }
    }
}

/// How a call ended.
#[derive(Clone, Debug, PartialEq)]
pub struct End {
    /// The outcome.
    pub outcome: Outcome,
    /// What the model is told.
    pub model: ModelAnswer,
    /// Where its time went.
    pub spent: Spent,
    /// When.
    pub at: Timestamp,
}

/// A fact that cannot follow what is recorded: the journal is damaged, or the code that wrote it is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a call that is {state} cannot have {fact} (attempt {attempts})")]
pub struct Illegal {
    /// Where the call stood.
    pub state: &'static str,
    /// What was to be applied.
    pub fact: Kind,
    /// How many attempts it had.
    pub attempts: u32,
}

impl Call {
    /// A call that was just asked for.
    pub fn new(opened: Opened, at: Timestamp) -> Call {
        Call {
            opened,
            opened_at: at,
            pin: None,
            attempts: 0,
            deaths: 0,
            first_started_at: None,
            ran_us: 0,
            state: State::Opened,
        }
    }

    /// Adds a fact. The legal pairs are listed; everything else is [`Illegal`] and changes nothing.
    pub fn apply(&mut self, at: Timestamp, fact: &Fact) -> std::result::Result<(), Illegal> {
        match (&self.state, fact) {
            (State::Opened | State::Ready, Fact::Prepared(prepared)) => {
                self.prepared(*prepared);
                self.state = State::Ready;
            }
            // A tool that changed while its owner was gone is asked again, as long as running again is allowed.
            (State::Interrupted { .. }, Fact::Prepared(prepared)) => self.prepared(*prepared),
            (State::Ready, Fact::Started(started)) if self.is_next(started) && !started.redrive => {
                self.started(at, *started);
            }
            (State::Interrupted { .. }, Fact::Started(started)) if self.may_run_again(started) => {
                self.started(at, *started);
            }
            (State::Running { attempt }, Fact::Lost(lost)) if *attempt == lost.attempt => {
                self.deaths += 1;
                self.state = State::Interrupted { attempt: lost.attempt };
            }
            (State::Running { attempt }, Fact::Returned(returned)) if *attempt == returned.attempt => {
                self.returned(returned);
            }
            (
                State::Opened | State::Ready | State::Interrupted { .. } | State::Returned { .. },
                Fact::Ended(ended),
            ) if self.can_end(ended) => self.ended(at, ended),
            (state, fact) => {
                return Err(Illegal { state: state.name(), fact: fact.kind(), attempts: self.attempts });
            }
        }
        Ok(())
    }

    fn is_next(&self, started: &Started) -> bool {
        started.attempt.0 == self.attempts + 1
    }

    fn may_run_again(&self, started: &Started) -> bool {
        let repeatable = self.pin.is_some_and(|pin| pin.class != EffectClass::Once);
        self.is_next(started) && started.redrive && repeatable
    }

    /// An end needs an outcome of its own, unless an attempt returned one; and a model answer that is the
    /// value needs a value in the journal.
    fn can_end(&self, ended: &Ended) -> bool {
        let value = match (&ended.outcome, &self.state) {
            (Some(Outcome::Succeeded(success)), _)
            | (None, State::Returned { result: Result::Ok(success), .. }) => Some(&success.value),
            (Some(_), _) | (None, State::Returned { result: Result::Failed(_), .. }) => None,
            (None, _) => return false,
        };
        match &ended.model {
            Model::ValueText | Model::ValueString => matches!(value, Some(Value::Inline(_))),
            Model::Own(_) => true,
        }
    }

    fn prepared(&mut self, prepared: Prepared) {
        self.pin = Some(Pin { contract: prepared.contract, class: prepared.class });
    }

    fn started(&mut self, at: Timestamp, started: Started) {
        self.attempts += 1;
        self.first_started_at.get_or_insert(at);
        self.state = State::Running { attempt: started.attempt };
    }

    fn returned(&mut self, returned: &Returned) {
        self.ran_us += returned.ran_us;
        self.state = State::Returned { attempt: returned.attempt, result: returned.result.clone() };
    }

    fn ended(&mut self, at: Timestamp, ended: &Ended) {
        // What was returned becomes the outcome; the state it is taken from is over.
        let outcome = match (&ended.outcome, std::mem::replace(&mut self.state, State::Opened)) {
            (Some(outcome), _) => outcome.clone(),
            (None, State::Returned { result: Result::Ok(success), .. }) => Outcome::Succeeded(success),
            (None, State::Returned { result: Result::Failed(failure), .. }) => Outcome::Failed(failure),
            (None, other) => {
                self.state = other;
                return;
            }
        };
        let model = answer(&outcome, &ended.model);
        self.state = State::Ended(Box::new(End { outcome, model, spent: ended.spent, at }));
    }
}

/// The model's answer, read from what was recorded: never projected anew.
fn answer(outcome: &Outcome, model: &Model) -> ModelAnswer {
    let value = match outcome {
        Outcome::Succeeded(success) => match &success.value {
            Value::Inline(text) => &**text,
            Value::Kept { .. } => "",
        },
        Outcome::Failed(_) | Outcome::Denied { .. } | Outcome::Cancelled { .. } | Outcome::Unknown => "",
    };
    let text = match model {
        Model::Own(answer) => return answer.clone(),
        Model::ValueText => value.to_string(),
        Model::ValueString => serde_json::from_str(value).unwrap_or_default(),
    };
    ModelAnswer { parts: vec![Part::Text(text)], is_error: false }
}
