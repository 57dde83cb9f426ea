//! JSON as models write it: parsed strictly and without recursion, so that no text can exhaust the stack, lose a
//! key or round a number on its way to a tool.
//!
//! Depth counts containers: a value that is no array and no object has depth 0, `[]` has depth 1, `[[]]` depth 2.

mod number;
mod parser;
mod string;
mod weight;
mod write;

use crate::code::ArgumentCode;
use crate::limits::ArgLimits;
use serde_json::{Number, Value};
use std::borrow::Cow;
use std::fmt;

pub use weight::weight;

/// Reads `text` as one JSON value.
///
/// Refused are: more than `args_bytes_max` bytes, more than `args_depth_max` levels, more than `json_memory_bytes_max` in
/// memory, an object that has a key twice, a number that would have to be rounded, and whatever is not JSON. Empty text is not JSON: whoever takes it
/// for `{}` says so before calling.
pub fn parse(text: &str, limits: &ArgLimits) -> Result<Value, JsonProblem> {
    if text.len() as u64 > limits.args_bytes_max {
        return Err(JsonProblem::too_large(limits.args_bytes_max));
    }
    weight::check(text, limits)?;
    parser::Parser::new(text, limits.args_depth_max).document()
}

/// Reads what a tool wrote as one JSON value, by the rules of [`parse`] and up to `result_json_bytes_max` bytes.
pub fn parse_result(text: &str, limits: &ArgLimits) -> Result<Value, JsonProblem> {
    if text.len() as u64 > limits.result_json_bytes_max {
        return Err(JsonProblem::too_large(limits.result_json_bytes_max));
    }
    weight::check(text, limits)?;
    parser::Parser::new(text, limits.args_depth_max).document()
}

/// The value of a text that is nearly JSON.
pub(crate) struct Nearly {
    /// The complete part.
    pub(crate) value: Value,
    /// Whether commas before closing brackets, or behind the end, were passed over.
    pub(crate) trailing_comma: bool,
    /// Where the text ended too early, as a JSON pointer; none if it is complete.
    pub(crate) cut_at: Option<String>,
}

/// Reads a text that is JSON but for commas before closing brackets or behind the end, or that is an object which ends
/// too early. What was not complete is left out: half of a text is another text.
pub(crate) fn parse_nearly(text: &str, limits: &ArgLimits) -> Option<Nearly> {
    if text.len() as u64 > limits.args_bytes_max || weight::check(text, limits).is_err() {
        return None;
    }
    parser::Parser::new(text, limits.args_depth_max).nearly()
}

/// The number that the text is, if it is one from its first to its last character and needs no rounding.
pub(crate) fn exact_number(text: &str) -> Option<Number> {
    matches!(text.as_bytes().first()?, b'-' | b'0'..=b'9').then_some(())?;
    number::read(text, 0).ok().filter(|(_, end)| *end == text.len()).map(|(number, _)| number)
}

/// A mistake in a JSON text or value, with its place and what to do about it. Written for the model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct JsonProblem {
    /// Which kind of problem.
    pub code: ArgumentCode,
    /// Where in the value, as a JSON pointer; empty means the whole.
    pub pointer: String,
    /// Where in the text, if there was a text.
    pub position: Option<Position>,
    /// The mistake and what would be right.
    pub what: String,
}

impl fmt::Display for JsonProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.position {
            None if self.pointer.is_empty() => f.write_str(&self.what),
            None => write!(f, "{}: {}", shown(&self.pointer), self.what),
            Some(Position { line, column }) => {
                write!(f, "line {line}, column {column}")?;
                if !self.pointer.is_empty() {
                    write!(f, " (at {})", shown(&self.pointer))?;
                }
                write!(f, ": {}", self.what)
            }
        }
    }
}

impl JsonProblem {
    fn whole(code: ArgumentCode, what: String) -> JsonProblem {
        JsonProblem { code, pointer: String::new(), position: None, what }
    }

    fn too_large(bytes_max: u64) -> JsonProblem {
        let what = format!(
            "the JSON is larger than {bytes_max} bytes; send less at once, for example in several calls or as a file"
        );
        JsonProblem::whole(ArgumentCode::TooLarge, what)
    }
}

/// A place in a text, counted from 1; columns are characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The line.
    pub line: u64,
    /// The character in the line.
    pub column: u64,
}

impl Position {
    /// The place just behind `read`.
    fn after(read: &str) -> Position {
        let line_start = read.rfind('\n').map_or(0, |newline| newline + 1);
        Position {
            line: read.bytes().filter(|&byte| byte == b'\n').count() as u64 + 1,
            column: read[line_start..].chars().count() as u64 + 1,
        }
    }
}

/// How large a value is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// Values in it, itself included.
    pub nodes: u64,
    /// Arrays and objects around its innermost value.
    pub depth: u64,
    /// Bytes its compact text has at least; escapes and long numbers make it longer.
    pub bytes: u64,
}

/// Measures a value that did not come through [`parse`], and refuses it by the same limits.
pub fn measure(value: &Value, limits: &ArgLimits) -> Result<Size, JsonProblem> {
    measure_within(value, limits.args_bytes_max, limits.args_depth_max)
}

/// Measures what a tool returned: as deep as arguments may be, as large as an artifact may be.
pub fn measure_result(value: &Value, limits: &ArgLimits) -> Result<Size, JsonProblem> {
    measure_within(value, limits.artifact_bytes_max, limits.args_depth_max)
}

