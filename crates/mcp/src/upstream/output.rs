//! Results of servers as results of ours. Whatever cannot be said in parts is kept as the raw result beside the call.

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

/// The output of a result. Its effect stands, even if the result cannot be stored.
pub(super) async fn of(result: Value, promises_value: bool, cx: &Cx) -> Result<Output, ToolError> {
    let cut_off = |error: &(dyn std::error::Error + 'static)| {
        ToolError::aborted(format!("The result of the call could not be stored: {}", chain(error)))
    };
    let blocks = result["content"].as_array().cloned().unwrap_or_default();
    let is_whole = is_plain(&result) && blocks.iter().all(is_plain_block);
    let max = usize::try_from(cx.limits().result_json_bytes_max).unwrap_or(usize::MAX);
    if let ([block], true) = (blocks.as_slice(), is_whole)
        && let Some(text) = block["text"].as_str()
    {
        if text.len() < max / 2 {
            return Ok(Value::from(text).into());
        }
        let mut kept = cx.keep();
        kept.write(text.as_bytes()).await.map_err(|error| cut_off(&error))?;
        let kept = kept.finish("text/plain").await.map_err(|error| cut_off(&error))?;
        return Ok(Output { kept: Some(kept), ..Output::default() });
    }
    let mut parts = Vec::with_capacity(blocks.len());
    for block in &blocks {
        match image(block) {
            Some((media_type, data)) => {
                let mut kept = cx.keep();
                kept.write(&data).await.map_err(|error| cut_off(&error))?;
                let kept = kept.finish(&media_type).await.map_err(|error| cut_off(&error))?;
                parts.push(Part::KeptImage { kept, media_type });
            }
            None => parts.push(Part::Text(shown(block))),
        }
    }
    let structured = result.get("structuredContent").filter(|value| !value.is_null());
    // Beside the blocks it is the value only where the tool promises one: most servers repeat it as a text.
    let value = match structured.filter(|_| blocks.is_empty() || promises_value) {
        Some(structured) => structured.clone(),
        None => Value::Null,
    };
    let bytes: usize =
        parts.iter().map(|part| if let Part::Text(text) = part { text.len() } else { 0 }).sum();
    let is_too_long = parts.len() as u64 > cx.limits().answer_parts_max || bytes > max / 2;
    let output = match is_too_long {
        true => {
            let told = format!(
                "The result has {} parts with {bytes} bytes of text; it is kept whole beside the call.",
                parts.len()
            );
            Output { parts: vec![Part::Text(told)], ..Output::default() }
        }
        false => Output { value, parts, ..Output::default() },
    };
    if is_whole && !is_too_long {
        return Ok(output);
    }
    Ok(output.with_raw(RawOutput::text(result.to_string(), JSON)))
}

/// The failure that a result with `isError` is.
pub(super) fn error(result: &Value) -> ToolError {
    let blocks = result["content"].as_array().into_iter().flatten();
    let texts: Vec<String> = blocks.map(shown).collect();
    let mut text = texts.join("\n");
    text.truncate(text.floor_char_boundary(ERROR_BYTES_MAX));
    if text.trim().is_empty() {
        text = "The tool failed and did not say why.".to_string();
    }
    let is_whole = is_plain(result)
        && matches!(result["content"].as_array().map(Vec::as_slice), Some([block]) if is_plain_block(block) && block["type"] == "text");
    let raw = (!is_whole).then(|| result.clone());
    let extras = raw.map(|raw| Box::new(ErrorExtras { raw: Some(raw), ..ErrorExtras::default() }));
    ToolError { extras, ..ToolError::new(text) }
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
