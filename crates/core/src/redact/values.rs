//! The values of known secrets, found and replaced in any text and in every form.
//!
//! All forms of all values lie in one table, by their first bytes. A text is searched from left to right, and of several
//! forms at one place the longest counts.

use super::forms::{Form, form_of, forms};
use serde_json::{Map, Value};
use std::borrow::Cow;
use zeroize::Zeroizing;

/// The minimum length of a secret in characters: a shorter one would be found in texts that have nothing to do with it.
pub const SECRET_CHARS_MIN: usize = 8;
/// The number of first bytes by which forms are found.
const HEAD: usize = 8;
/// The number of bits in the filter of first bytes.
const FILTER_BITS: u32 = 16;

/// A known secret.
#[derive(Clone, Copy)]
pub struct KnownSecret<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its value, of at least [`SECRET_CHARS_MIN`] characters.
    pub value: &'a str,
}

/// Finds the values of secrets. The forms are wiped from memory when it is dropped.
pub struct SecretMatcher {
    names: Vec<Box<str>>,
    forms: Vec<SecretForm>,
    /// The first bytes of each form with its place, in order; of equal ones the longest form comes first.
    heads: Zeroizing<Vec<(u64, u32)>>,
    /// Whether a form may begin with these bytes, by their hash.
    filter: Box<[u64]>,
}

struct SecretForm {
    secret: u32,
    form: Form,
}

/// A piece of a searched text.
enum Piece<'a> {
    Text(&'a [u8]),
    Secret(&'a SecretForm),
}

/// A secret that was found, and the form in which it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundSecret<'a> {
    /// Its place among the secrets that the matcher was made of.
    pub place: usize,
    /// Its name.
    pub name: &'a str,
    /// The code of the form.
    pub form: &'a str,
}

/// The text that stands for a secret where its value stood. It needs no escapes in JSON.
pub fn secret_marker(name: &str) -> String {
    format!("[secret {name}]")
}

/// A value in one of its forms; `None`: there is no such form.
pub fn secret_form(value: &str, form: &str) -> Option<Zeroizing<Vec<u8>>> {
    form_of(value, form)
}

