//! The heart: the facts a call's journal is made of, the state they add up to, and what happens next.
//!
//! Fresh, woken and recovered calls take the same path: facts are [applied](Call::apply) one after the other,
//! and [`Call::next`] says what is to be done now. Nothing else decides. A fact is recorded before it is acted
//! on, so whatever prefix of a journal survived a crash is a state from which the call goes on.

mod fact;
mod fold;

pub use fact::{
    Arguments, Ended, Fact, Given, Kind, Lost, Model, Opened, Prepared, Result, Returned, Spent, Started,
};
pub use fold::{Call, End, Illegal, Pin, State};

use crate::ids::AttemptNo;
use crate::outcome::Outcome;
use crate::tool::EffectClass;

/// What is to be done with a call now.
#[derive(Clone, Debug, PartialEq)]
pub enum Step<'a> {
    /// Find its tool, parse and validate its arguments.
    Prepare,
    /// Run it for the `attempt`th time.
    Attempt {
        /// Which attempt.
        attempt: AttemptNo,
        /// What must be on disk before the tool is started.
        intent: Intent,
        /// Whether an earlier attempt was lost with its owner.
        redrive: bool,
    },
    /// The journal says it runs, and whoever asks is not running it: its owner died. Record that.
    Lose(AttemptNo),
    /// Its attempts are over: make the outcome and record it.
    Settle(Settlement<'a>),
    /// It ended.
    Done(&'a End),
}

/// When the start of an attempt must be durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intent {
    /// Before the tool runs: after a crash it must be known that it may have.
    First,
    /// With the result: running it again after a crash changes nothing.
    WithResult,
}

/// What an ended series of attempts adds up to.
#[derive(Clone, Debug, PartialEq)]
pub enum Settlement<'a> {
    /// The tool returned.
    Returned(&'a Result),
    /// Its attempt was lost and it must not run again: nobody knows whether it took effect.
    Unknown,
}

impl Call {
    /// What is to be done now.
    pub fn next(&self) -> Step<'_> {
        match (&self.state, self.pin.as_ref().map(|pin| pin.class)) {
            (State::Opened, _) | (State::Ready | State::Interrupted { .. }, None) => Step::Prepare,
            (State::Ready, Some(class)) => self.attempt(class, false),
            (State::Interrupted { .. }, Some(class @ (EffectClass::Read | EffectClass::Keyed))) => {
                self.attempt(class, true)
            }
            (State::Interrupted { .. }, Some(EffectClass::Once)) => Step::Settle(Settlement::Unknown),
            (State::Running { attempt }, _) => Step::Lose(*attempt),
            (State::Returned { result, .. }, _) => Step::Settle(Settlement::Returned(result)),
            (State::Ended(end), _) => Step::Done(end),
        }
    }

    fn attempt(&self, class: EffectClass, redrive: bool) -> Step<'_> {
        let intent = match class {
            EffectClass::Read => Intent::WithResult,
            EffectClass::Keyed | EffectClass::Once => Intent::First,
        };
        Step::Attempt { attempt: AttemptNo(self.attempts + 1), intent, redrive }
    }

    /// The outcome, once there is one.
    pub fn outcome(&self) -> Option<&Outcome> {
        self.end().map(|end| &end.outcome)
    }

    /// How it ended, once it did.
    pub fn end(&self) -> Option<&End> {
        match &self.state {
            State::Ended(end) => Some(end),
            State::Opened
            | State::Ready
            | State::Running { .. }
            | State::Interrupted { .. }
            | State::Returned { .. } => None,
        }
    }
}
