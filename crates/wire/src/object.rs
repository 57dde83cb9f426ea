//! JSON objects whose values stay the bytes that came.

use crate::{Wire, WireError};
use serde::de::{DeserializeOwned, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;

/// A JSON object, each value as the bytes that came. A key that stands twice is refused.
#[derive(Clone, Debug, Default)]
pub(crate) struct RawObject(BTreeMap<String, Box<RawValue>>);

impl RawObject {
    /// The value of a field; `null` counts as absent.
    pub(crate) fn get(&self, key: &str) -> Option<&RawValue> {
        self.0.get(key).filter(|value| value.get() != "null").map(|value| &**value)
    }

    /// The value of a field as text, if it is text.
    pub(crate) fn text(&self, key: &str) -> Option<String> {
        serde_json::from_str(self.get(key)?.get()).ok()
    }

    /// The fields that are not among these, as one JSON object; none if there are none or all are `null`.
    pub(crate) fn rest(&self, known: &[&str]) -> Option<String> {
        let rest =
            self.0.iter().filter(|(key, value)| !known.contains(&key.as_str()) && value.get() != "null");
        let mut text = String::new();
        for (key, value) in rest {
            text.push(if text.is_empty() { '{' } else { ',' });
            text.push_str(&serde_json::Value::from(key.as_str()).to_string());
            text.push(':');
            text.push_str(value.get());
        }
        if text.is_empty() {
            return None;
        }
        text.push('}');
        Some(text)
    }
}

impl<'de> Deserialize<'de> for RawObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<RawObject, D::Error> {
        struct ObjectFields;
        impl<'de> Visitor<'de> for ObjectFields {
            type Value = RawObject;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawObject, A::Error> {
                let mut fields = BTreeMap::new();
                while let Some((key, value)) = map.next_entry::<String, Box<RawValue>>()? {
                    match fields.entry(key) {
                        Entry::Vacant(vacant) => _ = vacant.insert(value),
                        Entry::Occupied(known) => {
                            let twice = format!("the key {:?} stands twice", known.key());
                            return Err(serde::de::Error::custom(twice));
                        }
                    }
                }
                Ok(RawObject(fields))
            }
        }
        deserializer.deserialize_map(ObjectFields)
    }
}

/// Reads a response, or a part of one.
pub(crate) fn parse<T: DeserializeOwned>(wire: Wire, text: &str, place: &str) -> Result<T, WireError> {
    serde_json::from_str(text).map_err(|error| {
        let what = if place.is_empty() { error.to_string() } else { format!("{place}: {error}") };
        WireError::Shape { wire, what }
    })
}

/// The wire of a provider's whole response, by the fields that only it has.
pub(crate) fn wire_of(response: &str) -> Option<Wire> {
    let RawObject(fields) = serde_json::from_str(response).ok()?;
    let is_message = || fields.get("type").is_some_and(|kind| kind.get() == "\"message\"");
    let telling =
        [("choices", Wire::OpenaiChat), ("output", Wire::OpenaiResponses), ("candidates", Wire::Gemini)];
    let told = telling.iter().find(|(field, _)| fields.contains_key(*field)).map(|(_, wire)| *wire);
    told.or_else(|| is_message().then_some(Wire::Anthropic))
}

/// The wire of an event in a stream, by the fields and types that only it has. Errors look alike.
pub(crate) fn wire_of_event(event: &str) -> Option<Wire> {
    let fields: RawObject = serde_json::from_str(event).ok()?;
    let kind = fields.text("type").unwrap_or_default();
    let is_part = ["message_", "content_block_"].iter().any(|part| kind.starts_with(part));
    match kind.as_str() {
        _ if is_part => Some(Wire::Anthropic),
        kind if kind.starts_with("response.") => Some(Wire::OpenaiResponses),
        _ if fields.get("choices").is_some() => Some(Wire::OpenaiChat),
        _ => fields.get("candidates").map(|_| Wire::Gemini),
    }
}

/// The error for a response of another provider.
pub(crate) fn of_another(wire: Wire, other: Wire) -> WireError {
    WireError::Shape { wire, what: format!("it looks like one of {other}; name that wire") }
}

/// A message as JSON text.
pub(crate) fn raw(message: &impl Serialize) -> Box<RawValue> {
    // Our own messages have text keys and no floats, so they can be written.
    serde_json::value::to_raw_value(message).unwrap_or_default()
}

/// Several messages as JSON text.
pub(crate) fn all_raw(messages: Vec<serde_json::Value>) -> Vec<Box<RawValue>> {
    messages.iter().map(raw).collect()
}
