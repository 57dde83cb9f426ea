//! Handles: the public names of calls and artifacts.
//!
//! A handle is 128 bits that nobody can guess or forge without the store's secret, and that needs no index to
//! be found again: the first half is a MAC over what is named, the second half is the number itself under a
//! pad derived from the first. Opening one computes the MAC again, so a forged handle is refused without a
//! look-up, and no table of random keys grows with every call.

use crate::ids::CallId;
use std::fmt;

/// The secret of a store, from which handles and idempotency keys are derived.
#[derive(Clone)]
pub struct Secret(pub [u8; 32]);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// The kind of object a handle names; a handle of one kind never opens as another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandleKind {
    /// A call: [`CallId::packed`](crate::ids::CallId::packed).
    Call,
    /// An artifact: [`ArtifactId::packed`](crate::ids::ArtifactId::packed).
    Artifact,
    /// The log of a task, by its call.
    TaskLog,
    /// The result of a task, by its call.
    TaskResult,
}

/// An unguessable name, written as 26 characters of `[0-9a-z]`.
///
/// Aligned to eight bytes: results may hold one, and every call moves its result a few times.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(C, packed(8))]
pub struct Handle(pub u128);

impl Handle {
    /// The handle of `number` under `secret`.
    pub fn seal(secret: &Secret, kind: HandleKind, number: u64) -> Handle {
        let mac = mac(secret, kind, number);
        Handle(u128::from(mac) << 64 | u128::from(number ^ pad(secret, kind, mac)))
    }

    /// The number this handle was sealed with, or `None` if it was not sealed with this secret and kind.
    pub fn open(self, secret: &Secret, kind: HandleKind) -> Option<u64> {
        let claimed = (self.0 >> 64) as u64;
        let number = self.0 as u64 ^ pad(secret, kind, claimed);
        (mac(secret, kind, number) == claimed).then_some(number)
    }

    /// Parses the text form, in either case.
    pub fn parse(text: &str) -> Option<Handle> {
        if text.len() != TEXT_LEN {
            return None;
        }
        let mut value: u128 = 0;
        for (place, byte) in text.bytes().enumerate() {
            let digit = ALPHABET.iter().position(|&letter| letter == byte.to_ascii_lowercase())?;
            if place == 0 && digit > 7 {
                return None;
            }
            value = value << 5 | digit as u128;
        }
        Some(Handle(value))
    }
}

/// 26 letters of 5 bits hold the 128 bits.
const TEXT_LEN: usize = 26;
/// Crockford's base 32: no letter that is read as a digit.
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

impl fmt::Display for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = [0u8; TEXT_LEN];
        for (place, letter) in text.iter_mut().enumerate() {
            *letter = ALPHABET[(self.0 >> (5 * (TEXT_LEN - 1 - place))) as usize & 31];
        }
        f.write_str(std::str::from_utf8(&text).unwrap_or_default())
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Handle({self})")
    }
}

/// The key by which an external system completes a call's wait: the only permission needed, stable over attempts and
/// restarts. Like a handle it contains what it is for, so a forged one is refused without a look-up.
pub fn completion_key(secret: &Secret, call: CallId, name: &str) -> String {
    seal_name(secret, COMPLETION, call, name)
}

/// The call of a completion key, and the [sum](completion_name) of its name; `None` if it is not a key of
/// this store.
pub fn open_completion_key(secret: &Secret, key: &str) -> Option<(CallId, u64)> {
    open_name(secret, COMPLETION, key)
}

/// The id of a call's question. Made like a completion key, and never one: operators see it.
pub fn question_id(secret: &Secret, call: CallId, name: &str) -> String {
    seal_name(secret, QUESTION, call, name)
}

/// The call of a question's id, and the [sum](completion_name) of its name; `None` if it is not an id of this store.
pub fn open_question_id(secret: &Secret, id: &str) -> Option<(CallId, u64)> {
    open_name(secret, QUESTION, id)
}

