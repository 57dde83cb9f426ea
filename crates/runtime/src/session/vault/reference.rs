//! References to secrets in recorded arguments.
//!
//! Where submitted arguments hold the value of a secret, the record holds `[secret:NAME:FORM:TAG]`. The tag is a keyed hash of the call
//! and of what the reference names, so a reference means something in the arguments of its own call alone: a text that looks like one,
//! or one that was copied from elsewhere, stays a text.

use super::{HeldSecret, Vault};
use crate::api::secret::SecretError;
use windlass_core::handle::Secret;
use windlass_core::ids::SessionNo;
use windlass_core::redact::{FoundSecret, SecretMatcher, secret_form, secret_marker};

/// The beginning of a reference.
const BEGIN: &str = "[secret:";
/// The mark of a reference that stands for a part of a number.
const NUMBER: &str = ":n";
/// The length of a tag in hex digits.
const TAG_CHARS: usize = 16;
/// The maximum length of a reference behind its beginning, to bound the search for its end.
const REST_BYTES_MAX: usize = 160;

/// The call whose arguments hold references.
#[derive(Clone, Copy)]
pub(crate) struct ReferencePlace<'a> {
    pub(crate) key: &'a Secret,
    pub(crate) session: SessionNo,
    pub(crate) batch: &'a str,
    pub(crate) call: &'a str,
}

impl ReferencePlace<'_> {
    fn tag(&self, named: &str) -> String {
        let mut hasher = blake3::Hasher::new_keyed(&self.key.0);
        hasher.update(b"reference to a secret").update(&self.session.0.to_le_bytes());
        for text in [self.batch, self.call, named] {
            hasher.update(&(text.len() as u64).to_le_bytes()).update(text.as_bytes());
        }
        hasher.finalize().to_hex()[..TAG_CHARS].to_string()
    }

    fn reference(&self, named: &str, is_number: bool) -> String {
        let number = if is_number { NUMBER } else { "" };
        format!("{BEGIN}{named}:{}{number}]", self.tag(named))
    }
}

/// Arguments with references for secrets; `None` if there are no secrets in them.
pub(super) fn conceal(
    matcher: &SecretMatcher,
    held: &[HeldSecret],
    place: ReferencePlace<'_>,
    text: &str,
) -> Option<String> {
    matcher.replace_in_json(text, |FoundSecret { place: found, name, form }, is_number| {
        let level = held.get(found).map_or(0, |held| held.level);
        place.reference(&format!("{name}:{level}.{form}"), is_number)
    })
}

/// Arguments with the values of the secrets that they refer to; `None` if they refer to none.
pub(super) fn reveal(
    vault: &Vault,
    place: ReferencePlace<'_>,
    text: &str,
) -> Result<Option<String>, SecretError> {
    let mut revealed: Vec<u8> = Vec::new();
    let (mut rest, mut closing, mut has_found) = (text, false, false);
    while let Some(at) = rest.find(BEGIN) {
        let (before, from) = rest.split_at(at);
        push(&mut revealed, before, &mut closing);
        let Some(Reference { named, is_number, len }) =
            read(from).filter(|found| from[..found.len] == place.reference(found.named, found.is_number))
        else {
            push(&mut revealed, BEGIN, &mut closing);
            rest = &from[BEGIN.len()..];
            continue;
        };
        if is_number && !closing {
            closing = open_number(&mut revealed);
        }
        revealed.extend_from_slice(&value(vault, named)?);
        has_found = true;
        rest = &from[len..];
    }
    push(&mut revealed, rest, &mut closing);
    Ok(has_found.then(|| String::from_utf8_lossy(&revealed).into_owned()))
}

/// A text in which all references to a secret are equal, whichever call has them; `None` if it has none.
pub(crate) fn untag(text: &str) -> Option<String> {
    let (mut untagged, mut rest) = (String::new(), text);
    while let Some(at) = rest.find(BEGIN) {
        let (before, from) = rest.split_at(at);
        untagged.push_str(before);
        rest = match read(from) {
            Some(Reference { named, len, .. }) => {
                untagged.push_str(&secret_marker(named.split(':').next().unwrap_or_default()));
                &from[len..]
            }
            None => {
                untagged.push_str(BEGIN);
                &from[BEGIN.len()..]
            }
        };
    }
    (rest.len() < text.len()).then(|| untagged + rest)
}

struct Reference<'a> {
    /// The name of the secret, its level and its form.
    named: &'a str,
    is_number: bool,
    len: usize,
}

/// Reads a text that begins like a reference.
fn read(text: &str) -> Option<Reference<'_>> {
    let rest = &text[BEGIN.len()..];
    let end = rest.bytes().take(REST_BYTES_MAX).position(|byte| byte == b']')?;
    let (inner, is_number) = match rest[..end].strip_suffix(NUMBER) {
        Some(inner) => (inner, true),
        None => (&rest[..end], false),
    };
    let (named, _) = inner.rsplit_once(':')?;
    Some(Reference { named, is_number, len: BEGIN.len() + end + 1 })
}

/// The value that a reference names, in its form.
fn value(vault: &Vault, named: &str) -> Result<zeroize::Zeroizing<Vec<u8>>, SecretError> {
    let (name, form) = named.split_once(':').unwrap_or((named, ""));
    let missing = || SecretError::Missing { name: name.to_string() };
    let (level, form) = form.split_once('.').ok_or_else(missing)?;
    let value = vault.value_at(level.parse().map_err(|_| missing())?, name)?;
    secret_form(value.expose(), form).ok_or_else(missing)
}

/// Adds text; the quote that closes a number is left out.
fn push(revealed: &mut Vec<u8>, text: &str, closing: &mut bool) {
    let mut text = text.as_bytes();
    if *closing && let Some(quote) = text.iter().position(|byte| *byte == b'"') {
        revealed.extend_from_slice(&text[..quote]);
        text = &text[quote + 1..];
        *closing = false;
    }
    revealed.extend_from_slice(text);
}

/// Leaves out the quote before a number.
fn open_number(revealed: &mut Vec<u8>) -> bool {
    let quote = revealed.iter().rposition(|byte| *byte == b'"');
    quote.is_some_and(|quote| {
        revealed.remove(quote);
        true
    })
}
