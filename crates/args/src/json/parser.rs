//! The parser: one loop over an explicit stack of open arrays and objects.

use super::{JsonProblem, Nearly, Position, number, push_step, shown, string};
use crate::code::ArgumentCode;
use serde_json::{Map, Value};

/// The fault that stopped the parser: its place is a byte offset until it must be shown.
pub(super) struct ParseFault {
    pub(super) code: ArgumentCode,
    pub(super) at: usize,
    pub(super) what: String,
    /// Whether all that is wrong is that the text ends here: more of it could have made it JSON.
    pub(super) ended: bool,
}

/// Reads one text.
pub(super) struct Parser<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
    depth_max: u64,
    /// The innermost open container; apart from the others so that flat arguments need no stack.
    open: Option<ParserFrame>,
    outer: Vec<ParserFrame>,
    /// Whether a comma before a closing bracket is passed over.
    drops_commas: bool,
    /// Whether one was.
    dropped_comma: bool,
    /// The value that was read last, if something was wrong behind it; and where it ends.
    unplaced: Option<(Value, usize)>,
}

enum ParserFrame {
    Array(Vec<Value>),
    Object { map: Map<String, Value>, key: String, key_at: usize },
}

/// The token after a value in its container.
enum More {
    Item,
    Key(String, usize),
    Nothing,
}

