//! Triggers as they are asked for and shown.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// A trigger that is wanted.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "TriggerRequest")]
pub struct NewTrigger {
    /// Its id, 1 to 64 of `[a-zA-Z0-9_.-]`; one is made if it is not said. The same again under one id is answered with what is there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The kind of event, as a tool declares it.
    pub event: String,
    /// Only events whose payload has these values: a JSON pointer into it, and what stands there. All must be equal.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub filter: BTreeMap<String, Value>,
    /// The tool that is called; it must have the flag `background`.
    pub tool: String,
    /// The arguments of the call.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub args: Value,
    /// The argument that is the payload of the event; without it the call is not given the event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event_as: Option<String>,
    /// What people call the tasks that it starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Whether the session is told when such a task has ended; it is if nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal_on_completion: Option<bool>,
}

/// A trigger.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Trigger {
    /// Its id.
    pub id: String,
    /// The kind of event.
    pub event: String,
    /// What its payload must have: a JSON pointer into it, and what stands there. Absent: every event is taken.
    pub filter: Option<BTreeMap<String, Value>>,
    /// The tool that is called.
    pub tool: String,
    /// With these arguments.
    pub args: BTreeMap<String, Value>,
    /// The argument that is the payload of the event.
    pub event_as: Option<String>,
    /// What people call the tasks that it starts.
    pub title: Option<String>,
    /// When the session is told of them: `on_end`, or `silent`.
    pub wake: String,
    /// Who asked for it.
    pub owner: Option<String>,
    /// When it was made.
    pub created: String,
    /// When an event last started something.
    pub last: Option<String>,
    /// The task that it started.
    pub last_task: Option<String>,
    /// How many calls it has started.
    pub count: u64,
}

/// What an event started.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Triggered {
    /// The id of the trigger.
    pub trigger: String,
    /// The task.
    pub task: String,
}
