//! Language models that tools may ask, through a client of the host.

use crate::api::output::ToolError;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::future::Future;
use std::pin::Pin;

/// A client of a language model, given to a runtime as [`Config::model`](crate::Config). Tools ask it with
/// [`Cx::complete`](crate::Cx::complete): each answer is recorded once, with its usage.
///
/// ```
/// use windlass::model::{CompletionFuture, LanguageModel, ModelMessage, ModelReply, ModelRequest, TokenUsage};
///
/// /// Repeats the last message.
/// struct Parrot;
///
/// impl LanguageModel for Parrot {
///     fn complete<'a>(&'a self, request: &'a ModelRequest, _key: &'a str) -> CompletionFuture<'a> {
///         Box::pin(async move {
///             let last = request.messages.last().map_or("", |message| &message.text);
///             let usage = TokenUsage { input: last.len() as u64, output: last.len() as u64 };
///             Ok(ModelReply { message: ModelMessage::assistant(last), usage })
///         })
///     }
/// }
/// ```
pub trait LanguageModel: Send + Sync + 'static {
    /// Asks the model. The future is dropped when the call is cancelled or its time is up. `key` is the same when the question
    /// is asked again after a crash: a client may send it to a service that deduplicates.
    fn complete<'a>(&'a self, request: &'a ModelRequest, key: &'a str) -> CompletionFuture<'a>;
}

/// An answer of a model that is on its way.
pub type CompletionFuture<'a> = Pin<Box<dyn Future<Output = Result<ModelReply, ToolError>> + Send + 'a>>;

/// A question to a language model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ModelRequest {
    /// The model, by the name that the host's client knows; `None`: its default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The conversation so far, oldest message first.
    pub messages: Vec<ModelMessage>,
    /// The tools that the model may ask for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<OfferedTool>,
    /// A JSON schema that the text of the answer must fit, if it must fit one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<Value>,
    /// The most tokens of the answer; `None`: the client decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_tokens_max: Option<u64>,
    /// How long the answer may take, in milliseconds; `None`: as long as the attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

/// A message of a conversation with a model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ModelMessage {
    /// Its author.
    pub role: ModelRole,
    /// The text.
    #[serde(default)]
    pub text: String,
    /// The calls that the model asks for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<WantedCall>,
    /// The id of the call whose result this is, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<String>,
    /// The message as its provider wrote it, if it has more in it than text and calls. Leave it in the conversation: some models
    /// refuse to go on without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<ProviderMessage>,
}

/// A message of a model in the form of its provider, with thinking blocks, signatures and whatever else the provider wants back.
/// Clients send it byte for byte, as long as the text and the calls beside it are those that it says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProviderMessage {
    /// The form, such as `anthropic`.
    pub form: String,
    /// The JSON text.
    pub json: String,
}

impl ModelMessage {
    /// A message of the user.
    pub fn user(text: impl Into<String>) -> ModelMessage {
        ModelMessage { text: text.into(), ..ModelMessage::default() }
    }

    /// A message of the model.
    pub fn assistant(text: impl Into<String>) -> ModelMessage {
        ModelMessage { role: ModelRole::Assistant, text: text.into(), ..ModelMessage::default() }
    }
}

/// The author of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ModelRole {
    /// The instructions for the model.
    System,
    /// The user of the model.
    #[default]
    User,
    /// The model.
    Assistant,
    /// The result of a call that the model asked for.
    Tool,
}

/// A call that a model asks for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WantedCall {
    /// The model's id of the call.
    pub id: String,
    /// The tool.
    pub tool: String,
    /// The arguments.
    pub args: Value,
}

/// A tool as it is shown to a model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OfferedTool {
    /// Its name.
    pub name: String,
    /// Its description.
    pub description: String,
    /// The JSON schema of its arguments.
    pub input_schema: Value,
}

/// The answer of a model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ModelReply {
    /// The message.
    pub message: ModelMessage,
    /// The tokens used.
    pub usage: TokenUsage,
}

/// The tokens that an answer of a model used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenUsage {
    /// Tokens of the question.
    pub input: u64,
    /// Tokens of the answer.
    pub output: u64,
}
