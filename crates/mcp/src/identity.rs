//! The identity of a call: which batch it is, and whose conversation it belongs to.

use crate::message::RpcRequest;
use crate::request::CallIdentity;
use serde_json::{Map, Value};
use windlass::tool::Registered;

/// The field of `_meta` with the caller's own key.
const META_KEY: &str = "io.windlass/key";
/// Fields of `_meta` by which clients name a call of their model.
const CALL_IDS: [&str; 2] = ["claudecode/toolUseId", "callId"];
/// Fields of `_meta` by which clients name their conversation.
const SESSION_IDS: [&str; 1] = ["threadId"];
/// The longest id of a client that is used; a longer one is none.
const ID_BYTES_MAX: usize = 256;

/// The name of the session of a caller that names none: by its principal, and by the conversation that its client names, if
/// it names one. Deleted names are not used again, so each has a count, from 1.
pub fn session_name(principal: &str, message: &Value, count: u32) -> String {
    let meta = message.pointer("/params/_meta").and_then(Value::as_object);
    let conversation = meta.and_then(|meta| first(meta, &SESSION_IDS));
    let plain = |letter: &u8| letter.is_ascii_alphanumeric() || b"_-".contains(letter);
    let is_plain = conversation.is_none()
        && (1..=PRINCIPAL_CHARS_MAX).contains(&principal.len())
        && principal.as_bytes().iter().all(plain);
    let name = match is_plain {
        true => principal.to_string(),
        false => {
            let mut hasher = blake3::Hasher::new();
            hasher
                .update(principal.as_bytes())
                .update(b"\0")
                .update(conversation.unwrap_or_default().as_bytes());
            // A dot: no plain name is one of these.
            format!(".{}", &hasher.finalize().to_hex()[..NAME_HASH_CHARS])
        }
    };
    if count <= 1 { format!("mcp-{name}") } else { format!("mcp-{name}.{count}") }
}

/// The longest principal that is part of a name.
const PRINCIPAL_CHARS_MAX: usize = 40;
/// As much of a hash as tells conversations apart.
const NAME_HASH_CHARS: usize = 24;

/// The key that the caller gave to its call.
pub(crate) fn own_key(request: &RpcRequest, header: Option<&str>) -> Option<String> {
    let meta = request.meta().and_then(|meta| text(meta, META_KEY));
    meta.or(header.filter(|key| is_id(key))).map(str::to_string)
}

/// The client's name for the call.
pub(crate) fn client_id(request: &RpcRequest) -> Option<String> {
    request.meta().and_then(|meta| first(meta, &CALL_IDS)).map(str::to_string)
}

/// The digest of a call: its tool's contract and its arguments.
pub(crate) fn digest(tool: &Registered, args: &Value) -> String {
    let mut hasher = blake3::Hasher::new();
    hasher.update(tool.spec.name.as_bytes()).update(b"\0").update(tool.contract.to_string().as_bytes());
    // Objects are ordered by their keys.
    hasher.update(b"\0").update(args.to_string().as_bytes());
    hasher.finalize().to_hex()[..DIGEST_CHARS].to_string()
}

/// As much of a hash as tells calls apart.
const DIGEST_CHARS: usize = 40;

fn first<'a>(meta: &'a Map<String, Value>, fields: &[&str]) -> Option<&'a str> {
    fields.iter().find_map(|field| text(meta, field))
}

fn text<'a>(meta: &'a Map<String, Value>, field: &str) -> Option<&'a str> {
    meta.get(field).and_then(Value::as_str).filter(|id| is_id(id))
}

fn is_id(id: &str) -> bool {
    (1..=ID_BYTES_MAX).contains(&id.len()) && !id.contains(char::is_control)
}

/// The identity of a call that only reads: one that a bridge sends again is the same call.
pub(crate) fn bridged(bridge: &Option<String>, request: &RpcRequest, digest: &str) -> CallIdentity {
    match bridge {
        Some(bridge) => {
            let named = format!("{bridge} {} {digest}", request.id);
            CallIdentity::Key(format!("mcp-bridge:{}", blake3::hash(named.as_bytes()).to_hex()))
        }
        None => CallIdentity::Fresh,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn sessions_are_named_by_principal_and_conversation() {
        let bare = json!({});
        let thread = |id: &str| json!({"params": {"_meta": {"threadId": id}}});
        assert_eq!(session_name("local", &bare, 1), "mcp-local");
        assert_eq!(session_name("local", &bare, 2), "mcp-local.2");
        let named = [
            session_name("local", &thread("a"), 1),
            session_name("local", &thread("b"), 1),
            session_name("other", &thread("a"), 1),
            session_name("a b", &bare, 1),
            session_name("", &bare, 1),
            session_name(&"x".repeat(99), &bare, 1),
            session_name("local", &bare, 1),
        ];
        for (place, name) in named.iter().enumerate() {
            assert_eq!(
                windlass::sessions::check_session_name(name).map_err(|error| error.to_string()),
                Ok(()),
                "{name}"
            );
            assert!(!named[..place].contains(name), "{name}");
        }
    }
}
