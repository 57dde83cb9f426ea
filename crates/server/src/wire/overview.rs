//! Answers about the whole server: the overview, batches, spans, and the check of a call.

use crate::access::TokenScope;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use windlass::inspect::TimeSpan;
use windlass::policy::PolicyQuestion;

/// The state of the server, as far as the caller may see it.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Overview {
    /// The version of the server.
    pub version: String,
    /// The durability of what it acknowledges: `none`, `process` or `power`.
    pub durability: String,
    /// Its data folder, if it has one; shown to admins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<String>,
    /// The id of the worker that answers, if it is one of several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
    /// The time of the server, by which the ages of things are counted.
    pub now: String,
    /// Whether it is stopping.
    pub draining: bool,
    /// The caller's principal.
    pub principal: String,
    /// The caller's scopes.
    pub scopes: Vec<TokenScope>,
    /// The open calls of the caller's sessions, by state.
    pub open: BTreeMap<String, u64>,
    /// The number of things that wait for a person and that the caller may see.
    pub waiting: u64,
    /// The latest batches of the caller's sessions, newest first.
    pub latest: Vec<BatchSummary>,
    /// Why something is missing; absent if nothing is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_out: Option<String>,
}

/// A batch in a list.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct BatchSummary {
    /// The session's name.
    pub session: String,
    /// The batch's key.
    pub key: String,
    /// The turn of the conversation, if the caller gave one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turn: Option<String>,
    /// When its first call was asked for.
    pub opened_at: String,
    /// The number of its calls, by state.
    pub states: BTreeMap<String, u64>,
    /// The tools of its calls, each once, the first few.
    pub tools: Vec<String>,
}

/// The page of a session's batches.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BatchesQuery {
    /// At most this many; 50 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// After the batch at which the page before ended, as `next` gave it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

/// A part of a call's time, in microseconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "Span")]
pub struct SpanView {
    /// `queue`, `attempt`, `retry`, `wait`, or `inside` for the calls that it made.
    pub kind: &'static str,
    /// Its begin.
    pub from_us: i64,
    /// Its end; absent while it lasts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to_us: Option<i64>,
    /// The number of the attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// How the attempt ended: `ok`, `failed`, `stopped`, `lost`, `aborted`, `suspended`, `unconnected` or `withheld`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end: Option<&'static str>,
    /// The reason of a wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<&'static str>,
    /// The name under which the calls were made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

impl From<&TimeSpan> for SpanView {
    fn from(span: &TimeSpan) -> SpanView {
        SpanView {
            kind: span.kind.as_str(),
            from_us: span.from.0,
            to_us: span.to.map(|to| to.0),
            attempt: span.attempt.map(|attempt| attempt.0),
            end: span.end.map(|end| end.as_str()),
            why: span.why.map(|why| why.as_str()),
            name: span.name.clone(),
        }
    }
}

/// A call to be checked without being made.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "CallCheckRequest")]
pub struct CallCheckBody {
    /// The arguments; `{}` by default.
    #[serde(default = "nothing")]
    pub args: Value,
    /// The session whose tools and labels count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
}

impl CallCheckBody {
    /// The question to the runtime, for a caller of this principal.
    pub fn question(self, tool: String, principal: &str) -> PolicyQuestion {
        let CallCheckBody { args, session } = self;
        PolicyQuestion { tool, args, session, principal: Some(principal.to_string()), ..Default::default() }
    }
}

fn nothing() -> Value {
    json!({})
}
