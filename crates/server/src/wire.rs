//! The wire format: queries and bodies. Unknown fields are refused, so that a misspelt one is reported and
//! not ignored.

pub mod approvals;
pub mod background;
pub mod batch;
pub mod grants;
pub mod logins;
pub mod overview;
pub mod parts;
pub mod policy;
pub mod schedules;
pub mod sessions;
pub mod shown;
pub mod toolboxes;
pub mod triggers;
pub mod turns;
pub mod webhooks;

pub use batch::{AnswerWait, BatchBody, Close, Push};
pub use parts::PartBody;
pub use sessions::{NewSession, SessionBounds};

use crate::access::TokenScope;
use crate::problem::{Problem, ProblemCode};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use windlass::Output;
use windlass::tool::{ErrorExtras, RawOutput};
use windlass::wait::Completed;

/// The default page size of a list.
pub const LIMIT: u64 = 50;
/// The maximum page size of a list: calls with their answers are large.
pub const LIMIT_MAX: u64 = 200;

/// The belonging of an uploaded artifact.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UploadQuery {
    /// The handle of the open call whose answer will name it: the artifact stays at least as long as the call is open.
    /// Without one it stays for an hour, unless an answer names it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call: Option<String>,
}

/// Which calls to list.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "List")]
pub struct CallQuery {
    /// Only calls in this state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<StateFilter>,
    /// Only calls that wait, or only calls that do not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting: Option<bool>,
    /// Only calls of this tool, as requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// Only calls of this turn of the conversation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turn: Option<String>,
    /// At most this many; 50 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// Start after this call: `next` of the previous page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

/// A state to filter calls by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "each is named like the state")]
#[schemars(rename = "State")]
pub enum StateFilter {
    Queued,
    Running,
    Retrying,
    AwaitingApproval,
    AwaitingCompletion,
    AwaitingInput,
    AwaitingConnection,
    AwaitingClient,
    Succeeded,
    Failed,
    Denied,
    Cancelled,
    Unknown,
    /// Every state that is not final.
    Open,
}

impl StateFilter {
    /// All states.
    pub const ALL: [StateFilter; 14] = [
        StateFilter::Queued,
        StateFilter::Running,
        StateFilter::Retrying,
        StateFilter::AwaitingApproval,
        StateFilter::AwaitingCompletion,
        StateFilter::AwaitingInput,
        StateFilter::AwaitingConnection,
        StateFilter::AwaitingClient,
        StateFilter::Succeeded,
        StateFilter::Failed,
        StateFilter::Denied,
        StateFilter::Cancelled,
        StateFilter::Unknown,
        StateFilter::Open,
    ];

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            StateFilter::Queued => "queued",
            StateFilter::Running => "running",
            StateFilter::Retrying => "retrying",
            StateFilter::AwaitingApproval => "awaiting_approval",
            StateFilter::AwaitingCompletion => "awaiting_completion",
            StateFilter::AwaitingInput => "awaiting_input",
            StateFilter::AwaitingConnection => "awaiting_connection",
            StateFilter::AwaitingClient => "awaiting_client",
            StateFilter::Succeeded => "succeeded",
            StateFilter::Failed => "failed",
            StateFilter::Denied => "denied",
            StateFilter::Cancelled => "cancelled",
            StateFilter::Unknown => "unknown",
            StateFilter::Open => "open",
        }
    }

    /// Parses the output of [`as_str`](Self::as_str).
    pub fn parse(text: &str) -> Option<StateFilter> {
        StateFilter::ALL.into_iter().find(|state| state.as_str() == text)
    }

    /// Whether it is not final.
    pub fn is_open(self) -> bool {
        match self {
            StateFilter::Queued
            | StateFilter::Running
            | StateFilter::Retrying
            | StateFilter::AwaitingApproval
            | StateFilter::AwaitingCompletion
            | StateFilter::AwaitingInput
            | StateFilter::AwaitingConnection
            | StateFilter::AwaitingClient
            | StateFilter::Open => true,
            StateFilter::Succeeded
            | StateFilter::Failed
            | StateFilter::Denied
            | StateFilter::Cancelled
            | StateFilter::Unknown => false,
        }
    }
}

/// How to show one call.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Show {
    /// Include its journal.
    #[serde(default)]
    pub journal: bool,
    /// Include its spans: where its time went. And the calls that it made, each with its spans.
    #[serde(default)]
    pub spans: bool,
}

/// How to show one batch.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ShowBatch {
    /// Include the spans of each call: where its time went. And the calls that it made, each with its spans.
    #[serde(default)]
    pub spans: bool,
}

