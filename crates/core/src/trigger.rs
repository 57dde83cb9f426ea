//! Triggers: which events match, and the arguments of the calls they start.

use crate::limits::CallLimits;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use windlass_args::canonical;

/// A mistake in a trigger, with what would be right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TriggerProblem {
    /// Too many conditions.
    #[error("the filter looks at {count} places, and may look at {max}; leave some out, or combine them")]
    TooMany {
        /// The number.
        count: u64,
        /// The limit `trigger_conditions_max`.
        max: u64,
    },
    /// A place that is not a JSON pointer.
    #[error(
        "the filter looks at {0:?}, which is not a JSON pointer; write \"/field\" for a field of the payload, and \"~1\" and \"~0\" \
         for \"/\" and \"~\" in its name"
    )]
    Pointer(String),
    /// Arguments that are not an object.
    #[error("the arguments of a call are an object; give them by name")]
    Args,
    /// The event's argument is also given.
    #[error(
        "the argument {0:?} is given, and also receives the event; remove it from the arguments, or name another"
    )]
    Taken(String),
}

/// A filter of events: expected values at certain places.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Filter(Map<String, Value>);

impl Filter {
    /// By JSON pointers into the payload, with the expected values. An empty filter matches every event.
    pub fn new(conditions: Map<String, Value>, limits: &CallLimits) -> Result<Filter, TriggerProblem> {
        let (count, max) = (conditions.len() as u64, limits.trigger_conditions_max);
        if count > max {
            return Err(TriggerProblem::TooMany { count, max });
        }
        match conditions.keys().find(|place| !is_pointer(place)) {
            Some(place) => Err(TriggerProblem::Pointer(place.clone())),
            None => Ok(Filter(conditions)),
        }
    }

    /// Whether an event with this payload matches. Numbers are compared by value, objects regardless of the order of keys.
    pub fn takes(&self, payload: &Value) -> bool {
        let is_there = |(place, wanted): (&String, &Value)| {
            payload
                .pointer(place)
                .is_some_and(|found| found == wanted || canonical::text(found) == canonical::text(wanted))
        };
        self.0.iter().all(is_there)
    }

    /// The places, with the expected values.
    pub fn conditions(&self) -> &Map<String, Value> {
        &self.0
    }
}

/// By RFC 6901: empty, or names after slashes in which `~` is written as `~0` and `/` as `~1`.
fn is_pointer(text: &str) -> bool {
    let mut rest = text.split('~').skip(1);
    (text.is_empty() || text.starts_with('/')) && rest.all(|rest| rest.starts_with(['0', '1']))
}

/// The arguments of a trigger's call: fixed ones, and the payload of the event under a name of its own, if it has one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TriggerArguments {
    args: Map<String, Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    event_as: Option<String>,
}

impl TriggerArguments {
    /// Checks such arguments; without any they are an empty object.
    pub fn new(args: Value, event_as: Option<String>) -> Result<TriggerArguments, TriggerProblem> {
        let args = match args {
            Value::Null => Map::new(),
            Value::Object(args) => args,
            Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                return Err(TriggerProblem::Args);
            }
        };
        match event_as {
            Some(name) if args.contains_key(&name) => Err(TriggerProblem::Taken(name)),
            event_as => Ok(TriggerArguments { args, event_as }),
        }
    }

    /// The fixed arguments.
    pub fn args(&self) -> &Map<String, Value> {
        &self.args
    }

    /// The argument that receives the event, if any.
    pub fn event_as(&self) -> Option<&str> {
        self.event_as.as_deref()
    }

    /// The arguments of the call that an event with this payload starts. A payload is never interpreted as anything but a value.
    pub fn with(&self, payload: &Value) -> Value {
        let mut args = self.args.clone();
        args.extend(self.event_as.clone().map(|name| (name, payload.clone())));
        Value::Object(args)
    }
}
