//! Messages to and from a task, from its journal.

use super::Tasks;
use crate::api::answer;
use crate::api::error::SessionError;
use crate::api::journal::entries;
use crate::mailbox::ask::{self, AskError};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};
use windlass_core::call::Fact;
use windlass_core::entry::{Entry, EntryEvent};
use windlass_core::ids::Ordinal;
use windlass_core::operation::{Did, signal_of};
use windlass_core::time::Timestamp;

/// The signal that delivers a message to a task.
const SIGNAL: &str = "message";

/// A message to or from a task.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct TaskMessage {
    /// The id to reply to.
    pub id: String,
    /// Its direction.
    pub direction: Direction,
    /// The text.
    pub text: String,
    /// The id of the message it replies to, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_reply_to: Option<String>,
    /// When it was sent.
    #[serde(serialize_with = "answer::as_wall_time")]
    #[schemars(with = "String")]
    pub at: Timestamp,
}

/// Something to say to a task. See [`Tasks::say`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NewMessage<'a> {
    /// What.
    pub text: &'a str,
    /// The [id](TaskMessage::id) of the message to which it replies, if to one.
    pub in_reply_to: Option<&'a str>,
    /// Messages with the same key are said once; `None`: it is a new one.
    pub key: Option<&'a str>,
}

/// The direction of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// To the task.
    In,
    /// From the task, to its session.
    Out,
}

impl Tasks {
    /// The messages to and from a task, oldest first.
    pub async fn messages(&self, task: &str) -> Result<Vec<TaskMessage>, AskError> {
        let id = self.find(task).await?.id;
        let rows = self.store.journal(id.batch).await.map_err(SessionError::from)?;
        let entries = entries(&rows)?;
        Ok(entries.iter().filter_map(|entry| message(entry, id.ordinal)).collect())
    }

    /// The messages after the one of this id, oldest first; at most `limit`.
    pub async fn messages_after(
        &self,
        task: &str,
        after: Option<&str>,
        limit: u64,
    ) -> Result<Vec<TaskMessage>, AskError> {
        let all = self.messages(task).await?;
        let from = match after {
            Some(after) => match all.iter().position(|message| message.id == after) {
                Some(place) => place + 1,
                None => {
                    let what =
                        format!("after is the id of a message, as `next` gives it, and {after:?} is none");
                    return Err(AskError::Shape { what });
                }
            },
            None => 0,
        };
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        Ok(all.into_iter().skip(from).take(limit).collect())
    }

    /// Sends a message to a task whose tool takes the signal `message`. It is durable when this returns.
    pub async fn say(&self, task: &str, message: NewMessage<'_>) -> Result<(), AskError> {
        let NewMessage { text, in_reply_to, key } = message;
        self.find(task).await?;
        let nobody =
            || "the session has no owner, so its tasks take no messages; start its owner first".to_string();
        let rt = self.rt.as_ref().ok_or_else(|| AskError::Invalid { what: nobody() })?;
        let mut payload = json!({ "text": text });
        if let Some(id) = in_reply_to {
            payload["in_reply_to"] = id.into();
        }
        ask::signal(rt, task, ask::Signal { name: SIGNAL, payload: &payload, key }).await
    }
}

/// The text of a message.
pub(crate) fn text_of(said: &str) -> String {
    let parsed = serde_json::from_str::<Value>(said).unwrap_or_default();
    parsed["text"].as_str().unwrap_or(said).to_string()
}

/// The message of an entry, if it is one.
fn message(entry: &Entry, own: Ordinal) -> Option<TaskMessage> {
    let EntryEvent::Call { ordinal, fact: Fact::Operation(operation) } = &entry.event else { return None };
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
