//! The loop guard: notices that a session makes the same calls over and over and gets the same results.
//!
//! A batch counts as the set of its calls, each with its result. The guard sees a loop when the last
//! `loop_batches_max` batches were the same, or when the last batches are a cycle of two to four batches gone through
//! `loop_cycles_max` times. From then on every batch that has only calls of that loop is to be answered with
//! [`Loop::failure`] instead of a run. One other call lifts it, because the batch it is in runs and is then the last.
//!
//! It is fed by whoever owns the session, and holds nothing that the journal does not: [`Guard::note`] takes each batch
//! once, when the last of its calls ended, so the batches of a session in the order of their last `ended` entries make
//! the same guard again. What is needed of a call is in its `opened` (tool, arguments) and its `ended` (outcome). Only
//! the last `loop_calls_max` calls matter, so reading may begin that far back.

use crate::batch::parse_args;
use crate::call::Arguments;
use crate::canonical;
use crate::code::Code;
use crate::failure::{Failure, FailureClass, Source};
use crate::limits::Limits;
use crate::outcome::{Outcome, Part, Success, Value};
use std::collections::VecDeque;

/// The longest cycle of batches that is looked for.
pub const CYCLE_BATCHES_MAX: usize = 4;

/// Enough of a hash to tell calls of one session apart.
type Sum = [u8; 16];

/// A call by what it asks for: the tool and the canonical arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Asked(Sum);

impl Asked {
    /// The call of `tool` (its stable id, so that a new name is no new tool) with these arguments, as they were
    /// submitted: canonical if they are JSON, else their bytes.
    pub fn new(tool: &str, args: &Arguments, limits: &Limits) -> Asked {
        match parse_args(args, limits) {
            Ok(value) => Asked::of_value(tool, &value),
            Err(_) => Asked(sum(&[b"text", tool.as_bytes(), args.text.as_bytes()])),
        }
    }

    /// The same, of arguments that are parsed already. It must be what was submitted, before repair.
    pub fn of_value(tool: &str, args: &serde_json::Value) -> Asked {
        Asked(sum(&[b"json", tool.as_bytes(), canonical::text(args).as_bytes()]))
    }
}

/// What a call gave, as far as the same can be told from something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Gave(Sum);

impl Gave {
    /// What the outcome is. References under which operators find an internal error, and names of artifacts, are new
    /// each time: the first are passed over, the second make a result that is never the same.
    pub fn new(outcome: &Outcome) -> Gave {
        let name = outcome.name().as_bytes();
        Gave(match outcome {
            Outcome::Succeeded(success) => return Gave::of_success(success),
            Outcome::Failed(failure) => {
                let is_internal = failure.class == FailureClass::Internal;
                let told = if is_internal { "" } else { &failure.message };
                let tool_code = failure.tool_code.as_deref().unwrap_or_default();
                let code = failure.code.as_str().as_bytes();
                sum(&[
                    name,
                    failure.class.as_str().as_bytes(),
                    code,
                    tool_code.as_bytes(),
                    told.as_bytes(),
                    failure.raw.as_deref().unwrap_or_default().as_bytes(),
                ])
            }
            Outcome::Denied { reason } => sum(&[name, reason.as_bytes()]),
            Outcome::Cancelled { effect } => sum(&[name, effect.as_str().as_bytes()]),
            Outcome::Unknown => sum(&[name]),
        })
    }

    fn of_success(success: &Success) -> Gave {
        let mut hasher = blake3::Hasher::new();
        let mut add = |kind: &[u8], bytes: &[u8]| field(&mut hasher, &[kind, bytes]);
        match &success.value {
            Value::Inline(text) => add(b"inline", text.as_bytes()),
            Value::Kept { kept, .. } => add(b"kept", kept.artifact.to_string().as_bytes()),
        }
        for part in &success.parts {
            match part {
                Part::Text(text) => add(b"text", text.as_bytes()),
                Part::Json(text) => add(b"json", text.as_bytes()),
                Part::Image { data, .. } => add(b"image", data),
                Part::File { kept, .. } => add(b"file", kept.artifact.to_string().as_bytes()),
            }
        }
        Gave(shortened(&hasher))
    }
}

