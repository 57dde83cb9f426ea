//! The model's view of an outcome: everything if it is short, else its ends and the way to the rest.
//!
//! Callers check [`fits`] first. If the text does not fit, the [`full_text`] is stored as an artifact and its
//! handle is passed to [`project`], so that the answer can say how to read on: a last part of the form
//! `{"truncated":true,"shown":…,"total":…,"next_offset":…,"artifact":…,"hint":…}`.

mod budget;
mod cut;
mod pieces;
mod shrink;

pub use budget::{ANSWER_LINES_MIN, AnswerBudget, BudgetError};

use crate::failure::Failure;
use crate::limits::CallLimits;
use crate::outcome::{Effect, KeptBytes, ModelAnswer, Outcome, Part, Success, Value};
use pieces::TextPiece;
use std::borrow::Cow;
use std::fmt::Write;
use windlass_args::json::unquoted;

/// The maximum size of the read-on part, beyond `answer_bytes_max`: it must never be cut.
pub const READ_ON_BYTES_MAX: u64 = 512;

/// Smaller limits count as this: an omission must always be stated.
pub const ANSWER_BYTES_MIN: u64 = 512;

/// The default projection. `kept` is the stored [`full_text`] of a success, or the stored [`failure_text`], that does not
/// fit. Parts keep the order the tool gave them; only text is cut.
pub fn project(outcome: &Outcome, kept: Option<KeptBytes>, limits: &CallLimits) -> ModelAnswer {
    match outcome {
        Outcome::Succeeded(success) => succeeded(success, kept, limits),
        Outcome::Failed(failure) => failed(failure, kept, limits),
        Outcome::Denied { reason } if reason.is_empty() => {
            error("This call was not allowed.", "denied", limits)
        }
        Outcome::Denied { reason } => {
            error(&format!("This call was not allowed: {reason}"), "denied", limits)
        }
        Outcome::Cancelled { effect } => error(cancelled(*effect), "cancelled", limits),
        Outcome::Unknown => {
            error("It is not known whether this took effect; do not repeat it blindly.", "unknown", limits)
        }
    }
}

/// All text of a success, of any length: its value, then the text among its parts, each on a new line.
/// Answers are cut from it and artifacts store it; offsets are bytes of it.
///
/// A value that is already an artifact has no text here.
pub fn full_text(success: &Success) -> Cow<'_, str> {
    let value = match &success.value {
        Value::Inline(json) => value_text(json),
        Value::Kept { .. } => Cow::Borrowed(""),
    };
    let is_silent = is_silent(success);
    let mut texts = success.parts.iter().filter_map(Part::text).peekable();
    if texts.peek().is_none() {
        return if is_silent { Cow::Borrowed("") } else { value };
    }
    let mut all = if is_silent { String::new() } else { value.into_owned() };
    for text in texts {
        if !all.is_empty() {
            all.push('\n');
        }
        all.push_str(text);
    }
    Cow::Owned(all)
}

/// Whether `text` can be shown whole.
pub fn fits(text: &str, limits: &CallLimits) -> bool {
    TextRoom::of(limits).fits(text)
}

/// The ends of a text that is shown beside others: it may take one part in `share` of an answer's size.
pub fn excerpt<'a>(text: &'a str, share: usize, limits: &CallLimits) -> Cow<'a, str> {
    let TextRoom { bytes, lines } = TextRoom::of(limits);
    let room = TextRoom { bytes: bytes / share.max(1), lines: lines / share.max(1) };
    if room.fits(text) { Cow::Borrowed(text) } else { Cow::Owned(cut::text(text, room).0) }
}

/// Output stored as an artifact, with only its ends in memory.
#[derive(Clone, Copy, Debug)]
pub struct Ends<'a> {
    /// The first bytes.
    pub head: &'a [u8],
    /// The last bytes; may overlap the first.
    pub tail: &'a [u8],
    /// The total number of bytes.
    pub total: u64,
}

/// The projection of a success whose text was streamed. Bytes that are not UTF-8 are shown as `�`.
///
/// Ends of `answer_bytes_max` bytes each are enough; more are ignored.
pub fn project_ends(ends: Ends<'_>, kept: Option<KeptBytes>, limits: &CallLimits) -> ModelAnswer {
    let mut answer = ModelAnswer::default();
    let held = (ends.head.len() + ends.tail.len()) as u64;
    if held >= ends.total {
        let overlap = usize::try_from(held - ends.total).unwrap_or(0).min(ends.tail.len());
        let whole = [ends.head, &ends.tail[overlap..]].concat();
        let text = String::from_utf8_lossy(&whole);
        if fits(&text, limits) {
            answer.parts.push(Part::Text(text.into_owned()));
            return answer;
        }
    }
    let (shown, read_on) = cut::ends(ends, TextRoom::of(limits));
    answer.parts.extend([Part::Text(shown), read_on.part(kept)]);
    answer
}

