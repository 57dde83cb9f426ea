//! Standard output: a value while it is small, an artifact beyond.

use serde_json::Value;
use std::borrow::Cow;
use windlass::core::json::parse_result;
use windlass::core::limits::Limits;

/// What an artifact of text is.
pub const TEXT: &str = "text/plain";

/// Output in memory, up to a maximum.
#[derive(Clone, Debug)]
pub struct Held {
    bytes: Vec<u8>,
    bytes_max: usize,
    overflowed: bool,
    is_text: bool,
}

impl Held {
    /// Nothing yet; more than `bytes_max` will not be held.
    pub fn new(bytes_max: usize) -> Held {
        Held { bytes: Vec::new(), bytes_max, overflowed: false, is_text: true }
    }

    /// Takes the next piece, and gives back what has to be kept elsewhere now: nothing until the maximum is
    /// passed, then all that was held, then every piece.
    pub fn take<'a>(&mut self, piece: &'a [u8]) -> Option<Cow<'a, [u8]>> {
        if self.overflowed {
            return Some(Cow::Borrowed(piece));
        }
        self.bytes.extend_from_slice(piece);
        if self.bytes.len() <= self.bytes_max {
            return None;
        }
        self.overflowed = true;
        self.is_text = is_text_so_far(&self.bytes);
        Some(Cow::Owned(std::mem::take(&mut self.bytes)))
    }

    /// The value of the whole output, and the bytes that must be kept because no value can hold them.
    ///
    /// JSON if all of it is and nothing of it would be lost by reading it (a key given twice, a number that would
    /// be rounded), else text without its last newline. Bytes that are not UTF-8 are never bent into text: they
    /// become an artifact, as does what was larger than the maximum, and the value is null.
    pub fn into_result(self, limits: &Limits) -> (Value, Option<Vec<u8>>) {
        if self.overflowed {
            return (Value::Null, None);
        }
        match String::from_utf8(self.bytes) {
            Ok(mut text) => {
                if let Ok(value) = parse_result(text.trim_ascii(), limits) {
                    return (value, None);
                }
                text.truncate(without_newline(&text).len());
                (Value::String(text), None)
            }
            Err(error) => (Value::Null, Some(error.into_bytes())),
        }
    }

    /// What an artifact of this output is; for a large one, judged by its beginning.
    pub fn media_type(&self) -> &'static str {
        if self.is_text && is_text_so_far(&self.bytes) { TEXT } else { "application/octet-stream" }
    }

    /// The last of what is held, for a failure that says nothing else.
    pub(crate) fn end(&self, bytes_max: usize) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.bytes[self.bytes.len().saturating_sub(bytes_max)..])
    }
}

fn without_newline(text: &str) -> &str {
    match text.strip_suffix('\n') {
        Some(line) => line.strip_suffix('\r').unwrap_or(line),
        None => text,
    }
}

/// Whether it is UTF-8, but for a last letter that may be cut off.
fn is_text_so_far(bytes: &[u8]) -> bool {
    match std::str::from_utf8(bytes) {
        Ok(_) => true,
        Err(error) => error.error_len().is_none(),
    }
}