impl<'a> Parser<'a> {
    pub(super) fn new(text: &'a str, depth_max: u64) -> Parser<'a> {
        Parser {
            text,
            bytes: text.as_bytes(),
            at: 0,
            depth_max,
            open: None,
            outer: Vec::new(),
            drops_commas: false,
            dropped_comma: false,
            unplaced: None,
        }
    }

    /// The value of a text that may have commas before closing brackets or behind its end, and that may be an object
    /// that ends too early; none if anything else is wrong with it.
    pub(super) fn nearly(mut self) -> Option<Nearly> {
        self.drops_commas = true;
        match self.value_to_end() {
            Ok(value) => Some(Nearly { value, trailing_comma: self.dropped_comma, cut_at: None }),
            Err(fault) if fault.ended => {
                let cut_at = Some(self.pointer());
                let trailing_comma = self.dropped_comma;
                Some(Nearly { value: self.complete()?, trailing_comma, cut_at })
            }
            Err(_) => None,
        }
    }

    /// The complete part when the text ended: an array or object with nothing complete in it is left out, and
    /// so is a number at the very end, which may have had more digits.
    fn complete(self) -> Option<Value> {
        let end = self.text.len();
        let unplaced = self.unplaced.filter(|(value, behind)| !(value.is_number() && *behind == end));
        let mut inner = unplaced.map(|(value, _)| value);
        let mut outermost_is_object = false;
        for frame in self.open.into_iter().chain(self.outer.into_iter().rev()) {
            outermost_is_object = matches!(frame, ParserFrame::Object { .. });
            inner = match frame {
                ParserFrame::Array(mut items) => {
                    items.extend(inner);
                    (!items.is_empty()).then_some(Value::Array(items))
                }
                ParserFrame::Object { mut map, key, .. } => {
                    if let Some(value) = inner
                        && map.insert(key, value).is_some()
                    {
                        return None;
                    }
                    (!map.is_empty()).then_some(Value::Object(map))
                }
            };
        }
        inner.filter(|_| outermost_is_object)
    }

    /// The value of the whole text.
    pub(super) fn document(mut self) -> Result<Value, JsonProblem> {
        self.value_to_end().map_err(|fault| JsonProblem {
            code: fault.code,
            pointer: self.pointer(),
            position: Some(Position::after(&self.text[..fault.at])),
            what: fault.what,
        })
    }

    fn value_to_end(&mut self) -> Result<Value, ParseFault> {
        loop {
            let Some(value) = self.value_or_open()? else { continue };
            let Some(whole) = self.place(value)? else { continue };
            return match self.token() {
                None => Ok(whole),
                Some(b',') if self.drops_commas && self.bytes[self.at + 1..].trim_ascii().is_empty() => {
                    self.dropped_comma = true;
                    Ok(whole)
                }
                Some(_) => {
                    Err(self
                        .invalid("there is more text behind the JSON value; send one value and nothing else"))
                }
            };
        }
    }

    /// Reads a value that stands for itself, or opens a container that is not empty and returns none.
    #[inline]
    fn value_or_open(&mut self) -> Result<Option<Value>, ParseFault> {
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

    fn open_object(&mut self) -> Result<Option<Value>, ParseFault> {
        self.enter()?;
        if self.token() == Some(b'}') {
            self.at += 1;
            return Ok(Some(Value::Object(Map::new())));
        }
        let (key, key_at) = self.key()?;
        self.push(ParserFrame::Object { map: Map::new(), key, key_at });
        Ok(None)
    }

    fn open_array(&mut self) -> Result<Option<Value>, ParseFault> {
        self.enter()?;
        if self.token() == Some(b']') {
            self.at += 1;
            return Ok(Some(Value::Array(Vec::new())));
        }
        self.push(ParserFrame::Array(Vec::new()));
        Ok(None)
    }

    /// Steps over the bracket that opens a container, if another level is allowed.
    fn enter(&mut self) -> Result<(), ParseFault> {
        let depth = self.outer.len() as u64 + u64::from(self.open.is_some()) + 1;
        if depth > self.depth_max {
            let what = format!(
                "arrays and objects are nested more than {} levels deep; flatten the value",
                self.depth_max
            );
            return Err(ParseFault { code: ArgumentCode::TooDeep, at: self.at, what, ended: false });
        }
        self.at += 1;
        Ok(())
    }

    fn push(&mut self, frame: ParserFrame) {
        if let Some(outer) = self.open.replace(frame) {
            self.outer.push(outer);
        }
    }

    /// Puts `value` where it belongs and closes what ends behind it. Returns the whole once nothing is open.
    #[inline]
    fn place(&mut self, mut value: Value) -> Result<Option<Value>, ParseFault> {
        loop {
            // What follows is read first: until the value is in its container, a fault is told at the value's place.
            let behind = self.at;
            let more = match self.more() {
                Ok(Some(more)) => more,
                Ok(None) => return Ok(Some(value)),
                Err(fault) => {
                    self.unplaced = Some((value, behind));
                    return Err(fault);
                }
            };
            match &mut self.open {
                Some(ParserFrame::Array(items)) => items.push(value),
                Some(ParserFrame::Object { map, key, key_at }) => {
                    if map.insert(std::mem::take(key), value).is_some() {
                        // The key went into the map: read it once more, for the message and the pointer.
                        let at = *key_at;
                        *key = string::read(self.text, at + 1)?.0;
                        let what = format!("the key \"{}\" is there twice; keep one of the two", shown(key));
                        return Err(ParseFault { code: ArgumentCode::DuplicateKey, at, what, ended: false });
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
                Some(ParserFrame::Array(items)) => Value::Array(items),
                Some(ParserFrame::Object { map, .. }) => Value::Object(map),
                None => return Ok(None),
            };
        }
    }

    /// Reads what follows a value: none if nothing is open. A closing bracket is left to be stepped over.
    #[inline]
    fn more(&mut self) -> Result<Option<More>, ParseFault> {
        let next = self.token();
        Ok(Some(match (&self.open, next) {
            (None, _) => return Ok(None),
            (Some(ParserFrame::Array(_)), Some(b',')) => match self.comma(b']')? {
                true => More::Item,
                false => More::Nothing,
            },
            (Some(ParserFrame::Object { .. }), Some(b',')) => match self.comma(b'}')? {
                true => self.key().map(|(key, at)| More::Key(key, at))?,
                false => More::Nothing,
            },
            (Some(ParserFrame::Array(_)), Some(b']')) | (Some(ParserFrame::Object { .. }), Some(b'}')) => {
                More::Nothing
            }
            (Some(ParserFrame::Array(_)), _) => return Err(self.unclosed("expected , or ] behind this item")),
            (Some(ParserFrame::Object { .. }), _) => {
                return Err(self.unclosed("expected , or } behind this property"));
            }
        }))
    }

    /// Steps over a comma and says whether something follows it in the same container.
    #[inline]
    fn comma(&mut self, closing: u8) -> Result<bool, ParseFault> {
        let comma = self.at;
        self.at += 1;
        if self.token() != Some(closing) {
            return Ok(true);
        }
        if self.drops_commas {
            self.dropped_comma = true;
            return Ok(false);
        }
        let what = format!("there is a comma before the closing {}; remove the comma", closing as char);
        Err(ParseFault { code: ArgumentCode::InvalidJson, at: comma, what, ended: false })
    }

    /// Reads a key and its colon; returns the key and where it stands.
    #[inline]
    fn key(&mut self) -> Result<(String, usize), ParseFault> {
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
    fn literal(&mut self, word: &str, value: Value) -> Result<Value, ParseFault> {
        let rest = &self.bytes[self.at..];
        if !rest.starts_with(word.as_bytes()) {
            let ended = word.as_bytes().starts_with(rest);
            return Err(ParseFault { ended, ..self.no_value() });
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
                ParserFrame::Array(items) => push_step(&mut pointer, &items.len().to_string()),
                ParserFrame::Object { key, .. } => push_step(&mut pointer, key),
            }
        }
        pointer
    }

    #[cold]
    fn no_value(&self) -> ParseFault {
        const WRONG_WORDS: [(&str, &str); 9] = [
            ("True", "write true"),
            ("False", "write false"),
            ("None", "write null"),
            ("undefined", "write null or leave the property out"),
            ("NaN", "JSON has no NaN: write null or a string"),
            ("Infinity", "JSON has no Infinity: write null or a string"),
            ("'", "strings stand in double quotes"),
            ("/", "JSON has no comments: remove it"),
            ("```", "send the JSON without a code fence"),
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
    fn unclosed(&self, expected: &str) -> ParseFault {
        match self.text[self.at..].chars().next() {
            Some(found) => self.invalid(&format!("{expected}, found {found:?}")),
            None => {
                let what = format!("{expected}, but the text ends; write the whole JSON");
                ParseFault { ended: true, ..self.invalid(&what) }
            }
        }
    }

    #[cold]
    fn invalid(&self, what: &str) -> ParseFault {
        ParseFault { code: ArgumentCode::InvalidJson, at: self.at, what: what.to_string(), ended: false }
    }
}
