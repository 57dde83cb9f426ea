//! Chunks of OpenAI Chat Completions.

use super::cut;
use crate::object::{self, parse};
use crate::{ModelCall, ModelTurn, Wire, WireError, chat};
use serde::Deserialize;
use serde_json::{Map, Value};

const WIRE: Wire = Wire::OpenaiChat;

#[derive(Debug, Default)]
pub(super) struct ChatStream {
    pub(super) id: Option<String>,
    message: Map<String, Value>,
    calls: Vec<GrowingCall>,
    /// How many of the calls were handed out.
    complete: usize,
    is_over: bool,
}

/// A call whose arguments still arrive.
#[derive(Debug)]
struct GrowingCall {
    /// The place that the chunks name.
    index: u64,
    fields: Map<String, Value>,
}

#[derive(Deserialize)]
struct Chunk {
    id: Option<String>,
    #[serde(default)]
    choices: Vec<ChunkChoice>,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct ChunkChoice {
    #[serde(default)]
    index: u64,
    #[serde(default)]
    delta: Option<Map<String, Value>>,
    finish_reason: Option<String>,
}

impl ChatStream {
    pub(super) fn push(&mut self, data: &str) -> Result<Vec<ModelCall>, WireError> {
        if data == "[DONE]" {
            return Ok(Vec::new());
        }
        let chunk: Chunk = parse(WIRE, data, "chunk")?;
        if let Some(error) = chunk.error {
            return Err(super::failed(WIRE, &error.to_string()));
        }
        // Some servers begin with an empty id.
        let id = chunk.id.filter(|id| !id.is_empty());
        self.id = self.id.take().or(id);
        let mut calls = Vec::new();
        for ChunkChoice { index, delta, finish_reason } in chunk.choices {
            if index != 0 {
                let what = "the stream has more than one choice; ask for one".to_owned();
                return Err(WireError::Unsupported { wire: WIRE, what });
            }
            for (key, value) in delta.unwrap_or_default() {
                match (key.as_str(), value) {
                    ("tool_calls", Value::Array(deltas)) => self.grow_calls(deltas)?,
                    ("role", role) => _ = self.message.insert(key, role),
                    (_, value) => grow(&mut self.message, key, value),
                }
            }
            let ended =
                if finish_reason.is_some() { self.calls.len() } else { self.calls.len().saturating_sub(1) };
            self.is_over |= finish_reason.is_some();
            calls.extend(self.hand_out(ended)?);
        }
        Ok(calls)
    }

    fn grow_calls(&mut self, deltas: Vec<Value>) -> Result<(), WireError> {
        for delta in deltas {
            let Value::Object(mut delta) = delta else {
                let what = "a delta of tool_calls is not an object".to_owned();
                return Err(WireError::Shape { wire: WIRE, what });
            };
            let index = delta.remove("index").and_then(|index| index.as_u64());
            let id = delta.get("id").and_then(Value::as_str).filter(|id| !id.is_empty());
            // Some servers send whole calls that all have the index 0, or none.
            let is_same = |call: &GrowingCall| {
                let known = call.fields.get("id").and_then(Value::as_str);
                index.is_none_or(|index| index == call.index)
                    && id.is_none_or(|id| known.is_none_or(|known| known == id))
            };
            if !self.calls.last().is_some_and(is_same) {
                let next = self.calls.last().map_or(0, |last| last.index + 1);
                self.calls.push(GrowingCall { index: index.unwrap_or(next), fields: Map::new() });
            }
            let Some(call) = self.calls.last_mut() else { continue };
            for (key, value) in delta {
                match key.as_str() {
                    "id" | "type" if value.as_str().is_none_or(str::is_empty) => {}
                    "id" | "type" => _ = call.fields.insert(key, value),
                    _ => grow(&mut call.fields, key, value),
                }
            }
        }
        Ok(())
    }

    /// The calls up to this one that were not handed out yet.
    fn hand_out(&mut self, ended: usize) -> Result<Vec<ModelCall>, WireError> {
        let from = self.complete;
        self.complete = from.max(ended);
        let calls = self.calls.iter().enumerate().take(ended).skip(from);
        calls.map(|(place, call)| chat::read_call(place, object::raw(&call.fields).get())).collect()
    }

    pub(super) fn finish(mut self) -> Result<ModelTurn, WireError> {
        if !self.is_over {
            return Err(cut(WIRE));
        }
        self.message.insert("role".to_owned(), "assistant".into());
        self.message.entry("content").or_insert(Value::Null);
        if !self.calls.is_empty() {
            let calls = self.calls.into_iter().map(|call| Value::Object(call.fields));
            self.message.insert("tool_calls".to_owned(), calls.collect());
        }
        chat::of_message(self.id, object::raw(&self.message))
    }
}

/// Adds a piece to what is there: texts grow, objects are merged, lists get longer.
fn grow(fields: &mut Map<String, Value>, key: String, piece: Value) {
    match (fields.get_mut(&key), piece) {
        (_, Value::Null) => {}
        (Some(Value::String(known)), Value::String(piece)) => known.push_str(&piece),
        (Some(Value::Array(known)), Value::Array(piece)) => known.extend(piece),
        (Some(Value::Object(known)), Value::Object(pieces)) => {
            for (key, piece) in pieces {
                grow(known, key, piece);
            }
        }
        (_, piece) => _ = fields.insert(key, piece),
    }
}
