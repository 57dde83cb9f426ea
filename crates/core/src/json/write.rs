//! Compact JSON text of a value, measured while it is written: arguments and results go through here once.

use super::{Problem, Size, too_deep};
use serde_json::Value;
use std::fmt::Write;

/// Appends the text that `serde_json` writes.
pub(super) struct Writer<'a> {
    pub(super) text: &'a mut String,
    pub(super) size: Size,
    pub(super) bytes_max: u64,
    pub(super) depth_max: u64,
}

impl Writer<'_> {
    /// Writes a value around which there are so many arrays and objects. Recurses no deeper than `depth_max`.
    pub(super) fn value(&mut self, value: &Value, around: u64) -> Result<(), Problem> {
        self.size.nodes += 1;
        match value {
            Value::Null => self.word("null"),
            Value::Bool(true) => self.word("true"),
            Value::Bool(false) => self.word("false"),
            Value::Number(number) => {
                self.size.bytes += 1;
                // Writing to a String does not fail.
                let _ = write!(self.text, "{number}");
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

    fn begin(&mut self, bracket: char, count: usize, around: u64) -> Result<(), Problem> {
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
    fn within_bytes(&self) -> Result<(), Problem> {
        if self.size.bytes > self.bytes_max { Err(Problem::too_large(self.bytes_max)) } else { Ok(()) }
    }
}

fn push_quoted(out: &mut String, text: &str) {
    // Looks at all of them, since that is done many at a time.
    let is_plain =
        text.bytes().fold(true, |plain, byte| plain & (byte >= b' ') & (byte != b'"') & (byte != b'\\'));
    if is_plain {
        out.reserve(text.len() + 2);
        out.push('"');
        out.push_str(text);
        out.push('"');
    } else {
        push_escaped(out, text);
    }
}

#[cold]
fn push_escaped(out: &mut String, text: &str) {
    let written = serde_json::to_string(text);
    debug_assert!(written.is_ok(), "every text can be written as JSON");
    out.push_str(&written.unwrap_or_default());
}
