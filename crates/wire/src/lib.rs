//! The shapes in which model providers ask for tool calls and take their results: OpenAI Chat Completions, OpenAI
//! Responses, Anthropic Messages and Gemini. No IO.
//!
//! An agent loop needs three things of a provider: a list of tools ([`Wire::tools`]), the calls of a response
//! ([`Wire::read`], or [`StreamReader`] while the response still arrives), and the messages to append to the
//! conversation ([`ModelTurn::messages`]). Notices of calls that ended later become messages too ([`Wire::notice`]).
//!
//! ```
//! use windlass_wire::{CallResult, Wire};
//! # use windlass_core::outcome::{ModelAnswer, Part};
//! let response = r#"{"id": "msg_1", "role": "assistant", "content": [
//!     {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {"a": 1, "b": 2}}]}"#;
//! let turn = Wire::Anthropic.read(response)?;
//! assert_eq!(turn.calls[0].tool, "add");
//! assert_eq!(turn.calls[0].args, r#"{"a": 1, "b": 2}"#);
//!
//! # let answer = ModelAnswer { parts: vec![Part::Text("3".into())], is_error: false };
//! let messages = turn.messages(&[CallResult { call: &turn.calls[0], answer: &answer }]);
//! assert_eq!(messages.len(), 2); // the assistant's message as it came, and the result of the call
//! # Ok::<(), windlass_wire::WireError>(())
//! ```
#![warn(missing_docs)]

mod answer;
mod anthropic;
mod chat;
mod content;
mod gemini;
mod key;
mod names;
mod object;
mod responses;
mod schema;
mod sse;
mod stream;

pub use answer::{anthropic_format, openai_chat_format};
pub use key::{KeyError, batch_key, rest_key};
pub use names::ToolNames;
pub use sse::{SseError, SseReader};
pub use stream::StreamReader;

use serde_json::Value;
use serde_json::value::RawValue;
use std::fmt;
use std::str::FromStr;
use windlass_core::outcome::ModelAnswer;

/// The protocol of a model provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Wire {
    /// OpenAI Chat Completions, and the many servers that speak it.
    OpenaiChat,
    /// OpenAI Responses.
    OpenaiResponses,
    /// Anthropic Messages.
    Anthropic,
    /// Gemini `generateContent`.
    Gemini,
}

impl Wire {
    /// Every wire, in the order in which documentation lists them.
    pub const ALL: [Wire; 4] = [Wire::OpenaiChat, Wire::OpenaiResponses, Wire::Anthropic, Wire::Gemini];

    /// The wire's name in URLs, options and batch keys.
    pub fn name(self) -> &'static str {
        match self {
            Wire::OpenaiChat => "openai_chat",
            Wire::OpenaiResponses => "openai_responses",
            Wire::Anthropic => "anthropic",
            Wire::Gemini => "gemini",
        }
    }

    /// Reads a model's response: the provider's whole answer, or only the message in it.
    pub fn read(self, response: &str) -> Result<ModelTurn, WireError> {
        let read = match self {
            Wire::OpenaiChat => chat::read(response),
            Wire::OpenaiResponses => responses::read(response),
            Wire::Anthropic => anthropic::read(response),
            Wire::Gemini => gemini::read(response),
        };
        read.map_err(|error| match (&error, object::wire_of(response)) {
            (WireError::Shape { .. }, Some(other)) if other != self => object::of_another(self, other),
            (WireError::Shape { .. }, None) if is_stream(response) => {
                let what =
                    "it looks like a stream; post it with the content type text/event-stream".to_owned();
                WireError::Shape { wire: self, what }
            }
            _ => error,
        })
    }

    /// The value of the request's `tools` field. Windlass validates arguments with the tool's own schema; the list has
    /// that schema as far as the provider accepts it.
    pub fn tools(self, offers: &[ToolOffer]) -> Value {
        match self {
            Wire::OpenaiChat => chat::tools(offers),
            Wire::OpenaiResponses => responses::tools(offers),
            Wire::Anthropic => anthropic::tools(offers),
            Wire::Gemini => gemini::tools(offers),
        }
    }

    /// The messages that tell the model of something that happened later, such as the end of a task. They are user
    /// messages: what a tool returned must not speak with the authority of a system message.
    pub fn notice(self, notice: &ModelAnswer) -> Vec<Box<RawValue>> {
        let message = match self {
            Wire::OpenaiChat => chat::notice(notice),
            Wire::OpenaiResponses => responses::notice(notice),
            Wire::Anthropic => anthropic::notice(notice),
            Wire::Gemini => gemini::notice(notice),
        };
        vec![object::raw(&message)]
    }
}

