//! A batch: the calls of one model turn, its own entry, and how a submission is compared with the record.

use crate::call::{Arguments, Call, Fact, Given, Illegal, Opened};
use crate::canonical;
use crate::entry::{Entry, Event};
use crate::failure::named;
use crate::ids::{CallId, Ordinal};
use crate::json;
use crate::limits::Limits;
use crate::outcome::{JsonText, Outcome};
use crate::siblings::{Siblings, Tally};
use crate::time::Timestamp;
use serde_json::Value;

/// How many differing places a conflict names.
const DIFFERENCES_MAX: usize = 8;

/// A batch was asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Opening {
    /// What makes it one batch, however often it is submitted.
    pub key: std::sync::Arc<str>,
    /// The turn of the conversation, if the caller said so.
    pub turn: Option<String>,
    /// What the host attached for tools and hooks, as a JSON object; outside identity.
    pub inputs: Option<JsonText>,
    /// What becomes of its other calls when one of them ends; outside identity.
    pub siblings: Siblings,
    /// Whether its calls come one after the other, until it is closed.
    pub streamed: bool,
    /// The call inside which its calls run, if they do.
    pub parent: Option<Parent>,
}

/// The call inside which those of a batch run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parent {
    /// Which.
    pub call: CallId,
    /// How deep those inside it are: 1 if that call runs inside no other.
    pub depth: u32,
}

named! {
    /// Who closed a batch whose calls came one after the other.
    ClosedBy {
        /// Its caller.
        Caller = "caller",
        /// Nobody pushed for too long.
        Idle = "idle",
        /// Its owner was gone, and another took over.
        Restart = "restart",
    }
}

/// A batch, as its journal adds up to it.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    /// Its own entry.
    pub opening: Opening,
    /// When it was asked for.
    pub opened_at: Timestamp,
    /// When the last of its entries was noted: until then somebody owned it.
    pub seen_at: Timestamp,
    /// Its calls, by ordinal.
    pub calls: Vec<Call>,
    /// What their ends add up to, if it asks something of them together.
    pub tally: Option<Box<Tally>>,
    /// Who closed it, if its calls came one after the other and it is closed.
    pub closed: Option<ClosedBy>,
}

/// A journal that does not add up.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// The first entry is not the batch's own.
    #[error("its first entry is not the opening of a batch")]
    NoOpening,
    /// A second opening, or a call out of order.
    #[error("entry {place} does not belong there")]
    Misplaced {
        /// Its place in the batch's journal, from 0.
        place: usize,
    },
    /// A fact that cannot follow.
    #[error("entry {place}: {illegal}")]
    Illegal {
        /// Its place in the batch's journal, from 0.
        place: usize,
        /// Why not.
        illegal: Illegal,
    },
}

