//! Places in an artifact: a line, lines with a text, a value of JSON. An artifact is read in pieces, and never lies whole in memory
//! unless it is JSON.

use super::cost;
use serde_json::{Value, json};
use windlass::ids::Handle;
use windlass::{Cx, ToolError};

/// How much of an artifact is read at once.
const PIECE_BYTES: u64 = 256 << 10;
/// The maximum length of a shown line.
const LINE_BYTES_MAX: usize = 400;

/// The offset at which a line begins.
pub(super) async fn line(cx: &Cx, artifact: Handle, line: u64) -> Result<u64, ToolError> {
    let (mut at, mut passed) = (0, 1);
    while passed < line {
        let piece = next_piece(cx, artifact, at).await?;
        if piece.is_empty() {
            let message = format!("there is no line {line}: the artifact ends with line {passed}");
            return Err(ToolError::new(message));
        }
        let mut ends = piece.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(place, _)| place);
        let missing = usize::try_from(line - passed).unwrap_or(usize::MAX);
        match ends.clone().nth(missing - 1) {
            Some(place) => return Ok(at + place as u64 + 1),
            None => passed += ends.by_ref().count() as u64,
        }
        at += piece.len() as u64;
    }
    Ok(at)
}

/// The lines from the offset on that contain a text.
pub(super) async fn search(
    cx: &Cx,
    artifact: Handle,
    offset: u64,
    wanted: &str,
    room: usize,
) -> Result<Value, ToolError> {
    let mut found = FoundLines { wanted: wanted.as_bytes(), room, offset, ..FoundLines::default() };
    let mut at = offset;
    loop {
        let piece = next_piece(cx, artifact, at).await?;
        if piece.is_empty() {
            let next = found.finish();
            return Ok(found.shown(next));
        }
        at += piece.len() as u64;
        if let Some(next) = found.take(&piece) {
            return Ok(found.shown(Some(next)));
        }
    }
}

async fn next_piece(cx: &Cx, artifact: Handle, at: u64) -> Result<Vec<u8>, ToolError> {
    if cx.is_stopping() {
        return Err(ToolError::stopped());
    }
    cx.heartbeat();
    Ok(cx.read_artifact(artifact, at, PIECE_BYTES).await?)
}

/// A value of an artifact that is JSON, as text.
pub(super) async fn pointed(cx: &Cx, artifact: Handle, pointer: &str) -> Result<String, ToolError> {
    let max = cx.limits().result_json_bytes_max;
    let bytes = cx.read_artifact(artifact, 0, max + 1).await?;
    if bytes.len() as u64 > max {
        let message = format!(
            "the artifact has more than {max} bytes and is not read as JSON; use search, line or offset"
        );
        return Err(ToolError::new(message));
    }
    let value: Value = serde_json::from_slice(&bytes).map_err(|error| {
        ToolError::new(format!(
            "the artifact is no JSON that can be read ({error}); use search, line or offset"
        ))
    })?;
    match value.pointer(pointer) {
        Some(Value::String(text)) => Ok(text.clone()),
        Some(found) => Ok(found.to_string()),
        None => Err(ToolError::new(missing(&value, pointer))),
    }
}

/// A message that says how far the pointer leads.
fn missing(value: &Value, pointer: &str) -> String {
    if !pointer.starts_with('/') {
        return format!(
            "the pointer {pointer:?} does not begin with /; write one like /items/0, or leave it out"
        );
    }
    let mut good = "";
    for (at, _) in pointer.match_indices('/').skip(1).chain([(pointer.len(), "")]) {
        match value.pointer(&pointer[..at]) {
            Some(_) => good = &pointer[..at],
            None => break,
        }
    }
    let there = match value.pointer(good) {
        Some(Value::Object(fields)) => {
            let names: Vec<String> = fields.keys().take(20).map(|name| format!("{name:?}")).collect();
            format!("an object with {} fields: {}", fields.len(), names.join(", "))
        }
        Some(Value::Array(items)) => format!("an array of {} items, from 0 on", items.len()),
        _ => "a plain value".to_string(),
    };
    let place = if good.is_empty() { "the whole" } else { good };
    format!("there is nothing at {pointer}; {place} is {there}")
}

