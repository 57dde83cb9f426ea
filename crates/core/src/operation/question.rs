//! What a person is asked.

use super::Until;
use crate::outcome::JsonText;
use crate::time::Timestamp;
use std::sync::Arc;

/// What a person is asked.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    /// The question, for a person.
    pub text: Arc<str>,
    /// What an answer must fit, as JSON.
    pub schema: Option<JsonText>,
    /// Until when it is waited for.
    pub until: Until,
}

impl Question {
    /// What makes it this question and no other.
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
