//! Suggestions for names and values.

use crate::names::nearest_name;
use crate::schema::References;
use serde_json::Value;
use std::cell::Cell;
use std::collections::BTreeSet;

/// How much may still be compared to guess what was meant, for one message: many mistakes among many long names would
/// take seconds.
pub(super) struct Guesses(Cell<usize>);

impl Default for Guesses {
    /// Letters against letters, a few nanoseconds each; two thousand names against ten mistakes.
    fn default() -> Guesses {
        Guesses(Cell::new(4_000_000))
    }
}

impl Guesses {
    /// Whether a word may be compared with all of these.
    fn allow(&self, asked: &str, known: &[&str]) -> bool {
        let letters = asked.len() * known.iter().map(|name| name.len()).sum::<usize>();
        let left = self.0.get().checked_sub(letters);
        self.0.set(left.unwrap_or(self.0.get()));
        left.is_some()
    }
}

/// The one of `known` that is nearest to `asked`, if it is near enough to be meant.
pub(super) fn word<'a>(
    asked: &str,
    known: impl Iterator<Item = &'a str>,
    guesses: &Guesses,
) -> Option<&'a str> {
    // Longer words are not misspelt names, and comparing them takes the square of their length.
    const CHARS_MAX: usize = 64;
    if asked.chars().count() > CHARS_MAX {
        return None;
    }
    let known: Vec<&str> = known.filter(|name| name.len() <= 4 * CHARS_MAX).collect();
    if !guesses.allow(asked, &known) {
        return None;
    }
    let similar: Vec<&str> = known.iter().copied().filter(|name| is_similar(asked, name)).collect();
    // `int` for `integer`, `ascending` for `asc`.
    let shortens = |name: &&str| {
        name.len().min(asked.len()) >= 3 && (name.starts_with(asked) || asked.starts_with(*name))
    };
    let shorter = known.iter().copied().find(shortens);
    // A misspelt word mostly begins right.
    let begins = |word: &str| word.chars().next().map(|first| first.to_ascii_lowercase());
    let begin_alike = similar.iter().copied().filter(|name| begins(name) == begins(asked));
    nearest_name(asked, begin_alike).or_else(|| nearest_name(asked, similar.iter().copied())).or(shorter)
}

/// Whether more than half of the letters are the same: few changes turn any short word into any other.
fn is_similar(left: &str, right: &str) -> bool {
    let letters = |word: &str| {
        let mut letters: Vec<char> = word.chars().filter(|letter| letter.is_alphanumeric()).collect();
        letters.iter_mut().for_each(|letter| *letter = letter.to_ascii_lowercase());
        letters
    };
    let (left, mut right) = (letters(left), letters(right));
    let longer = left.len().max(right.len());
    let common = left.iter().filter(|letter| {
        right.iter().position(|other| other == *letter).map(|place| right.swap_remove(place)).is_some()
    });
    common.count() * 2 > longer
}

/// The option that is nearest to `value`.
pub(super) fn option<'a>(options: &'a [Value], value: &Value, guesses: &Guesses) -> Option<&'a Value> {
    match value {
        Value::String(text) => {
            let same = |option: &&Value| {
                matches!(option, Value::Number(_) | Value::Bool(_)) && option.to_string() == *text
            };
            if let Some(unquoted) = options.iter().find(same) {
                return Some(unquoted);
            }
            let near = word(text, options.iter().filter_map(Value::as_str), guesses)?;
            options.iter().find(|option| option.as_str() == Some(near))
        }
        Value::Number(number) => {
            let text = number.to_string();
            if let Some(quoted) = options.iter().find(|option| option.as_str() == Some(&text)) {
                return Some(quoted);
            }
            let asked = number.as_f64()?;
            let distance = |option: &Value| option.as_f64().map(|known| (known - asked).abs());
            let numbers = options.iter().filter_map(|option| Some((distance(option)?, option)));
            numbers.min_by(|(one, _), (other, _)| one.total_cmp(other)).map(|(_, option)| option)
        }
        Value::Bool(truth) => {
            let text = truth.to_string();
            options.iter().find(|option| option.as_str() == Some(&text))
        }
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// Says which multiples lie on both sides of the number.
pub(super) fn multiple(value: &Value, of: f64, found: &str) -> String {
    let expected = format!("expected a multiple of {of}, found {found}");
    let Some(number) = value.as_f64() else { return expected };
    let (below, above) = ((number / of).floor() * of, (number / of).ceil() * of);
    // Where multiplying does not give a short number, the neighbours would only confuse.
    let is_short = |number: f64| number.is_finite() && number.to_string().len() <= 12;
    if is_short(below) && is_short(above) && below < above {
        format!("{expected}; nearest are {below} and {above}")
    } else {
        expected
    }
}

/// The properties that may stand in the object whose others were refused by the keyword at `refused_by`.
pub(super) fn allowed_properties<'a>(schema: &'a Value, refused_by: &str) -> BTreeSet<&'a str> {
    let (parent, keyword) = refused_by.rsplit_once('/').unwrap_or(("", refused_by));
    let Some(owner) = schema.pointer(parent) else { return BTreeSet::new() };
    if keyword != "unevaluatedProperties" {
        return named(owner).collect();
    }
    // What the schemas beside it name counts, too, however they are written.
    let references = References::of(schema);
    let (mut seen, mut names, mut pending) = (BTreeSet::new(), BTreeSet::new(), vec![owner]);
    while let Some(schema) = pending.pop() {
        if !seen.insert(std::ptr::from_ref(schema).addr()) {
            continue;
        }
        names.extend(named(schema));
        pending.extend(references.target(schema));
        let list = |name| schema.get(name).and_then(Value::as_array).into_iter().flatten();
        pending.extend(["allOf", "anyOf", "oneOf"].into_iter().flat_map(list));
        pending.extend(["if", "then", "else"].into_iter().filter_map(|name| schema.get(name)));
        let dependent = schema.get("dependentSchemas").and_then(Value::as_object);
        pending.extend(dependent.into_iter().flat_map(|map| map.values()));
    }
    names
}

/// The properties that a schema names itself and does not forbid.
fn named(schema: &Value) -> impl Iterator<Item = &str> {
    let map = schema.get("properties").and_then(Value::as_object);
    let allowed = map.into_iter().flatten().filter(|(_, schema)| **schema != Value::Bool(false));
    allowed.map(|(name, _)| name.as_str())
}