impl SecretMatcher {
    /// A matcher for these secrets; `None` if there are none. Of equal values the first counts.
    pub fn new<'a>(secrets: impl IntoIterator<Item = KnownSecret<'a>>) -> Option<SecretMatcher> {
        let (mut names, mut found): (Vec<Box<str>>, Vec<SecretForm>) = (Vec::new(), Vec::new());
        for KnownSecret { name, value } in secrets {
            let secret = names.len() as u32;
            names.push(name.into());
            if value.chars().count() >= SECRET_CHARS_MIN {
                found.extend(forms(value).into_iter().map(|form| SecretForm { secret, form }));
            }
        }
        let mut heads: Vec<(u64, u32)> = found
            .iter()
            .zip(0..)
            .filter_map(|(found, place)| Some((head(&found.form.bytes)?, place)))
            .collect();
        let len = |place: u32| found[place as usize].form.bytes.len();
        heads.sort_by(|a, b| (a.0, len(b.1), a.1).cmp(&(b.0, len(a.1), b.1)));
        let mut filter = vec![0_u64; 1 << (FILTER_BITS - 6)].into_boxed_slice();
        for (head, _) in &heads {
            let bit = filter_bit(*head);
            filter[bit >> 6] |= 1 << (bit & 63);
        }
        (!names.is_empty()).then(|| SecretMatcher {
            names,
            forms: found,
            heads: Zeroizing::new(heads),
            filter,
        })
    }

    /// A text with a marker for each secret.
    pub fn scrub<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match self.scrub_bytes(text.as_bytes()) {
            Cow::Borrowed(_) => Cow::Borrowed(text),
            Cow::Owned(bytes) => Cow::Owned(lossless(bytes)),
        }
    }

    /// Bytes with a marker for each secret.
    pub fn scrub_bytes<'a>(&self, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        self.replace(bytes, |found, _| secret_marker(found.name).into_bytes())
            .map_or(Cow::Borrowed(bytes), Cow::Owned)
    }

    /// A JSON text with a marker for each secret. A number that is one becomes a string.
    pub fn scrub_json<'a>(&self, text: &'a str) -> Cow<'a, str> {
        self.replace_in_json(text, |found, _| secret_marker(found.name))
            .map_or(Cow::Borrowed(text), Cow::Owned)
    }

    /// Replaces secrets in all texts, names and numbers of a value, however deep it is. Returns whether there were any.
    pub fn scrub_value(&self, value: &mut Value) -> bool {
        let (mut has_found, mut left) = (false, vec![value]);
        while let Some(value) = left.pop() {
            match value {
                Value::String(text) => {
                    if let Cow::Owned(scrubbed) = self.scrub(text) {
                        (*text, has_found) = (scrubbed, true);
                    }
                }
                Value::Number(number) => {
                    if let Cow::Owned(scrubbed) = self.scrub(&number.to_string()) {
                        (*value, has_found) = (scrubbed.into(), true);
                    }
                }
                Value::Array(items) => left.extend(items),
                Value::Object(fields) => {
                    if fields.keys().any(|name| matches!(self.scrub(name), Cow::Owned(_))) {
                        let named = std::mem::take(fields).into_iter();
                        let named = named.map(|(name, field)| (self.scrub(&name).into_owned(), field));
                        (*fields, has_found) = (named.collect::<Map<_, _>>(), true);
                    }
                    left.extend(fields.values_mut());
                }
                Value::Null | Value::Bool(_) => {}
            }
        }
        has_found
    }

    /// A JSON text, or one that should be, with something else for each secret; `None` if there is none in it. A secret that is
    /// part of a number, so that nothing else could stand there, is replaced together with quotes around the number: `is_number`.
    pub fn replace_in_json(
        &self,
        text: &str,
        mut with: impl FnMut(FoundSecret<'_>, bool) -> String,
    ) -> Option<String> {
        let mut strings = StringState::default();
        let mut closing = false;
        let mut replaced: Vec<u8> = Vec::new();
        let mut has_found = false;
        self.scan(text.as_bytes(), ScanEnd::Whole, |piece| match piece {
            Piece::Text(bytes) => {
                let mut rest = bytes;
                if std::mem::take(&mut closing) {
                    let digits = bytes.iter().take_while(|byte| is_of_number(**byte)).count();
                    replaced.extend_from_slice(&bytes[..digits]);
                    replaced.push(b'"');
                    rest = &bytes[digits..];
                }
                strings.read(rest);
                replaced.extend_from_slice(rest);
            }
            Piece::Secret(found) => {
                has_found = true;
                let is_number = !strings.is_inside && found.form.bytes.iter().all(|byte| is_of_number(*byte));
                if is_number && !closing {
                    let digits = replaced.iter().rev().take_while(|byte| is_of_number(**byte)).count();
                    replaced.insert(replaced.len() - digits, b'"');
                    closing = true;
                }
                strings.read(&found.form.bytes);
                replaced.extend_from_slice(with(self.found(found), is_number).as_bytes());
            }
        });
        if closing {
            replaced.push(b'"');
        }
        has_found.then(|| lossless(replaced))
    }

    /// Whether there is a secret in the text.
    pub fn is_in(&self, text: &str) -> bool {
        self.replace(text.as_bytes(), |_, _| Vec::new()).is_some()
    }

    fn found<'a>(&'a self, found: &'a SecretForm) -> FoundSecret<'a> {
        let place = found.secret as usize;
        FoundSecret { place, name: &self.names[place], form: &found.form.code }
    }

    fn replace(
        &self,
        bytes: &[u8],
        mut with: impl FnMut(FoundSecret<'_>, &[u8]) -> Vec<u8>,
    ) -> Option<Vec<u8>> {
        let mut replaced: Option<Vec<u8>> = None;
        let mut before: &[u8] = &[];
        self.scan(bytes, ScanEnd::Whole, |piece| match (piece, &mut replaced) {
            // Before the first secret nothing is copied.
            (Piece::Text(text), None) => before = text,
            (Piece::Text(text), Some(replaced)) => replaced.extend_from_slice(text),
            (Piece::Secret(secret), replaced) => {
                let replaced = replaced.get_or_insert_with(|| before.to_vec());
                replaced.extend(with(self.found(secret), &secret.form.bytes));
            }
        });
        replaced
    }

    /// Searches bytes. Returns where the rest begins that may be the beginning of a secret, if more is to come.
    fn scan<'a>(&'a self, bytes: &'a [u8], end: ScanEnd, mut on: impl FnMut(Piece<'a>)) -> usize {
        let (mut at, mut told) = (0, 0);
        while at < bytes.len() {
            match self.longest_at(&bytes[at..], end) {
                FoundAt::Nothing => at += 1,
                FoundAt::Unknown => break,
                FoundAt::Secret(found) => {
                    if told < at {
                        on(Piece::Text(&bytes[told..at]));
                    }
                    on(Piece::Secret(found));
                    at += found.form.bytes.len();
                    told = at;
                }
            }
        }
        if told < at {
            on(Piece::Text(&bytes[told..at]));
        }
        at
    }

    /// The longest form at the beginning of these bytes.
    fn longest_at(&self, bytes: &[u8], end: ScanEnd) -> FoundAt<'_> {
        let Some(head) = head(bytes) else {
            let may_begin = |(head, _): &(u64, u32)| head.to_be_bytes().starts_with(bytes);
            return match end == ScanEnd::Open && self.heads.iter().any(may_begin) {
                true => FoundAt::Unknown,
                false => FoundAt::Nothing,
            };
        };
        let bit = filter_bit(head);
        if self.filter[bit >> 6] & 1 << (bit & 63) == 0 {
            return FoundAt::Nothing;
        }
        let first = self.heads.partition_point(|(known, _)| *known < head);
        let mut found = FoundAt::Nothing;
        for (_, place) in self.heads[first..].iter().take_while(|(known, _)| *known == head) {
            let form = &self.forms[*place as usize];
            let wanted = &form.form.bytes[..];
            if wanted.len() > bytes.len() {
                if end == ScanEnd::Open && wanted.starts_with(bytes) {
                    return FoundAt::Unknown;
                }
            } else if matches!(found, FoundAt::Nothing) && bytes.starts_with(wanted) {
                found = FoundAt::Secret(form);
            }
        }
        found
    }
}

