//! Anthropic Messages.

use crate::chat::{batch_id, non_empty};
use crate::content::{WireContent, contents};
use crate::object::{self, RawObject, parse};
use crate::{CallReference, CallResult, ModelCall, ModelTurn, ToolOffer, Wire, WireError, schema};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use windlass_core::outcome::ModelAnswer;

const WIRE: Wire = Wire::Anthropic;

#[derive(Deserialize)]
#[serde(expecting = "an object with role and content")]
struct MessageResponse {
    id: Option<String>,
    role: String,
    content: Box<RawValue>,
    stop_reason: Option<String>,
    tool_calls: Option<IgnoredAny>,
}

/// The `stop_reason` of a provider that paused tools of its own.
pub(crate) const PAUSED: &str = "pause_turn";

/// An assistant's message to append: without the fields that only responses have.
#[derive(Serialize)]
struct AssistantMessage<'a> {
    role: &'static str,
    content: &'a RawValue,
}

pub(crate) fn read(response: &str) -> Result<ModelTurn, WireError> {
    let MessageResponse { id, role, content, stop_reason, tool_calls } = parse(WIRE, response, "")?;
    if tool_calls.is_some() {
        return Err(object::of_another(WIRE, Wire::OpenaiChat));
    }
    if role != "assistant" {
        let what = format!("the message has the role {role:?}, not \"assistant\"");
        return Err(WireError::Shape { wire: WIRE, what });
    }
    let turn = of_content(id, &content)?;
    Ok(ModelTurn { is_paused: stop_reason.as_deref() == Some(PAUSED), ..turn })
}

/// Converts the content of an assistant's message to a turn.
pub(crate) fn of_content(response_id: Option<String>, content: &RawValue) -> Result<ModelTurn, WireError> {
    let mut calls = Vec::new();
    // Content may be a plain string, which asks for nothing.
    if !content.get().starts_with('"') {
        let blocks: Vec<Box<RawValue>> = parse(WIRE, content.get(), "content")?;
        for (place, block) in blocks.iter().enumerate() {
            calls.extend(read_block(calls.len(), place, block.get())?);
        }
    }
    let assistant = vec![object::raw(&AssistantMessage { role: "assistant", content })];
    Ok(ModelTurn { wire: WIRE, response_id: non_empty(response_id), calls, assistant, is_paused: false })
}

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct ToolUseBlock {
    id: String,
    name: String,
    input: Option<Box<RawValue>>,
}

/// The call in a block, if it is one. Tools that the provider runs itself are not.
pub(crate) fn read_block(nth: usize, place: usize, block: &str) -> Result<Option<ModelCall>, WireError> {
    let at = format!("content[{place}]");
    let fields: RawObject = parse(WIRE, block, &at)?;
    match fields.text("type").as_deref() {
        Some("tool_use") => {
            let ToolUseBlock { id, name, input } = parse(WIRE, block, &at)?;
            Ok(Some(ModelCall {
                id: batch_id(&id, &name, nth),
                tool: name,
                args: input.map(|input| input.get().to_owned()).unwrap_or_default(),
                provider: fields.rest(&["type", "id", "name", "input"]),
                reference: CallReference::Id(id),
            }))
        }
        Some(_) => Ok(None),
        None => Err(WireError::Shape { wire: WIRE, what: format!("{at} has no type") }),
    }
}

pub(crate) fn tools(offers: &[ToolOffer]) -> Value {
    let tool = |offer: &ToolOffer| {
        json!({
            "name": offer.name,
            "description": offer.description,
            "input_schema": schema::object_at_root(offer.input_schema.as_ref()),
        })
    };
    offers.iter().map(tool).collect()
}

/// One user message with a block per call: the provider wants all results of a turn together.
pub(crate) fn results(results: &[CallResult<'_>]) -> Vec<Value> {
    let block = |result: &CallResult<'_>| {
        let (CallReference::Id(id) | CallReference::CustomId(id)) = &result.call.reference else {
            return None;
        };
        let mut block = json!({"type": "tool_result", "tool_use_id": id});
        let content = blocks(result.answer);
        if !content.is_empty() {
            block["content"] = content.into();
        }
        if result.answer.is_error {
            block["is_error"] = true.into();
        }
        Some(block)
    };
    vec![json!({"role": "user", "content": results.iter().filter_map(block).collect::<Vec<_>>()})]
}

pub(crate) fn notice(notice: &ModelAnswer) -> Value {
    json!({"role": "user", "content": blocks(notice)})
}

/// Blocks of text and images. Empty text is refused by the provider, so it is left out.
fn blocks(answer: &ModelAnswer) -> Vec<Value> {
    let block = |content| match content {
        WireContent::Text(text) if text.is_empty() => None,
        WireContent::Text(text) => Some(json!({"type": "text", "text": text})),
        WireContent::Image { media_type, data } => {
            let source = json!({"type": "base64", "media_type": media_type, "data": data});
            Some(json!({"type": "image", "source": source}))
        }
    };
    contents(answer).filter_map(block).collect()
}
