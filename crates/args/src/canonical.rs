//! The one text of a JSON value, for identity and digests, and where two values differ.

use crate::json::push_step;
use serde_json::{Map, Number, Value};
use std::fmt::Write;

/// The canonical text after RFC 8785: keys sorted by their UTF-16, no white space, numbers as JavaScript writes them.
///
/// One thing differs: RFC 8785 takes every number for an `f64`, which makes one number of integers beyond
/// ±(2^53 − 1) that lie close together. Those are written with all their digits and an `n` behind them
/// (`9007199254740993n`, as JavaScript writes a BigInt), which no other value is written as. Hence the text is for
/// comparing and hashing, not for parsing.
pub fn text(value: &Value) -> String {
    let mut out = String::new();
    let mut pending = vec![CanonicalPiece::Value(value)];
    while let Some(piece) = pending.pop() {
        match piece {
            CanonicalPiece::Text(text) => out.push_str(text),
            CanonicalPiece::Key(key) => {
                push_string(&mut out, key);
                out.push(':');
            }
            CanonicalPiece::Value(Value::Null) => out.push_str("null"),
            CanonicalPiece::Value(Value::Bool(true)) => out.push_str("true"),
            CanonicalPiece::Value(Value::Bool(false)) => out.push_str("false"),
            CanonicalPiece::Value(Value::Number(number)) => push_number(&mut out, number),
            CanonicalPiece::Value(Value::String(text)) => push_string(&mut out, text),
            CanonicalPiece::Value(Value::Array(items)) => {
                out.push('[');
                pending.push(CanonicalPiece::Text("]"));
                for (place, item) in items.iter().enumerate().rev() {
                    pending.push(CanonicalPiece::Value(item));
                    if place > 0 {
                        pending.push(CanonicalPiece::Text(","));
                    }
                }
            }
            CanonicalPiece::Value(Value::Object(map)) => {
                out.push('{');
                pending.push(CanonicalPiece::Text("}"));
                for (place, (key, item)) in sorted(map).into_iter().enumerate().rev() {
                    pending.push(CanonicalPiece::Value(item));
                    pending.push(CanonicalPiece::Key(key));
                    if place > 0 {
                        pending.push(CanonicalPiece::Text(","));
                    }
                }
            }
        }
    }
    out
}

/// Pieces still to be written; a stack of these replaces recursion.
enum CanonicalPiece<'a> {
    Value(&'a Value),
    Key(&'a str),
    Text(&'static str),
}

/// Sorted here because the order of a `Map` depends on a feature of `serde_json` that others may switch on.
fn sorted(map: &Map<String, Value>) -> Vec<(&str, &Value)> {
    let mut entries: Vec<(&str, &Value)> = map.iter().map(|(key, item)| (key.as_str(), item)).collect();
    entries.sort_by(|(left, _), (right, _)| left.encode_utf16().cmp(right.encode_utf16()));
    entries
}

fn push_string(out: &mut String, text: &str) {
    if text.bytes().all(|byte| byte >= 0x20 && byte != b'"' && byte != b'\\') {
        out.push('"');
        out.push_str(text);
        out.push('"');
    } else {
        // A string serialises without fail; nothing to say if it ever did not.
        out.push_str(&serde_json_canonicalizer::to_string(&text).unwrap_or_default());
    }
}

fn push_number(out: &mut String, number: &Number) {
    const EXACT: u64 = (1 << 53) - 1;
    let written = match (number.as_i64(), number.as_u64(), number.as_f64()) {
        (Some(integer), _, _) if integer.unsigned_abs() <= EXACT => write!(out, "{integer}"),
        (Some(integer), _, _) => write!(out, "{integer}n"),
        (None, Some(integer), _) => write!(out, "{integer}n"),
        (None, None, Some(float)) if float.is_finite() => {
            out.push_str(&serde_json_canonicalizer::to_string(&float).unwrap_or_default());
            Ok(())
        }
        // Only with `arbitrary_precision`, and not from our parser.
        (None, None, _) => write!(out, "{number}n"),
    };
    debug_assert!(written.is_ok(), "writing to a String does not fail");
}

/// The JSON pointers at which the two values differ, the first `most` of them in the order of the sorted keys. Where
/// something is on one side only, its pointer stands for all that lies in it.
pub fn differences(left: &Value, right: &Value, most: usize) -> Vec<String> {
    let mut found = Vec::new();
    let mut pending = vec![ValuePair { pointer: String::new(), left: Some(left), right: Some(right) }];
    while let Some(ValuePair { pointer, left, right }) = pending.pop() {
        if found.len() >= most {
            break;
        }
        let children = pending.len();
        match (left, right) {
            (Some(Value::Array(left)), Some(Value::Array(right))) => {
                for place in 0..left.len().max(right.len()) {
                    compare(&mut pending, &pointer, &place, left.get(place), right.get(place));
                }
            }
            (Some(Value::Object(left)), Some(Value::Object(right))) => {
                let mut keys: Vec<&String> =
                    left.keys().chain(right.keys().filter(|key| !left.contains_key(*key))).collect();
                keys.sort();
                for key in keys {
                    compare(&mut pending, &pointer, key, left.get(key), right.get(key));
                }
            }
            (Some(left), Some(right)) if is_same_scalar(left, right) => {}
            _ => found.push(pointer),
        }
        pending[children..].reverse();
    }
    found
}

/// Two values at the same place, of which one may be missing.
struct ValuePair<'a> {
    pointer: String,
    left: Option<&'a Value>,
    right: Option<&'a Value>,
}

/// Keeps the pair for later unless it is plainly the same; most are, and cost no pointer.
fn compare<'a>(
    pending: &mut Vec<ValuePair<'a>>,
    pointer: &str,
    step: &dyn ToString,
    left: Option<&'a Value>,
    right: Option<&'a Value>,
) {
    if let (Some(left), Some(right)) = (left, right)
        && is_same_scalar(left, right)
    {
        return;
    }
    let mut pointer = pointer.to_string();
    push_step(&mut pointer, &step.to_string());
    pending.push(ValuePair { pointer, left, right });
}

/// Whether both are the same and neither holds other values. Numbers are the same if their canonical texts are.
fn is_same_scalar(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => {
            let (mut one, mut other) = (String::new(), String::new());
            push_number(&mut one, left);
            push_number(&mut other, right);
            left == right || one == other
        }
        (Value::Array(_) | Value::Object(_), _) => false,
        (left, right) => left == right,
    }
}
