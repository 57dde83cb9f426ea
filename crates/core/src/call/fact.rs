//! The facts a call's journal is made of. A released kind never changes; fields may be added.

use crate::failure::{Failure, named};
use crate::ids::AttemptNo;
use crate::outcome::{JsonText, ModelAnswer, Outcome, Success};
use crate::tool::{Digest, EffectClass};
use std::sync::Arc;

/// One fact about a call.
#[derive(Clone, Debug, PartialEq)]
pub enum Fact {
    /// It was asked for.
    Opened(Opened),
    /// Its tool was found and its arguments fit.
    Prepared(Prepared),
    /// An attempt starts.
    Started(Started),
    /// An attempt was running when its owner died.
    Lost(Lost),
    /// An attempt returned.
    Returned(Returned),
    /// The call is over.
    Ended(Box<Ended>),
}

named! {
    /// The kind of a fact, as it is named to people.
    Kind {
        /// [`Fact::Opened`]
        Opened = "opened",
        /// [`Fact::Prepared`]
        Prepared = "prepared",
        /// [`Fact::Started`]
        Started = "started",
        /// [`Fact::Lost`]
        Lost = "lost",
        /// [`Fact::Returned`]
        Returned = "returned",
        /// [`Fact::Ended`]
        Ended = "ended",
    }
}

impl Fact {
    /// Its kind.
    pub fn kind(&self) -> Kind {
        match self {
            Fact::Opened(_) => Kind::Opened,
            Fact::Prepared(_) => Kind::Prepared,
            Fact::Started(_) => Kind::Started,
            Fact::Lost(_) => Kind::Lost,
            Fact::Returned(_) => Kind::Returned,
            Fact::Ended(_) => Kind::Ended,
        }
    }
}

/// It was asked for: what was submitted, before anything was made of it. Identity compares this.
#[derive(Clone, Debug, PartialEq)]
pub struct Opened {
    /// The id the model gave it.
    pub id: Arc<str>,
    /// The tool, as it was asked for: a name or a stable id.
    pub tool: Arc<str>,
    /// The arguments as they were given.
    pub args: Arguments,
    /// Opaque data of the model's provider, as JSON; returned with the answer.
    pub provider: Option<JsonText>,
}

/// Arguments as they were given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arguments {
    /// Whether they came parsed or as text.
    pub given: Given,
    /// Compact JSON, or the text.
    pub text: Arc<str>,
}

named! {
    /// The form in which arguments were given.
    Given {
        /// As JSON.
        Json = "json",
        /// As the raw text the model wrote, which may be no JSON at all.
        Text = "text",
    }
}

/// Its tool was found and its arguments fit: the call is pinned to the tool's contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prepared {
    /// The contract of the tool.
    pub contract: Digest,
    /// The class it had.
    pub class: EffectClass,
}

/// An attempt starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Started {
    /// Which one.
    pub attempt: AttemptNo,
    /// Whether it is because an earlier one was lost.
    pub redrive: bool,
}

/// An attempt was running when its owner died.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost {
    /// Which one.
    pub attempt: AttemptNo,
}

/// An attempt returned.
#[derive(Clone, Debug, PartialEq)]
pub struct Returned {
    /// Which one.
    pub attempt: AttemptNo,
    /// How long it ran, in microseconds, by the monotonic clock.
    pub ran_us: u64,
    /// What it returned.
    pub result: Result,
}

/// What an attempt returned.
#[derive(Clone, Debug, PartialEq)]
pub enum Result {
    /// A value.
    Ok(Success),
    /// A failure.
    Failed(Box<Failure>),
}

/// The call is over.
#[derive(Clone, Debug, PartialEq)]
pub struct Ended {
    /// How; `None` if exactly as its last attempt returned, which is then not written twice.
    pub outcome: Option<Outcome>,
    /// What the model is told, fixed for ever.
    pub model: Model,
    /// Where its time went.
    pub spent: Spent,
}

/// What the model is told, written once: most answers are the value itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Model {
    /// The value's compact JSON, as it stands in the journal.
    ValueText,
    /// The string that the value is.
    ValueString,
    /// These parts.
    Own(ModelAnswer),
}

/// Where a call's time went, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// From being asked for until its first start.
    pub queued_us: u64,
    /// Parked.
    pub waited_us: u64,
    /// Running, over all attempts.
    pub ran_us: u64,
}
