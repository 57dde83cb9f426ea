//! Dedupe keys: which calls of a tool are duplicates, whoever makes them.

use serde_json::Value;
use std::borrow::Cow;
use windlass_args::canonical;
use windlass_args::template::{TemplatePart, parts, properties};

/// The dedupe key of a tool's calls, and how long it is valid.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dedupe {
    /// The key. Where a tool declares it, `{x}` stands for an argument, as in `{order}`.
    pub key: String,
    /// How long the answer of the first call is reused, in milliseconds from its request; `None` means for
    /// the life of the session.
    pub for_ms: Option<u64>,
}

/// A declared key, ready to be filled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyTemplate {
    parts: Vec<TemplatePart>,
    text: String,
}

/// Why arguments give no key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the dedupe key `{template}` needs the argument `{property}`: give it")]
pub struct MissingKey {
    /// The key as declared.
    pub template: String,
    /// The missing property.
    pub property: String,
}

/// An empty key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("its dedupe key is empty: name what makes two calls the same, as in `{{order}}`")]
pub struct Empty;

impl KeyTemplate {
    /// Reads a declared key.
    pub fn parse(text: &str) -> Result<KeyTemplate, Empty> {
        if text.is_empty() {
            return Err(Empty);
        }
        Ok(KeyTemplate { parts: parts(text), text: text.to_string() })
    }

    /// The properties it takes from the arguments.
    pub fn properties(&self) -> impl Iterator<Item = &str> {
        properties(self.parts.iter())
    }

    /// The key of a call with these arguments. Each value is written with its length, so that no two lists of values
    /// give the same key; a number and its text are the same, a list or an object is its canonical JSON.
    pub fn key(&self, args: &Value) -> Result<String, MissingKey> {
        let mut key = String::new();
        for part in &self.parts {
            match part {
                TemplatePart::Text(text) => key.push_str(text),
                TemplatePart::Property(property) => {
                    let value = match args.get(property) {
                        None | Some(Value::Null) => {
                            let (template, property) = (self.text.clone(), property.clone());
                            return Err(MissingKey { template, property });
                        }
                        Some(Value::String(text)) => Cow::Borrowed(text.as_str()),
                        Some(value) => Cow::Owned(canonical::text(value)),
                    };
                    key.push_str(&format!("{}:{value}", value.len()));
                }
            }
        }
        Ok(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn key(template: &str, args: &Value) -> Result<String, MissingKey> {
        KeyTemplate::parse(template).unwrap().key(args)
    }

    #[test]
    fn no_two_lists_of_values_have_one_key() {
        let same = |left: Value, right: Value| key("{a}-{b}", &left) == key("{a}-{b}", &right);
        assert!(same(json!({"a": 1, "b": "x"}), json!({"b": "x", "a": "1"})));
        assert!(!same(json!({"a": "x-y", "b": "z"}), json!({"a": "x", "b": "y-z"})));
        assert!(!same(json!({"a": 1, "b": 2}), json!({"a": 12, "b": ""})));
    }

    #[test]
    fn lists_and_objects_are_their_canonical_json() {
        let left = json!({"items": [{"b": 1, "a": 2}]});
        let right = json!({"items": [{"a": 2, "b": 1}]});
        assert_eq!(key("{items}", &left), key("{items}", &right));
        assert_ne!(key("{items}", &left), key("{items}", &json!({"items": [{"a": 2}]})));
    }

    #[test]
    fn what_is_missing_is_named() {
        for args in [json!({}), json!({"order": null}), json!(7)] {
            let missing = key("o{order}", &args).unwrap_err();
            assert_eq!(missing.to_string(), "the dedupe key `o{order}` needs the argument `order`: give it");
        }
        assert_eq!(KeyTemplate::parse(""), Err(Empty));
        assert_eq!(key("whatever", &json!({})), Ok("whatever".to_string()));
        assert_eq!(KeyTemplate::parse("{a}/{b c}{d}").unwrap().properties().collect::<Vec<_>>(), ["a", "d"]);
    }
}