/// Whether a text begins like server-sent events.
fn is_stream(response: &str) -> bool {
    ["data:", "event:", "id:"].iter().any(|field| response.trim_start().starts_with(field))
}

impl fmt::Display for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Wire {
    type Err = UnknownWire;

    fn from_str(name: &str) -> Result<Wire, UnknownWire> {
        Wire::ALL.into_iter().find(|wire| wire.name() == name).ok_or_else(|| UnknownWire(name.to_owned()))
    }
}

/// The name is not that of a wire.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no wire {0:?}; use openai_chat, openai_responses, anthropic or gemini")]
pub struct UnknownWire(pub String);

/// A tool as it is offered to a model.
#[derive(Clone, Debug, Default)]
pub struct ToolOffer {
    /// The tool's name.
    pub name: String,
    /// Its description.
    pub description: String,
    /// Its input schema; none means any object.
    pub input_schema: Option<Value>,
}

/// A model's response: what it said, and the calls it asks for.
#[derive(Clone, Debug)]
pub struct ModelTurn {
    /// The wire it came by.
    pub wire: Wire,
    /// The provider's id of the response; absent if only the message was given.
    pub response_id: Option<String>,
    /// The calls, in order.
    pub calls: Vec<ModelCall>,
    /// The assistant's own messages, byte for byte, ready to be appended to the conversation.
    pub assistant: Vec<Box<RawValue>>,
    /// Whether the provider only paused, and goes on once it is asked again with these messages.
    pub(crate) is_paused: bool,
}

/// A call that a model asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelCall {
    /// The call's id in its batch: the provider's, or `name#n` where the provider gives none.
    pub id: String,
    /// The tool, by its name on this wire; [`ToolNames`] finds the tool's own name.
    pub tool: String,
    /// The arguments, as the text of the model.
    pub args: String,
    /// Further fields of the call, such as a thought signature, as a JSON object of the bytes that came.
    pub provider: Option<String>,
    /// How the provider matches the result.
    pub(crate) reference: CallReference,
}

/// How a provider matches a result with the call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CallReference {
    /// By the provider's id.
    Id(String),
    /// By the id of a call whose input is plain text.
    CustomId(String),
    /// By name and place alone.
    Place,
}

/// The result of a call, for the model.
#[derive(Clone, Copy, Debug)]
pub struct CallResult<'a> {
    /// The call.
    pub call: &'a ModelCall,
    /// The model's view.
    pub answer: &'a ModelAnswer,
}

impl ModelTurn {
    /// Whether the model asks for nothing more: its answer is complete. A provider that paused its own work (Anthropic's
    /// `pause_turn`) is asked again, so its turn is not over.
    pub fn is_over(&self) -> bool {
        self.calls.is_empty() && !self.is_paused
    }

    /// Everything to append to the conversation: the assistant's messages as they came, then the results in the order
    /// given.
    pub fn messages(&self, results: &[CallResult<'_>]) -> Vec<Box<RawValue>> {
        let mut messages = self.assistant.clone();
        messages.extend(match self.wire {
            _ if results.is_empty() => Vec::new(),
            Wire::OpenaiChat => object::all_raw(chat::results(results)),
            Wire::OpenaiResponses => object::all_raw(responses::results(results)),
            Wire::Anthropic => object::all_raw(anthropic::results(results)),
            Wire::Gemini => gemini::results(results),
        });
        messages
    }
}

/// A response that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// The text is not JSON, or a field has another type than the provider documents.
    #[error("the response is not what {wire} sends: {what}; post the provider's response body as it is")]
    Shape {
        /// The wire.
        wire: Wire,
        /// The mistake, and its place.
        what: String,
    },
    /// The stream of a response ended, or failed, before the response was complete.
    #[error(
        "the streamed response over {wire} is not complete: {what}; ask the model again, or post the whole response"
    )]
    Incomplete {
        /// The wire.
        wire: Wire,
        /// The provider's error, or the missing part.
        what: String,
    },
    /// The response is well formed and has something in it that cannot be answered.
    #[error("the response cannot be answered over {wire}: {what}")]
    Unsupported {
        /// The wire.
        wire: Wire,
        /// The unsupported part, and what to do instead.
        what: String,
    },
}
