//! Bodies and queries about tasks, notices and events.

use super::Paging;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use windlass::tasks::{TaskKind, Urgency};

/// A page of an inbox.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InboxQuery {
    /// At most this many; 50 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// After the notice of this id, as `next` gave it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// Lists the acknowledged notices instead, oldest first.
    #[serde(default, skip_serializing_if = "super::is_false")]
    pub acknowledged: bool,
}

/// A page of tasks.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TaskQuery {
    /// At most this many; 50 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// After the task of this id, as `next` gave it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// Only tasks in this state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// Only tasks of this kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<TaskKind>,
}

/// A notice to post.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NoticeBody {
    /// Its title for people.
    pub title: String,
    /// The text for the model.
    pub text: String,
    /// How it wants to reach the agent; `when_idle` by default.
    #[serde(default)]
    pub urgency: Urgency,
    /// Higher ones are delivered first; 0 by default.
    #[serde(default)]
    pub priority: i8,
    /// Notices with the same key are posted once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// A notice was posted.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
pub struct PostedNotice {
    /// Its id.
    pub id: String,
}

/// An event to emit.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EventBody {
    /// Its kind, as a tool of the session declares it.
    pub kind: String,
    /// Its payload.
    #[serde(default)]
    pub payload: Value,
    /// Events of one kind with the same key are emitted once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub once_by: Option<String>,
}

/// An event was emitted.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
pub struct EmittedEvent {
    /// Its number in the session.
    pub number: u64,
    /// The tasks that it started.
    pub tasks: Vec<String>,
    /// Whether it is new; else an event with its key was emitted before.
    pub is_new: bool,
}

impl From<&Paging> for TaskQuery {
    fn from(paging: &Paging) -> TaskQuery {
        TaskQuery { limit: paging.limit, after: paging.after.clone(), ..TaskQuery::default() }
    }
}

impl From<&Paging> for InboxQuery {
    fn from(paging: &Paging) -> InboxQuery {
        InboxQuery { limit: paging.limit, after: paging.after.clone(), acknowledged: false }
    }
}
