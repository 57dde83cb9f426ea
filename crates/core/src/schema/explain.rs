//! Problems in the words a model can act on: where, what was expected, what was found, what was probably meant.
#![expect(clippy::wildcard_enum_match_arm, reason = "what has no words of ours keeps those of the library")]

mod nearest;

use super::Schema;
use crate::json::Problem;
use jsonschema::error::{TypeKind, ValidationErrorKind};
use jsonschema::{JsonType, ValidationError};
use serde_json::Value;
use std::collections::BTreeMap;

/// Everything that is wrong with `value`, sorted by place.
pub(super) fn problems(schema: &Schema, value: &Value) -> Vec<Problem> {
    let mut found = Found { schema, lines: BTreeMap::new() };
    for error in schema.validator.iter_errors(value) {
        found.add(&error);
    }
    found.into_problems()
}

/// What is wrong with a schema, said of the place the error names.
pub(super) fn as_schema(error: &ValidationError<'_>) -> String {
    let found = shown(error.instance());
    match error.kind() {
        ValidationErrorKind::Format { format } if format == "regex" => format!(
            "the pattern {found} cannot be used: it is no regular expression of the kind that takes linear time; \
             leave out look-around and back-references"
        ),
        ValidationErrorKind::AnyOf { .. } => {
            format!("{found} is not what this keyword takes; see JSON Schema 2020-12")
        }
        ValidationErrorKind::Enum { options } => {
            enumerated(options.as_array().map_or(&[], Vec::as_slice), error.instance())
        }
        _ => described(error).unwrap_or_else(|| shortened(&error.to_string(), 300)),
    }
}

/// Problems by place and text, so that the same one is told once.
struct Found<'a> {
    schema: &'a Schema,
    lines: BTreeMap<(Vec<Step>, String), Lines>,
}

/// A step of a pointer; items sort by number.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Item(u64),
    Property(String),
}

/// What is said of one place. Missing properties are gathered in one line.
#[derive(Default)]
struct Lines {
    missing: Vec<String>,
    whats: Vec<String>,
}

impl Found<'_> {
    fn add(&mut self, error: &ValidationError<'_>) {
        match error.kind() {
            ValidationErrorKind::Required { property } => {
                let name = property.as_str().unwrap_or_default().to_string();
                self.at(error).missing.push(name);
            }
            ValidationErrorKind::AnyOf { context } | ValidationErrorKind::OneOfNotValid { context } => {
                self.add_alternatives(error, context);
            }
            ValidationErrorKind::AdditionalProperties { unexpected }
            | ValidationErrorKind::UnevaluatedProperties { unexpected } => {
                let what = self.unknown_properties(error, unexpected);
                self.at(error).whats.push(what);
            }
            ValidationErrorKind::FalseSchema => {
                let what = "must not be there; leave it out".to_string();
                self.at(error).whats.push(what);
            }
            _ => {
                let what = described(error).unwrap_or_else(|| shortened(&error.to_string(), 300));
                self.at(error).whats.push(what);
            }
        }
    }

    fn at(&mut self, error: &ValidationError<'_>) -> &mut Lines {
        let pointer = error.instance_path().as_str();
        self.lines.entry((steps(pointer), pointer.to_string())).or_default()
    }

    /// Of alternatives, tells what is wrong with the one that was probably meant.
    fn add_alternatives(&mut self, error: &ValidationError<'_>, context: &[Vec<ValidationError<'static>>]) {
        let here = error.instance_path().as_str();
        if let Some(what) = merged(context, here, error.instance()) {
            self.at(error).whats.push(what);
            return;
        }
        // The value has the wrong type for some, or names another one: those were not meant.
        let right_type: Vec<usize> = (0..context.len())
            .filter(|&index| !context[index].iter().any(|error| is_type_at(error, here)))
            .collect();
        let named: Vec<usize> = right_type
            .iter()
            .copied()
            .filter(|&index| !context[index].iter().any(|error| is_tag_below(error, here)))
            .collect();
        if named.is_empty()
            && let Some((tag, what)) = merged_tag(context, &right_type, here)
        {
            self.lines.entry((steps(&tag), tag)).or_default().whats.push(what);
            return;
        }
        let meant = [named, right_type]
            .into_iter()
            .find(|some| !some.is_empty())
            .unwrap_or_else(|| (0..context.len()).collect());
        let nearest = meant.iter().copied().min_by_key(|&index| (context[index].len(), index));
        let Some(nearest) = nearest else { return };
        if let [only] = meant[..] {
            context[only].iter().for_each(|error| self.add(error));
            return;
        }
        let mut inner = Found { schema: self.schema, lines: BTreeMap::new() };
        context[nearest].iter().for_each(|error| inner.add(error));
        let details: Vec<String> = inner
            .into_problems()
            .into_iter()
            .take(3)
            .map(|problem| if problem.pointer == here { problem.what } else { problem.to_string() })
            .collect();
        let what = format!(
            "fits none of the {} alternatives; nearest is alternative {}: {}",
            context.len(),
            nearest + 1,
            details.join("; ")
        );
        self.at(error).whats.push(what);
    }

    fn unknown_properties(&self, error: &ValidationError<'_>, unexpected: &[String]) -> String {
        let allowed = nearest::allowed_properties(&self.schema.source, error.schema_path().as_str());
        let present = error.instance().as_object();
        let mut unexpected: Vec<&String> = unexpected.iter().collect();
        unexpected.sort();
        let mut named: Vec<String> = unexpected
            .iter()
            .take(5)
            .map(|name| {
                let free = allowed
                    .iter()
                    .copied()
                    .filter(|known| !present.is_some_and(|map| map.contains_key(*known)));
                match nearest::word(name, free) {
                    Some(near) => format!("{} (did you mean {near:?}?)", quoted(name)),
                    None => quoted(name),
                }
            })
            .collect();
        if unexpected.len() > 5 {
            named.push(format!("{} more", unexpected.len() - 5));
        }
        let noun = if unexpected.len() == 1 { "unknown property" } else { "unknown properties" };
        let known = match allowed.len() {
            0 => "no properties are allowed".to_string(),
            count if count > 12 => format!("{count} properties are allowed"),
            _ => format!(
                "allowed are {}",
                allowed.iter().map(|name| quoted(name)).collect::<Vec<_>>().join(", ")
            ),
        };
        format!("{noun} {}; {known}", named.join(", "))
    }

    fn into_problems(self) -> Vec<Problem> {
        let code = self.schema.role.code();
        let mut problems = Vec::new();
        for ((_, pointer), mut lines) in self.lines {
            if !lines.missing.is_empty() {
                lines.missing.sort();
                lines.missing.dedup();
                let noun = if lines.missing.len() == 1 { "property" } else { "properties" };
                let names: Vec<String> = lines.missing.iter().map(|name| quoted(name)).collect();
                lines.whats.push(format!("required {noun} {} missing", listed(&names)));
            }
            lines.whats.sort();
            lines.whats.dedup();
            let line = |what| Problem { code, pointer: pointer.clone(), position: None, what };
            problems.extend(lines.whats.into_iter().map(line));
        }
        problems
    }
}