/// The space for an answer's text.
#[derive(Clone, Copy)]
struct TextRoom {
    bytes: usize,
    lines: usize,
}

impl TextRoom {
    fn of(limits: &CallLimits) -> TextRoom {
        TextRoom {
            bytes: usize::try_from(limits.answer_bytes_max.max(ANSWER_BYTES_MIN)).unwrap_or(usize::MAX),
            lines: usize::try_from(limits.answer_lines_max.max(ANSWER_LINES_MIN)).unwrap_or(usize::MAX),
        }
    }

    /// A text has no more lines than bytes, so a short one need not be counted.
    fn fits(self, text: &str) -> bool {
        text.len() <= self.bytes
            && (text.len() < self.lines || text.bytes().filter(|&byte| byte == b'\n').count() < self.lines)
    }
}

#[inline]
fn succeeded(success: &Success, kept: Option<KeptBytes>, limits: &CallLimits) -> ModelAnswer {
    let mut answer = ModelAnswer::default();
    match &success.value {
        // Nearly all answers: one short value.
        Value::Inline(json) if success.parts.is_empty() => {
            let text = value_text(json);
            if fits(&text, limits) {
                answer.parts.push(Part::Text(text.into_owned()));
            } else {
                let is_json = matches!(text, Cow::Borrowed(whole) if whole.len() == json.len());
                answer.parts.extend(shortened(&text, is_json.then_some(limits), kept, TextRoom::of(limits)));
            }
        }
        Value::Inline(json) => {
            let value = (!is_silent(success)).then(|| value_text(json));
            let is_json = value.as_ref().is_some_and(|text| text.len() == json.len());
            let lead = value.as_deref().map(|text| TextPiece { text, is_json });
            answer.parts = pieces::in_order(lead, &success.parts, kept, limits);
        }
        Value::Kept { kept: value, .. } => {
            let ends = Ends { head: b"", tail: b"", total: value.bytes };
            let (_, read_on) = cut::ends(ends, TextRoom::of(limits));
            answer.parts.push(read_on.part(Some(*value)));
            answer.parts.extend(pieces::in_order(None, &success.parts, kept, limits));
        }
    }
    answer
}

/// A `null` beside other parts only means that there is no value.
fn is_silent(success: &Success) -> bool {
    !success.parts.is_empty() && matches!(&success.value, Value::Inline(json) if json.as_ref() == "null")
}

/// A value as text: a string is itself, anything else its JSON.
fn value_text(json: &str) -> Cow<'_, str> {
    unquoted(json).unwrap_or(Cow::Borrowed(json))
}

/// A text that does not fit: its shown part, and how to read on. With `json`, it is JSON and stays so up to
/// the size at which a result counts as bytes.
fn shortened(text: &str, json: Option<&CallLimits>, kept: Option<KeptBytes>, room: TextRoom) -> [Part; 2] {
    let is_parsed = json.is_some_and(|limits| text.len() as u64 <= limits.args.result_json_bytes_max);
    let shrunk = if is_parsed { shrink::json(text, room.bytes) } else { None };
    let (shown, read_on) = match shrunk {
        Some(shown) => {
            let read_on =
                ReadOn { shown: shown.len() as u64, total: text.len() as u64, next_offset: 0, is_json: true };
            (shown, read_on)
        }
        None => cut::text(text, room),
    };
    [Part::Text(shown), read_on.part(kept)]
}

/// The shown part of a text, and where to continue.
struct ReadOn {
    shown: u64,
    total: u64,
    next_offset: u64,
    is_json: bool,
}

impl ReadOn {
    fn part(&self, kept: Option<KeptBytes>) -> Part {
        let ReadOn { shown, total, next_offset, .. } = self;
        let mut text =
            format!("{{\"truncated\":true,\"shown\":{shown},\"total\":{total},\"next_offset\":{next_offset}");
        let hint = match kept {
            None => "The rest was not kept; ask for less at once.",
            Some(_) if self.is_json => {
                "Long parts are shortened. Call read_artifact with this artifact to read the whole text."
            }
            Some(_) => "Call read_artifact with this artifact and next_offset as offset to read on.",
        };
        if let Some(kept) = kept {
            // Writing to a String does not fail.
            let _ = write!(text, ",\"artifact\":\"{}\"", kept.artifact);
        }
        let _ = write!(text, ",\"hint\":\"{hint}\"}}");
        Part::Text(text)
    }
}