impl std::fmt::Debug for SecretMatcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SecretMatcher").field("names", &self.names).finish_non_exhaustive()
    }
}

/// Whether more bytes may follow those that are searched.
#[derive(Clone, Copy, PartialEq)]
enum ScanEnd {
    Whole,
    Open,
}

enum FoundAt<'a> {
    Nothing,
    /// That depends on what follows.
    Unknown,
    Secret(&'a SecretForm),
}

/// The first bytes as a number that sorts as they do.
fn head(bytes: &[u8]) -> Option<u64> {
    bytes.first_chunk::<HEAD>().map(|head| u64::from_be_bytes(*head))
}

fn filter_bit(head: u64) -> usize {
    (head.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - FILTER_BITS)) as usize
}

/// Text of which only whole forms were replaced.
fn lossless(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

fn is_of_number(byte: u8) -> bool {
    byte.is_ascii_digit() || b"+-.eE".contains(&byte)
}

/// Whether the place in a JSON text is inside a string.
#[derive(Default)]
struct StringState {
    is_inside: bool,
    is_escaped: bool,
}

impl StringState {
    fn read(&mut self, bytes: &[u8]) {
        for byte in bytes {
            match byte {
                _ if std::mem::take(&mut self.is_escaped) => {}
                b'\\' => self.is_escaped = self.is_inside,
                b'"' => self.is_inside = !self.is_inside,
                _ => {}
            }
        }
    }
}

/// Replaces the secrets of a stream, wherever its chunks begin and end. What may be the beginning of a secret is held back
/// until it is known.
#[derive(Default)]
pub struct StreamScrubber {
    held: Zeroizing<Vec<u8>>,
}

impl StreamScrubber {
    /// The next chunk, after what was held back.
    pub fn push(&mut self, matcher: &SecretMatcher, bytes: &[u8]) -> Vec<u8> {
        self.next(matcher, bytes, ScanEnd::Open)
    }

    /// The end of the stream: what was held back was no secret.
    pub fn finish(&mut self, matcher: &SecretMatcher) -> Vec<u8> {
        self.next(matcher, &[], ScanEnd::Whole)
    }

    /// A stream of which these bytes are held back.
    pub fn holding(held: Zeroizing<Vec<u8>>) -> StreamScrubber {
        StreamScrubber { held }
    }

    /// The bytes that are held back.
    pub fn into_held(self) -> Zeroizing<Vec<u8>> {
        self.held
    }

    /// Whether something is held back.
    pub fn is_holding(&self) -> bool {
        !self.held.is_empty()
    }

    fn next(&mut self, matcher: &SecretMatcher, bytes: &[u8], end: ScanEnd) -> Vec<u8> {
        let mut all = std::mem::take(&mut self.held);
        all.extend_from_slice(bytes);
        let mut scrubbed = Vec::with_capacity(all.len());
        let rest = matcher.scan(&all, end, |piece| match piece {
            Piece::Text(text) => scrubbed.extend_from_slice(text),
            Piece::Secret(found) => {
                scrubbed.extend_from_slice(secret_marker(matcher.found(found).name).as_bytes());
            }
        });
        self.held = Zeroizing::new(all[rest..].to_vec());
        scrubbed
    }
}

impl std::fmt::Debug for StreamScrubber {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StreamScrubber").field("held", &self.held.len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const TOKEN: &str = "tok-\"ü/9'&x";

    fn matcher() -> SecretMatcher {
        let secrets = [("token", TOKEN), ("pin", "83750192"), ("long", "tok-\"ü/9'&x and more")];
        SecretMatcher::new(secrets.map(|(name, value)| KnownSecret { name, value })).unwrap()
    }

    #[test]
    fn every_form_is_replaced_in_text() {
        let matcher = matcher();
        assert!(SecretMatcher::new([]).is_none());
        for form in forms(TOKEN) {
            let text = [b"before ", &form.bytes[..], b" after"].concat();
            let scrubbed = matcher.scrub_bytes(&text).into_owned();
            assert_eq!(String::from_utf8_lossy(&scrubbed), "before [secret token] after", "{}", form.code);
        }
        assert!(matches!(matcher.scrub("nothing of that kind"), Cow::Borrowed(_)));
        // The longest of several at one place.
        assert_eq!(matcher.scrub("tok-\"ü/9'&x and more"), "[secret long]");
        assert_eq!(matcher.scrub("tok-\"ü/9'&x and less"), "[secret token] and less");
        assert!(matcher.is_in("x83750192") && !matcher.is_in("8375019"));
    }

    #[test]
    fn a_secret_is_found_wherever_a_stream_is_split() {
        let matcher = matcher();
        for form in forms(TOKEN) {
            let text = [b"ab tok-", &form.bytes[..], b" tok-\"\xc3"].concat();
            for first in 0..=text.len() {
                for second in first..=text.len().min(first + 4) {
                    let mut stream = StreamScrubber::default();
                    let mut scrubbed = stream.push(&matcher, &text[..first]);
                    scrubbed.extend(stream.push(&matcher, &text[first..second]));
                    scrubbed.extend(stream.push(&matcher, &text[second..]));
                    assert!(!scrubbed.windows(form.bytes.len()).any(|part| part == &form.bytes[..]));
                    scrubbed.extend(stream.finish(&matcher));
                    let expected = b"ab tok-[secret token] tok-\"\xc3";
                    assert_eq!(scrubbed, expected, "{} {first} {second}", form.code);
                    assert!(!stream.is_holding());
                }
            }
        }
    }

    #[test]
    fn plain_output_is_not_held_back() {
        let (matcher, mut stream) = (matcher(), StreamScrubber::default());
        assert_eq!(stream.push(&matcher, b"Password: "), b"Password: ");
        assert_eq!(stream.push(&matcher, b"it is tok-"), b"it is ");
        assert!(stream.is_holding());
        assert_eq!(stream.push(&matcher, b"en\n"), b"tok-en\n");
    }

    #[test]
    fn values_are_scrubbed_whatever_their_shape() {
        let matcher = matcher();
        let mut value =
            json!({ "a": [TOKEN, 1], TOKEN: { "pin": 83_750_192, "x": [-837_501_920] }, "b": null });
        assert!(matcher.scrub_value(&mut value));
        let expected = json!({
            "a": ["[secret token]", 1],
            "[secret token]": { "pin": "[secret pin]", "x": ["-[secret pin]0"] },
            "b": null
        });
        assert_eq!(value, expected);
        let mut deep = json!(TOKEN);
        for _ in 0..100_000 {
            deep = Value::Array(vec![deep]);
        }
        assert!(matcher.scrub_value(&mut deep));
        windlass_args::json::dismantle(deep);
    }

    #[test]
    fn json_stays_json() {
        let matcher = matcher();
        let value = json!({ "text": TOKEN, "pin": 83_750_192, "more": [1.5, -83_750_192.25, "83750192"] });
        let scrubbed = matcher.scrub_json(&value.to_string()).into_owned();
        let expected = json!({
            "text": "[secret token]", "pin": "[secret pin]", "more": [1.5, "-[secret pin].25", "[secret pin]"]
        });
        assert_eq!(serde_json::from_str::<Value>(&scrubbed).unwrap(), expected);
        assert_eq!(matcher.scrub_json("83750192"), "\"[secret pin]\"");
    }
}
