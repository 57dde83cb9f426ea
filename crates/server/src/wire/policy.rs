//! Bodies about the policy.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// A change of the policy.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "PolicyRequest")]
pub struct PolicyBody {
    /// The rules that replace those set before; those of `windlass.toml` stay.
    pub rules: Vec<Value>,
    /// The version that is replaced: refused with 409 if there is a newer one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
}

/// A call to be judged without being made.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "PolicyCheckRequest")]
pub struct PolicyCheckBody {
    /// The tool, by name or stable id.
    pub tool: String,
    /// The arguments; `{}` by default.
    #[serde(default = "nothing")]
    pub args: Value,
    /// The requesting principal; by default that of the session.
    #[serde(default, rename = "as", skip_serializing_if = "Option::is_none")]
    pub principal: Option<String>,
    /// The session whose tools, labels and principal count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The turn of the batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<String>,
    /// Whether the session has read private data and untrusted content.
    #[serde(default)]
    pub exposed: bool,
}

fn nothing() -> Value {
    json!({})
}
