//! Compact JSON text of a value, measured while it is written: arguments and results go through here once.

use super::{JsonProblem, Size, too_deep};
use serde_json::Value;
use std::fmt::Write;

/// Appends the text that `serde_json` writes.
pub(super) struct JsonWriter<'a> {
    pub(super) text: &'a mut String,
    pub(super) size: Size,
    pub(super) bytes_max: u64,
    pub(super) depth_max: u64,
}

impl JsonWriter<'_> {
    /// Writes a value around which there are so many arrays and objects. Recurses no deeper than `depth_max`.
    pub(super) fn value(&mut self, value: &Value, around: u64) -> Result<(), JsonProblem> {
        self.size.nodes += 1;
        match value {
            Value::Null => self.word("null"),
            Value::Bool(true) => self.word("true"),
            Value::Bool(false) => self.word("false"),
            Value::Number(number) => {
                self.size.bytes += 1;
                match number.as_u64() {
                    // Most numbers are counts, and need none of the machinery of formats.
                    Some(count) => self.text.push_str(itoa::Buffer::new().format(count)),
                    // Writing to a String does not fail.
                    None => _ = write!(self.text, "{number}"),
                }
            }
            Value::String(text) => {
                self.size.bytes += text.len() as u64 + 2;
                self.within_bytes()?;
                push_quoted(self.text, text);
            }
            Value::Array(items) => {
                self.begin('[', items.len(), around)?;
                for (place, item) in items.iter().enumerate() {
                    self.separate(place);
                    self.value(item, around + 1)?;
                }
                self.text.push(']');
            }
            Value::Object(map) => {
                self.begin('{', map.len(), around)?;
                for (place, (key, item)) in map.iter().enumerate() {
                    self.separate(place);
                    self.size.bytes += key.len() as u64 + 3;
                    self.within_bytes()?;
                    push_quoted(self.text, key);
                    self.text.push(':');
                    self.value(item, around + 1)?;
                }
                self.text.push('}');
            }
        }
        self.within_bytes()
    }

    fn word(&mut self, word: &str) {
        self.size.bytes += word.len() as u64;
        self.text.push_str(word);
    }

    fn begin(&mut self, bracket: char, count: usize, around: u64) -> Result<(), JsonProblem> {
        self.size.bytes += 2 + (count as u64).saturating_sub(1);
        self.size.depth = self.size.depth.max(around + 1);
        self.text.push(bracket);
        if self.size.depth > self.depth_max { Err(too_deep(self.depth_max)) } else { Ok(()) }
    }

    fn separate(&mut self, place: usize) {
        if place > 0 {
            self.text.push(',');
        }
    }

    /// Asked before much is written, so that what is refused takes little room.
    fn within_bytes(&self) -> Result<(), JsonProblem> {
        if self.size.bytes > self.bytes_max { Err(JsonProblem::too_large(self.bytes_max)) } else { Ok(()) }
    }
}

fn push_quoted(out: &mut String, text: &str) {
    if is_plain(text.as_bytes()) {
        out.push('"');
        out.push_str(text);
        out.push('"');
    } else {
        push_escaped(out, text);
    }
}

/// Whether nothing is to be escaped: looks at eight bytes at once. The last ones are looked at whole, though some of them
/// are among those before.
fn is_plain(text: &[u8]) -> bool {
    if let Some(last) = text.last_chunk() {
        let (words, _) = text.as_chunks();
        let escaped = |word: &[u8; 8]| escaped_in(u64::from_le_bytes(*word));
        return words.iter().fold(escaped(last), |found, word| found | escaped(word)) & HIGHEST == 0;
    }
    if let (Some(first), Some(last)) = (text.first_chunk(), text.last_chunk()) {
        let [first, last] = [first, last].map(|half| u64::from(u32::from_le_bytes(*half)));
        return escaped_in(first << 32 | last) & HIGHEST == 0;
    }
    text.iter().all(|byte| *byte >= b' ' && *byte != b'"' && *byte != b'\\')
}

const EACH: u64 = u64::from_le_bytes([1; 8]);

/// The highest bit of each byte.
const HIGHEST: u64 = EACH << 7;

/// Has the highest bit of one of eight bytes if one is to be escaped: a byte that is less than another borrows it, and what
/// has it by itself is not to be escaped. The other bits mean nothing.
fn escaped_in(word: u64) -> u64 {
    let less = |word: u64, than: u8| word.wrapping_sub(EACH * than as u64);
    let is = |byte: u8| less(word ^ (EACH * byte as u64), 1);
    (less(word, b' ') | is(b'"') | is(b'\\')) & !word
}

#[cold]
fn push_escaped(out: &mut String, text: &str) {
    let written = serde_json::to_string(text);
    debug_assert!(written.is_ok(), "every text can be written as JSON");
    out.push_str(&written.unwrap_or_default());
}
