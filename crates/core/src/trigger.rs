//! What an event starts: which events a trigger takes, and what the call that it starts is given.

use crate::canonical;
use crate::limits::Limits;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// What is wrong with a trigger, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// It looks at too many places.
    #[error(
        "the filter looks at {count} places, and may look at {max}; leave some out, or tell of them in one"
    )]
    TooMany {
        /// At how many.
        count: u64,
        /// The limit `trigger_conditions_max`.
        max: u64,
    },
    /// A place that is no JSON pointer.
    #[error(
        "the filter looks at {0:?}, which is no JSON pointer; write \"/field\" for a field of the payload, and \"~1\" and \"~0\" \
         for \"/\" and \"~\" in its name"
    )]
    Pointer(String),
    /// Arguments that are no object.
    #[error("the arguments of a call are an object; give them by name")]
    Args,
    /// The event has no place of its own.
    #[error(
        "the argument {0:?} is given, and is to be the event too; take it out of the arguments, or name another"
    )]
    Taken(String),
}

/// Which events of a kind are meant: those that have certain values at certain places.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Filter(Map<String, Value>);

impl Filter {
    /// By JSON pointers into the payload, and what must stand there. None at all means every event.
    pub fn new(conditions: Map<String, Value>, limits: &Limits) -> Result<Filter, Problem> {
        let (count, max) = (conditions.len() as u64, limits.trigger_conditions_max);
        if count > max {
            return Err(Problem::TooMany { count, max });
        }
        match conditions.keys().find(|place| !is_pointer(place)) {
            Some(place) => Err(Problem::Pointer(place.clone())),
            None => Ok(Filter(conditions)),
        }
    }

    /// Whether an event with this payload is meant. Numbers are compared by their value, objects whatever the order of their keys.
    pub fn takes(&self, payload: &Value) -> bool {
        let is_there = |(place, wanted): (&String, &Value)| {
            payload
                .pointer(place)
                .is_some_and(|found| found == wanted || canonical::text(found) == canonical::text(wanted))
        };
        self.0.iter().all(is_there)
    }

    /// The places, and what must stand there.
    pub fn conditions(&self) -> &Map<String, Value> {
        &self.0
    }
}

/// After RFC 6901: empty, or names behind slashes in which `~` is written as `~0` and `/` as `~1`.
fn is_pointer(text: &str) -> bool {
    let mut rest = text.split('~').skip(1);
    (text.is_empty() || text.starts_with('/')) && rest.all(|rest| rest.starts_with(['0', '1']))
}

/// What the call of a trigger is given: fixed arguments, and the payload of the event under a name of its own, if it has one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Given {
    args: Map<String, Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    event_as: Option<String>,
}

impl Given {
    /// Such arguments; none at all are an empty object.
    pub fn new(args: Value, event_as: Option<String>) -> Result<Given, Problem> {
        let args = match args {
            Value::Null => Map::new(),
            Value::Object(args) => args,
            Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                return Err(Problem::Args);
            }
        };
        match event_as {
            Some(name) if args.contains_key(&name) => Err(Problem::Taken(name)),
            event_as => Ok(Given { args, event_as }),
        }
    }

    /// The fixed arguments.
    pub fn args(&self) -> &Map<String, Value> {
        &self.args
    }

    /// The name under which the event is given, if it is.
    pub fn event_as(&self) -> Option<&str> {
        self.event_as.as_deref()
    }

    /// The arguments of the call that an event with this payload starts. A payload is never read as anything but a value.
    pub fn with(&self, payload: &Value) -> Value {
        let mut args = self.args.clone();
        args.extend(self.event_as.clone().map(|name| (name, payload.clone())));
        Value::Object(args)
    }
}