/// A call that ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seen {
    /// What it asked for.
    pub asked: Asked,
    /// What it gave.
    pub gave: Gave,
}

/// The guard of one session. Holds at most `loop_calls_max` calls of 32 bytes; an unused one holds nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Guard {
    /// The last batches, oldest first; each the sorted set of its calls.
    batches: VecDeque<Box<[Seen]>>,
    calls: usize,
}

impl Guard {
    /// Takes a batch whose calls all ended.
    ///
    /// Leave out calls of exempt tools, calls that were answered [`Code::Loop`], and calls that joined another or were
    /// answered from the record: they say nothing about getting on. If nothing is left the batch is passed over. A call
    /// that went to the background has no result yet: [lift](Guard::lift) the guard instead.
    pub fn note(&mut self, calls: impl IntoIterator<Item = Seen>, limits: &Limits) {
        let calls_max = size(limits.loop_calls_max);
        let mut batch: Vec<Seen> = calls.into_iter().collect();
        batch.sort_unstable();
        batch.dedup();
        if batch.is_empty() {
            return;
        }
        self.calls += batch.len();
        self.batches.push_back(batch.into());
        // A batch of more calls than are looked at leaves nothing: it can be part of no loop.
        while self.calls > calls_max {
            self.calls -= self.batches.pop_front().map_or(self.calls, |oldest| oldest.len());
        }
    }

    /// Forgets what was seen.
    pub fn lift(&mut self) {
        *self = Guard::default();
    }

    /// Whether calls that are about to run only go on with a loop. Leave out calls of exempt tools; no calls are no
    /// loop. Ask once for all calls of a batch, or for each call of a streamed one as it comes.
    pub fn check(&self, calls: &[Asked], limits: &Limits) -> Option<Loop> {
        if calls.is_empty() || self.batches.is_empty() {
            return None;
        }
        let found = self.find(limits)?;
        let last = self.batches.iter().rev().take(found.batches).flatten();
        let looping: Vec<Asked> = last.map(|seen| seen.asked).collect();
        calls.iter().all(|asked| looping.contains(asked)).then_some(found)
    }

    /// The shortest loop that the last batches are.
    fn find(&self, limits: &Limits) -> Option<Loop> {
        (1..=CYCLE_BATCHES_MAX).find_map(|batches| {
            let times = if batches == 1 { limits.loop_batches_max } else { limits.loop_cycles_max };
            let times = size(times);
            let length = batches.checked_mul(times).filter(|&length| 0 < length)?;
            let start = self.batches.len().checked_sub(length)?;
            let repeats = (start + batches..self.batches.len())
                .all(|place| self.batches[place] == self.batches[place - batches]);
            repeats.then_some(Loop { batches, times })
        })
    }
}

/// A loop that was noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loop {
    /// How many batches it takes to go through it.
    pub batches: usize,
    /// How often it was gone through, at least.
    pub times: usize,
}

impl Loop {
    /// What a call is answered with instead of a run.
    pub fn failure(self) -> Failure {
        let Loop { batches, times } = self;
        let what = match batches {
            1 => format!("The same was called {times} times in a row and gave the same result each time"),
            _ => format!(
                "The same {batches} steps were repeated {times} times and gave the same results each time"
            ),
        };
        let message = format!(
            "{what}, so it was not run again. Change the arguments, call something else, or say what is missing; any \
             other call lifts this."
        );
        Failure {
            class: FailureClass::ResourceLimit,
            source: Source::Runtime,
            ..Failure::invalid_request(Code::Loop, message)
        }
    }
}

fn size(limit: u64) -> usize {
    usize::try_from(limit).unwrap_or(usize::MAX)
}

fn sum(fields: &[&[u8]]) -> Sum {
    let mut hasher = blake3::Hasher::new();
    field(&mut hasher, fields);
    shortened(&hasher)
}

/// Lengths go first, so that no two lists of fields make the same bytes.
fn field(hasher: &mut blake3::Hasher, fields: &[&[u8]]) {
    for bytes in fields {
        hasher.update(&(bytes.len() as u64).to_le_bytes());
        hasher.update(bytes);
    }
}

fn shortened(hasher: &blake3::Hasher) -> Sum {
    let mut sum = Sum::default();
    sum.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    sum
}
