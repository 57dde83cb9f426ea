//! A batch: the calls of one model turn, its own entry, and the comparison of a submission with the record.

use crate::call::{Call, Fact, Opened, Wake};
use crate::entry::{Entry, EntryEvent};
use crate::ids::{CallId, Ordinal};
use crate::limits::CallLimits;
use crate::outcome::{JsonText, Outcome};
use crate::siblings::{Siblings, Tally};
use crate::time::Timestamp;
use serde_json::Value;
use windlass_args::arguments::Arguments;
use windlass_args::canonical;
use windlass_args::named;

/// The maximum number of differences in a conflict.
const DIFFERENCES_MAX: usize = 8;

/// The opening of a batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Opening {
    /// The idempotency key of the batch.
    pub key: std::sync::Arc<str>,
    /// The turn of the conversation, if the caller gave one.
    pub turn: Option<String>,
    /// The host's inputs for tools and hooks, as a JSON object; outside identity.
    pub inputs: Option<JsonText>,
    /// How the end of one call affects the others; outside identity.
    pub siblings: Siblings,
    /// Whether it is streamed: calls are pushed until it is closed.
    pub streamed: bool,
    /// The call that makes it, if it is nested.
    pub parent: Option<Parent>,
    /// When its session gets a notice of provisionally answered calls; outside identity.
    pub wake: Wake,
    /// The trace that the caller's request belongs to, as a W3C `traceparent`; outside identity.
    pub traceparent: Option<std::sync::Arc<str>>,
    /// For a task: the span of the call that started it, in the same form; outside identity.
    pub trace_link: Option<std::sync::Arc<str>>,
    /// Whether the deadlines of tasks hold for its calls from their start; outside identity.
    pub task_deadlines: bool,
}

/// A provisional answer, recorded before it is given: its calls had not ended, so a notice follows each end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProvisionalAnswer {
    /// The provisionally answered calls, in order. None of them was answered so before.
    pub calls: Vec<Ordinal>,
}

/// The wall clock moved while none of the batch's time passed: it had no owner, or the clock was set. It
/// counts for none of the open calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockMove {
    /// How far, in microseconds; negative if it was set back.
    pub by_us: i64,
}

/// The call that makes a nested batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parent {
    /// The call.
    pub call: CallId,
    /// The depth of its nested calls: 1 if that call itself is not nested.
    pub depth: u32,
}

named! {
    /// The closer of a streamed batch.
    ClosedBy {
        /// Its caller.
        Caller = "caller",
        /// No push came for too long.
        Idle = "idle",
        /// Its owner was gone, and another took over.
        Restart = "restart",
    }
}

/// A batch, folded from its journal.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    /// Its own entry.
    pub opening: Opening,
    /// When it was requested.
    pub opened_at: Timestamp,
    /// When the last of its entries was noted: until then it had an owner.
    pub seen_at: Timestamp,
    /// Its calls, by ordinal.
    pub calls: Vec<Call>,
    /// The tally of its calls' ends, if it has a sibling rule.
    pub tally: Option<Box<Tally>>,
    /// Its closer, if it was streamed and is closed.
    pub closed: Option<ClosedBy>,
}

/// A journal that cannot be folded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
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
}

impl Batch {
    /// Folds the entries of a batch, in order.
    pub fn fold<'a>(entries: impl IntoIterator<Item = &'a Entry>) -> Result<Batch, Broken> {
        let mut entries = entries.into_iter().enumerate();
        let mut batch = match entries.next() {
            Some((_, Entry { at, event: EntryEvent::Batch(opening) })) => {
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

    /// Applies its next entry, at this place in its journal, from 0.
    pub fn apply(&mut self, place: usize, entry: &Entry) -> Result<(), Broken> {
        self.seen_at = match &entry.event {
            // Later entries are measured by the clock as it is now.
            EntryEvent::ClockMoved(_) => entry.at,
            EntryEvent::Batch(_)
            | EntryEvent::Closed(_)
            | EntryEvent::Answered(_)
            | EntryEvent::Call { .. } => self.seen_at.max(entry.at),
        };
        let (ordinal, fact) = match &entry.event {
            EntryEvent::Call { ordinal, fact } => (ordinal, fact),
            EntryEvent::Closed(by) if self.may_grow() => {
                self.close(*by);
                return Ok(());
            }
            EntryEvent::Answered(answer) => return self.answered(place, answer),
            EntryEvent::ClockMoved(ClockMove { by_us }) => {
                self.calls.iter_mut().for_each(|call| call.clock_moved(*by_us));
                return Ok(());
            }
            EntryEvent::Batch(_) | EntryEvent::Closed(_) => return Err(Broken::Misplaced { place }),
        };
        let known = self.calls.len();
        match (self.calls.get_mut(usize::from(ordinal.0)), fact) {
            (None, Fact::Opened(opened)) if usize::from(ordinal.0) == known && self.closed.is_none() => {
                self.calls.push(Call::new(opened.clone(), entry.at));
                Ok(())
            }
            (Some(call), fact) => {
                match call.apply(entry.at, fact) {
                    Ok(()) => self.tell_tally(*ordinal, fact),
                    // A contradiction is one call's: the others of its batch and session continue.
                    Err(illegal) => call.contradicted(&illegal),
                }
                Ok(())
            }
            (None, _) => Err(Broken::Misplaced { place }),
        }
    }

    /// An end before this entry was in the answer; a later one is reported by a notice.
    fn answered(&mut self, place: usize, answer: &ProvisionalAnswer) -> Result<(), Broken> {
        for ordinal in &answer.calls {
            let call = self.calls.get_mut(usize::from(ordinal.0));
            let open = call.filter(|call| call.end().is_none() && !call.is_provisional);
            open.ok_or(Broken::Misplaced { place })?.is_provisional = true;
        }
        Ok(())
    }

    /// An end counts; a later resolution does not.
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

    /// Whether it is streamed and not closed.
    pub fn may_grow(&self) -> bool {
        self.opening.streamed && self.closed.is_none()
    }

    /// Whether it is not over: a call's end or its close is missing.
    pub fn is_open(&self) -> bool {
        self.may_grow() || self.calls.iter().any(|call| call.end().is_none())
    }
}

/// The comparison of a submitted call with the recorded one of the same id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Compared {
    /// It is the same call.
    Same,
    /// Another tool under the same identity.
    OtherTool,
    /// Other arguments; the JSON pointers that differ, the first few. Empty if one of them is not JSON.
    OtherArgs(Vec<String>),
}

/// Compares a submission with the record: canonically if both parse, else by bytes.
pub fn compare(recorded: &Opened, submitted: &Opened, limits: &CallLimits) -> Compared {
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

/// The key of a batch without one: equal for equal turns, ids, tools and arguments.
pub fn derived_key(turn: Option<&str>, calls: &[&Opened], limits: &CallLimits) -> String {
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
fn value(args: &Arguments, limits: &CallLimits) -> Option<Value> {
    args.parse(&limits.args).ok()
}
