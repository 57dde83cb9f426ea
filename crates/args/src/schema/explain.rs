//! Problems in the words a model can act on: where, what was expected, what was found, what was probably meant.
#![expect(clippy::wildcard_enum_match_arm, reason = "what has no words of ours keeps those of the library")]

mod nearest;
mod words;

use super::Schema;
use crate::json::JsonProblem;
use jsonschema::ValidationError;
use jsonschema::error::ValidationErrorKind;
use nearest::Guesses;
use serde_json::{Value, json};
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// The problems of `value`, sorted by place; and how many more errors there are than were put into words.
pub(super) fn problems(schema: &Schema, value: &Value) -> (Vec<JsonProblem>, usize) {
    // Some errors share a line, so more are worded than are shown.
    let worded_max = schema.problems_max.saturating_mul(8);
    let mut errors: Vec<(usize, ValidationError<'_>)> =
        schema.validator.iter_errors(value).enumerate().collect();
    let untold = errors.len().saturating_sub(worded_max);
    if untold > 0 {
        errors.select_nth_unstable_by(worded_max, by_place);
        errors.truncate(worded_max);
        errors.sort_unstable_by(by_place);
    }
    let guesses = Guesses::default();
    let mut found = ProblemList::new(schema, value, &guesses);
    errors.iter().for_each(|(_, error)| found.add(error));
    (found.into_problems(), untold)
}

/// The first problem of `value`, where a search for all would take long.
pub(super) fn first_problem(schema: &Schema, value: &Value) -> Vec<JsonProblem> {
    let guesses = Guesses::default();
    let mut found = ProblemList::new(schema, value, &guesses);
    if let Err(error) = schema.validator.validate(value) {
        found.add(&error);
    }
    let mut problems = found.into_problems();
    for problem in &mut problems {
        problem.what.push_str("; the value is too large to look for more");
    }
    problems
}

/// By where the value is, then by which part of the schema it does not fit, then as they were found.
fn by_place(left: &(usize, ValidationError<'_>), right: &(usize, ValidationError<'_>)) -> Ordering {
    let ((left_at, left), (right_at, right)) = (left, right);
    steps(left.instance_path().as_str())
        .cmp(steps(right.instance_path().as_str()))
        .then_with(|| left.schema_path().as_str().cmp(right.schema_path().as_str()))
        .then(left_at.cmp(right_at))
}

/// The problem of a value that is not an object, where there is no schema to ask.
pub(super) fn no_object(value: &Value) -> String {
    format!("expected an object, found {}", words::shown(value))
}

/// The problem of a schema, with the place of the error.
pub(super) fn as_schema(error: &ValidationError<'_>) -> String {
    let value = error.instance();
    let is_type = error.instance_path().as_str().ends_with("/type") && value.is_string();
    match error.kind() {
        ValidationErrorKind::Format { format } if format == "regex" => format!(
            "the pattern {} is not a regular expression that can be used; correct or shorten it, and leave out \
             look-around and back-references, which do not take linear time",
            words::quoted(value.as_str().unwrap_or_default())
        ),
        ValidationErrorKind::AnyOf { .. } if is_type => {
            let types =
                ["array", "boolean", "integer", "null", "number", "object", "string"].map(|name| json!(name));
            words::enumerated(&types, value, &Guesses::default())
        }
        ValidationErrorKind::AnyOf { .. } => {
            format!("{} is not what this keyword takes; see JSON Schema 2020-12", words::shown(value))
        }
        _ => words::told(error, &Guesses::default()),
    }
}

/// Problems by place and text, so that the same one is told once.
struct ProblemList<'a> {
    schema: &'a Schema,
    value: &'a Value,
    lines: BTreeMap<PointerPlace, PlaceLines>,
    /// The fallback message, with its place.
    unless_others: Option<(String, String)>,
    guesses: &'a Guesses,
}

/// A JSON pointer, sorted as people count: item 9 before item 10.
#[derive(Debug, PartialEq, Eq)]
struct PointerPlace(String);

impl PointerPlace {
    fn of(pointer: &str) -> PointerPlace {
        PointerPlace(pointer.to_string())
    }
}

impl Ord for PointerPlace {
    fn cmp(&self, other: &PointerPlace) -> Ordering {
        steps(&self.0).cmp(steps(&other.0)).then_with(|| self.0.cmp(&other.0))
    }
}

