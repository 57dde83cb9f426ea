//! What goes over the wire: queries and bodies as they are written. Unknown fields are refused, so that a misspelt one
//! is told and not ignored.

pub mod batch;
pub mod schedules;
pub mod shown;
pub mod triggers;

pub use batch::{Batch, Close, Push, Wait};

use crate::access::Scope;
use crate::problem::Problem;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use windlass::SessionLimits;
use windlass::core::narration::Locale;

/// A page of a list holds so many, if the query does not say.
pub const LIMIT: u64 = 50;
/// A page of a list holds at most so many: calls with their answers are large.
pub const LIMIT_MAX: u64 = 200;
/// A reason is kept in the journal of each call it reaches.
pub const REASON_CHARS_MAX: usize = 1_000;

/// Which calls are to be listed.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct List {
    /// In this state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<State>,
    /// That wait for something, or that do not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting: Option<bool>,
    /// Of this tool, as it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// At most so many, [`LIMIT`] if not said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// Those that come after this call: `next` of the page before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

/// A state by which calls are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "each is named like the state")]
pub enum State {
    Queued,
    Running,
    Retrying,
    AwaitingCompletion,
    AwaitingInput,
    AwaitingConnection,
    AwaitingClient,
    Succeeded,
    Failed,
    Denied,
    Cancelled,
    Unknown,
    /// Any in which it is not over.
    Open,
}

impl State {
    /// Every one there is.
    pub const ALL: [State; 13] = [
        State::Queued,
        State::Running,
        State::Retrying,
        State::AwaitingCompletion,
        State::AwaitingInput,
        State::AwaitingConnection,
        State::AwaitingClient,
        State::Succeeded,
        State::Failed,
        State::Denied,
        State::Cancelled,
        State::Unknown,
        State::Open,
    ];

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            State::Queued => "queued",
            State::Running => "running",
            State::Retrying => "retrying",
            State::AwaitingCompletion => "awaiting_completion",
            State::AwaitingInput => "awaiting_input",
            State::AwaitingConnection => "awaiting_connection",
            State::AwaitingClient => "awaiting_client",
            State::Succeeded => "succeeded",
            State::Failed => "failed",
            State::Denied => "denied",
            State::Cancelled => "cancelled",
            State::Unknown => "unknown",
            State::Open => "open",
        }
    }

    /// Reads what [`as_str`](Self::as_str) wrote.
    pub fn parse(text: &str) -> Option<State> {
        State::ALL.into_iter().find(|state| state.as_str() == text)
    }

    /// Whether calls in it are not over.
    pub fn is_open(self) -> bool {
        match self {
            State::Queued
            | State::Running
            | State::Retrying
            | State::AwaitingCompletion
            | State::AwaitingInput
            | State::AwaitingConnection
            | State::AwaitingClient
            | State::Open => true,
            State::Succeeded | State::Failed | State::Denied | State::Cancelled | State::Unknown => false,
        }
    }
}

/// How one call is to be shown.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Show {
    /// With its journal.
    #[serde(default)]
    pub journal: bool,
}

/// Something to say to a task.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Say {
    /// What.
    pub text: String,
    /// The id of the message that this answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_reply_to: Option<String>,
    /// What makes it one message, however often it is sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// It was said to the task, which may not have heard it yet.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, JsonSchema)]
pub struct SaidTo {
    /// Always true.
    pub said: bool,
}

/// A request to cancel.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "CancelRequest")]
pub struct Cancel {
    /// Why, for whoever reads the journal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// What became of a request to cancel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub struct Cancelled {
    /// So many open calls were asked to stop.
    pub asked: u64,
    /// So many were over already; nothing changed for them.
    pub over: u64,
}

/// What is known of a call that ended as unknown: exactly one of the fields.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ResolveRequest")]
pub struct Resolve {
    /// It took effect, and this is its result; `null` is one.
    #[serde(default, deserialize_with = "even_null", skip_serializing_if = "Option::is_none")]
    pub landed: Option<Value>,
    /// It did not.
    #[serde(default, skip_serializing_if = "is_false")]
    pub did_not_happen: bool,
    /// Its tool is to be asked.
    #[serde(default, skip_serializing_if = "is_false")]
    pub ask_tool: bool,
}

/// What the world outside answers: exactly one of the fields.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "CompletionRequest")]
pub struct Complete {
    /// It is done, with this value; `null` is one.
    #[serde(default, deserialize_with = "even_null", skip_serializing_if = "Option::is_none")]
    pub ok: Option<Value>,
    /// It went wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<CompleteError>,
    /// It was called off.
    #[serde(default, skip_serializing_if = "is_false")]
    pub cancelled: bool,
}

/// What went wrong outside.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "CompletionError")]
pub struct CompleteError {
    /// A code of the other side's.
    pub code: String,
    /// Written for the model.
    pub message: String,
}

