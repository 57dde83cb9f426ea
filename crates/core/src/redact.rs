//! Arguments with their secrets masked, for people.
//!
//! A name marks a secret (`password`, `api_key`, `Authorization`, in any spelling and at any depth), and so does the
//! tool's input schema (`writeOnly`, `format: password`, a description that calls the value a password). In doubt a
//! value is masked: the journal and the API have the whole arguments, for readers that are allowed to see them there.
//!
//! The values of stored secrets are another matter: they are known, so [`SecretMatcher`] finds them in any text.

mod forms;
mod names;
mod record;
mod values;
mod words;

pub use names::{SecretNames, is_secret_name};
pub use values::{
    FoundSecret, KnownSecret, SECRET_CHARS_MIN, SecretMatcher, StreamScrubber, secret_form, secret_marker,
};

use serde_json::Value;

/// Shown instead of a secret.
pub const MASK: &str = "[redacted]";

/// Shorter secrets are not searched in other texts: they would be found everywhere.
const SCRUBBED_CHARS_MIN: usize = 4;
/// Longer secrets are not searched either: each would have to be kept while its call is narrated.
const SCRUBBED_BYTES_MAX: usize = 4 << 10;
/// The maximum number of secrets of one call that are searched in other texts.
const SCRUBBED_MAX: usize = 64;
/// The retained length of a text where arguments only appear in a sentence: more than fits there.
const TOLD_CHARS: usize = 64;
/// The retained number of arguments there.
const TOLD_ARGS_MAX: usize = 64;

/// The arguments of a call, with their secrets masked. Masking is the only way to make one, so code that
/// takes these cannot show a secret.
#[derive(Clone, Debug, Default)]
pub struct RedactedArgs {
    value: Value,
    /// Whether something in them is a secret, or is named like one.
    is_masked: bool,
    /// The masked values, longest first.
    secrets: Vec<String>,
}

impl RedactedArgs {
    /// Masks the secrets of arguments.
    pub fn of(mut value: Value, names: &SecretNames) -> RedactedArgs {
        let mut masking = Masking { names, secrets: Vec::new(), is_masked: false };
        masking.mask(&mut value);
        let (secrets, is_masked) = (masking.secrets, masking.is_masked);
        let mut redacted = RedactedArgs { value, is_masked, secrets: Vec::new() };
        redacted.remember(secrets);
        redacted
    }

    /// Keeps the secrets that are searched in other texts.
    fn remember(&mut self, mut secrets: Vec<String>) {
        secrets.retain(|secret| {
            secret.len() <= SCRUBBED_BYTES_MAX && secret.chars().count() >= SCRUBBED_CHARS_MIN
        });
        secrets.sort_by(|a, b| (b.len(), b).cmp(&(a.len(), a)));
        secrets.dedup();
        secrets.truncate(SCRUBBED_MAX);
        self.secrets = secrets;
    }

    /// Masks the secrets of arguments that a model wrote as text. Text that is not JSON is masked whole if a
    /// word in it could name a secret: nobody knows where the secret begins and ends.
    pub fn of_text(text: &str, names: &SecretNames) -> RedactedArgs {
        match serde_json::from_str::<Value>(text) {
            Ok(value) => RedactedArgs::of(value, names),
            Err(_) if names.may_be_in(text) => {
                let mut masked = RedactedArgs { value: MASK.into(), is_masked: true, secrets: Vec::new() };
                masked.remember(words::quoted_values(text).map(str::to_string).collect());
                masked
            }
            Err(_) => RedactedArgs::of(text.into(), names),
        }
    }

    /// The arguments, with a mask for each secret.
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// Keeps the parts of long arguments that a sentence may show: the beginnings of their texts.
    pub fn into_told(self) -> RedactedArgs {
        let told = |value: Value| match value {
            Value::String(text) => text.chars().take(TOLD_CHARS).collect::<String>().into(),
            Value::Array(items) => {
                let texts = items.iter().take(TOLD_CHARS).filter_map(Value::as_str);
                let texts: Vec<&str> = texts.collect();
                let is_all = texts.len() == items.len().min(TOLD_CHARS);
                let joined: String = texts.join(" ").chars().take(TOLD_CHARS).collect();
                if is_all { joined.into() } else { Value::Null }
            }
            Value::Object(_) => Value::Null,
            plain @ (Value::Null | Value::Bool(_) | Value::Number(_)) => plain,
        };
        let value = if let Value::Object(fields) = self.value {
            fields.into_iter().take(TOLD_ARGS_MAX).map(|(name, field)| (name, told(field))).collect()
        } else {
            told(self.value)
        };
        RedactedArgs { value, ..self }
    }