impl PartialOrd for PointerPlace {
    fn partial_cmp(&self, other: &PointerPlace) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// A step of a pointer; items sort by number.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum PointerStep<'a> {
    Item(u64),
    Property(&'a str),
}

/// The messages about one place. Missing properties are gathered in one line.
#[derive(Default)]
struct PlaceLines {
    missing: Vec<String>,
    whats: Vec<String>,
}

impl<'a> ProblemList<'a> {
    fn new(schema: &'a Schema, value: &'a Value, guesses: &'a Guesses) -> ProblemList<'a> {
        ProblemList { schema, value, lines: BTreeMap::new(), unless_others: None, guesses }
    }

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
                self.add_unknown(error, unexpected);
            }
            ValidationErrorKind::FalseSchema => self.add_forbidden(error),
            _ => {
                let what = words::told(error, self.guesses);
                self.at(error).whats.push(what);
            }
        }
    }

    fn at(&mut self, error: &ValidationError<'_>) -> &mut PlaceLines {
        let pointer = error.instance_path().as_str();
        self.lines.entry(PointerPlace::of(pointer)).or_default()
    }

    /// Of alternatives, tells what is wrong with the one that was probably meant.
    fn add_alternatives(&mut self, error: &ValidationError<'_>, context: &[Vec<ValidationError<'static>>]) {
        let here = error.instance_path().as_str();
        if let Some(what) = merged(context, here, error.instance(), self.guesses) {
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
            && let Some((tag, what)) = merged_tag(context, &right_type, here, self.guesses)
        {
            self.lines.entry(PointerPlace::of(&tag)).or_default().whats.push(what);
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
        let mut inner = ProblemList::new(self.schema, self.value, self.guesses);
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

    /// `false` as a schema: of the value itself, or of all properties that are not named.
    fn add_forbidden(&mut self, error: &ValidationError<'_>) {
        let path = error.schema_path().as_str();
        let closed = path.ends_with("/additionalProperties") || path.ends_with("/unevaluatedProperties");
        // The error is about the first such property, at the place of the object.
        match self.value.pointer(error.instance_path().as_str()).and_then(Value::as_object) {
            Some(map) if closed => self.add_unknown(error, &map.keys().cloned().collect::<Vec<_>>()),
            _ => self.at(error).whats.push("must not be there; leave it out".to_string()),
        }
    }

    fn add_unknown(&mut self, error: &ValidationError<'_>, unexpected: &[String]) {
        let allowed = nearest::allowed_properties(&self.schema.source, error.schema_path().as_str());
        let present = self.value.pointer(error.instance_path().as_str()).and_then(Value::as_object);
        let (known, mut unexpected): (Vec<_>, Vec<_>) =
            unexpected.iter().partition(|name| allowed.contains(name.as_str()));
        unexpected.sort();
        if unexpected.is_empty() {
            // Where something else is wrong with an object, what is right in it may count as not evaluated.
            let names: Vec<String> = known.iter().take(5).map(|name| words::quoted(name)).collect();
            let what = format!("{} not allowed beside the other properties", words::listed(&names));
            let pointer = error.instance_path().as_str().to_string();
            self.unless_others.get_or_insert((pointer, what));
            return;
        }
        let mut named: Vec<String> = unexpected
            .iter()
            .take(5)
            .map(|name| {
                let free = allowed
                    .iter()
                    .copied()
                    .filter(|known| !present.is_some_and(|map| map.contains_key(*known)));
                match nearest::word(name, free, self.guesses) {
                    Some(near) => format!("{} (did you mean {near:?}?)", words::quoted(name)),
                    None => words::quoted(name),
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
                allowed.iter().map(|name| words::quoted(name)).collect::<Vec<_>>().join(", ")
            ),
        };
        let what = format!("{noun} {}; {known}", named.join(", "));
        self.at(error).whats.push(what);
    }

    fn into_problems(mut self) -> Vec<JsonProblem> {
        let code = self.schema.role.code();
        if let (true, Some((pointer, what))) = (self.lines.is_empty(), self.unless_others) {
            self.lines.entry(PointerPlace::of(&pointer)).or_default().whats.push(what);
        }
        let mut problems = Vec::new();
        for (PointerPlace(pointer), mut lines) in self.lines {
            if !lines.missing.is_empty() {
                lines.missing.sort();
                lines.missing.dedup();
                let noun = if lines.missing.len() == 1 { "property" } else { "properties" };
                let names: Vec<String> = lines.missing.iter().map(|name| words::quoted(name)).collect();
                lines.whats.push(format!("required {noun} {} missing", words::listed(&names)));
            }
            lines.whats.sort();
            lines.whats.dedup();
            let line = |what| JsonProblem { code, pointer: pointer.clone(), position: None, what };
            problems.extend(lines.whats.into_iter().map(line));
        }
        problems
    }
}

/// One line for alternatives that all want another type, or another of some values, at the same place.
fn merged(
    context: &[Vec<ValidationError<'static>>],
    here: &str,
    value: &Value,
    guesses: &Guesses,
) -> Option<String> {
    let mut types: Vec<String> = Vec::new();
    let mut options: Vec<Value> = Vec::new();
    for alternative in context {
        let [error] = &alternative[..] else { return None };
        if error.instance_path().as_str() != here {
            return None;
        }
        match error.kind() {
            ValidationErrorKind::Type { kind } => types.push(words::type_names(kind)),
            ValidationErrorKind::Constant { expected_value } => options.push(expected_value.as_ref().clone()),
            ValidationErrorKind::Enum { options: more } => {
                options.extend(more.as_array().into_iter().flatten().cloned())
            }
            _ => return None,
        }
    }
    match (types.is_empty(), options.is_empty()) {
        (false, true) => Some(format!("expected {}, found {}", words::either(&types), words::shown(value))),
        (true, false) => Some(words::enumerated(&options, value, guesses)),
        // null beside values: the values say more.
        (false, false) if value.is_string() => Some(words::enumerated(&options, value, guesses)),
        _ => None,
    }
}

/// The property by which alternatives are told apart, and the values it may have, if none of them has the given one.
fn merged_tag(
    context: &[Vec<ValidationError<'static>>],
    meant: &[usize],
    here: &str,
    guesses: &Guesses,
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
    Some((pointer.to_string(), words::enumerated(&options, first.instance(), guesses)))
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

fn steps(pointer: &str) -> impl Iterator<Item = PointerStep<'_>> {
    pointer.split('/').skip(1).map(|text| text.parse().map_or(PointerStep::Property(text), PointerStep::Item))
}
