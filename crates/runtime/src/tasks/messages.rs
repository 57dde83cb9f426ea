//! What is said to a task and what it says, as its journal has it.

use super::Tasks;
use crate::answer;
use crate::ask::{self, AskError};
use crate::error::BatchError;
use crate::session;
use serde::Serialize;
use serde_json::{Value, json};
use windlass_core::call::Fact;
use windlass_core::entry::{Entry, Event};
use windlass_core::ids::Ordinal;
use windlass_core::operation::{Did, signal_of};
use windlass_core::time::Timestamp;

/// The signal as which a task receives what is said to it.
const SIGNAL: &str = "message";

/// Something that was said to a task, or that it said.
#[derive(Clone, Debug, Serialize)]
pub struct TaskMessage {
    /// By which others reply to it.
    pub id: String,
    /// Who said it.
    pub direction: Direction,
    /// What.
    pub text: String,
    /// To which message it replies, if to one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_reply_to: Option<String>,
    /// When.
    #[serde(serialize_with = "answer::as_wall_time")]
    pub at: Timestamp,
}

/// Who said something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// Somebody, to the task.
    In,
    /// The task, to its session.
    Out,
}

impl Tasks {
    /// What was said to it and what it said, oldest first.
    pub async fn messages(&self, task: &str) -> Result<Vec<TaskMessage>, AskError> {
        let (_, id, _) = self.find(task).await?;
        let rows = self.store.journal(id.batch).await.map_err(BatchError::from)?;
        let entries = session::entries(&rows)?;
        Ok(entries.iter().filter_map(|entry| message(entry, id.ordinal)).collect())
    }

    /// Says something to a task whose tool takes the signal `message`. It is durable when this returns. What is said with the
    /// same key is said once.
    pub async fn say(
        &self,
        task: &str,
        (text, in_reply_to): (&str, Option<&str>),
        key: Option<&str>,
    ) -> Result<(), AskError> {
        self.find(task).await?;
        let nobody =
            || "nobody owns the session, so nothing is said to its tasks; start its owner first".to_string();
        let rt = self.rt.as_ref().ok_or_else(|| AskError::Invalid { what: nobody() })?;
        let mut payload = json!({ "text": text });
        if let Some(id) = in_reply_to {
            payload["in_reply_to"] = id.into();
        }
        ask::signal(rt, task, ask::Signal { name: SIGNAL, payload: &payload, key }).await
    }
}

/// The text of what was said.
pub(crate) fn text_of(said: &str) -> String {
    let parsed = serde_json::from_str::<Value>(said).unwrap_or_default();
    parsed["text"].as_str().unwrap_or(said).to_string()
}

/// What an entry says, if it says something.
fn message(entry: &Entry, own: Ordinal) -> Option<TaskMessage> {
    let Event::Call { ordinal, fact: Fact::Operation(operation) } = &entry.event else { return None };
    if *ordinal != own {
        return None;
    }
    let (id, direction, said) = if let Did::Said { message } = &operation.did {
        (format!("out.{}", operation.name), Direction::Out, message)
    } else if let (Did::Signalled { payload }, Some((SIGNAL, number))) =
        (&operation.did, signal_of(&operation.name))
    {
        (format!("in.{number}"), Direction::In, payload)
    } else {
        return None;
    };
    let (text, parsed) = (text_of(said), serde_json::from_str::<Value>(said).ok()?);
    let in_reply_to = parsed["in_reply_to"].as_str().map(str::to_string);
    Some(TaskMessage { id, direction, text, in_reply_to, at: entry.at })
}
