//! Conditions on arguments outside a rule, as grants have them.

use super::condition::ArgumentCondition;
use super::{PolicyProblem, Ruling, parse};
use crate::limits::CallLimits;
use serde_json::Value;

/// Conditions on the arguments of a call, compared as in an `allow` rule: all of them must hold, for an array each element must
/// match, and an absent or wrongly typed value matches nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ArgumentRules {
    conditions: Vec<ArgumentCondition>,
    written: Vec<Value>,
}

impl ArgumentRules {
    /// Compiles a list such as `[{"pointer": "/path", "prefix": "/tmp/"}]`. A problem names its place, such as `args[0].pointer`.
    /// An empty list has no conditions.
    pub fn parse(written: &[Value], limits: &CallLimits) -> Result<ArgumentRules, PolicyProblem> {
        if written.is_empty() {
            return Ok(ArgumentRules::default());
        }
        let conditions = parse::argument_list(&Value::Array(written.to_vec()), limits)?;
        Ok(ArgumentRules { conditions, written: written.to_vec() })
    }

    /// The conditions as they were written.
    pub fn written(&self) -> &[Value] {
        &self.written
    }

    /// The first condition that these arguments do not meet, in words. Values of the call are not in it.
    pub fn unmet(&self, args: &Value) -> Option<String> {
        let holds =
            |condition: &&ArgumentCondition| condition.finding(args, Ruling::Allow).holds(Ruling::Allow);
        self.conditions.iter().find(|condition| !holds(condition)).map(ToString::to_string)
    }

    /// Whether every condition of the other is one of these.
    pub fn contain(&self, other: &ArgumentRules) -> bool {
        other.written.iter().all(|condition| self.written.contains(condition))
    }
}