/// The id of an approval of a call. Made like a completion key, and never one: approvers see it.
pub fn approval_id(secret: &Secret, call: CallId, number: u32) -> String {
    seal_name(secret, APPROVAL, call, &number.to_string())
}

/// The call of an approval's id, and the [sum](completion_name) of its number; `None` if it is not an id of this store.
pub fn open_approval_id(secret: &Secret, id: &str) -> Option<(CallId, u64)> {
    open_name(secret, APPROVAL, id)
}

/// The seal of a text that one process with this store's secret sends to another: nobody else can make it.
pub fn worker_seal(secret: &Secret, text: &str) -> String {
    let mut hasher = blake3::Hasher::new_keyed(&secret.0);
    hasher.update(b"worker");
    hasher.update(text.as_bytes());
    hasher.finalize().to_hex().to_string()
}

/// The stored hash of a token, from which nobody can derive the token. A token has 256 random bits, so
/// nothing slower than a keyed hash is needed.
pub fn token_hash(secret: &Secret, token: &str) -> String {
    let mut hasher = blake3::Hasher::new_keyed(&secret.0);
    hasher.update(b"token");
    hasher.update(token.as_bytes());
    hasher.finalize().to_hex().to_string()
}

/// Computes the digest by which stored bytes are found. It is keyed: nobody without the secret can tell from
/// a journal whether guessed bytes are the stored ones.
pub fn content_hasher(secret: &Secret) -> blake3::Hasher {
    let mut hasher = blake3::Hasher::new_keyed(&secret.0);
    hasher.update(b"content");
    hasher
}

/// The words that separate one kind of sealed name from the others, so that a text of one kind is never one of another.
#[derive(Clone, Copy)]
struct SealDomain {
    mac: &'static [u8],
    pad: &'static [u8],
}

const COMPLETION: SealDomain = SealDomain { mac: b"completion mac", pad: b"completion pad" };
const APPROVAL: SealDomain = SealDomain { mac: b"approval mac", pad: b"approval pad" };
const QUESTION: SealDomain = SealDomain { mac: b"question mac", pad: b"question pad" };

fn seal_name(secret: &Secret, domain: SealDomain, call: CallId, name: &str) -> String {
    let named = u128::from(call.packed()) << 64 | u128::from(completion_name(secret, name));
    let mac = wide(secret, domain.mac, named);
    format!("{}{}", Handle(mac), Handle(named ^ wide(secret, domain.pad, mac)))
}

fn open_name(secret: &Secret, domain: SealDomain, text: &str) -> Option<(CallId, u64)> {
    let (mac, named) = text.split_at_checked(TEXT_LEN)?;
    let (mac, named) = (Handle::parse(mac)?.0, Handle::parse(named)?.0);
    let named = named ^ wide(secret, domain.pad, mac);
    (wide(secret, domain.mac, named) == mac).then(|| (CallId::unpacked((named >> 64) as u64), named as u64))
}

/// The hash of a name in a completion key.
pub fn completion_name(secret: &Secret, name: &str) -> u64 {
    let mut hasher = blake3::Hasher::new_keyed(&secret.0);
    hasher.update(b"completion name");
    hasher.update(name.as_bytes());
    let mut first = [0; 8];
    first.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
    u64::from_le_bytes(first)
}

/// The idempotency key of a step: stable over attempts and restarts, and another for every name.
pub fn step_key(call_key: &str, name: &str) -> String {
    let mut hasher = blake3::Hasher::new();
    hasher.update(call_key.as_bytes());
    hasher.update(name.as_bytes());
    hasher.finalize().to_hex()[..32].to_string()
}

/// The idempotency key of a call: stable over attempts and restarts, the same for the same identity.
pub fn idempotency_key(secret: &Secret, session: &str, batch_key: &str, call_id: &str) -> String {
    let mut hasher = blake3::Hasher::new_keyed(&secret.0);
    hasher.update(b"idempotency");
    for part in [session, batch_key, call_id] {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part.as_bytes());
    }
    hasher.finalize().to_hex()[..32].to_string()
}

