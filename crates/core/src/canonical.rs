//! The one text of a JSON value.
use serde_json::Value;
/// Canonical text.
pub fn text(value: &Value) -> String {
    value.to_string()
}
/// d
pub fn differences(_a: &Value, _b: &Value, _most: usize) -> Vec<String> {
    Vec::new()
}
