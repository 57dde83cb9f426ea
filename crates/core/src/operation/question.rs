//! Questions to people.

use super::Until;
use crate::outcome::JsonText;
use crate::time::Timestamp;
use std::sync::Arc;

/// A question to a person.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    /// The question, for a person.
    pub text: Arc<str>,
    /// The schema of an answer, as JSON.
    pub schema: Option<JsonText>,
    /// The end of the wait for an answer.
    pub until: Until,
}

impl Question {
    /// The identity of the question.
    pub(super) fn identity(&self) -> String {
        let schema = self.schema.as_deref().unwrap_or("null");
        format!("{{\"question\":{},\"schema\":{schema}}}", serde_json::Value::from(&*self.text))
    }

    /// When it was asked.
    pub fn since(&self) -> Timestamp {
        let length = i64::try_from(self.until.length_us).unwrap_or(i64::MAX);
        Timestamp(self.until.wake_at.0.saturating_sub(length))
    }
}