/// A message to a task.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Say")]
pub struct SayBody {
    /// The message.
    pub text: String,
    /// The id of the message this one replies to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_reply_to: Option<String>,
    /// Idempotency key: the same message sent again under it counts once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// The message was recorded; the task may not have received it yet.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, JsonSchema)]
pub struct SaidTo {
    /// Always true.
    pub said: bool,
}

/// A request to cancel.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "CancelRequest")]
pub struct CancelBody {
    /// The reason, recorded in the journal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A request to cancel a batch, or one call of it.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "BatchCancelRequest")]
pub struct BatchCancelBody {
    /// The reason, recorded in the journal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Only the call with this id of the model's; by default all calls of the batch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
}

/// The result of a request to cancel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub struct Cancelled {
    /// The number of open calls asked to stop.
    pub asked: u64,
    /// The number of calls already over; nothing changed for them.
    pub over: u64,
}

/// The outcome of a call that ended as unknown: exactly one of the fields.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ResolveRequest")]
pub struct ResolveBody {
    /// It took effect, with this result; `null` is one.
    #[serde(default, deserialize_with = "even_null", skip_serializing_if = "Option::is_none")]
    pub landed: Option<Value>,
    /// It did not take effect.
    #[serde(default, skip_serializing_if = "is_false")]
    pub did_not_happen: bool,
    /// Ask its tool.
    #[serde(default, skip_serializing_if = "is_false")]
    pub ask_tool: bool,
}

/// An external answer: exactly one of the fields.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "CompletionRequest")]
pub struct CompletionBody {
    /// It succeeded, with this value; `null` is one.
    #[serde(default, deserialize_with = "even_null", skip_serializing_if = "Option::is_none")]
    pub ok: Option<Value>,
    /// Parts for the model behind the value of `ok`, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<PartBody>,
    /// With `ok`: the raw output from which the value was made; kept beside the call, never shown to the model.
    #[serde(default, deserialize_with = "even_null", skip_serializing_if = "Option::is_none")]
    pub raw: Option<Value>,
    /// With `ok`: a word to the host; recorded and shown, never acted on.
    #[serde(default, deserialize_with = "even_null", skip_serializing_if = "Option::is_none")]
    pub control: Option<Value>,
    /// It failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<CompleteError>,
    /// It was cancelled.
    #[serde(default, skip_serializing_if = "is_false")]
    pub cancelled: bool,
    /// It took too long: the call ends as if its deadline had passed.
    #[serde(default, skip_serializing_if = "is_false")]
    pub timeout: bool,
}

/// An external failure.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "CompletionError")]
pub struct CompleteError {
    /// The error code of the external system.
    pub code: String,
    /// Written for the model.
    pub message: String,
    /// Parts for the model behind the message, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<PartBody>,
    /// The raw value, such as the response of the external system.
    #[serde(default, deserialize_with = "even_null", skip_serializing_if = "Option::is_none")]
    pub raw: Option<Value>,
    /// A word to the host; recorded and shown, never acted on.
    #[serde(default, deserialize_with = "even_null", skip_serializing_if = "Option::is_none")]
    pub control: Option<Value>,
}

impl CompleteError {
    fn said(self) -> Result<Completed, Problem> {
        let CompleteError { code, message, parts, raw, control } = self;
        let extras = ErrorExtras { parts: parts::read(parts)?, raw, control };
        let extras = (extras != ErrorExtras::default()).then(|| Box::new(extras));
        Ok(Completed::Error { code, message, extras })
    }
}

impl CompletionBody {
    /// Converts the body to the runtime's completion.
    pub fn said(self) -> Result<Completed, Problem> {
        let bad = |told: &str| Err(Problem::new(ProblemCode::BadBody, told));
        let has_more = !self.parts.is_empty() || self.raw.is_some() || self.control.is_some();
        if has_more && self.ok.is_none() {
            return bad("`parts`, `raw` and `control` belong to `ok`; those of an error are inside `error`");
        }
        match (self.ok, self.error, self.cancelled, self.timeout) {
            (Some(value), None, false, false) => {
                let raw = self.raw.map(|raw| RawOutput::text(raw.to_string(), "application/json"));
                let (raw, control) = (raw.map(Box::new), self.control.map(Box::new));
                let parts = parts::read(self.parts)?;
                Ok(Completed::ok(Output { value, parts, raw, control, ..Output::default() }))
            }
            (None, Some(error), false, false) => error.said(),
            (None, None, true, false) => Ok(Completed::Cancelled),
            (None, None, false, true) => Ok(Completed::TimedOut),
            _ => bad(
                "give exactly one of {\"ok\": value}, {\"error\": {\"code\", \"message\"}}, {\"cancelled\": true}, \
                 {\"timeout\": true}",
            ),
        }
    }
}

/// The answer was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[schemars(rename = "Completed")]
pub struct CompletionReceipt {
    /// Always true: it is durable.
    pub completed: bool,
}

/// Which questions to list.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Questions")]
pub struct QuestionQuery {
    /// Only questions of this session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// At most this many; 50 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// Start after this question: `next` of the previous page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

/// The answer to a question.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "AnswerRequest")]
pub struct AnswerBody {
    /// Any JSON that matches the question's schema.
    pub answer: Value,
}

/// A signal for a call.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Signal")]
pub struct SignalBody {
    /// Its name, as the call's tool declares it.
    pub name: String,
    /// Any JSON that matches the declared schema.
    pub payload: Value,
    /// Idempotency key: the same signal sent again under it counts once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// The signal was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[schemars(rename = "Signalled")]
pub struct SignalReceipt {
    /// Always true: it is durable.
    pub signalled: bool,
}

/// Whether a session is connected to a provider.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ConnectionRequest")]
pub struct Connect {
    /// Whether it is connected; `false` if the connection was declined.
    pub connected: bool,
}

/// The calls that a connection affects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[schemars(rename = "Connecting")]
pub struct ConnectionReach {
    /// The number of calls that waited for it.
    pub waiting: u64,
}

/// The page of a list to return.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Paging {
    /// At most this many; 50 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// Start after this item: `next` of the previous page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

/// The tools that the MCP door lists for a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum McpList {
    /// All of the session.
    All,
    /// `search_tools` and `call_tool`, by which all others are found and called.
    Search,
}

/// How an MCP client uses the door.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct McpQuery {
    /// The tools that are listed; what the configuration says by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub list: Option<McpList>,
}

/// How many notices to take, and for how long.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Take {
    /// At most this many; 50 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// How long the notices stay reserved, in milliseconds; one minute by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_ms: Option<u64>,
    /// How long to wait for a notice if there is none, in milliseconds, at most 60,000; not at all by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u64>,
}