/// What was expected and what was found, for the kinds that need nothing but the error.
fn described(error: &ValidationError<'_>) -> Option<String> {
    use ValidationErrorKind as Kind;
    let value = error.instance();
    let found = || format!("found {}", shown(value));
    let text = match error.kind() {
        Kind::Type { kind } => format!("expected {}, {}", type_names(kind), found()),
        Kind::Enum { options } => enumerated(options.as_array().map_or(&[], Vec::as_slice), value),
        Kind::Constant { expected_value } => format!("expected {}, {}", compact(expected_value), found()),
        Kind::Minimum { limit } => format!("expected at least {limit}, {}", found()),
        Kind::Maximum { limit } => format!("expected at most {limit}, {}", found()),
        Kind::ExclusiveMinimum { limit } => format!("expected more than {limit}, {}", found()),
        Kind::ExclusiveMaximum { limit } => format!("expected less than {limit}, {}", found()),
        Kind::MultipleOf { multiple_of } => nearest::multiple(value, *multiple_of, &found()),
        Kind::MinLength { limit } => {
            format!("expected at least {}, {}", counted(*limit, "character"), length(value))
        }
        Kind::MaxLength { limit } => {
            format!("expected at most {}, {}", counted(*limit, "character"), length(value))
        }
        Kind::MinItems { limit } => format!("expected at least {}, {}", counted(*limit, "item"), found()),
        Kind::MaxItems { limit } => format!("expected at most {}, {}", counted(*limit, "item"), found()),
        Kind::AdditionalItems { limit } => {
            format!("expected at most {}, {}", counted(*limit as u64, "item"), found())
        }
        Kind::UnevaluatedItems { unexpected } => {
            format!("has {} too many; remove them", counted(unexpected.len() as u64, "item"))
        }
        Kind::MinProperties { limit } => format!("expected at least {}, {}", properties(*limit), found()),
        Kind::MaxProperties { limit } => format!("expected at most {}, {}", properties(*limit), found()),
        Kind::UniqueItems => duplicated(value),
        Kind::Contains => "no item is of the kind that must be there, or too few or too many are".to_string(),
        Kind::Pattern { pattern } => {
            format!("expected text that matches {}, {}", shortened(pattern, 120), found())
        }
        Kind::Format { format } => format!("expected text in the format {format:?}, {}", found()),
        Kind::PropertyNames { error } => {
            let why = described(error).unwrap_or_else(|| shortened(&error.to_string(), 200));
            format!("the property name {} is not allowed: {why}", shown(error.instance()))
        }
        Kind::Not { schema } => format!("must not fit {}, {}", compact(schema), found()),
        Kind::OneOfMultipleValid { .. } => {
            format!("fits more than one of the alternatives and must fit exactly one, {}", found())
        }
        _ => return None,
    };
    Some(text)
}

