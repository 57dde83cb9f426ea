//! The batch key of a response: the same for a response that is posted again, whole or streamed.

use crate::Wire;
use std::fmt::Write;

/// A key has at most this many characters; a longer one is replaced by its hash.
const KEY_CHARS_MAX: usize = 128;

/// Neither the provider nor the caller says which turn the response belongs to, so posting it twice would run its calls
/// twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the response has no id, so a repeated post could not be recognised; give the batch a `turn` or a `key`, or post the \
     provider's whole response"
)]
pub struct KeyError;

/// The key of the batch that a response makes: the wire, the provider's id of the response, and the turn.
pub fn batch_key(wire: Wire, response_id: Option<&str>, turn: Option<&str>) -> Result<String, KeyError> {
    if response_id.is_none() && turn.is_none() {
        return Err(KeyError);
    }
    let mut key = wire.name().to_owned();
    for part in [response_id, turn] {
        key.push('/');
        escape(&mut key, part.unwrap_or_default());
    }
    if key.chars().count() <= KEY_CHARS_MAX {
        return Ok(key);
    }
    Ok(format!("{wire}/{}", blake3::hash(key.as_bytes()).to_hex()))
}

/// The key for the calls of a response that its batch, which was streamed, no longer takes.
pub fn rest_key(key: &str) -> String {
    let rest = format!("{key}/rest");
    if rest.chars().count() <= KEY_CHARS_MAX {
        rest
    } else {
        format!("rest/{}", blake3::hash(key.as_bytes()).to_hex())
    }
}

/// Appends text in which no `/` is left, so that two different pairs never make one key.
fn escape(key: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '/' | '%' => _ = write!(key, "%{:02x}", u32::from(c)),
            c if c.is_control() || c.is_whitespace() => _ = write!(key, "%{:x};", u32::from(c)),
            c => key.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(id: Option<&str>, turn: Option<&str>) -> String {
        batch_key(Wire::OpenaiChat, id, turn).unwrap()
    }

    #[test]
    fn different_responses_and_turns_have_different_keys() {
        assert_eq!(key(Some("chatcmpl-1"), None), "openai_chat/chatcmpl-1/");
        assert_eq!(key(None, Some("7")), "openai_chat//7");
        let same = [(Some("a/b"), None), (Some("a"), Some("b/")), (Some("a%2fb"), None), (None, Some("a/b"))];
        let mut keys: Vec<_> = same.into_iter().map(|(id, turn)| key(id, turn)).collect();
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), 4, "{keys:?}");
        let long = "x".repeat(500);
        assert!(key(Some(&long), None).len() <= KEY_CHARS_MAX);
        assert_ne!(key(Some(&long), None), key(Some(&long), Some("2")));
        for key in ["openai_chat/a/".to_owned(), "x".repeat(KEY_CHARS_MAX)] {
            assert!(rest_key(&key).len() <= KEY_CHARS_MAX && rest_key(&key) != key);
        }
    }

    #[test]
    fn a_response_without_id_and_turn_has_no_key() {
        assert_eq!(batch_key(Wire::Gemini, None, None), Err(KeyError));
    }
}
