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
//!
//! Every call of every session passes here, so what is compared are sums of 64 bits that are quick to make; they are
//! never recorded. Two different results with one sum would have to stand in every round of a loop to be mistaken.

use crate::batch::parse_args;
use crate::call::{Arguments, Call, Given, Opened};
use crate::canonical;
use crate::code::Code;
use crate::failure::{Failure, FailureClass, Source};
use crate::limits::Limits;
use crate::outcome::{Outcome, Part, Success, Value};
use std::collections::VecDeque;

/// The longest cycle of batches that is looked for.
pub const CYCLE_BATCHES_MAX: usize = 4;

/// A call by what it asks for: the tool and the arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Asked(u64);

impl Asked {
    /// The call as it was asked for, before anything was made of it.
    pub fn new(opened: &Opened, limits: &Limits) -> Asked {
        let Arguments { given, text } = &opened.args;
        let of = |args: &str| Asked(Sum::default().text(&opened.tool).text(args).0);
        match given {
            // Written by us: compact, and with sorted keys.
            Given::Json => of(text),
            Given::Text => match parse_args(&opened.args, limits) {
                Ok(value) => of(&canonical::text(&value)),
                Err(_) => of(text),
            },
        }
    }
}

/// What a call gave, as far as the same can be told from something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Gave(u64);

impl Gave {
    /// What the outcome is. References under which operators find an internal error are new each time, and passed over;
    /// equal bytes of a session have one name.
    pub fn new(outcome: &Outcome) -> Gave {
        let sum = Sum::default().text(outcome.name());
        Gave(match outcome {
            Outcome::Succeeded(success) => of_success(sum, success).0,
            Outcome::Failed(failure) => {
                let told = if failure.class == FailureClass::Internal { "" } else { &failure.message };
                let sum = sum.text(failure.class.as_str()).text(failure.code.as_str());
                let sum = sum.text(failure.tool_code.as_deref().unwrap_or_default()).text(told);
                sum.text(failure.raw.as_deref().unwrap_or_default()).0
            }
            Outcome::Denied { reason } => sum.text(reason).0,
            Outcome::Cancelled { effect } => sum.text(effect.as_str()).0,
            Outcome::Unknown => sum.0,
        })
    }
}

fn of_success(sum: Sum, success: &Success) -> Sum {
    let sum = match &success.value {
        Value::Inline(text) => sum.text("inline").text(text),
        Value::Kept { kept, .. } => sum.text("kept").text(&kept.artifact.to_string()),
    };
    success.parts.iter().fold(sum, |sum, part| match part {
        Part::Text(text) => sum.text("text").text(text),
        Part::Json(text) => sum.text("json").text(text),
        Part::Image { data, .. } => sum.text("image").bytes(data),
        Part::File { kept, .. } => sum.text("file").text(&kept.artifact.to_string()),
    })
}

/// A sum of texts: equal for equal ones, and as good as never for others.
#[derive(Clone, Copy)]
struct Sum(u64);

impl Default for Sum {
    fn default() -> Sum {
        Sum(SPREAD[0])
    }
}

/// Odd numbers without a pattern (the fraction of pi).
const SPREAD: [u64; 3] = [0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7345, 0xa409_3822_299f_31d1];

impl Sum {
    fn text(self, text: &str) -> Sum {
        self.bytes(text.as_bytes())
    }

    /// Adds bytes and their number, so that no two lists of texts are the same bytes.
    fn bytes(self, bytes: &[u8]) -> Sum {
        let mut sum = self.0 ^ bytes.len() as u64;
        let (words, rest) = bytes.as_chunks();
        let (pairs, odd) = words.as_chunks();
        for [first, second] in pairs {
            sum = folded(u64::from_le_bytes(*first) ^ SPREAD[1], u64::from_le_bytes(*second) ^ sum);
        }
        let (first, second) = match odd {
            [first, ..] => (u64::from_le_bytes(*first), word(rest)),
            [] => (word(rest), 0),
        };
        Sum(folded(first ^ SPREAD[1], second ^ sum ^ SPREAD[2]))
    }
}

