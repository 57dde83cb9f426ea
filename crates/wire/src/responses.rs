//! OpenAI Responses.

use crate::chat::{batch_id, function, non_empty};
use crate::content::{WireContent, contents};
use crate::object::{RawObject, parse};
use crate::{CallReference, CallResult, ModelCall, ModelTurn, ToolOffer, Wire, WireError};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use windlass_core::outcome::{ModelAnswer, Part};

const WIRE: Wire = Wire::OpenaiResponses;

#[derive(Deserialize)]
#[serde(expecting = "an object with output, or the list of output items")]
struct WholeResponse {
    id: Option<String>,
    output: Vec<Box<RawValue>>,
    status: Option<String>,
    error: Option<Box<RawValue>>,
}

pub(crate) fn read(response: &str) -> Result<ModelTurn, WireError> {
    // The list of output items alone is what the message is on other wires.
    if response.trim_start().starts_with('[') {
        return of_items(None, parse(WIRE, response, "output")?);
    }
    let WholeResponse { id, output, status, error } = parse(WIRE, response, "")?;
    // A response that runs in the background, or that failed, is not the model's answer.
    match (status.as_deref(), error.as_deref().map(RawValue::get)) {
        (_, Some(error)) if error != "null" => Err(crate::stream::failed(WIRE, error)),
        (Some(status @ ("queued" | "in_progress" | "failed" | "cancelled")), _) => {
            let what = format!("its status is {status:?}");
            Err(WireError::Incomplete { wire: WIRE, what })
        }
        _ => of_items(id, output),
    }
}

/// Converts output items to a turn.
pub(crate) fn of_items(
    response_id: Option<String>,
    items: Vec<Box<RawValue>>,
) -> Result<ModelTurn, WireError> {
    let mut calls = Vec::new();
    for (place, item) in items.iter().enumerate() {
        calls.extend(read_item(calls.len(), place, item.get())?);
    }
    Ok(ModelTurn {
        wire: WIRE,
        response_id: non_empty(response_id),
        calls,
        assistant: items,
        is_paused: false,
    })
}

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct FunctionCallItem {
    call_id: String,
    name: String,
    arguments: String,
}

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct CustomCallItem {
    call_id: String,
    name: String,
    input: String,
}

/// The call in an output item, if it is one. Tools that the provider runs itself are not.
pub(crate) fn read_item(nth: usize, place: usize, item: &str) -> Result<Option<ModelCall>, WireError> {
    let at = format!("output[{place}]");
    let fields: RawObject = parse(WIRE, item, &at)?;
    let provider =
        |known: &[&str]| fields.rest(&[&["type", "id", "status", "call_id", "name"], known].concat());
    match fields.text("type").as_deref() {
        Some("function_call") => {
            let FunctionCallItem { call_id, name, arguments } = parse(WIRE, item, &at)?;
            Ok(Some(ModelCall {
                id: batch_id(&call_id, &name, nth),
                tool: name,
                args: arguments,
                provider: provider(&["arguments"]),
                reference: CallReference::Id(call_id),
            }))
        }
        Some("custom_tool_call") => {
            let CustomCallItem { call_id, name, input } = parse(WIRE, item, &at)?;
            Ok(Some(ModelCall {
                id: batch_id(&call_id, &name, nth),
                tool: name,
                args: json!({"input": input}).to_string(),
                provider: provider(&["input"]),
                reference: CallReference::CustomId(call_id),
            }))
        }
        Some(_) => Ok(None),
        None => Err(WireError::Shape { wire: WIRE, what: format!("{at} has no type") }),
    }
}

pub(crate) fn tools(offers: &[ToolOffer]) -> Value {
    let tool = |offer| {
        let mut tool = function(offer);
        tool["type"] = "function".into();
        tool
    };
    offers.iter().map(tool).collect()
}

pub(crate) fn results(results: &[CallResult<'_>]) -> Vec<Value> {
    let results = results.iter().filter_map(|CallResult { call, answer }| {
        let (kind, id) = match &call.reference {
            CallReference::CustomId(id) => ("custom_tool_call_output", id),
            CallReference::Id(id) => ("function_call_output", id),
            CallReference::Place => return None,
        };
        Some(json!({"type": kind, "call_id": id, "output": output_of(answer)}))
    });
    results.collect()
}

/// Text alone is a string, as most clients expect; with images it is a list.
fn output_of(answer: &ModelAnswer) -> Value {
    match answer.parts.as_slice() {
        [Part::Text(text)] => text.as_str().into(),
        [Part::Json(text)] => (&**text).into(),
        [] => "".into(),
        _ => parts(answer),
    }
}

fn parts(answer: &ModelAnswer) -> Value {
    let part = |content| match content {
        WireContent::Text(text) => json!({"type": "input_text", "text": text}),
        WireContent::Image { media_type, data } => {
            let url = WireContent::data_url(media_type, &data);
            json!({"type": "input_image", "detail": "auto", "image_url": url})
        }
    };
    contents(answer).map(part).collect()
}

pub(crate) fn notice(notice: &ModelAnswer) -> Value {
    json!({"type": "message", "role": "user", "content": parts(notice)})
}
