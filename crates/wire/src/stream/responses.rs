//! Events of OpenAI Responses.

use super::{cut, failed};
use crate::object::parse;
use crate::{ModelCall, ModelTurn, Wire, WireError, responses};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::collections::BTreeMap;

const WIRE: Wire = Wire::OpenaiResponses;

#[derive(Debug, Default)]
pub(super) struct ResponsesStream {
    pub(super) id: Option<String>,
    /// Complete items, by their places.
    items: BTreeMap<u64, Box<RawValue>>,
    calls: usize,
    is_over: bool,
}

#[derive(Deserialize)]
struct ResponseEvent {
    #[serde(rename = "type")]
    kind: String,
    response: Option<ResponseHead>,
    output_index: Option<u64>,
    item: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
struct ResponseHead {
    id: Option<String>,
    error: Option<Box<RawValue>>,
}

impl ResponsesStream {
    pub(super) fn push(&mut self, data: &str) -> Result<Vec<ModelCall>, WireError> {
        if data == "[DONE]" {
            return Ok(Vec::new());
        }
        let event: ResponseEvent = parse(WIRE, data, "event")?;
        let (id, error) = event.response.map_or((None, None), |head| (head.id, head.error));
        self.id = self.id.take().or(id);
        match event.kind.as_str() {
            "response.output_item.done" => {
                let (Some(index), Some(item)) = (event.output_index, event.item) else {
                    let what = "response.output_item.done has no item or no output_index".to_owned();
                    return Err(WireError::Shape { wire: WIRE, what });
                };
                let call = responses::read_item(self.calls, self.items.len(), item.get())?;
                self.calls += usize::from(call.is_some());
                self.items.insert(index, item);
                Ok(call.into_iter().collect())
            }
            // One that is incomplete ran out of tokens: its items are what it is.
            "response.completed" | "response.incomplete" => {
                self.is_over = true;
                Ok(Vec::new())
            }
            "response.failed" | "error" => Err(failed(WIRE, error.as_deref().map_or(data, RawValue::get))),
            _ => Ok(Vec::new()),
        }
    }

    pub(super) fn finish(self) -> Result<ModelTurn, WireError> {
        if !self.is_over {
            return Err(cut(WIRE));
        }
        responses::of_items(self.id, self.items.into_values().collect())
    }
}
