//! Responses that are read while the model still writes them, so that a tool starts as soon as its call is complete.

mod anthropic;
mod chat;
mod gemini;
mod responses;

use crate::{ModelCall, ModelTurn, Wire, WireError, object};

/// Reads a streamed response event by event.
///
/// Give it the data of each server-sent event; [`SseReader`](crate::SseReader) finds them in the bytes.
#[derive(Debug)]
pub struct StreamReader {
    wire: Wire,
    reading: Reading,
    has_begun: bool,
}

#[derive(Debug)]
enum Reading {
    OpenaiChat(chat::ChatStream),
    OpenaiResponses(responses::ResponsesStream),
    Anthropic(anthropic::AnthropicStream),
    Gemini(gemini::GeminiStream),
}

impl StreamReader {
    /// A reader for one response.
    pub fn new(wire: Wire) -> StreamReader {
        let reading = match wire {
            Wire::OpenaiChat => Reading::OpenaiChat(chat::ChatStream::default()),
            Wire::OpenaiResponses => Reading::OpenaiResponses(responses::ResponsesStream::default()),
            Wire::Anthropic => Reading::Anthropic(anthropic::AnthropicStream::default()),
            Wire::Gemini => Reading::Gemini(gemini::GeminiStream::default()),
        };
        StreamReader { wire, reading, has_begun: false }
    }

    /// Takes the data of the next event, and returns the calls that became complete with it.
    pub fn push(&mut self, data: &str) -> Result<Vec<ModelCall>, WireError> {
        if !self.has_begun {
            // Most readers skip events that they do not know, so a stream of another wire would seem to be cut off.
            if let Some(other) = object::wire_of_event(data).filter(|other| *other != self.wire) {
                return Err(object::of_another(self.wire, other));
            }
            self.has_begun = true;
        }
        match &mut self.reading {
            Reading::OpenaiChat(stream) => stream.push(data),
            Reading::OpenaiResponses(stream) => stream.push(data),
            Reading::Anthropic(stream) => stream.push(data),
            Reading::Gemini(stream) => stream.push(data),
        }
    }

    /// The provider's id of the response, once an event has said it. It comes before the first call.
    pub fn response_id(&self) -> Option<&str> {
        match &self.reading {
            Reading::OpenaiChat(stream) => stream.id.as_deref(),
            Reading::OpenaiResponses(stream) => stream.id.as_deref(),
            Reading::Anthropic(stream) => stream.id.as_deref(),
            Reading::Gemini(stream) => stream.id.as_deref(),
        }
    }

    /// The whole response, as if it had not been streamed. An error if the stream ended too early.
    pub fn finish(self) -> Result<ModelTurn, WireError> {
        if !self.has_begun {
            let what = "it has no event; post a response that is not streamed as application/json".to_owned();
            return Err(WireError::Shape { wire: self.wire, what });
        }
        match self.reading {
            Reading::OpenaiChat(stream) => stream.finish(),
            Reading::OpenaiResponses(stream) => stream.finish(),
            Reading::Anthropic(stream) => stream.finish(),
            Reading::Gemini(stream) => stream.finish(),
        }
    }
}

/// The stream ended before the provider said that the response is complete.
fn cut(wire: Wire) -> WireError {
    WireError::Incomplete { wire, what: "the stream ended before the response did".to_owned() }
}

/// The provider reports an error in the stream.
pub(crate) fn failed(wire: Wire, error: &str) -> WireError {
    /// More of an error than anybody reads in one line.
    const ERROR_CHARS_MAX: usize = 500;
    let shown: String = error.chars().take(ERROR_CHARS_MAX).collect();
    WireError::Incomplete { wire, what: format!("the provider reports {shown}") }
}
