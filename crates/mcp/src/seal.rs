//! Sealed texts: state that a client keeps for us and cannot forge. Nothing in them is secret.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Serialize;
use serde::de::DeserializeOwned;
use windlass::store::Store;

/// The longest sealed text that is read.
const SEALED_BYTES_MAX: usize = 8 << 10;

/// The purpose of a sealed text: one made for another purpose does not open.
#[derive(Clone, Copy)]
pub(crate) enum Purpose {
    /// The id of a session of the protocol, made by `initialize`.
    Session,
    /// The state of a call that the client repeats.
    RequestState,
}

/// The value as text, under the store's secret.
pub(crate) fn seal(store: &dyn Store, purpose: Purpose, value: &impl Serialize) -> String {
    // Our own values have only text keys.
    let text = serde_json::to_string(value).unwrap_or_default();
    format!("{}.{}", URL_SAFE_NO_PAD.encode(&text), mac(store, purpose, &text))
}

/// The value in a text, if it was sealed here for this purpose.
pub(crate) fn open<T: DeserializeOwned>(store: &dyn Store, purpose: Purpose, sealed: &str) -> Option<T> {
    if sealed.len() > SEALED_BYTES_MAX {
        return None;
    }
    let (text, tag) = sealed.split_once('.')?;
    let text = String::from_utf8(URL_SAFE_NO_PAD.decode(text).ok()?).ok()?;
    // Hashes are compared in constant time.
    let given = blake3::Hash::from_hex(tag).ok()?;
    let made = blake3::Hash::from_hex(mac(store, purpose, &text)).ok()?;
    if given != made {
        return None;
    }
    serde_json::from_str(&text).ok()
}

fn mac(store: &dyn Store, purpose: Purpose, text: &str) -> String {
    let mut hasher = blake3::Hasher::new_keyed(&store.secret().0);
    hasher.update(match purpose {
        Purpose::Session => b"mcp session",
        Purpose::RequestState => b"mcp request",
    });
    hasher.update(text.as_bytes());
    hasher.finalize().to_hex().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass::store::memory::MemoryStore;

    #[test]
    fn only_what_was_sealed_here_for_this_purpose_opens() {
        let (store, other) = (MemoryStore::new().expect("a store"), MemoryStore::new().expect("a store"));
        let sealed = seal(&store, Purpose::Session, &("alice", 7));
        let opened = |store: &MemoryStore, purpose, text: &str| open::<(String, u64)>(store, purpose, text);
        assert_eq!(opened(&store, Purpose::Session, &sealed), Some(("alice".to_string(), 7)));
        assert_eq!(opened(&store, Purpose::RequestState, &sealed), None);
        assert_eq!(opened(&other, Purpose::Session, &sealed), None);
        let forged = format!(
            "{}.{}",
            URL_SAFE_NO_PAD.encode(r#"["bob",7]"#),
            &sealed[sealed.find('.').map_or(0, |at| at + 1)..]
        );
        for text in [forged.as_str(), "", ".", "x", &"x".repeat(9 << 10), &sealed[..sealed.len() - 1]] {
            assert_eq!(opened(&store, Purpose::Session, text), None, "{text}");
        }
    }
}
