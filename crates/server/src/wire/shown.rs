//! The wire format of answers. The runtime renders calls; these types describe them for OpenAPI, and tests
//! keep the two in step.

use crate::access::TokenScope;
use crate::view::ShownCall;
use crate::wire::SessionBounds;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use windlass::sessions::SessionOverlay;
use windlass::tasks::{Notice, Task, TaskMessage};

/// A page of a list.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[schemars(rename = "PageOf{T}")]
pub struct PageView<T> {
    /// The items.
    pub items: Vec<T>,
    /// The value of `after` for the next page; `null` on the last.
    pub next: Option<String>,
}

/// The health of the server.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[schemars(rename = "Health")]
pub struct HealthView {
    /// `ok`.
    pub status: String,
}

/// An uploaded artifact.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[schemars(rename = "UploadedArtifact")]
pub struct ArtifactUploaded {
    /// The id of the artifact, for the parts of an answer.
    pub artifact: String,
    /// How many bytes it has.
    pub bytes: u64,
    /// Its media type, as the header `content-type` said.
    pub media_type: String,
}

/// A session.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[schemars(rename = "Session")]
pub struct SessionView {
    /// Its name.
    pub id: String,
    /// The principal it belongs to; absent if it has none, which only admins see.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub principal: Option<String>,
    /// A title for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Labels for programs.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// The locale of sentences for people in its events, if one is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub locale: Option<String>,
    /// Limits of its own, tighter than the general ones.
    #[serde(default, skip_serializing_if = "SessionBounds::is_none")]
    pub limits: SessionBounds,
    /// Its parent session, if it is a child.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// The call that opened it as a child, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opener: Option<String>,
    /// For a child: the tools it has of its parent's; absent if it has all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// Tools that it hides, and tools that its callers run.
    #[serde(default, skip_serializing_if = "SessionOverlay::is_empty")]
    pub overlay: SessionOverlay,
    /// The folder of its files, if it was opened with one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
    /// For a child: whether it takes no new calls, because the call that opened it has ended; absent if not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub closed: bool,
    /// When it was first used, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_at: Option<String>,
    /// When its newest batch was submitted; absent before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_at: Option<String>,
    /// How many entries its journal has.
    pub entries: u64,
    /// The number of its recorded batches with an open call.
    pub open_batches: u64,
}

/// A token, without its secret.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[schemars(rename = "Token")]
pub struct TokenView {
    /// Its id, by which it is revoked.
    pub id: String,
    /// The principal it stands for.
    pub principal: String,
    /// Its permissions.
    pub scopes: Vec<TokenScope>,
    /// A note for people on its purpose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// When it was created.
    pub created_at: String,
    /// When it expires, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// Requests per minute, if it has a rate of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests_per_minute: Option<u32>,
    /// The principals whose calls it may approve, beside its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approves: Vec<String>,
    /// Whether it is the login of a browser.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub page: bool,
}

/// A new token.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[schemars(rename = "NewToken")]
pub struct NewTokenView {
    /// The secret. It is returned only here.
    pub token: String,
    /// The rest of the token.
    #[serde(flatten)]
    pub shown: TokenView,
}

/// A token was revoked.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, JsonSchema)]
pub struct Revoked {
    /// Always true: the token is no longer valid.
    pub revoked: bool,
}

/// A tool.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "Tool")]
pub struct ToolView {
    /// Its name.
    pub name: String,
    /// Its title.
    pub title: String,
    /// Its purpose.
    pub description: String,
    /// Whether its calls wait because an operator paused it.
    pub paused: bool,
    /// The rest, once its provider has loaded it.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub contract: Option<Contract>,
}

/// The declaration of a tool.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[expect(
    missing_docs,
    reason = "each is named like the part of a tool; docs/declared-tools.md tells of them"
)]
pub struct Contract {
    pub id: String,
    pub source: String,
    pub category: String,
    pub tags: Vec<String>,
    pub class: String,
    pub hints: Map<String, Value>,
    pub flags: Vec<String>,
    /// Reads and writes of a call, as the tool declares them. `null`: calls of class `read` read the whole session, all others write
    /// it and so run alone.
    pub claims: Option<Vec<String>>,
    /// Whether a person is asked before a call runs: `never`, `ask`, or `by_args`. The policy may ask or deny beyond that.
    pub approval: String,
    pub version: String,
    pub input_schema: Option<Value>,
    pub output_schema: Option<Value>,
    pub contract: String,
    pub display: String,
}

/// A task, and its call.
#[derive(Serialize, JsonSchema)]
pub struct WholeTask {
    #[serde(flatten)]
    #[expect(missing_docs, reason = "it is the task")]
    pub task: Task,
    /// Its call; a monitor has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call: Option<ShownCall>,
}

/// Notices that were taken.
#[derive(Serialize, JsonSchema)]
pub struct TaskNotices {
    /// In the order of delivery to the agent.
    pub items: Vec<Notice>,
    /// With `?wire=`: the messages to append to the conversation, in the same order.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<Map<String, Value>>>")]
    pub messages: Option<Vec<Box<RawValue>>>,
}

/// The messages to and from a task.
#[derive(Serialize, JsonSchema)]
pub struct TaskMessages {
    /// Oldest first.
    pub items: Vec<TaskMessage>,
    /// The cursor of the next page; absent if there is no more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A key-value pair of a session.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "Pair")]
pub struct PairView {
    /// Its key.
    pub key: String,
    /// Its value.
    pub value: Value,
    /// Its generation: larger after each write.
    pub generation: u64,
}

/// A pair in a list, without its value.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "PairKey")]
pub struct PairKeyView {
    /// Its key.
    pub key: String,
    /// Its generation.
    pub generation: u64,
}

/// An entry of a folder of a session.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "File")]
pub struct FileShown {
    /// Its name in the folder.
    pub name: String,
    /// `file`, `folder`, or `other`, which can only be deleted.
    pub kind: &'static str,
    /// The size of a file.
    pub bytes: u64,
}

/// A file after a write.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct FileWritten {
    /// Its path in the session's folder.
    pub path: String,
    /// Its new size; 0 for a folder.
    pub bytes: u64,
    /// Whether it did not exist before.
    pub created: bool,
    /// The hash of its content; absent for a folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hash: Option<String>,
}

/// The facts about a path of a session.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "FileStat")]
pub struct FileStatShown {
    /// Its path in the session's folder.
    pub path: String,
    /// `false`: there is nothing, and the other facts are absent.
    pub exists: bool,
    /// `file`, `folder`, or `other`, which can only be deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<&'static str>,
    /// The size of a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// The hash of a file's content, unless it is larger than `file_hashed_bytes_max`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hash: Option<String>,
}
