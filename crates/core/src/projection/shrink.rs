//! Shortens JSON to valid JSON: long arrays, objects and strings lose their ends, and say how much.
//!
//! `[1,2,…]` becomes `[1,2,{"…":"9,998 more items"}]`, an object gains `"…":"12 more properties"`, a string
//! ends in `… (1,200 more characters)`, and too deep values become `"… 5 items"`. The text is never parsed
//! into values: it is scanned, so that a large result costs no more memory than its shown part.

use super::grouped;

/// `text` in at most `bytes` bytes; `None` if it is not JSON after all.
pub(super) fn json(text: &str, bytes: usize) -> Option<String> {
    let mut measure = Measure { chars: bytes, items: bytes / 2, depth: 64 };
    loop {
        match (ShrinkWriter { text, at: 0, out: String::new(), room: bytes, measure, open: Vec::new() })
            .whole()
        {
            Ok(shown) => return Some(shown),
            Err(ShrinkStop::NotJson) => return None,
            Err(ShrinkStop::Full) => measure = measure.tighter()?,
        }
    }
}

/// The limits for long values.
#[derive(Clone, Copy)]
struct Measure {
    chars: usize,
    items: usize,
    depth: usize,
}

impl Measure {
    /// The next measure to try; all limits shrink together, so that no kind of value crowds out the others.
    fn tighter(self) -> Option<Measure> {
        if self.chars <= 4 && self.items <= 1 && self.depth <= 1 {
            return None;
        }
        let chars = (self.chars * 2 / 3).max(4);
        let depth = if chars > 64 { self.depth } else { (self.depth * 2 / 3).max(1) };
        Some(Measure { chars, items: (self.items * 2 / 3).max(1), depth })
    }
}

enum ShrinkStop {
    Full,
    NotJson,
}

struct ShrinkWriter<'a> {
    text: &'a str,
    at: usize,
    out: String,
    room: usize,
    measure: Measure,
    open: Vec<OpenContainer>,
}

/// An array or object being written.
struct OpenContainer {
    closing: u8,
    written: usize,
    hidden: u64,
    /// The longest key that consists of dots only: the key of the mark must differ.
    dots: usize,
}