/// One line for alternatives that all want another type, or another of some values, at the same place.
fn merged(context: &[Vec<ValidationError<'static>>], here: &str, value: &Value) -> Option<String> {
    let mut types: Vec<String> = Vec::new();
    let mut options: Vec<Value> = Vec::new();
    for alternative in context {
        let [error] = &alternative[..] else { return None };
        if error.instance_path().as_str() != here {
            return None;
        }
        match error.kind() {
            ValidationErrorKind::Type { kind } => types.push(type_names(kind)),
            ValidationErrorKind::Constant { expected_value } => options.push(expected_value.as_ref().clone()),
            ValidationErrorKind::Enum { options: more } => {
                options.extend(more.as_array().into_iter().flatten().cloned())
            }
            _ => return None,
        }
    }
    match (types.is_empty(), options.is_empty()) {
        (false, true) => Some(format!("expected {}, found {}", either(&types), shown(value))),
        (true, false) => Some(enumerated(&options, value)),
        // null beside values: the values say more.
        (false, false) if value.is_string() => Some(enumerated(&options, value)),
        _ => None,
    }
}

/// The property by which alternatives are told apart, and the values it may have, if none of them has the given one.
fn merged_tag(
    context: &[Vec<ValidationError<'static>>],
    meant: &[usize],
    here: &str,
) -> Option<(String, String)> {
    let tags = |index: usize| context[index].iter().filter(|error| is_tag_below(error, here));
    let first = tags(*meant.first()?).next()?;
    let pointer = first.instance_path().as_str();
    let mut options = Vec::new();
    for &index in meant {
        match tags(index).find(|error| error.instance_path().as_str() == pointer)?.kind() {
            ValidationErrorKind::Constant { expected_value } => options.push(expected_value.as_ref().clone()),
            ValidationErrorKind::Enum { options: more } => {
                options.extend(more.as_array().into_iter().flatten().cloned())
            }
            _ => return None,
        }
    }
    Some((pointer.to_string(), enumerated(&options, first.instance())))
}

fn is_type_at(error: &ValidationError<'_>, here: &str) -> bool {
    matches!(error.kind(), ValidationErrorKind::Type { .. }) && error.instance_path().as_str() == here
}

/// Whether a property directly in the value at `here` has another of some fixed values.
fn is_tag_below(error: &ValidationError<'_>, here: &str) -> bool {
    let below = error.instance_path().as_str().strip_prefix(here).and_then(|rest| rest.strip_prefix('/'));
    below.is_some_and(|step| !step.contains('/'))
        && matches!(error.kind(), ValidationErrorKind::Constant { .. } | ValidationErrorKind::Enum { .. })
}

fn enumerated(options: &[Value], value: &Value) -> String {
    let mut shown_options: Vec<String> = options.iter().take(10).map(compact).collect();
    if options.len() > 10 {
        shown_options.push(format!("{} more", options.len() - 10));
    }
    let expected = match &shown_options[..] {
        [only] => only.clone(),
        _ => format!("one of {}", shown_options.join(", ")),
    };
    let meant = match nearest::option(options, value) {
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

fn type_names(kind: &TypeKind) -> String {
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
fn shown(value: &Value) -> String {
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

fn length(value: &Value) -> String {
    let count = value.as_str().map_or(0, |text| text.chars().count() as u64);
    format!("found {} of {}", shown(value), counted(count, "character"))
}

fn compact(value: &Value) -> String {
    shortened(&value.to_string(), 80)
}

fn quoted(text: &str) -> String {
    Value::String(shortened(text, 60)).to_string()
}

fn shortened(text: &str, chars_max: usize) -> String {
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
fn listed(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [one] => format!("{one} is"),
        [first @ .., last] => format!("{} and {last} are", first.join(", ")),
    }
}

/// `a`, `a or b`, `a, b or c`.
fn either(names: &[String]) -> String {
    let mut names = names.to_vec();
    names.dedup();
    match &names[..] {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}

fn steps(pointer: &str) -> Vec<Step> {
    let step = |text: &str| text.parse().map_or_else(|_| Step::Property(text.to_string()), Step::Item);
    pointer.split('/').skip(1).map(step).collect()
}
