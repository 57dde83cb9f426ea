//! Encryption of secrets and of step results that hold one.

use crate::api::secret::SecretKey;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use zeroize::Zeroizing;

/// The first byte of sealed bytes: how they are made.
const FORMAT: u8 = 1;
/// The length of a nonce.
const NONCE_BYTES: usize = 24;
/// The beginning and the end of a sealed JSON text, which is a string itself.
const TEXT: (&str, &str) = ("\"[sealed:", "]\"");

/// Seals bytes for one place, which [`open`] must name again. `None`: the machine gives no random numbers.
pub(crate) fn seal(key: &SecretKey, place: &[u8], bytes: &[u8]) -> Option<Vec<u8>> {
    let mut nonce = [0; NONCE_BYTES];
    getrandom::fill(&mut nonce).ok()?;
    let cipher = XChaCha20Poly1305::new(key.bytes().into());
    let sealed = cipher.encrypt(&XNonce::from(nonce), Payload { msg: bytes, aad: place }).ok()?;
    Some([&[FORMAT][..], &nonce, &sealed].concat())
}

/// The bytes that were sealed for this place with this key; `None` if they were not.
pub(crate) fn open(key: &SecretKey, place: &[u8], sealed: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let (format, rest) = sealed.split_first()?;
    let (nonce, sealed) = rest.split_first_chunk::<NONCE_BYTES>()?;
    if *format != FORMAT {
        return None;
    }
    let cipher = XChaCha20Poly1305::new(key.bytes().into());
    cipher.decrypt(&XNonce::from(*nonce), Payload { msg: sealed, aad: place }).ok().map(Zeroizing::new)
}

/// A JSON text sealed for one place, as a JSON text.
pub(crate) fn seal_text(key: &SecretKey, place: &[u8], text: &str) -> Option<String> {
    let sealed = STANDARD.encode(seal(key, place, text.as_bytes())?);
    Some([TEXT.0, &sealed, TEXT.1].concat())
}

/// Whether a JSON text looks like a sealed one.
pub(crate) fn is_sealed(text: &str) -> bool {
    text.starts_with(TEXT.0) && text.ends_with(TEXT.1)
}

/// The JSON text that was sealed for this place with this key; `None` if it was not.
pub(crate) fn open_text(key: &SecretKey, place: &[u8], text: &str) -> Option<String> {
    let sealed = text.strip_prefix(TEXT.0)?.strip_suffix(TEXT.1)?;
    let opened = open(key, place, &STANDARD.decode(sealed).ok()?)?;
    String::from_utf8(opened.to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seal_opens_with_its_key_at_its_place_alone() {
        let (key, other) = (SecretKey::random().unwrap(), SecretKey::random().unwrap());
        let sealed = seal(&key, b"here", b"hunter2hunter2").unwrap();
        assert_eq!(open(&key, b"here", &sealed).unwrap().as_slice(), b"hunter2hunter2");
        assert_ne!(sealed, seal(&key, b"here", b"hunter2hunter2").unwrap());
        assert!(open(&other, b"here", &sealed).is_none() && open(&key, b"there", &sealed).is_none());
        for place in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[place] ^= 1;
            assert!(open(&key, b"here", &changed).is_none(), "{place}");
            assert!(open(&key, b"here", &sealed[..place]).is_none(), "{place}");
        }
        let text = seal_text(&key, b"step", "{\"a\":1}").unwrap();
        assert!(is_sealed(&text) && serde_json::from_str::<String>(&text).is_ok());
        assert_eq!(open_text(&key, b"step", &text).unwrap(), "{\"a\":1}");
        assert_eq!(open_text(&key, b"step", "\"[sealed:AAAA]\""), None);
    }
}