impl ShrinkWriter<'_> {
    fn whole(mut self) -> Result<String, ShrinkStop> {
        loop {
            if self.out.len() > self.room {
                return Err(ShrinkStop::Full);
            }
            if self.element()? {
                continue;
            }
            if !self.close()? {
                break;
            }
        }
        match (self.token(), self.out.len() <= self.room) {
            (Some(_), _) => Err(ShrinkStop::NotJson),
            (None, false) => Err(ShrinkStop::Full),
            (None, true) => Ok(self.out),
        }
    }

    /// Writes or skips one value, with its key if it has one. Returns whether a container was opened.
    fn element(&mut self) -> Result<bool, ShrinkStop> {
        let measure = self.measure;
        let Some(frame) = self.open.last() else { return self.value() };
        let (is_object, is_full) = (frame.closing == b'}', frame.written >= measure.items);
        let key = if is_object { Some(self.key()?) } else { None };
        let is_long = key.is_some_and(|(start, end)| end - start > measure.chars.saturating_mul(4).max(64));
        if is_full || is_long {
            self.skip_value()?;
            if let Some(frame) = self.open.last_mut() {
                frame.hidden += 1;
            }
            return Ok(false);
        }
        if let Some(frame) = self.open.last_mut() {
            if frame.written > 0 {
                self.out.push(',');
            }
            frame.written += 1;
        }
        if let Some((start, end)) = key {
            let name = &self.text[start..end];
            self.out.push_str(name);
            self.out.push(':');
            let dots = name.trim_matches('"');
            if dots.chars().all(|letter| letter == '…')
                && let Some(frame) = self.open.last_mut()
            {
                frame.dots = frame.dots.max(dots.chars().count());
            }
        }
        self.value()
    }

    /// Reads a key and its colon; returns its range, with its quotes.
    fn key(&mut self) -> Result<(usize, usize), ShrinkStop> {
        if self.token() != Some(b'"') {
            return Err(ShrinkStop::NotJson);
        }
        let start = self.at;
        self.at = self.string_end()?;
        let end = self.at;
        if self.token() != Some(b':') {
            return Err(ShrinkStop::NotJson);
        }
        self.at += 1;
        Ok((start, end))
    }

    fn value(&mut self) -> Result<bool, ShrinkStop> {
        match self.token() {
            Some(opening @ (b'[' | b'{')) => return self.container(opening),
            Some(b'"') => self.string()?,
            Some(_) => {
                let start = self.at;
                self.skip_value()?;
                self.out.push_str(&self.text[start..self.at]);
            }
            None => return Err(ShrinkStop::NotJson),
        }
        Ok(false)
    }

    fn container(&mut self, opening: u8) -> Result<bool, ShrinkStop> {
        let closing = if opening == b'[' { b']' } else { b'}' };
        let start = self.at;
        self.at += 1;
        if self.token() == Some(closing) {
            self.at += 1;
            self.out.push(opening as char);
            self.out.push(closing as char);
            return Ok(false);
        }
        if self.open.len() >= self.measure.depth {
            self.at = start;
            let count = self.skip_value()?;
            let noun = if opening == b'[' { "items" } else { "properties" };
            self.out.push_str(&format!("\"… {} {noun}\"", grouped(count)));
            return Ok(false);
        }
        self.out.push(opening as char);
        self.open.push(OpenContainer { closing, written: 0, hidden: 0, dots: 0 });
        Ok(true)
    }

    /// Steps over the text between two values. Returns whether another value follows.
    fn close(&mut self) -> Result<bool, ShrinkStop> {
        loop {
            let next = self.token();
            let Some(frame) = self.open.last() else { return Ok(false) };
            match next {
                Some(b',') => {
                    self.at += 1;
                    return Ok(true);
                }
                Some(byte) if byte == frame.closing => {}
                _ => return Err(ShrinkStop::NotJson),
            }
            self.at += 1;
            if let Some(frame) = self.open.pop() {
                self.mark(&frame);
                self.out.push(frame.closing as char);
            }
        }
    }

    /// Writes how much of a container is left out.
    fn mark(&mut self, frame: &OpenContainer) {
        if frame.hidden == 0 {
            return;
        }
        if frame.written > 0 {
            self.out.push(',');
        }
        let (more, dots) = (grouped(frame.hidden), "…".repeat(frame.dots + 1));
        self.out.push_str(&match frame.closing {
            b']' => format!("{{\"…\":\"{more} more items\"}}"),
            _ => format!("\"{dots}\":\"{more} more properties\""),
        });
    }

    /// Writes a string, or its beginning.
    fn string(&mut self) -> Result<(), ShrinkStop> {
        let start = self.at;
        let end = self.string_end()?;
        self.at = end;
        let inner = &self.text[start + 1..end - 1];
        if inner.len() <= self.measure.chars {
            self.out.push_str(&self.text[start..end]);
            return Ok(());
        }
        let shown = prefix(inner, self.measure.chars);
        let hidden = characters(&inner[shown..]);
        // The mark must not be longer than the omitted text.
        if inner.len() - shown <= 32 {
            self.out.push_str(&self.text[start..end]);
        } else {
            self.out.push_str(&format!("\"{}… ({} more characters)\"", &inner[..shown], grouped(hidden)));
        }
        Ok(())
    }

    /// The place behind the string that begins here.
    fn string_end(&self) -> Result<usize, ShrinkStop> {
        let bytes = self.text.as_bytes();
        let mut at = self.at + 1;
        loop {
            match bytes.get(at) {
                Some(b'"') => return Ok(at + 1),
                Some(b'\\') => at += 2,
                Some(_) => at += 1,
                None => return Err(ShrinkStop::NotJson),
            }
        }
    }

    /// Steps over a value; returns how many items or properties it has.
    fn skip_value(&mut self) -> Result<u64, ShrinkStop> {
        let (mut depth, mut commas, mut is_container) = (0usize, 0u64, false);
        loop {
            match self.token() {
                Some(b'"') => self.at = self.string_end()?,
                Some(b'[' | b'{') => {
                    (depth, is_container) = (depth + 1, true);
                    self.at += 1;
                }
                Some(b']' | b'}') if depth > 0 => {
                    depth -= 1;
                    self.at += 1;
                }
                Some(byte @ (b',' | b':')) if depth > 0 => {
                    commas += u64::from(byte == b',' && depth == 1);
                    self.at += 1;
                    continue;
                }
                Some(byte) if byte.is_ascii_alphanumeric() || byte == b'-' => {
                    let rest = &self.text.as_bytes()[self.at..];
                    let is_part =
                        |byte: &&u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'+' | b'.');
                    self.at += rest.iter().take_while(is_part).count();
                }
                _ => return Err(ShrinkStop::NotJson),
            }
            if depth == 0 {
                return Ok(if is_container { commas + 1 } else { 0 });
            }
        }
    }

    /// The next byte that is not white space.
    fn token(&mut self) -> Option<u8> {
        while let Some(&byte) = self.text.as_bytes().get(self.at) {
            if !matches!(byte, b' ' | b'\t' | b'\n' | b'\r') {
                return Some(byte);
            }
            self.at += 1;
        }
        None
    }
}

/// The longest prefix of at most `bytes` bytes of a string's content that cuts no character in two.
fn prefix(inner: &str, bytes: usize) -> usize {
    let mut end = 0;
    while end < inner.len() && end + character(inner, end) <= bytes {
        end += character(inner, end);
    }
    end
}

/// The number of characters written there.
fn characters(inner: &str) -> u64 {
    let (mut count, mut at) = (0, 0);
    while at < inner.len() {
        at += character(inner, at);
        count += 1;
    }
    count
}

/// The bytes of the character at `at`, which may be an escape, or two that are one character.
fn character(inner: &str, at: usize) -> usize {
    let raw = inner.as_bytes();
    match raw[at] {
        b'\\' if raw.get(at + 1) == Some(&b'u') => {
            let is_first_of_two = matches!(raw.get(at + 2), Some(b'd' | b'D'))
                && matches!(raw.get(at + 3), Some(b'8' | b'9' | b'a' | b'A' | b'b' | b'B'));
            if is_first_of_two { 12 } else { 6 }
        }
        b'\\' => 2,
        0xf0.. => 4,
        0xe0.. => 3,
        0xc0.. => 2,
        _ => 1,
    }
}
