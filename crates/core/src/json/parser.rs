//! The parser: one loop over an explicit stack of open arrays and objects.

use super::{Position, Problem, number, push_step, string};
use crate::code::Code;
use serde_json::{Map, Value};

/// What stopped the parser: the place is a byte offset until somebody needs to read it.
pub(super) struct Fault {
    pub(super) code: Code,
    pub(super) at: usize,
    pub(super) what: String,
}

/// Reads one text.
pub(super) struct Parser<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
    depth_max: u64,
    /// The innermost open container; apart from the others so that flat arguments need no stack.
    open: Option<Frame>,
    outer: Vec<Frame>,
}

enum Frame {
    Array(Vec<Value>),
    Object { map: Map<String, Value>, key: String, key_at: usize },
}

/// What follows a value in its container.
enum More {
    Item,
    Key(String, usize),
    Nothing,
}

impl<'a> Parser<'a> {
    pub(super) fn new(text: &'a str, depth_max: u64) -> Parser<'a> {
        Parser { text, bytes: text.as_bytes(), at: 0, depth_max, open: None, outer: Vec::new() }
    }

    /// The value of the whole text.
    pub(super) fn document(mut self) -> Result<Value, Problem> {
        self.value_to_end().map_err(|fault| Problem {
            code: fault.code,
            pointer: self.pointer(),
            position: Some(Position::after(&self.text[..fault.at])),
            what: fault.what,
        })
    }

    fn value_to_end(&mut self) -> Result<Value, Fault> {
        loop {
            let Some(value) = self.value_or_open()? else { continue };
            let Some(whole) = self.place(value)? else { continue };
            return match self.token() {
                None => Ok(whole),
                Some(_) => {
                    Err(self
                        .invalid("there is more text behind the JSON value; send one value and nothing else"))
                }
            };
        }
    }

    /// Reads a value that stands for itself, or opens a container that is not empty and returns none.
    #[inline]
    fn value_or_open(&mut self) -> Result<Option<Value>, Fault> {
        let value = match self.token() {
            Some(b'"') => {
                let (text, end) = string::read(self.text, self.at + 1)?;
                self.at = end;
                Value::String(text)
            }
            Some(b'-' | b'0'..=b'9') => {
                let (number, end) = number::read(self.text, self.at)?;
                self.at = end;
                Value::Number(number)
            }
            Some(b'{') => return self.open_object(),
            Some(b'[') => return self.open_array(),
            Some(b't') => self.literal("true", Value::Bool(true))?,
            Some(b'f') => self.literal("false", Value::Bool(false))?,
            Some(b'n') => self.literal("null", Value::Null)?,
            _ => return Err(self.no_value()),
        };
        Ok(Some(value))
    }

    fn open_object(&mut self) -> Result<Option<Value>, Fault> {
        self.enter()?;
        if self.token() == Some(b'}') {
            self.at += 1;
            return Ok(Some(Value::Object(Map::new())));
        }
        let (key, key_at) = self.key()?;
        self.push(Frame::Object { map: Map::new(), key, key_at });
        Ok(None)
    }

    fn open_array(&mut self) -> Result<Option<Value>, Fault> {
        self.enter()?;
        if self.token() == Some(b']') {
            self.at += 1;
            return Ok(Some(Value::Array(Vec::new())));
        }
        self.push(Frame::Array(Vec::new()));
        Ok(None)
    }

    /// Steps over the bracket that opens a container, if another level is allowed.
    fn enter(&mut self) -> Result<(), Fault> {
        let depth = self.outer.len() as u64 + u64::from(self.open.is_some()) + 1;
        if depth > self.depth_max {
            let what = format!(
                "arrays and objects are nested more than {} levels deep; flatten the value",
                self.depth_max
            );
            return Err(Fault { code: Code::TooDeep, at: self.at, what });
        }
        self.at += 1;
        Ok(())
    }

    fn push(&mut self, frame: Frame) {
        if let Some(outer) = self.open.replace(frame) {
            self.outer.push(outer);
        }
    }

    /// Puts `value` where it belongs and closes what ends behind it. Returns the whole once nothing is open.
    #[inline]
    fn place(&mut self, mut value: Value) -> Result<Option<Value>, Fault> {
        loop {
            // What follows is read first: until the value is in its container, a fault is told at the value's place.
            let next = self.token();
            let more = match (&self.open, next) {
                (None, _) => return Ok(Some(value)),
                (Some(Frame::Array(_)), Some(b',')) => self.comma(b']').map(|()| More::Item)?,
                (Some(Frame::Object { .. }), Some(b',')) => {
                    self.comma(b'}')?;
                    let (key, key_at) = self.key()?;
                    More::Key(key, key_at)
                }
                (Some(Frame::Array(_)), Some(b']')) | (Some(Frame::Object { .. }), Some(b'}')) => {
                    More::Nothing
                }
                (Some(Frame::Array(_)), _) => return Err(self.unclosed("expected , or ] behind this item")),
                (Some(Frame::Object { .. }), _) => {
                    return Err(self.unclosed("expected , or } behind this property"));
                }
            };
            match &mut self.open {
                Some(Frame::Array(items)) => items.push(value),
                Some(Frame::Object { map, key, key_at }) => {
                    if map.insert(std::mem::take(key), value).is_some() {
                        // The key went into the map: read it once more, for the message and the pointer.
                        let at = *key_at;
                        *key = string::read(self.text, at + 1)?.0;
                        let what = format!("the key {key:?} is there twice; keep one of the two");
                        return Err(Fault { code: Code::DuplicateKey, at, what });
                    }
                    if let More::Key(next, next_at) = more {
                        (*key, *key_at) = (next, next_at);
                        return Ok(None);
                    }
                }
                None => return Ok(Some(value)),
            }
            if let More::Item = more {
                return Ok(None);
            }
            self.at += 1;
            value = match std::mem::replace(&mut self.open, self.outer.pop()) {
                Some(Frame::Array(items)) => Value::Array(items),
                Some(Frame::Object { map, .. }) => Value::Object(map),
                None => return Ok(None),
            };
        }
    }

    /// Steps over a comma, behind which `closing` must not follow.
    #[inline]
    fn comma(&mut self, closing: u8) -> Result<(), Fault> {
        let comma = self.at;
        self.at += 1;
        if self.token() == Some(closing) {
            let what = format!("there is a comma before the closing {}; remove the comma", closing as char);
            return Err(Fault { code: Code::InvalidJson, at: comma, what });
        }
        Ok(())
    }

    /// Reads a key and its colon; returns the key and where it stands.
    #[inline]
    fn key(&mut self) -> Result<(String, usize), Fault> {
        let found = self.token();
        let key_at = self.at;
        if found != Some(b'"') {
            return Err(self.unclosed("expected a key in double quotes"));
        }
        let (key, end) = string::read(self.text, key_at + 1)?;
        self.at = end;
        if self.token() != Some(b':') {
            return Err(self.unclosed("expected : behind the key"));
        }
        self.at += 1;
        Ok((key, key_at))
    }

    #[inline]
    fn literal(&mut self, word: &str, value: Value) -> Result<Value, Fault> {
        if !self.bytes[self.at..].starts_with(word.as_bytes()) {
            return Err(self.no_value());
        }
        self.at += word.len();
        Ok(value)
    }

    /// Skips white space; returns the byte there without stepping over it.
    #[inline]
    fn token(&mut self) -> Option<u8> {
        while let Some(&byte) = self.bytes.get(self.at) {
            if !matches!(byte, b' ' | b'\t' | b'\n' | b'\r') {
                return Some(byte);
            }
            self.at += 1;
        }
        None
    }

    /// Where the parser is, as a JSON pointer: through the open containers to the value it was reading.
    fn pointer(&self) -> String {
        let mut pointer = String::new();
        for frame in self.outer.iter().chain(&self.open) {
            match frame {
                Frame::Array(items) => push_step(&mut pointer, &items.len().to_string()),
                Frame::Object { key, .. } => push_step(&mut pointer, key),
            }
        }
        pointer
    }

    #[cold]
    fn no_value(&self) -> Fault {
        const WRONG_WORDS: [(&str, &str); 8] = [
            ("True", "write true"),
            ("False", "write false"),
            ("None", "write null"),
            ("undefined", "write null or leave the property out"),
            ("NaN", "JSON has no NaN: write null or a string"),
            ("Infinity", "JSON has no Infinity: write null or a string"),
            ("'", "strings stand in double quotes"),
            ("/", "JSON has no comments: remove it"),
        ];
        let rest = &self.text[self.at..];
        let advice = WRONG_WORDS.iter().find(|(word, _)| rest.starts_with(word)).map(|(_, advice)| *advice);
        let mut fault = self.unclosed("expected a JSON value");
        if let Some(advice) = advice {
            fault.what.push_str("; ");
            fault.what.push_str(advice);
        }
        fault
    }

    /// Something was expected here; says what is here instead.
    #[cold]
    fn unclosed(&self, expected: &str) -> Fault {
        match self.text[self.at..].chars().next() {
            Some(found) => self.invalid(&format!("{expected}, found {found:?}")),
            None => self.invalid(&format!("{expected}, but the text ends; write the whole JSON")),
        }
    }

    #[cold]
    fn invalid(&self, what: &str) -> Fault {
        Fault { code: Code::InvalidJson, at: self.at, what: what.to_string() }
    }
}
