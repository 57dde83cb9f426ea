//! A model's turn over HTTP: a provider's response in, the messages to append out.

use super::{AnswerWait, StateFilter};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use windlass_wire::Wire;

/// The protocol of a model provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "Wire")]
pub enum WireName {
    /// OpenAI Chat Completions, and the many servers that speak it.
    OpenaiChat,
    /// OpenAI Responses.
    OpenaiResponses,
    /// Anthropic Messages.
    Anthropic,
    /// Gemini `generateContent`.
    Gemini,
}

impl From<WireName> for Wire {
    fn from(name: WireName) -> Wire {
        match name {
            WireName::OpenaiChat => Wire::OpenaiChat,
            WireName::OpenaiResponses => Wire::OpenaiResponses,
            WireName::Anthropic => Wire::Anthropic,
            WireName::Gemini => Wire::Gemini,
        }
    }
}

/// How to read the body of a submitted batch.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BatchQuery {
    /// The body is a response of this provider, whole or only its message; as `text/event-stream` it is the streamed
    /// response, and each tool starts as soon as its call is complete. The answer has the messages to append.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wire: Option<WireName>,
    /// With `wire`: the turn of the conversation; part of the batch's key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turn: Option<String>,
    /// With `wire`: the batch's key; by default made of the wire, the response's id and the turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// With `wire`: how long the answer waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait: Option<AnswerWait>,
    /// With `wire`: the maximum wait for the answer, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

/// How to show what is meant for a model.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WireQuery {
    /// The provider whose messages the answer has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wire: Option<WireName>,
}

/// Which tools to list, and how.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ToolQuery {
    /// At most this many; 50 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// Start after this item: `next` of the previous page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// Show what the model should see now, as this provider's `tools`. Where there are many tools, most are found by
    /// `search_tools`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wire: Option<WireName>,
    /// With `wire`: a list that does not change when tools are revealed; they are called through `call_tool`.
    #[serde(default)]
    pub fixed: bool,
}

/// A page of tools, or with `?wire=` the provider's `tools`.
#[derive(JsonSchema)]
#[serde(untagged)]
#[schemars(rename = "ToolsOfSession")]
pub enum ToolsOfSession {
    /// The tools, by name.
    Page(super::shown::PageView<super::shown::ToolView>),
    /// With `?wire=`: the value of the provider's `tools` field.
    Wire(WireTools),
}

/// The tools that the model should see.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct WireTools {
    /// The value of the request's `tools` field.
    #[schemars(with = "Vec<Map<String, Value>>")]
    pub tools: Value,
}

/// A batch, or with `?wire=` a provider's response as it is.
#[derive(JsonSchema)]
#[serde(untagged)]
#[schemars(rename = "BatchOrResponse")]
pub enum BatchOrResponse {
    /// The calls of one model turn.
    Batch(super::BatchBody),
    /// With `?wire=`: the provider's response, or its message.
    Response(Map<String, Value>),
}

/// The answers of a batch, or with `?wire=` the messages to append.
#[derive(JsonSchema)]
#[serde(untagged)]
#[schemars(rename = "BatchOrTurn")]
pub enum BatchOrTurn {
    /// The answers of the batch.
    Batch(crate::view::ShownBatch),
    /// With `?wire=`: the messages to append.
    Turn(TurnAnswer),
}

/// The answer to a model's turn.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[schemars(rename = "Turn")]
pub struct TurnAnswer {
    /// The messages to append to the conversation, in order: the assistant's own as they came, then the results.
    #[schemars(with = "Vec<Map<String, Value>>")]
    pub messages: Vec<Box<RawValue>>,
    /// Whether the model asks for nothing more.
    pub over: bool,
    /// The key of the batch; absent if the model asks for no call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The calls, in order.
    pub calls: Vec<TurnCall>,
}

/// A call of a model's turn.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
pub struct TurnCall {
    /// The id of the call in its batch: the provider's, or `name#n` where the provider gives none.
    pub id: String,
    /// The handle of the call.
    pub call: String,
    /// The tool.
    pub tool: String,
    /// The state of the call.
    #[schemars(with = "windlass::batch::CallState")]
    pub state: String,
    /// The code of its failure, if it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// The task, if the call continues as one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
}

impl TurnCall {
    /// Whether the call has ended.
    pub fn is_over(&self) -> bool {
        StateFilter::parse(&self.state).is_some_and(|state| !state.is_open())
    }
}
