//! The words themselves: types, counts, values in short.
#![expect(clippy::wildcard_enum_match_arm, reason = "what has no words of ours keeps those of the library")]

use super::nearest::{self, Guesses};
use jsonschema::error::{TypeKind, ValidationErrorKind};
use jsonschema::{JsonType, ValidationError};
use serde_json::Value;
use std::collections::BTreeMap;

/// The problem in one line.
pub(super) fn told(error: &ValidationError<'_>, guesses: &Guesses) -> String {
    use ValidationErrorKind as Kind;
    let value = error.instance();
    match error.kind() {
        Kind::Enum { options } => enumerated(options.as_array().map_or(&[], Vec::as_slice), value, guesses),
        Kind::MultipleOf { multiple_of } => nearest::multiple(value, *multiple_of, &shown(value)),
        Kind::UniqueItems => duplicated(value),
        Kind::Contains => "no item is of the kind that must be there, or too few or too many are".to_string(),
        Kind::UnevaluatedItems { unexpected } => {
            format!("has {} too many; remove them", counted(unexpected.len() as u64, "item"))
        }
        Kind::PropertyNames { error } => {
            let name = quoted(error.instance().as_str().unwrap_or_default());
            let why = expected(error).unwrap_or_else(|| shortened(&error.to_string(), 200));
            format!("the property name {name} is not allowed: {why}")
        }
        Kind::MinLength { .. } | Kind::MaxLength { .. } => {
            let count = value.as_str().map_or(0, |text| text.chars().count() as u64);
            let expected = expected(error).unwrap_or_default();
            format!("{expected}, found {} of {}", shown(value), counted(count, "character"))
        }
        _ => match expected(error) {
            Some(expected) => format!("{expected}, found {}", shown(value)),
            None => shortened(&error.to_string(), 300),
        },
    }
}

/// The expectation, for the kinds where it can be stated without the value.
fn expected(error: &ValidationError<'_>) -> Option<String> {
    use ValidationErrorKind as Kind;
    Some(match error.kind() {
        Kind::Type { kind } => format!("expected {}", type_names(kind)),
        Kind::Constant { expected_value } => format!("expected {}", compact(expected_value)),
        Kind::Minimum { limit } => format!("expected at least {limit}"),
        Kind::Maximum { limit } => format!("expected at most {limit}"),
        Kind::ExclusiveMinimum { limit } => format!("expected more than {limit}"),
        Kind::ExclusiveMaximum { limit } => format!("expected less than {limit}"),
        Kind::MinLength { limit } => format!("expected at least {}", counted(*limit, "character")),
        Kind::MaxLength { limit } => format!("expected at most {}", counted(*limit, "character")),
        Kind::MinItems { limit } => format!("expected at least {}", counted(*limit, "item")),
        Kind::MaxItems { limit } => format!("expected at most {}", counted(*limit, "item")),
        Kind::AdditionalItems { limit } => format!("expected at most {}", counted(*limit as u64, "item")),
        Kind::MinProperties { limit } => format!("expected at least {}", properties(*limit)),
        Kind::MaxProperties { limit } => format!("expected at most {}", properties(*limit)),
        Kind::Pattern { pattern } => format!("expected text that matches {}", shortened(pattern, 120)),
        Kind::Format { format } => format!("expected text in the format {format:?}"),
        Kind::Not { schema } => format!("must not fit {}", compact(schema)),
        Kind::OneOfMultipleValid { .. } => {
            "fits more than one of the alternatives and must fit exactly one".to_string()
        }
        _ => return None,
    })
}

pub(super) fn enumerated(options: &[Value], value: &Value, guesses: &Guesses) -> String {
    let mut shown_options: Vec<String> = options.iter().take(10).map(compact).collect();
    if options.len() > 10 {
        shown_options.push(format!("{} more", options.len() - 10));
    }
    let expected = match &shown_options[..] {
        [only] => only.clone(),
        _ => format!("one of {}", shown_options.join(", ")),
    };
    let meant = match nearest::option(options, value, guesses) {
        Some(near) => format!("; did you mean {}?", compact(near)),
        None => String::new(),
    };
    format!("expected {expected}, found {}{meant}", shown(value))
}

fn duplicated(value: &Value) -> String {
    let items = value.as_array().map_or(&[][..], Vec::as_slice);
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for (index, item) in items.iter().enumerate() {
        if let Some(first) = seen.insert(crate::canonical::text(item), index) {
            return format!("expected no item twice, but items {first} and {index} are both {}", shown(item));
        }
    }
    "expected no item twice".to_string()
}

pub(super) fn type_names(kind: &TypeKind) -> String {
    let name = |kind: JsonType| match kind {
        JsonType::Null => "null".to_string(),
        JsonType::Boolean => "true or false".to_string(),
        JsonType::Integer => "an integer".to_string(),
        JsonType::Number => "a number".to_string(),
        JsonType::String => "a string".to_string(),
        JsonType::Array => "an array".to_string(),
        JsonType::Object => "an object".to_string(),
    };
    match kind {
        TypeKind::Single(kind) => name(*kind),
        TypeKind::Multiple(set) => either(&set.iter().map(name).collect::<Vec<_>>()),
    }
}

/// The value in a few words, long ones shortened.
pub(super) fn shown(value: &Value) -> String {
    match value {
        Value::Null => "null".to_string(),
        Value::Bool(truth) => truth.to_string(),
        Value::Number(number) => shortened(&format!("the number {number}"), 60),
        Value::String(text) => format!("the string {}", quoted(text)),
        Value::Array(items) if items.is_empty() => "an empty array".to_string(),
        Value::Array(items) => format!("an array of {}", counted(items.len() as u64, "item")),
        Value::Object(map) if map.is_empty() => "an empty object".to_string(),
        Value::Object(map) => format!("an object with {}", properties(map.len() as u64)),
    }
}

fn compact(value: &Value) -> String {
    shortened(&value.to_string(), 80)
}

pub(super) fn quoted(text: &str) -> String {
    match text.char_indices().nth(60) {
        None => Value::String(text.to_string()).to_string(),
        Some((end, _)) => Value::String(format!("{}…", &text[..end])).to_string(),
    }
}

pub(super) fn shortened(text: &str, chars_max: usize) -> String {
    match text.char_indices().nth(chars_max) {
        None => text.replace('\n', " "),
        Some((end, _)) => format!("{}…", text[..end].replace('\n', " ")),
    }
}

fn counted(count: u64, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

fn properties(count: u64) -> String {
    if count == 1 { "1 property".to_string() } else { format!("{count} properties") }
}

/// `a is`, `a and b are`, `a, b and c are`.
pub(super) fn listed(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [one] => format!("{one} is"),
        [first @ .., last] => format!("{} and {last} are", first.join(", ")),
    }
}

/// `a`, `a or b`, `a, b or c`.
pub(super) fn either(names: &[String]) -> String {
    let mut names = names.to_vec();
    names.dedup();
    match &names[..] {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}
