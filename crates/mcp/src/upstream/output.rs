//! Results of servers as results of ours. Whatever cannot be said in parts is kept as the raw result beside the call.

use crate::apart;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use windlass::error::chain;
use windlass::outcome::Part;
use windlass::tool::{ErrorExtras, RawOutput};
use windlass::{Cx, Output, ToolError};

/// The media type under which a raw result is kept.
const JSON: &str = "application/json";
/// The longest text of an error that the model reads.
const ERROR_BYTES_MAX: usize = 16 << 10;

/// A result that was read. Its images are not stored yet.
struct ReadResult {
    parts: Vec<ReadPart>,
    /// Its structured content, where that is the value.
    value: Value,
    /// The whole result, unless the parts say it all.
    raw: Option<String>,
}

enum ReadPart {
    Text(String),
    Image { media_type: String, data: Vec<u8> },
}

/// As much as parts may say; longer results are kept beside the call.
#[derive(Clone, Copy)]
struct PartBounds {
    text_bytes_max: usize,
    parts_max: usize,
}

/// The output of a result. Its effect stands, even if the result cannot be stored.
pub(super) async fn of(mut result: Value, promises_value: bool, cx: &Cx) -> Result<Output, ToolError> {
    let cut_off = |error: &(dyn std::error::Error + 'static)| {
        ToolError::aborted(format!("The result of the call could not be stored: {}", chain(error)))
    };
    let size = |limit: u64| usize::try_from(limit).unwrap_or(usize::MAX);
    let bounds = PartBounds {
        text_bytes_max: size(cx.limits().result_json_bytes_max) / 2,
        parts_max: size(cx.limits().answer_parts_max),
    };
    if let Some(text) = only_text(&mut result) {
        if text.len() < bounds.text_bytes_max {
            return Ok(Value::from(text).into());
        }
        let mut kept = cx.keep();
        kept.write(text.as_bytes()).await.map_err(|error| cut_off(&error))?;
        let kept = kept.finish("text/plain").await.map_err(|error| cut_off(&error))?;
        return Ok(Output { kept: Some(kept), ..Output::default() });
    }
    let read = apart::on_text(text_bytes(&result), move || read(&result, promises_value, bounds)).await;
    let mut parts = Vec::with_capacity(read.parts.len());
    for part in read.parts {
        match part {
            ReadPart::Image { media_type, data } => {
                let mut kept = cx.keep();
                kept.write(&data).await.map_err(|error| cut_off(&error))?;
                let kept = kept.finish(&media_type).await.map_err(|error| cut_off(&error))?;
                parts.push(Part::KeptImage { kept, media_type });
            }
            ReadPart::Text(text) => parts.push(Part::Text(text)),
        }
    }
    let output = Output { value: read.value, parts, ..Output::default() };
    Ok(match read.raw {
        Some(raw) => output.with_raw(RawOutput::text(raw, JSON)),
        None => output,
    })
}

/// The text of a result that is nothing else; it is taken out.
fn only_text(result: &mut Value) -> Option<String> {
    if !is_plain(result) {
        return None;
    }
    let blocks = result["content"].as_array_mut()?;
    let [block] = blocks.as_mut_slice() else { return None };
    if !is_plain_block(block) {
        return None;
    }
    match block.get_mut("text") {
        Some(Value::String(text)) => Some(std::mem::take(text)),
        Some(_) | None => None,
    }
}

/// About as many bytes as the result has as a text.
pub(super) fn text_bytes(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Array(values) => values.iter().map(text_bytes).sum(),
        Value::Object(fields) => fields.iter().map(|(name, value)| name.len() + text_bytes(value)).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 8,
    }
}

fn read(result: &Value, promises_value: bool, bounds: PartBounds) -> ReadResult {
    let blocks = result["content"].as_array().map(Vec::as_slice).unwrap_or_default();
    let is_whole = is_plain(result) && blocks.iter().all(is_plain_block);
    let part = |block: &Value| match image(block) {
        Some((media_type, data)) => ReadPart::Image { media_type, data },
        None => ReadPart::Text(shown(block)),
    };
    let parts: Vec<ReadPart> = blocks.iter().map(part).collect();
    let text = |part: &ReadPart| if let ReadPart::Text(text) = part { text.len() } else { 0 };
    let bytes: usize = parts.iter().map(text).sum();
    if parts.len() > bounds.parts_max || bytes > bounds.text_bytes_max {
        let told = format!(
            "The result has {} parts with {bytes} bytes of text; it is kept whole beside the call.",
            parts.len()
        );
        return ReadResult {
            parts: vec![ReadPart::Text(told)],
            value: Value::Null,
            raw: Some(result.to_string()),
        };
    }
    let structured = result.get("structuredContent").filter(|value| !value.is_null());
    // Beside the blocks it is the value only where the tool promises one: most servers repeat it as a text.
    let value = structured.filter(|_| blocks.is_empty() || promises_value).cloned().unwrap_or_default();
    ReadResult { parts, value, raw: (!is_whole).then(|| result.to_string()) }
}