impl Batch {
    /// Adds up the entries of a batch, in order.
    pub fn fold<'a>(entries: impl IntoIterator<Item = &'a Entry>) -> Result<Batch, Broken> {
        let mut entries = entries.into_iter().enumerate();
        let mut batch = match entries.next() {
            Some((_, Entry { at, event: Event::Batch(opening) })) => {
                let tally = Tally::of(opening.siblings);
                let (opening, calls, closed) = (opening.clone(), Vec::new(), None);
                Batch { opening, opened_at: *at, seen_at: *at, calls, tally, closed }
            }
            _ => return Err(Broken::NoOpening),
        };
        for (place, entry) in entries {
            batch.apply(place, entry)?;
        }
        Ok(batch)
    }

    /// Adds its next entry, which has this place in its journal, from 0.
    pub fn apply(&mut self, place: usize, entry: &Entry) -> Result<(), Broken> {
        self.seen_at = self.seen_at.max(entry.at);
        let (ordinal, fact) = match &entry.event {
            Event::Call { ordinal, fact } => (ordinal, fact),
            Event::Closed(by) if self.may_grow() => {
                self.close(*by);
                return Ok(());
            }
            Event::Batch(_) | Event::Closed(_) => return Err(Broken::Misplaced { place }),
        };
        let known = self.calls.len();
        match (self.calls.get_mut(usize::from(ordinal.0)), fact) {
            (None, Fact::Opened(opened)) if usize::from(ordinal.0) == known && self.closed.is_none() => {
                self.calls.push(Call::new(opened.clone(), entry.at));
                Ok(())
            }
            (Some(call), fact) => {
                call.apply(entry.at, fact).map_err(|illegal| Broken::Illegal { place, illegal })?;
                self.tell_tally(*ordinal, fact);
                Ok(())
            }
            (None, _) => Err(Broken::Misplaced { place }),
        }
    }

    /// An end counts; that it became known later how a call ended does not.
    fn tell_tally(&mut self, ordinal: Ordinal, fact: &Fact) {
        let may_grow = self.may_grow();
        let (Some(tally), Fact::Ended(_)) = (&mut self.tally, fact) else { return };
        let outcome = self.calls.get(usize::from(ordinal.0)).and_then(Call::outcome);
        let succeeded = matches!(outcome, Some(Outcome::Succeeded(_)));
        let calls = (!may_grow).then_some(self.calls.len());
        tally.end(ordinal, succeeded, calls);
    }

    fn close(&mut self, by: ClosedBy) {
        self.closed = Some(by);
        let calls = self.calls.len();
        self.tally.iter_mut().for_each(|tally| _ = tally.count(calls));
    }

    /// Whether its calls come one after the other and it is not closed.
    pub fn may_grow(&self) -> bool {
        self.opening.streamed && self.closed.is_none()
    }

    /// Whether something of it is still to come: the end of a call, or its close.
    pub fn is_open(&self) -> bool {
        self.may_grow() || self.calls.iter().any(|call| call.end().is_none())
    }
}

/// How a submitted call compares with the recorded one of the same id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Compared {
    /// The same call.
    Same,
    /// Another tool under the same identity.
    OtherTool,
    /// Other arguments; the JSON pointers that differ, the first few. Empty if one of them is no JSON.
    OtherArgs(Vec<String>),
}

/// Compares what was submitted with what is recorded: canonical if both parse, else the bytes.
pub fn compare(recorded: &Opened, submitted: &Opened, limits: &Limits) -> Compared {
    if recorded.tool != submitted.tool {
        return Compared::OtherTool;
    }
    if recorded.args.text == submitted.args.text {
        return Compared::Same;
    }
    match (value(&recorded.args, limits), value(&submitted.args, limits)) {
        (Some(ours), Some(theirs)) if canonical::text(&ours) == canonical::text(&theirs) => Compared::Same,
        (Some(ours), Some(theirs)) => {
            Compared::OtherArgs(canonical::differences(&ours, &theirs, DIFFERENCES_MAX))
        }
        _ => Compared::OtherArgs(Vec::new()),
    }
}

/// The key of a batch whose caller gave none: the same for the same turn, ids, tools and arguments.
pub fn derived_key(turn: Option<&str>, calls: &[&Opened], limits: &Limits) -> String {
    let mut hasher = blake3::Hasher::new();
    let mut field = |bytes: &[u8]| {
        hasher.update(&(bytes.len() as u64).to_le_bytes());
        hasher.update(bytes);
    };
    field(turn.unwrap_or_default().as_bytes());
    for call in calls {
        field(call.id.as_bytes());
        field(call.tool.as_bytes());
        match value(&call.args, limits) {
            Some(value) => field(canonical::text(&value).as_bytes()),
            None => field(call.args.text.as_bytes()),
        }
    }
    hasher.finalize().to_hex()[..32].to_string()
}

/// Arguments as a value, if they are JSON. Absent, null and empty arguments are an empty object.
fn value(args: &Arguments, limits: &Limits) -> Option<Value> {
    parse_args(args, limits).ok()
}

/// Parses arguments as they were given. Absent, null and empty arguments are an empty object.
pub fn parse_args(args: &Arguments, limits: &Limits) -> Result<Value, json::Problem> {
    let text = args.text.trim_ascii();
    match (args.given, text) {
        (_, "" | "null") => Ok(Value::Object(serde_json::Map::new())),
        (Given::Json | Given::Text, text) => json::parse(text, limits),
    }
}