fn cancelled(effect: Effect) -> &'static str {
    match effect {
        Effect::None => "This call was cancelled; it had no effect.",
        Effect::Landed => "This call was cancelled after it had taken effect.",
        Effect::Unknown => {
            "This call was cancelled; it is not known whether it took effect; do not repeat it blindly."
        }
    }
}

/// The message and the codes; the detail is for operators. Parts follow in their order, with what space the message leaves.
fn failed(failure: &Failure, kept: Option<KeptBytes>, limits: &CallLimits) -> ModelAnswer {
    let codes = ErrorCodes { ours: failure.code.as_str(), tool: failure.tool_code.as_deref() };
    let mut answer = error_coded(&failure.message, codes, limits);
    if !failure.parts.is_empty() {
        let told = answer.parts.iter().filter_map(Part::text).map(str::len).sum::<usize>() as u64;
        let left = limits.answer_bytes_max.max(ANSWER_BYTES_MIN).saturating_sub(told);
        let limits = CallLimits { answer_bytes_max: left, ..*limits };
        answer.parts.extend(pieces::in_order(None, &failure.parts, kept, &limits));
    }
    answer
}

/// All text of a failure's parts, of any length, each on a new line: artifacts store it if it does not fit.
pub fn failure_text(failure: &Failure) -> String {
    failure.parts.iter().filter_map(Part::text).collect::<Vec<_>>().join("\n")
}

/// Whether all text of a failure can be shown whole.
pub fn failure_fits(failure: &Failure, limits: &CallLimits) -> bool {
    let room = TextRoom::of(limits);
    let text = failure_text(failure);
    let lines = text.bytes().filter(|&byte| byte == b'\n').count() + 2;
    // The message, its codes and what quoting adds are part of the answer too.
    text.len() + failure.message.len() * 2 + 256 <= room.bytes && lines <= room.lines
}

/// The parts of an answer whose value is told apart, in order.
pub fn parts_in_order(parts: &[Part], limits: &CallLimits) -> Vec<Part> {
    pieces::in_order(None, parts, None, limits)
}

/// The codes of an error, as the model sees them.
#[derive(Clone, Copy)]
struct ErrorCodes<'a> {
    ours: &'a str,
    tool: Option<&'a str>,
}

fn error(message: &str, code: &str, limits: &CallLimits) -> ModelAnswer {
    error_coded(message, ErrorCodes { ours: code, tool: None }, limits)
}

fn error_coded(message: &str, codes: ErrorCodes<'_>, limits: &CallLimits) -> ModelAnswer {
    let room = TextRoom::of(limits);
    let mut text = error_text(message, codes);
    // The effect of quoting on the length is only known afterwards.
    let mut bytes = room.bytes;
    while text.len() > room.bytes && bytes > 0 {
        bytes /= 2;
        let (shown, _) = cut::text(message, TextRoom { bytes, ..room });
        text = error_text(&shown, codes);
    }
    ModelAnswer { parts: vec![Part::Text(text)], is_error: true }
}

/// A tool's own code is a word for programs; a longer one is shortened for the model.
const TOOL_CODE_BYTES_MAX: usize = 64;

fn error_text(message: &str, codes: ErrorCodes<'_>) -> String {
    let mut text = String::with_capacity(message.len() + codes.ours.len() + 24);
    text.push_str("{\"error\":");
    push_quoted(&mut text, message);
    text.push_str(",\"code\":");
    push_quoted(&mut text, codes.ours);
    if let Some(code) = codes.tool {
        text.push_str(",\"tool_code\":");
        push_quoted(&mut text, &code[..code.floor_char_boundary(TOOL_CODE_BYTES_MAX)]);
    }
    text.push('}');
    text
}

/// Adds `text` as a JSON string.
fn push_quoted(out: &mut String, text: &str) {
    out.push('"');
    for letter in text.chars() {
        match letter {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\0'..='\x1f' => {
                let _ = write!(out, "\\u{:04x}", u32::from(letter));
            }
            other => out.push(other),
        }
    }
    out.push('"');
}

/// A count with commas between the thousands.
fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}
