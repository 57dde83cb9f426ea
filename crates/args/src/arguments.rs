//! Arguments as a caller gave them.

use crate::json;
use crate::limits::ArgLimits;
use crate::named;
use crate::text::Text;
use serde_json::Value;

/// Arguments as they were given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arguments {
    /// Whether they came parsed or as text.
    pub given: Given,
    /// Compact JSON, or the text.
    pub text: Text,
}

named! {
    /// The form in which arguments were given.
    Given {
        /// As JSON.
        Json = "json",
        /// As the raw text the model wrote, which may be no JSON at all.
        Text = "text",
    }
}

impl Arguments {
    /// Parses the arguments. Absent, null and empty arguments are an empty object.
    pub fn parse(&self, limits: &ArgLimits) -> Result<Value, json::JsonProblem> {
        match self.text.trim_ascii() {
            "" | "null" => Ok(Value::Object(serde_json::Map::new())),
            text => json::parse(text, limits),
        }
    }
}