/// Fewer than eight bytes as a number, without a call for the copy of so few.
fn word(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
}

/// Both halves of the product: every bit of either number moves about half of them.
fn folded(left: u64, right: u64) -> u64 {
    let product = u128::from(left) * u128::from(right);
    (product as u64) ^ ((product >> 64) as u64)
}

/// A call that ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seen {
    /// What it asked for.
    pub asked: Asked,
    /// What it gave.
    pub gave: Gave,
}

impl Seen {
    /// What there was of a call. `None` for one that has not ended, and for one that was answered [`Code::Loop`]: it
    /// says nothing about getting on.
    pub fn new(call: &Call, limits: &Limits) -> Option<Seen> {
        let outcome = call.outcome()?;
        let refused = matches!(outcome, Outcome::Failed(failure) if failure.code == Code::Loop);
        (!refused).then(|| Seen { asked: Asked::new(&call.opened, limits), gave: Gave::new(outcome) })
    }
}

/// The guard of one session. Holds at most `loop_calls_max` calls of 16 bytes; an unused one holds nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Guard {
    /// The last batches, oldest first.
    batches: VecDeque<Seens>,
    calls: usize,
    /// The shortest loop that the last batches are.
    found: Option<Loop>,
}

/// A batch as it is remembered: the sorted set of its calls.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seens {
    calls: Box<[Seen]>,
    /// How many calls it had, however many of them were the same.
    count: usize,
}

/// Whether a batch of so many calls can be part of a loop at all: as often as it would have to be there, it must be
/// among the calls that are looked at. Of one that cannot be, nothing need be known but that it was there.
pub fn can_loop(calls: usize, limits: &Limits) -> bool {
    let rounds = limits.loop_batches_max.min(limits.loop_cycles_max).max(1);
    calls as u64 <= limits.loop_calls_max / rounds
}

impl Guard {
    /// Takes a batch whose calls all ended.
    ///
    /// Leave out calls of exempt tools, and calls that joined another or were answered from the record: they say nothing
    /// about getting on. If nothing is left the batch is passed over. If a batch [cannot be part of a loop](can_loop), or
    /// one of its calls went to the background and has no result yet, [lift](Guard::lift) the guard instead.
    pub fn note(&mut self, mut batch: Vec<Seen>, limits: &Limits) {
        let count = batch.len();
        if count == 0 {
            return;
        }
        batch.sort_unstable();
        batch.dedup();
        self.calls += count;
        self.batches.push_back(Seens { calls: batch.into(), count });
        while self.calls > size(limits.loop_calls_max) {
            self.calls -= self.batches.pop_front().map_or(self.calls, |oldest| oldest.count);
        }
        self.found = self.find(limits);
    }

    /// Forgets what was seen.
    pub fn lift(&mut self) {
        *self = Guard::default();
    }

    /// The loop that the last batches are, if they are one.
    pub fn found(&self) -> Option<Loop> {
        self.found
    }

    /// Whether calls that are about to run only go on with a loop. Leave out calls of exempt tools; no calls are no
    /// loop. Ask once for all calls of a batch, or for each call of a streamed one as it comes.
    pub fn check(&self, calls: &[Asked]) -> Option<Loop> {
        let found = self.found.filter(|_| !calls.is_empty())?;
        let last = self.batches.iter().rev().take(found.batches);
        let looping: Vec<Asked> = last.flat_map(|batch| batch.calls.iter()).map(|seen| seen.asked).collect();
        calls.iter().all(|asked| looping.contains(asked)).then_some(found)
    }

    fn find(&self, limits: &Limits) -> Option<Loop> {
        (1..=CYCLE_BATCHES_MAX).find_map(|batches| {
            let times = if batches == 1 { limits.loop_batches_max } else { limits.loop_cycles_max };
            let times = size(times);
            let length = batches.checked_mul(times).filter(|&length| 0 < length)?;
            let start = self.batches.len().checked_sub(length)?;
            // The newest first: most batches differ from the one before.
            let repeats = (start + batches..self.batches.len())
                .rev()
                .all(|place| self.batches[place].calls == self.batches[place - batches].calls);
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