    /// Whether they differ from the given arguments, or may.
    pub fn is_masked(&self) -> bool {
        self.is_masked
    }

    /// Masks the secrets of these arguments in another text, such as a message of the tool.
    pub fn scrub<'a>(&self, text: &'a str) -> std::borrow::Cow<'a, str> {
        let mut scrubbed = std::borrow::Cow::Borrowed(text);
        for secret in self.secrets.iter().filter(|secret| text.contains(secret.as_str())) {
            scrubbed = scrubbed.replace(secret.as_str(), MASK).into();
        }
        scrubbed
    }

    /// Masks the secrets of these arguments in all texts of a value.
    pub fn scrub_value(&self, value: &mut Value) {
        if self.secrets.is_empty() {
            return;
        }
        match value {
            Value::String(text) => *text = self.scrub(text).into_owned(),
            Value::Array(items) => items.iter_mut().for_each(|item| self.scrub_value(item)),
            Value::Object(fields) => fields.values_mut().for_each(|field| self.scrub_value(field)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

/// A JSON text that is no argument of a known tool, such as the input of a step: values named like secrets are masked.
pub fn redacted_text(text: &str) -> String {
    let redacted = RedactedArgs::of_text(text, &SecretNames::default());
    match redacted.value.as_str() {
        _ if !redacted.is_masked => text.to_string(),
        // It was not JSON before.
        Some(masked) if !text.trim_start().starts_with('"') => masked.to_string(),
        _ => redacted.value.to_string(),
    }
}

struct Masking<'a> {
    names: &'a SecretNames,
    secrets: Vec<String>,
    is_masked: bool,
}

/// Fields of an object that name its field `value`: how headers and variables are often listed.
const NAMING: [&str; 3] = ["name", "key", "header"];

impl Masking<'_> {
    /// Masks the secrets in a value. Values come from a parser that bounds their depth.
    fn mask(&mut self, value: &mut Value) {
        match value {
            Value::Object(fields) => {
                let named = NAMING.iter().filter_map(|naming| fields.get(*naming)?.as_str());
                let is_pair = named.into_iter().any(|name| self.names.has(name));
                for (name, field) in fields.iter_mut() {
                    match self.names.has(name) || (is_pair && name.eq_ignore_ascii_case("value")) {
                        true => self.hide(name, field),
                        false => self.mask(field),
                    }
                }
            }
            Value::Array(items) => self.mask_items(items),
            Value::String(text) => self.mask_string(text),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// A list may be the words of a command, or a name and its value.
    fn mask_items(&mut self, items: &mut [Value]) {
        let is_pair = items.len() == 2 && items[0].as_str().is_some_and(|name| self.names.has(name));
        let mut is_next = false;
        for (place, item) in items.iter_mut().enumerate() {
            if std::mem::take(&mut is_next) || (is_pair && place == 1) {
                self.hide("", item);
                continue;
            }
            is_next = item.as_str().and_then(words::option).is_some_and(|name| self.names.has(name));
            self.mask(item);
        }
    }

    /// Masks a value that is secret by its name. Booleans are not, and neither is a number of tokens.
    fn hide(&mut self, name: &str, value: &mut Value) {
        self.is_masked = true;
        let is_told = match value {
            Value::Null | Value::Bool(_) => true,
            Value::Number(_) => names::is_count(name),
            Value::String(_) | Value::Array(_) | Value::Object(_) => false,
        };
        if !is_told {
            self.remember(value);
            *value = MASK.into();
        }
    }

    fn remember(&mut self, value: &Value) {
        match value {
            Value::String(text) => self.secrets.push(text.clone()),
            Value::Number(number) => self.secrets.push(number.to_string()),
            Value::Array(items) => items.iter().for_each(|item| self.remember(item)),
            Value::Object(fields) => fields.values().for_each(|field| self.remember(field)),
            Value::Null | Value::Bool(_) => {}
        }
    }

    fn mask_string(&mut self, text: &mut String) {
        // Arguments inside arguments, as text.
        if text.trim_start().starts_with(['{', '['])
            && let Ok(mut inner) = serde_json::from_str::<Value>(text)
        {
            let was_masked = std::mem::take(&mut self.is_masked);
            self.mask(&mut inner);
            if self.is_masked {
                *text = inner.to_string();
            }
            self.is_masked |= was_masked;
            return;
        }
        if let Some(masked) = words::masked(text, self.names, &mut self.secrets) {
            self.is_masked = true;
            *text = masked;
        }
    }
}

#[cfg(test)]
mod tests;