/// The failure that a result with `isError` is.
pub(super) fn error(result: Value) -> ToolError {
    let blocks = result["content"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut text = String::new();
    for block in blocks {
        if text.len() > ERROR_BYTES_MAX {
            break;
        }
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(&shown(block));
    }
    text.truncate(text.floor_char_boundary(ERROR_BYTES_MAX));
    if text.trim().is_empty() {
        text = "The tool failed and did not say why.".to_string();
    }
    // Kept even where the text says it all: clients of MCP get the server's words, and no code of ours.
    let extras = Box::new(ErrorExtras { raw: Some(result), ..ErrorExtras::default() });
    ToolError { extras: Some(extras), ..ToolError::new(text) }
}

/// Whether a result has nothing but content that we know.
fn is_plain(result: &Value) -> bool {
    let Some(fields) = result.as_object() else { return false };
    fields.iter().all(|(name, value)| match name.as_str() {
        "content" | "isError" | "resultType" => true,
        // The modern era says who made it.
        "_meta" => value
            .as_object()
            .is_some_and(|meta| meta.keys().all(|key| key.starts_with("io.modelcontextprotocol/"))),
        _ => false,
    })
}

/// Whether a block is a text or an image, and nothing else.
fn is_plain_block(block: &Value) -> bool {
    let Some(fields) = block.as_object() else { return false };
    let known: &[&str] = match fields.get("type").and_then(Value::as_str) {
        Some("text") => &["type", "text"],
        Some("image") => &["type", "data", "mimeType"],
        _ => return false,
    };
    fields.keys().all(|name| known.contains(&name.as_str()))
}

fn image(block: &Value) -> Option<(String, Vec<u8>)> {
    if block["type"] != "image" {
        return None;
    }
    let media_type = block["mimeType"].as_str().filter(|kind| Part::is_image(kind))?;
    Some((media_type.to_string(), STANDARD.decode(block["data"].as_str()?).ok()?))
}

/// A block as a text for the model.
fn shown(block: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
    match block["type"].as_str().unwrap_or_default() {
        "text" => text(&block["text"]),
        "resource" if block["resource"]["text"].is_string() => {
            format!("{}:\n{}", text(&block["resource"]["uri"]), text(&block["resource"]["text"]))
        }
        "resource" => format!("(the resource {}, not as text)", text(&block["resource"]["uri"])),
        "resource_link" => format!("{}: {}", text(&block["name"]), text(&block["uri"])),
        kind => format!("(content of the type {kind:?}, {} bytes of JSON)", block.to_string().len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_plain_results_are_not_kept_raw() {
        let text = json!({"type": "text", "text": "a"});
        for (result, expected) in [
            (json!({"content": [text]}), true),
            (json!({"content": [text], "isError": false, "resultType": "complete"}), true),
            (json!({"content": [text], "structuredContent": {}}), false),
            (json!({"content": [text], "x-vendor": 1}), false),
            (json!({"content": [text], "_meta": {"io.modelcontextprotocol/serverInfo": {}}}), true),
            (json!({"content": [text], "_meta": {"cost": 1}}), false),
            (json!({"content": [{"type": "text", "text": "a", "annotations": {}}]}), false),
            (json!({"content": [{"type": "audio", "data": "", "mimeType": "audio/wav"}]}), false),
            (json!({"content": [{"type": "image", "data": "", "mimeType": "image/png"}]}), true),
        ] {
            let blocks = result["content"].as_array().expect("blocks");
            assert_eq!(is_plain(&result) && blocks.iter().all(is_plain_block), expected, "{result}");
        }
        assert_eq!(
            shown(&json!({"type": "hologram"})),
            "(content of the type \"hologram\", 19 bytes of JSON)"
        );
    }
}