/// Measures a value that did not come through [`parse`] and appends its compact text, or refuses it by the same limits:
/// then what was appended means nothing.
pub fn write(value: &Value, limits: &ArgLimits, text: &mut String) -> Result<Size, JsonProblem> {
    write_within(value, limits.args_bytes_max, limits.args_depth_max, text)
}

/// Measures a tool's result and appends its compact text: as deep as arguments may be, as large as an artifact may be.
pub fn write_result(value: &Value, limits: &ArgLimits, text: &mut String) -> Result<Size, JsonProblem> {
    write_within(value, limits.artifact_bytes_max, limits.args_depth_max, text)
}

fn write_within(
    value: &Value,
    bytes_max: u64,
    depth_max: u64,
    text: &mut String,
) -> Result<Size, JsonProblem> {
    let mut writer = write::JsonWriter { text, size: Size::default(), bytes_max, depth_max };
    writer.value(value, 0)?;
    Ok(writer.size)
}

/// Does not allocate unless arrays or objects lie in each other: most arguments are flat.
pub(crate) fn measure_within(value: &Value, bytes_max: u64, depth_max: u64) -> Result<Size, JsonProblem> {
    let mut size = Size { nodes: 1, depth: 0, bytes: text_bytes(value) };
    let mut pending: Vec<(&Value, u64)> = Vec::new();
    let mut next = Some((value, 1));
    while let Some((container, depth)) = next {
        let count = match container {
            Value::Array(items) => {
                items.iter().for_each(|item| visit(item, depth, &mut size, &mut pending));
                items.len()
            }
            Value::Object(map) => {
                for (key, item) in map {
                    size.bytes += key.len() as u64 + 3;
                    visit(item, depth, &mut size, &mut pending);
                }
                map.len()
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
        };
        if is_container(container) {
            size.depth = size.depth.max(depth);
        }
        size.bytes += (count as u64).saturating_sub(1);
        if size.depth > depth_max {
            return Err(too_deep(depth_max));
        }
        if size.bytes > bytes_max {
            return Err(JsonProblem::too_large(bytes_max));
        }
        next = pending.pop();
    }
    Ok(size)
}

fn visit<'a>(item: &'a Value, depth: u64, size: &mut Size, pending: &mut Vec<(&'a Value, u64)>) {
    size.nodes += 1;
    size.bytes += text_bytes(item);
    if is_container(item) {
        pending.push((item, depth + 1));
    }
}

/// The least that the value's own text can take, without what lies in it.
fn text_bytes(value: &Value) -> u64 {
    match value {
        Value::Null | Value::Bool(true) => 4,
        Value::Bool(false) => 5,
        Value::Number(_) => 1,
        Value::String(text) => text.len() as u64 + 2,
        Value::Array(_) | Value::Object(_) => 2,
    }
}

fn too_deep(depth_max: u64) -> JsonProblem {
    let what = format!("arrays and objects are nested more than {depth_max} levels deep; flatten the value");
    JsonProblem::whole(ArgumentCode::TooDeep, what)
}

/// Drops a value of any depth; the ordinary drop recurses and overflows the stack at some ten thousand levels.
pub fn dismantle(value: Value) {
    let mut pending = vec![value];
    while let Some(value) = pending.pop() {
        match value {
            Value::Array(items) => pending.extend(items.into_iter().filter(is_container)),
            Value::Object(map) => pending.extend(map.into_iter().map(|(_, item)| item).filter(is_container)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
}

fn is_container(value: &Value) -> bool {
    value.is_array() || value.is_object()
}

/// The text of a JSON string that stands alone, or none if `json` is anything else.
pub fn unquoted(json: &str) -> Option<Cow<'_, str>> {
    let inner = json.strip_prefix('"')?.strip_suffix('"')?;
    if !inner.contains('\\') {
        return Some(Cow::Borrowed(inner));
    }
    let (text, end) = string::read(json, 1).ok()?;
    (end == json.len()).then_some(Cow::Owned(text))
}

/// A pointer or a key as a message shows it: names come from whoever wrote the value, and must neither fill a message nor
/// add lines to it.
pub(crate) fn shown(text: &str) -> Cow<'_, str> {
    const BEGIN_CHARS: usize = 120;
    const END_CHARS: usize = 60;
    // Controls, new lines and marks that change the direction of what follows.
    let is_hidden = |letter: char| {
        letter.is_control() || matches!(letter, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let end = text.char_indices().rev().nth(END_CHARS - 1).map_or(0, |(at, _)| at);
    let begin = text.char_indices().nth(BEGIN_CHARS).map_or(text.len(), |(at, _)| at);
    if begin >= end && !text.contains(is_hidden) {
        return Cow::Borrowed(text);
    }
    let pieces = if begin < end { [&text[..begin], "…", &text[end..]] } else { [text, "", ""] };
    let mut out = String::new();
    for letter in pieces.into_iter().flat_map(str::chars) {
        if is_hidden(letter) { out.extend(letter.escape_default()) } else { out.push(letter) }
    }
    Cow::Owned(out)
}

/// Adds one step to a JSON pointer.
pub(crate) fn push_step(pointer: &mut String, step: &str) {
    pointer.push('/');
    for letter in step.chars() {
        match letter {
            '~' => pointer.push_str("~0"),
            '/' => pointer.push_str("~1"),
            other => pointer.push(other),
        }
    }
}
