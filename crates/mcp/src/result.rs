//! Results of calls as MCP has them.

use crate::apart;
use crate::resources;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use windlass::outcome::{Outcome, Part, Value as OutcomeValue};
use windlass::tool::ToolSource;
use windlass::{CallAnswer, Runtime};

/// The result of a call that is over, or of one that was refused.
pub(crate) async fn of_answer(runtime: &Runtime, answer: &CallAnswer) -> Value {
    if let Some(given) = raw_result(runtime, answer).await {
        return given;
    }
    if let Some(given) = plain_result(runtime, answer).await {
        return given;
    }
    let model = answer.model();
    let mut room = runtime.limits().wire_images_bytes_max;
    let mut content = Vec::with_capacity(model.parts.len());
    for part in &model.parts {
        content.push(block(runtime, part, &mut room).await);
    }
    content.extend(kept_whole(answer));
    json!({"content": content, "isError": model.is_error})
}

/// The link to a result that is too long to return.
fn kept_whole(answer: &CallAnswer) -> Option<Value> {
    let (side, value) = match &answer.call().end()?.outcome {
        Outcome::Succeeded(success) => (success.side.as_ref(), Some(&success.value)),
        Outcome::Failed(failure) => (failure.side.as_ref(), None),
        Outcome::Denied { .. } | Outcome::Cancelled { .. } | Outcome::Unknown => return None,
    };
    let raw = side.and_then(|side| side.raw.as_ref());
    match (value, raw.filter(|_| answer.call().origin.source() == Some(ToolSource::Mcp))) {
        (_, Some(raw)) => Some(resources::link(raw, "the whole result", Some("application/json"))),
        (Some(OutcomeValue::Kept { kept, .. }), None) => {
            Some(resources::link(kept, "the whole result", None))
        }
        (Some(OutcomeValue::Inline(_)) | None, None) => None,
    }
}

/// The result of an MCP server as it was given, where it was kept because parts cannot say it all.
async fn raw_result(runtime: &Runtime, answer: &CallAnswer) -> Option<Value> {
    let call = answer.call();
    if call.origin.source() != Some(ToolSource::Mcp) {
        return None;
    }
    let side = match &call.end()?.outcome {
        Outcome::Succeeded(success) => success.side.as_ref(),
        Outcome::Failed(failure) => {
            if let Some(raw) = failure.raw.as_deref().and_then(|raw| serde_json::from_str(raw).ok()) {
                return verbatim(raw);
            }
            failure.side.as_ref()
        }
        Outcome::Denied { .. } | Outcome::Cancelled { .. } | Outcome::Unknown => None,
    };
    let kept = side?.raw.as_ref()?;
    if kept.bytes > runtime.limits().wire_images_bytes_max {
        return None;
    }
    // One that has expired, or cannot be read now, is told in parts.
    let bytes = runtime.read_artifact(kept.artifact, 0, kept.bytes).await.ok()?;
    let result = apart::on_text(bytes.len(), move || serde_json::from_slice(&bytes));
    verbatim(result.await.ok()?)
}

/// The result of an MCP server that was nothing but texts and images, all of it: what a model reads of it may be cut.
async fn plain_result(runtime: &Runtime, answer: &CallAnswer) -> Option<Value> {
    let call = answer.call();
    if call.origin.source() != Some(ToolSource::Mcp) {
        return None;
    }
    let Outcome::Succeeded(success) = &call.end()?.outcome else { return None };
    if success.side.as_ref().is_some_and(|side| side.raw.is_some()) {
        return None;
    }
    let mut room = runtime.limits().wire_images_bytes_max;
    let mut content = Vec::with_capacity(success.parts.len());
    match &success.value {
        _ if !success.parts.is_empty() => {
            for part in &success.parts {
                content.push(block(runtime, part, &mut room).await);
            }
        }
        OutcomeValue::Inline(json) => match serde_json::from_str(json).ok()? {
            Value::String(text) => content.push(text_block(text)),
            // It had no content.
            Value::Null => {}
            Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => return None,
        },
        OutcomeValue::Kept { kept, .. } if kept.bytes <= room => {
            let bytes = runtime.read_artifact(kept.artifact, 0, kept.bytes).await.ok()?;
            content.push(text_block(String::from_utf8(bytes).ok()?));
        }
        OutcomeValue::Kept { .. } => return None,
    }
    Some(json!({"content": content, "isError": false}))
}

/// A result of a server as it was given, if it is one.
fn verbatim(mut result: Value) -> Option<Value> {
    let fields =
        result.as_object_mut().filter(|fields| fields.get("content").is_some_and(Value::is_array))?;
    // Each era says these in its own way.
    fields.remove("resultType");
    Some(result)
}

/// A result of one text.
pub(crate) fn text(text: impl Into<String>, is_error: bool) -> Value {
    json!({"content": [text_block(text)], "isError": is_error})
}

/// Adds a text behind the others.
pub(crate) fn add_text(result: &mut Value, text: &str) {
    if let Some(content) = result["content"].as_array_mut() {
        content.push(text_block(text));
    }
}

fn text_block(text: impl Into<String>) -> Value {
    json!({"type": "text", "text": text.into()})
}

async fn block(runtime: &Runtime, part: &Part, room: &mut u64) -> Value {
    match part {
        Part::Text(text) => text_block(text.as_str()),
        Part::Json(json) => text_block(&**json),
        Part::Image { media_type, data } => image(media_type, data),
        Part::KeptImage { kept, media_type } => {
            let named = || {
                text_block(format!(
                    "An image ({media_type}, {} bytes) is kept as artifact {}.",
                    kept.bytes, kept.artifact
                ))
            };
            if kept.bytes > *room {
                return named();
            }
            // One that has expired, or cannot be read now, stays a name.
            match runtime.read_artifact(kept.artifact, 0, kept.bytes).await {
                Ok(data) => {
                    *room -= data.len() as u64;
                    image(media_type, &data)
                }
                Err(_) => named(),
            }
        }
        Part::File { kept, media_type, name } => resources::link(kept, name, Some(media_type)),
    }
}

fn image(media_type: &str, data: &[u8]) -> Value {
    json!({"type": "image", "mimeType": media_type, "data": STANDARD.encode(data)})
}