/// Lines that contain a text, found piece by piece.
#[derive(Default)]
struct FoundLines<'a> {
    wanted: &'a [u8],
    room: usize,
    offset: u64,
    /// The line that is being read, as far as it can be shown, and the end of it for a match across pieces.
    line: Vec<u8>,
    end: Vec<u8>,
    /// Where it begins, from the offset on.
    begins: u64,
    is_match: bool,
    passed: u64,
    text: String,
    used: usize,
    lossy: bool,
}

impl FoundLines<'_> {
    /// Takes the next bytes. An offset: the answer is full, and the search goes on from there.
    fn take(&mut self, piece: &[u8]) -> Option<u64> {
        for part in piece.split_inclusive(|byte| *byte == b'\n') {
            let (body, is_ended) = match part.strip_suffix(b"\n") {
                Some(body) => (body, true),
                None => (part, false),
            };
            self.add(body);
            self.passed += part.len() as u64;
            if is_ended && !self.end_line() {
                return Some(self.offset + self.begins);
            }
        }
        None
    }

    fn add(&mut self, body: &[u8]) {
        if !self.is_match {
            self.end.extend_from_slice(body);
            self.is_match = self.end.windows(self.wanted.len().max(1)).any(|window| window == self.wanted);
            let keep = self.wanted.len().saturating_sub(1);
            self.end.drain(..self.end.len().saturating_sub(keep));
        }
        let room = LINE_BYTES_MAX.saturating_sub(self.line.len()).min(body.len());
        self.line.extend_from_slice(&body[..room]);
    }

    /// Ends a line. `false`: it matches, and there is no space for it.
    fn end_line(&mut self) -> bool {
        if self.is_match {
            let shown = String::from_utf8_lossy(&self.line);
            let shown =
                format!("{}: {}\n", self.offset + self.begins, shown.trim_end_matches(['\r', '\u{fffd}']));
            let cost: usize = shown.chars().map(cost).sum();
            if self.used + cost > self.room && !self.text.is_empty() {
                return false;
            }
            self.used += cost;
            self.lossy |= shown.contains('\u{fffd}');
            self.text.push_str(&shown);
        }
        self.line.clear();
        self.end.clear();
        (self.begins, self.is_match) = (self.passed, false);
        true
    }

    /// Ends the last line, which may have no line end. An offset: there was no space for it.
    fn finish(&mut self) -> Option<u64> {
        (!self.end_line()).then_some(self.offset + self.begins)
    }

    fn shown(self, next: Option<u64>) -> Value {
        json!({ "text": self.text, "offset": self.offset, "next_offset": next, "lossy": self.lossy })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(pieces: &[&[u8]], wanted: &str, room: usize) -> Value {
        let mut found = FoundLines { wanted: wanted.as_bytes(), room, offset: 100, ..FoundLines::default() };
        for piece in pieces {
            if let Some(next) = found.take(piece) {
                return found.shown(Some(next));
            }
        }
        let next = found.finish();
        found.shown(next)
    }

    #[test]
    fn lines_are_found_across_pieces_with_their_places() {
        let all = found(&[b"one err", b"or\ntwo\nthree error\n", b"error"], "error", 1_000);
        assert_eq!(all["text"], "100: one error\n114: three error\n126: error\n");
        assert_eq!(all["next_offset"], Value::Null);
        let first = found(&[b"an error\nno\nan error\n"], "error", 20);
        assert_eq!((&first["text"], &first["next_offset"]), (&json!("100: an error\n"), &json!(112)));
        let long = [b"x".repeat(10_000), b"error\n".to_vec()].concat();
        let long = found(&[&long], "error", 1_000);
        assert!(long["text"].as_str().is_some_and(|text| text.len() < 500), "{long}");
    }

    #[test]
    fn a_pointer_that_leads_nowhere_says_how_far_it_leads() {
        let value = json!({ "a": [{ "b": 1 }], "c": 2 });
        assert_eq!(missing(&value, "/a/3"), "there is nothing at /a/3; /a is an array of 1 items, from 0 on");
        assert_eq!(
            missing(&value, "/x/y"),
            r#"there is nothing at /x/y; the whole is an object with 2 fields: "a", "c""#
        );
        assert_eq!(missing(&value, "/a/0/b/z"), "there is nothing at /a/0/b/z; /a/0/b is a plain value");
        assert!(missing(&value, "a").contains("does not begin with /"));
    }
}
