//! What is answered, as it goes over the wire. Calls are made by the runtime; here stands what the description of the API
//! says of them, and tests hold the two together.

use crate::access::Scope;
use crate::wire::{Language, SessionBounds};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// A page of a list.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[schemars(rename = "PageOf{T}")]
pub struct Page<T> {
    /// What is on it.
    pub items: Vec<T>,
    /// What `after` takes for the page behind; `null` on the last.
    pub next: Option<String>,
}

/// How the server is.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
pub struct Health {
    /// `ok`.
    pub status: String,
}

/// A session.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
pub struct Session {
    /// Its name.
    pub id: String,
    /// Whose it is.
    pub principal: String,
    /// What people call it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// What programs want to know it by.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// The language of the sentences for people in its events, if one is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub locale: Option<Language>,
    /// What bounds it more tightly than every session is bounded.
    #[serde(default, skip_serializing_if = "SessionBounds::is_none")]
    pub limits: SessionBounds,
    /// The session whose child it is, if of any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// The call that opened it as a child, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opener: Option<String>,
    /// Of a child: the tools that it has of its parent's; absent if it has all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// Of a child: whether it takes nothing new, because the call that opened it has ended; absent if not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub closed: bool,
    /// When it was first used, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_at: Option<String>,
    /// How many entries its journal has.
    pub entries: u64,
    /// How many of its batches have an open call, as far as they are recorded.
    pub open_batches: u64,
}

/// A token, but for itself.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
pub struct Token {
    /// Its id, by which it is revoked.
    pub id: String,
    /// Whom it stands for.
    pub principal: String,
    /// What it may be used for.
    pub scopes: Vec<Scope>,
    /// What it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// When it was made.
    pub created_at: String,
    /// Until when it is good, if it expires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// Requests in a minute, if it has a rate of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests_per_minute: Option<u32>,
}

/// A token that was made.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[schemars(rename = "NewToken")]
pub struct Made {
    /// The token. It is told this once.
    pub token: String,
    /// The rest of it.
    #[serde(flatten)]
    pub shown: Token,
}

/// A token was revoked.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, JsonSchema)]
pub struct Revoked {
    /// Always: it is worthless.
    pub revoked: bool,
}

/// A tool.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Tool {
    /// Its name.
    pub name: String,
    /// Its title.
    pub title: String,
    /// What it does.
    pub description: String,
    /// Whether its calls wait because an operator paused it.
    pub paused: bool,
    /// The rest, once its provider was asked for it.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub contract: Option<Contract>,
}

/// What is known of a tool without running it.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[expect(
    missing_docs,
    reason = "each is named like the part of a tool; docs/declared-tools.md tells of them"
)]
pub struct Contract {
    pub id: String,
    pub class: String,
    pub hints: Map<String, Value>,
    pub flags: Vec<String>,
    pub version: String,
    pub input_schema: Option<Value>,
    pub output_schema: Option<Value>,
    pub contract: String,
    pub display: String,
}

/// A task: a call that goes on without its caller, or did.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Task {
    /// Its id, which is its call's; of a monitor its schedule's.
    pub task: String,
    /// `tool`, or `monitor` for a schedule that is enabled.
    pub kind: String,
    /// The tool.
    pub tool: String,
    /// What people call it.
    pub title: String,
    /// The state of its call; a monitor is `watching`.
    pub state: String,
    /// Why it goes on without a caller: `budget`, `queue`, `spawned`, `scheduled` or `triggered`.
    pub by: String,
    /// When its session is told of it: `silent`, `on_end` or `on_activity`.
    pub wake: String,
    /// How many attempts were started.
    pub attempts: u32,
    /// When its call was asked for.
    pub opened_at: String,
    /// When it ended, if it has.
    pub ended_at: Option<String>,
    /// Whether somebody asked to cancel it; absent if nobody did.
    pub cancel_asked: Option<bool>,
    /// How far it last said that it is, while it runs.
    pub progress: Option<Value>,
    /// The call that started it, if one did.
    pub starter: Option<String>,
    /// The schedule that started it, if one did.
    pub schedule: Option<String>,
    /// The trigger that started it, if one did.
    pub trigger: Option<String>,
    /// The child sessions that it opened; absent if it opened none.
    pub children: Option<Vec<String>>,
    /// What it last said that it does, while it runs; of a monitor its next time.
    pub status: Option<String>,
}

/// A task, and its call.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct WholeTask {
    #[serde(flatten)]
    #[expect(missing_docs, reason = "it is the task")]
    pub task: Task,
    /// Its call; a monitor has none.
    pub call: Option<Call>,
}

/// A piece of what a task has said.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct LogPiece {
    /// Its number, from 1. Where one is missing, what was there is not kept.
    pub no: u64,
    /// When it was written.
    pub at: String,
    /// Where it comes from: `out`, `err` or `windlass`.
    pub stream: String,
    /// What was said.
    pub text: String,
}