/// A notice was acknowledged.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, JsonSchema)]
pub struct Acknowledged {
    /// Always true: the notice is delivered no more.
    pub acknowledged: bool,
}

/// A notice was returned to the inbox.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, JsonSchema)]
pub struct Requeued {
    /// Always true: the next reader gets it.
    pub requeued: bool,
}

/// Which key-value pairs to list.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Pairs")]
pub struct PairQuery {
    /// Only keys with this prefix.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// At most this many; 50 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// Start after this key: `next` of the previous page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

/// A key-value pair to write.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "PairRequest")]
pub struct NewPair {
    /// Any JSON.
    pub value: Value,
    /// The generation that the pair must have now; 0 if it must not exist. Without it the pair is written unconditionally.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generation: Option<u64>,
}

/// Which files to list.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Files {
    /// The folder; by default the session's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
    /// At most this many; 50 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// Start after this name: `next` of the previous page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

/// How to write a file.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FileWrite {
    /// The hash of the content that is to be replaced, or `absent` if the file must not exist; by default it is written unconditionally.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected_hash: Option<String>,
    /// Whether to create a folder instead; the body is empty.
    #[serde(default)]
    pub folder: bool,
}

/// How to delete a file.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FileDelete {
    /// The hash of the content without which the file is not deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected_hash: Option<String>,
    /// Whether a folder is deleted with everything in it.
    #[serde(default)]
    pub recursive: bool,
}

/// A secret to store.
#[derive(Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "SecretRequest")]
pub struct NewSecret {
    /// Its value: at least 8 characters. It is never given back.
    pub value: String,
}

/// The object does not exist any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub struct Deleted {
    /// Always true.
    pub deleted: bool,
}

/// A token to create.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "TokenRequest")]
pub struct NewToken {
    /// The principal it stands for: 1 to 64 of `[a-zA-Z0-9_.-]`.
    pub principal: String,
    /// Its permissions.
    pub scopes: Vec<TokenScope>,
    /// A note for people on its purpose.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Its lifetime in seconds; by default until it is revoked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_in_s: Option<u64>,
    /// Requests per minute; `token_requests_per_minute` by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests_per_minute: Option<u32>,
    /// With the scope `approve`: the principals whose calls it may approve, beside its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approves: Vec<String>,
}

/// An empty body.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Nothing {}

/// A field with the value `null` counts as present.
fn even_null<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

fn is_false(flag: &bool) -> bool {
    !flag
}