impl Complete {
    /// The answer that is meant.
    pub fn said(self) -> Result<windlass::Completed, Problem> {
        match (self.ok, self.error, self.cancelled) {
            (Some(value), None, false) => Ok(windlass::Completed::Ok(value)),
            (None, Some(CompleteError { code, message }), false) => {
                Ok(windlass::Completed::Error { code, message })
            }
            (None, None, true) => Ok(windlass::Completed::Cancelled),
            _ => {
                let told = "say exactly one of {\"ok\": value}, {\"error\": {\"code\", \"message\"}}, {\"cancelled\": true}";
                Err(Problem::new("bad_body", told))
            }
        }
    }
}

/// An answer was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub struct Completed {
    /// Always: it is durable.
    pub completed: bool,
}

/// Which questions are to be listed.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Questions {
    /// Of this session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// At most so many, [`LIMIT`] if not said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// Those that come after this question: `next` of the page before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

/// The answer to a question.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "AnswerRequest")]
pub struct Answer {
    /// Any JSON that fits what is asked.
    pub answer: Value,
}

/// A signal for a call.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Signal {
    /// Its name, as the call's tool declares it.
    pub name: String,
    /// Any JSON that fits what is declared.
    pub payload: Value,
    /// What makes it one signal, however often it is sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// A signal was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub struct Signalled {
    /// Always: it is durable.
    pub signalled: bool,
}

/// Whether a session is connected to something.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ConnectionRequest")]
pub struct Connect {
    /// It is; `false` if somebody declined to connect it.
    pub connected: bool,
}

/// Whom that reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub struct Connecting {
    /// So many calls waited for it.
    pub waiting: u64,
}

/// Which of a list are asked for.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Paging {
    /// At most so many, [`LIMIT`] if not said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// Those that come after this one: `next` of the page before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

/// How many notices are taken, and for how long.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Take {
    /// At most so many, [`LIMIT`] if not said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// For how long nobody else gets them, in milliseconds; a minute if not said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_ms: Option<u64>,
}

/// A notice was acknowledged.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, JsonSchema)]
pub struct Acknowledged {
    /// Always: it is gone.
    pub acknowledged: bool,
}

/// A notice was put back.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, JsonSchema)]
pub struct Requeued {
    /// Always: whoever takes next gets it.
    pub requeued: bool,
}

/// Which key-value pairs are to be listed.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Pairs {
    /// How their keys begin.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// At most so many, [`LIMIT`] if not said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// Those that come after this key: `next` of the page before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

/// A key-value pair that is to be written.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "PairRequest")]
pub struct NewPair {
    /// Any JSON.
    pub value: Value,
    /// The generation that it must have now; 0 if it must not be there. Without this it is written whatever it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generation: Option<u64>,
}

/// Which files are to be listed.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Files {
    /// The folder they lie in; the session's own if not said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
    /// At most so many, [`LIMIT`] if not said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// Those that come after this name: `next` of the page before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

/// Something is there no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub struct Deleted {
    /// Always.
    pub deleted: bool,
}

/// A session that is opened before its first use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "SessionRequest")]
pub struct NewSession {
    /// Its name: 1 to 64 of `[a-zA-Z0-9_.-]`; made if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// What people call it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// What programs want to know it by.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The language of the sentences for people in its events, unless whoever follows it says otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub locale: Option<Language>,
    /// What bounds it more tightly than every session is bounded.
    #[serde(default, skip_serializing_if = "SessionBounds::is_none")]
    pub limits: SessionBounds,
    /// The session whose child it is: it has at most the tools of that, and goes with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// Of a child: the tools that it has of its parent's, by name. Absent: all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
}

/// A language in which people are told what happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Language {
    /// English.
    En,
    /// German.
    De,
}

impl From<Language> for Locale {
    fn from(language: Language) -> Locale {
        match language {
            Language::En => Locale::English,
            Language::De => Locale::German,
        }
    }
}

/// What bounds a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "SessionLimits")]
pub struct SessionBounds {
    /// Calls of it that run at once: 1 to `session_calls_running_max`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calls_running_max: Option<u64>,
}

impl SessionBounds {
    /// Whether nothing does.
    pub fn is_none(&self) -> bool {
        *self == SessionBounds::default()
    }
}

impl From<SessionBounds> for SessionLimits {
    fn from(bounds: SessionBounds) -> SessionLimits {
        SessionLimits { calls_running_max: bounds.calls_running_max }
    }
}

impl From<SessionLimits> for SessionBounds {
    fn from(limits: SessionLimits) -> SessionBounds {
        SessionBounds { calls_running_max: limits.calls_running_max }
    }
}

/// A token that is wanted.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "TokenRequest")]
pub struct NewToken {
    /// Whom it stands for: 1 to 64 of `[a-zA-Z0-9_.-]`.
    pub principal: String,
    /// What it may be used for.
    pub scopes: Vec<Scope>,
    /// What it is for, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// For how long it is good, in seconds; without this until it is revoked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_in_s: Option<u64>,
    /// Requests in a minute; `token_requests_per_minute` if not said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests_per_minute: Option<u32>,
}

/// A body that says nothing.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Nothing {}

/// A field that is there with `null` is there.
fn even_null<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

fn is_false(flag: &bool) -> bool {
    !flag
}
