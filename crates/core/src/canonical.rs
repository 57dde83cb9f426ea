//! The one text of a JSON value.
use serde_json::Value;
/// Canonical text.
pub fn text(value: &Value) -> String {
    value.to_string()
}
