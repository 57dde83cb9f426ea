//! Standard output: a value while it is small, an artifact beyond.

use serde_json::Value;
use std::borrow::Cow;
use windlass::Limits;
use windlass::secrets::SecretScrubber;
use windlass::tool::parse_result;

/// The media type of text.
pub const TEXT: &str = "text/plain";

/// Output in memory, up to a maximum.
#[derive(Clone, Debug)]
pub struct BoundedOutput {
    bytes: Vec<u8>,
    bytes_max: usize,
    overflowed: bool,
    is_text: bool,
    /// The type of the image that it begins as, if it was too large to be held.
    image: Option<&'static str>,
}

impl BoundedOutput {
    /// An empty output; more than `bytes_max` will not be held.
    pub fn new(bytes_max: usize) -> BoundedOutput {
        BoundedOutput { bytes: Vec::new(), bytes_max, overflowed: false, is_text: true, image: None }
    }

    /// Takes the next piece, and returns what must be stored elsewhere now: nothing until the maximum is
    /// exceeded, then all that was held, then every piece.
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
        self.image = image_type(&self.bytes);
        Some(Cow::Owned(std::mem::take(&mut self.bytes)))
    }

    /// The value of the whole output, and the bytes that must be stored because no value can hold them.
    ///
    /// JSON if all of it is and parsing loses nothing (a key given twice, a number that would be rounded),
    /// else text without its last newline. Bytes that are not UTF-8 are never forced into text: they become
    /// an artifact, as does output larger than the maximum, and the value is null.
    pub fn into_result(self, limits: &Limits) -> (Value, Option<Vec<u8>>) {
        if self.overflowed {
            return (Value::Null, None);
        }
        match String::from_utf8(self.bytes) {
            Ok(mut text) => {
                if let Ok(value) = parse_result(text.trim_ascii(), &limits.args()) {
                    return (value, None);
                }
                text.truncate(without_newline(&text).len());
                (Value::String(text), None)
            }
            Err(error) => (Value::Null, Some(error.into_bytes())),
        }
    }

    /// The held bytes, as they are; `None` if they were stored elsewhere.
    pub fn into_bytes(self) -> Option<Vec<u8>> {
        (!self.overflowed).then_some(self.bytes)
    }

    /// The media type of this output; for a large one, judged by its beginning.
    pub fn media_type(&self) -> &'static str {
        match self.image.or_else(|| image_type(&self.bytes)) {
            Some(image) => image,
            None if self.is_text && is_text_so_far(&self.bytes) => TEXT,
            None => "application/octet-stream",
        }
    }

    /// The end of the held output, for a failure without another message.
    pub(crate) fn end(&self, bytes_max: usize, secrets: &SecretScrubber) -> String {
        // Before it is cut: a part of a secret would not be recognised.
        let bytes = secrets.scrub(&self.bytes);
        String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(bytes_max)..]).into_owned()
    }
}

/// The type of an image that models take, by the first bytes of its file.
pub(crate) fn image_type(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some("image/gif"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some("image/webp"),
        _ => None,
    }
}

fn without_newline(text: &str) -> &str {
    match text.strip_suffix('\n') {
        Some(line) => line.strip_suffix('\r').unwrap_or(line),
        None => text,
    }
}

/// Whether it is UTF-8, except for a last character that may be cut off.
fn is_text_so_far(bytes: &[u8]) -> bool {
    match std::str::from_utf8(bytes) {
        Ok(_) => true,
        Err(error) => error.error_len().is_none(),
    }
}
