//! Events of Anthropic Messages.

use super::{cut, failed};
use crate::object::{self, parse};
use crate::{ModelCall, ModelTurn, Wire, WireError, anthropic};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

const WIRE: Wire = Wire::Anthropic;

#[derive(Debug, Default)]
pub(super) struct AnthropicStream {
    pub(super) id: Option<String>,
    /// The block that still grows, and its place.
    growing: Option<(u64, GrowingBlock)>,
    /// Complete blocks, in order.
    blocks: Vec<Box<RawValue>>,
    calls: Vec<ModelCall>,
    is_over: bool,
    is_paused: bool,
}

#[derive(Debug)]
struct GrowingBlock {
    fields: Map<String, Value>,
    /// The input of a tool, which comes as pieces of JSON text.
    input: String,
}

#[derive(Deserialize)]
struct MessageEvent {
    #[serde(rename = "type")]
    kind: String,
    message: Option<MessageHead>,
    index: Option<u64>,
    content_block: Option<Map<String, Value>>,
    delta: Option<Map<String, Value>>,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct MessageHead {
    id: Option<String>,
}

/// A block whose input is the text that came.
#[derive(Serialize)]
struct FinishedBlock<'a> {
    #[serde(flatten)]
    fields: &'a Map<String, Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    input: Option<&'a RawValue>,
}

impl AnthropicStream {
    pub(super) fn push(&mut self, data: &str) -> Result<Vec<ModelCall>, WireError> {
        let event: MessageEvent = parse(WIRE, data, "event")?;
        match event.kind.as_str() {
            "message_start" => self.id = event.message.and_then(|message| message.id),
            "content_block_start" => {
                let fields = event.content_block.unwrap_or_default();
                let block = GrowingBlock { fields, input: String::new() };
                self.growing = Some((event.index.unwrap_or_default(), block));
            }
            "content_block_delta" => {
                let delta = event.delta.unwrap_or_default();
                let index = event.index.unwrap_or_default();
                let Some((_, block)) = self.growing.as_mut().filter(|(growing, _)| *growing == index) else {
                    let what = format!("a delta of block {index} comes outside of it");
                    return Err(WireError::Shape { wire: WIRE, what });
                };
                block.grow(delta);
            }
            "content_block_stop" => return self.end_block(),
            "message_delta" => {
                let stopped = event.delta.as_ref().and_then(|delta| delta.get("stop_reason"));
                self.is_paused |= stopped.is_some_and(|reason| reason == anthropic::PAUSED);
            }
            "message_stop" => self.is_over = true,
            "error" => return Err(failed(WIRE, &event.error.unwrap_or_default().to_string())),
            _ => {}
        }
        Ok(Vec::new())
    }

    fn end_block(&mut self) -> Result<Vec<ModelCall>, WireError> {
        let Some((_, block)) = self.growing.take() else { return Ok(Vec::new()) };
        let written = block.finish();
        let call = anthropic::read_block(self.calls.len(), self.blocks.len(), written.get())?;
        self.blocks.push(written);
        // Text that was cut off is no JSON; the call has it as it came, and fails by it.
        let call = call.map(|call| match block.input.is_empty() {
            true => call,
            false => ModelCall { args: block.input, ..call },
        });
        self.calls.extend(call.clone());
        Ok(call.into_iter().collect())
    }

    pub(super) fn finish(self) -> Result<ModelTurn, WireError> {
        if !self.is_over {
            return Err(cut(WIRE));
        }
        let turn = anthropic::of_content(self.id, &object::raw(&self.blocks))?;
        Ok(ModelTurn { calls: self.calls, is_paused: self.is_paused, ..turn })
    }
}

impl GrowingBlock {
    fn grow(&mut self, delta: Map<String, Value>) {
        for (key, piece) in delta {
            match (key.as_str(), piece) {
                ("type", _) => {}
                ("partial_json", Value::String(piece)) => self.input.push_str(&piece),
                ("citation", citation) => match self.fields.get_mut("citations") {
                    Some(Value::Array(citations)) => citations.push(citation),
                    Some(_) | None => _ = self.fields.insert("citations".to_owned(), json!([citation])),
                },
                (_, Value::String(piece)) => match self.fields.get_mut(&key) {
                    Some(Value::String(known)) => known.push_str(&piece),
                    Some(_) | None => _ = self.fields.insert(key, piece.into()),
                },
                (_, piece) => _ = self.fields.insert(key, piece),
            }
        }
    }

    fn finish(&self) -> Box<RawValue> {
        let input = serde_json::from_str::<&RawValue>(&self.input).ok();
        if input.is_none() {
            return object::raw(&self.fields);
        }
        let mut fields = self.fields.clone();
        fields.remove("input");
        object::raw(&FinishedBlock { fields: &fields, input })
    }
}
