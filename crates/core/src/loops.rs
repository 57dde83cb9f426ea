//! The loop guard: detects that a session makes the same calls over and over with the same results.
//!
//! A batch counts as the set of its calls, each with its result. The guard sees a loop when the last `loop_batches_max`
//! batches were the same, or when the last batches are a cycle of two to four batches repeated `loop_cycles_max` times.
//! From then on every batch that has only calls of that loop is answered with [`Loop::failure`] instead of run. One
//! other call lifts it, because the batch it is in runs and is then the last.
//!
//! The owner of the session feeds it, and it holds nothing that the journal does not: [`LoopGuard::note`] takes each
//! batch once, when the last of its calls ended, so the batches of a session in the order of their last `ended` entries
//! make the same guard again. The `opened` (tool, arguments) and `ended` (outcome) entries of a call are enough. Only
//! the last `loop_calls_max` calls matter, so reading may begin that far back.
//!
//! Every call of every session passes here, so fast 64-bit sums are compared; they are never recorded. Two different
//! results with one sum would have to occur in every round of a loop to be mistaken.

use crate::call::{Call, Opened};
use crate::code::Code;
use crate::failure::{Failure, FailureClass, Source};
use crate::limits::CallLimits;
use crate::outcome::{Outcome, Part, Success, Value};
use std::collections::VecDeque;
use windlass_args::arguments::{Arguments, Given};
use windlass_args::canonical;

/// The longest cycle of batches that is detected.
pub const CYCLE_BATCHES_MAX: usize = 4;

/// The request of a call: the tool and the arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallFingerprint(u64);

impl CallFingerprint {
    /// The fingerprint of a call as requested, before preparation.
    pub fn new(opened: &Opened, limits: &CallLimits) -> CallFingerprint {
        let Arguments { given, text } = &opened.args;
        let of = |args: &str| CallFingerprint(Sum::default().text(&opened.tool).text(args).0);
        match given {
            // Written by us: compact, and with sorted keys.
            Given::Json => of(text),
            Given::Text => match opened.args.parse(&limits.args) {
                Ok(value) => of(&canonical::text(&value)),
                Err(_) => of(text),
            },
        }
    }
}

/// The result of a call, as far as equality matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Gave(u64);

