//! Resources: the artifacts of a session, under `windlass://artifact/ID`. Results that are too long to return name them.

use crate::gateway::Visitor;
use crate::message::RpcError;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use windlass::Runtime;
use windlass::ids::Handle;
use windlass::outcome::KeptBytes;

const PREFIX: &str = "windlass://artifact/";
/// As much of an address as an error repeats.
const URI_CHARS_SHOWN: usize = 1_024;

/// A block of content that names an artifact.
pub(crate) fn link(kept: &KeptBytes, name: &str, media_type: Option<&str>) -> Value {
    let mut link = json!({
        "type": "resource_link",
        "uri": format!("{PREFIX}{}", kept.artifact),
        "name": name,
        "size": kept.bytes,
    });
    if let Some(media_type) = media_type {
        link["mimeType"] = media_type.into();
    }
    link
}

/// The template of artifacts, which are found by the results that name them.
pub(crate) fn template() -> Value {
    json!({
        "uriTemplate": format!("{PREFIX}{{artifact}}"),
        "name": "artifact",
        "title": "Artifact",
        "description": "A result, or a part of one, that was too long to return.",
    })
}

/// Whether an address is one of ours, which no other server has.
pub(crate) fn is_own(uri: &str) -> bool {
    uri.starts_with("windlass:")
}

/// The error of an address that leads nowhere.
pub(crate) fn unknown(uri: &str) -> RpcError {
    let shown: String = uri.chars().take(URI_CHARS_SHOWN).collect();
    let told = format!("there is no resource {shown:?} in this session");
    RpcError::params(told).with_data(json!({"uri": shown}))
}

/// `resources/read`: the bytes of an artifact of the visitor's session.
pub(crate) async fn read(runtime: &Runtime, visitor: &Visitor, uri: &str) -> Result<Value, RpcError> {
    let unknown = || unknown(uri);
    let artifact = uri.strip_prefix(PREFIX).and_then(Handle::parse).ok_or_else(unknown)?;
    let info = runtime.artifact(artifact).await.map_err(|error| RpcError::internal(&error))?;
    // Another session's does not exist for this one.
    let info = info.filter(|info| info.session == visitor.session).ok_or_else(unknown)?;
    let max = runtime.limits().wire_images_bytes_max;
    if info.bytes > max {
        return Err(RpcError::params(format!(
            "the resource has {} bytes, and at most {max} are returned at once; read it in parts with the tool read_artifact",
            info.bytes
        )));
    }
    let bytes = runtime.read_artifact(artifact, 0, info.bytes).await.map_err(|_| unknown())?;
    let mut content = json!({"uri": uri, "mimeType": info.media_type});
    match String::from_utf8(bytes) {
        Ok(text) => content["text"] = text.into(),
        Err(binary) => content["blob"] = STANDARD.encode(binary.as_bytes()).into(),
    }
    Ok(json!({"contents": [content]}))
}