/// What the agent of a session is to be told.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Notice {
    /// Stays the same however often it is delivered.
    pub id: String,
    /// What it tells of: `task_ended`, `task_message` or `task_asks`.
    pub kind: String,
    /// `queued`, or `delivered` until its lease is over.
    pub state: String,
    /// Higher ones are taken first.
    pub priority: i8,
    /// What people call the task.
    pub title: String,
    /// The task, which is its call.
    pub task: String,
    /// The state of the task.
    pub task_state: super::State,
    /// When it was written.
    pub created: String,
    /// How often it was taken.
    pub deliveries: u32,
    /// What the model is told.
    pub text: String,
}

/// Notices that were taken.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct TaskNotices {
    /// In the order in which the agent is to be told them.
    pub items: Vec<Notice>,
}

/// What was said to a task, and what it said.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct TaskMessages {
    /// Oldest first.
    pub items: Vec<TaskMessage>,
}

/// Something that was said to a task, or that it said.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct TaskMessage {
    /// By which others reply to it.
    pub id: String,
    /// `in`: to the task; `out`: by the task.
    pub direction: String,
    /// What was said.
    pub text: String,
    /// To which message it replies, if to one.
    pub in_reply_to: Option<String>,
    /// When.
    pub at: String,
}

/// The answers of a batch, in the order of its calls.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Batch {
    /// The batch's key.
    pub key: String,
    /// One per submitted call.
    pub calls: Vec<Call>,
    /// What it asked of its calls together, and what came of it.
    pub decided: Option<Value>,
    /// How many answers were on record before this was asked; absent if none were.
    pub recorded: Option<u64>,
}

/// A call.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Call {
    /// The model's id of it.
    pub id: String,
    /// Our handle of it.
    pub call: String,
    /// The handle of the call inside which it runs.
    pub parent: Option<String>,
    /// The id of the task that it goes on as, if it is one; the same as `call`.
    pub task: Option<String>,
    /// The tool, as it was asked for.
    pub tool: String,
    /// Where it stands.
    pub state: super::State,
    /// How it ended: `{value, parts}`, `{failure}`, `{reason}`, `{effect}` or `{since}` by its state.
    pub outcome: Option<Value>,
    /// How often it was tried.
    pub attempts: u64,
    /// What the events that it told of have started; absent if that is nothing.
    pub triggered: Option<Vec<super::triggers::Triggered>>,
    /// How long it waited for its start.
    pub queued_ms: Option<u64>,
    /// How long it waited after that.
    pub waited_ms: Option<u64>,
    /// How long it ran.
    pub ran_ms: Option<u64>,
    /// What it waits for, if it does: a word for programs, the rest for people.
    pub waiting_for: Option<String>,
    /// What the model is told.
    pub model: Model,
    /// Opaque data of the model's provider, as it came.
    pub provider: Option<Value>,
    /// Its session.
    pub session: Option<String>,
    /// The key of its batch.
    pub batch: Option<String>,
    /// When it was asked for.
    pub opened_at: Option<String>,
    /// Its arguments, where one call is shown.
    pub args: Option<Value>,
    /// Its journal, where that was asked for.
    pub journal: Option<Vec<Value>>,
}

/// What the model is told.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Model {
    /// `{type: text, text}`, `{type: json, value}`, `{type: image, media_type, data}` or `{type: file, artifact, …}`.
    pub parts: Vec<Value>,
    /// Whether it is to be told as an error.
    pub is_error: Option<bool>,
}

/// A key-value pair of a session.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Pair {
    /// Its key.
    pub key: String,
    /// Its value.
    pub value: Value,
    /// Which writing of it this is: a later one has a larger number.
    pub generation: u64,
}

/// A pair in a list, without its value.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PairKey {
    /// Its key.
    pub key: String,
    /// Which writing of it this is.
    pub generation: u64,
}

/// Something in a folder of a session.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "File")]
pub struct FileShown {
    /// Its name there.
    pub name: String,
    /// `file`, `folder`, or `other`, which can only be deleted.
    pub kind: &'static str,
    /// How many bytes a file has.
    pub bytes: u64,
}

/// A file that was written.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct FileWritten {
    /// Its path in the session's folder.
    pub path: String,
    /// How many bytes it has now.
    pub bytes: u64,
}

/// A question that a call asks people.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[expect(missing_docs, reason = "each is named like the part of a question; docs/inside.md tells of them")]
pub struct Question {
    pub id: String,
    pub session: String,
    pub call: String,
    pub call_id: String,
    pub tool: String,
    pub question: String,
    pub schema: Option<Value>,
    pub since: String,
    pub until: Option<String>,
}