impl Gave {
    /// The fingerprint of an outcome. References of internal errors are new each time, and ignored; equal
    /// bytes of a session have one name.
    pub fn new(outcome: &Outcome) -> Gave {
        let sum = Sum::default().text(outcome.name());
        Gave(match outcome {
            Outcome::Succeeded(success) => of_success(sum, success).0,
            Outcome::Failed(failure) => {
                let told = if failure.class == FailureClass::Internal { "" } else { &failure.message };
                let sum = sum.text(failure.class.as_str()).text(failure.code.as_str());
                let sum = sum.text(failure.tool_code.as_deref().unwrap_or_default()).text(told);
                of_parts(sum.text(failure.raw.as_deref().unwrap_or_default()), &failure.parts).0
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
    of_parts(sum, &success.parts)
}

fn of_parts(sum: Sum, parts: &[Part]) -> Sum {
    parts.iter().fold(sum, |sum, part| match part {
        Part::Text(text) => sum.text("text").text(text),
        Part::Json(text) => sum.text("json").text(text),
        Part::Image { data, .. } => sum.text("image").bytes(data),
        Part::KeptImage { kept, .. } | Part::File { kept, .. } => {
            sum.text("file").text(&kept.artifact.to_string())
        }
    })
}

/// A sum of texts: equal for equal ones, and practically never for others.
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

    /// Adds bytes and their length, so that no two lists of texts are the same bytes.
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

/// Fewer than eight bytes as a number, without a call to copy so few.
fn word(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
}

/// Both halves of the product: every bit of either number affects about half of them.
fn folded(left: u64, right: u64) -> u64 {
    let product = u128::from(left) * u128::from(right);
    (product as u64) ^ ((product >> 64) as u64)
}

/// An ended call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EndedFingerprint {
    /// Its request.
    pub asked: CallFingerprint,
    /// Its result.
    pub gave: Gave,
}

impl EndedFingerprint {
    /// The fingerprint of a call. `None` for one that has not ended, and for one that was answered with
    /// [`Code::Loop`]: it says nothing about progress.
    pub fn new(call: &Call, limits: &CallLimits) -> Option<EndedFingerprint> {
        let outcome = call.outcome()?;
        let refused = matches!(outcome, Outcome::Failed(failure) if failure.code == Code::Loop);
        (!refused).then(|| EndedFingerprint {
            asked: CallFingerprint::new(&call.opened, limits),
            gave: Gave::new(outcome),
        })
    }
}

/// The guard of one session. Holds at most `loop_calls_max` calls of 16 bytes; an unused one holds nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoopGuard {
    /// The last batches, oldest first.
    batches: VecDeque<Seens>,
    calls: usize,
    /// The shortest loop in the last batches.
    found: Option<Loop>,
}

/// A remembered batch.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seens {
    calls: SeenCalls,
    /// The number of calls, including duplicates.
    count: usize,
}

/// The sorted set of the calls of a batch. Most batches have one, which needs no memory of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
enum SeenCalls {
    One(EndedFingerprint),
    Many(Box<[EndedFingerprint]>),
}

impl SeenCalls {
    fn as_slice(&self) -> &[EndedFingerprint] {
        match self {
            SeenCalls::One(call) => std::slice::from_ref(call),
            SeenCalls::Many(calls) => calls,
        }
    }
}

/// Whether a batch of this many calls can be part of a loop at all: all its repetitions must fit in the calls
/// that are remembered. Of one that cannot, only its existence matters.
pub fn can_loop(calls: usize, limits: &CallLimits) -> bool {
    let rounds = limits.loop_batches_max.min(limits.loop_cycles_max).max(1);
    calls as u64 <= limits.loop_calls_max / rounds
}

impl LoopGuard {
    /// Takes a batch whose calls have all ended.
    ///
    /// Leave out calls of exempt tools, and calls that joined another or were answered from the record: they say
    /// nothing about progress. A batch without other calls is ignored. If a batch [cannot be part of a loop](can_loop),
    /// or one of its calls became a task and has no result yet, [lift](LoopGuard::lift) the guard instead.
    pub fn note(&mut self, batch: impl IntoIterator<Item = EndedFingerprint>, limits: &CallLimits) {
        let mut batch = batch.into_iter();
        let Some(first) = batch.next() else { return };
        let seen = match batch.next() {
            None => Seens { calls: SeenCalls::One(first), count: 1 },
            Some(second) => {
                let mut calls: Vec<_> = [first, second].into_iter().chain(batch).collect();
                let count = calls.len();
                calls.sort_unstable();
                calls.dedup();
                let calls =
                    if let [one] = calls[..] { SeenCalls::One(one) } else { SeenCalls::Many(calls.into()) };
                Seens { calls, count }
            }
        };
        self.calls += seen.count;
        self.batches.push_back(seen);
        while self.calls > size(limits.loop_calls_max) {
            self.calls -= self.batches.pop_front().map_or(self.calls, |oldest| oldest.count);
        }
        self.found = self.find(limits);
    }

    /// Forgets all batches.
    pub fn lift(&mut self) {
        *self = LoopGuard::default();
    }

    /// The loop in the last batches, if there is one.
    pub fn found(&self) -> Option<Loop> {
        self.found
    }

    /// Whether calls that are about to run only continue a loop. Leave out calls of exempt tools; no calls
    /// are no loop. Ask once for all calls of a batch, or for each call of a streamed one as it comes.
    pub fn check(&self, calls: &[CallFingerprint]) -> Option<Loop> {
        let found = self.found.filter(|_| !calls.is_empty())?;
        let last = self.batches.iter().rev().take(found.batches);
        let looping: Vec<CallFingerprint> =
            last.flat_map(|batch| batch.calls.as_slice()).map(|seen| seen.asked).collect();
        calls.iter().all(|asked| looping.contains(asked)).then_some(found)
    }

    fn find(&self, limits: &CallLimits) -> Option<Loop> {
        let newest = self.batches.back()?;
        (1..=CYCLE_BATCHES_MAX).find_map(|batches| {
            // Most batches differ from those before.
            let before = self.batches.get(self.batches.len().checked_sub(1 + batches)?)?;
            if before.calls != newest.calls {
                return None;
            }
            let times = if batches == 1 { limits.loop_batches_max } else { limits.loop_cycles_max };
            let times = size(times);
            let length = batches.checked_mul(times).filter(|&length| 0 < length)?;
            let start = self.batches.len().checked_sub(length)?;
            let repeats = (start + batches..self.batches.len())
                .rev()
                .all(|place| self.batches[place].calls == self.batches[place - batches].calls);
            repeats.then_some(Loop { batches, times })
        })
    }
}

/// A detected loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loop {
    /// The number of batches in one cycle.
    pub batches: usize,
    /// The minimum number of repetitions.
    pub times: usize,
}

impl Loop {
    /// The answer to a call of the loop.
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