fn wide(secret: &Secret, role: &[u8], input: u128) -> u128 {
    let mut hasher = blake3::Hasher::new_keyed(&secret.0);
    hasher.update(role);
    hasher.update(&input.to_le_bytes());
    let mut first = [0; 16];
    first.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    u128::from_le_bytes(first)
}

fn mac(secret: &Secret, kind: HandleKind, number: u64) -> u64 {
    prf(secret, kind, 0, number)
}

fn pad(secret: &Secret, kind: HandleKind, mac: u64) -> u64 {
    prf(secret, kind, 1, mac)
}

fn prf(secret: &Secret, kind: HandleKind, role: u8, input: u64) -> u64 {
    let tag = match kind {
        HandleKind::Call => 1,
        HandleKind::Artifact => 2,
        HandleKind::TaskLog => 3,
        HandleKind::TaskResult => 4,
    };
    let mut message = [0; 10];
    message[..2].copy_from_slice(&[tag, role]);
    message[2..].copy_from_slice(&input.to_le_bytes());
    let hash = blake3::keyed_hash(&secret.0, &message);
    let mut first = [0; 8];
    first.copy_from_slice(&hash.as_bytes()[..8]);
    u64::from_le_bytes(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_opens_only_with_its_secret_and_kind() {
        let ours = Secret([7; 32]);
        let handle = Handle::seal(&ours, HandleKind::Call, 42);
        assert_eq!(handle.open(&ours, HandleKind::Call), Some(42));
        assert_eq!(handle.open(&ours, HandleKind::Artifact), None);
        assert_eq!(handle.open(&Secret([8; 32]), HandleKind::Call), None);
    }

    #[test]
    fn every_flipped_bit_is_refused() {
        let secret = Secret([7; 32]);
        let handle = Handle::seal(&secret, HandleKind::Call, 42);
        for bit in 0..128 {
            assert_eq!(Handle(handle.0 ^ 1 << bit).open(&secret, HandleKind::Call), None, "bit {bit}");
        }
    }

    #[test]
    fn a_completion_key_names_its_wait_and_cannot_be_forged() {
        let (ours, call) = (Secret([7; 32]), CallId::unpacked(99 << 16 | 3));
        let key = completion_key(&ours, call, "approval");
        assert_eq!(open_completion_key(&ours, &key), Some((call, completion_name(&ours, "approval"))));
        assert_ne!(key, completion_key(&ours, call, "other"));
        // An id that operators see answers a question and nothing else.
        let id = question_id(&ours, call, "approval");
        assert_eq!(open_question_id(&ours, &id), open_completion_key(&ours, &key));
        assert_eq!((open_completion_key(&ours, &id), open_question_id(&ours, &key)), (None, None));
        assert_eq!(open_completion_key(&Secret([8; 32]), &key), None);
        for place in 0..key.len() {
            let mut forged = key.clone().into_bytes();
            forged[place] = if forged[place] == b'0' { b'1' } else { b'0' };
            let forged = String::from_utf8(forged).unwrap();
            assert_eq!(open_completion_key(&ours, &forged), None, "{place}");
        }
        for bad in ["", "x", &key[1..], "ä".repeat(26).as_str()] {
            assert_eq!(open_completion_key(&ours, bad), None, "{bad:?}");
        }
    }

    #[test]
    fn text_and_back() {
        let handle = Handle(u128::MAX - 5);
        assert_eq!(Handle::parse(&handle.to_string()), Some(handle));
        assert_eq!(Handle::parse(&handle.to_string().to_uppercase()), Some(handle));
        assert_eq!(Handle::parse("short"), None);
        assert_eq!(Handle::parse("zzzzzzzzzzzzzzzzzzzzzzzzzz"), None);
    }
}
