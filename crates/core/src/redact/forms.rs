//! The forms in which the value of a secret is recognised: as it is, encoded, and encoded twice.
//!
//! Each form has a code, which references in recorded arguments carry: a released code never changes its meaning.

use zeroize::Zeroizing;

/// The code of the value as it is.
const PLAIN: &str = "p";
/// Values longer than this are recognised in single encodings only: two of them would take too much memory.
const TWICE_BYTES_MAX: usize = 256;

/// An encoding of bytes, with its code.
type Encoding = (&'static str, fn(&[u8]) -> Vec<u8>);

/// The encodings that are recognised by themselves.
const SINGLE: [Encoding; 52] = [
    ("json", |value| json(value, JsonStyle::Minimal)),
    ("jsons", |value| json(value, JsonStyle::Slashes)),
    ("jsonl", |value| json(value, JsonStyle::AsciiLower)),
    ("jsonu", |value| json(value, JsonStyle::AsciiUpper)),
    ("esc", |value| json(value, JsonStyle::AllLower)),
    ("escu", |value| json(value, JsonStyle::AllUpper)),
    ("b64", |value| base64(value, STANDARD, true)),
    ("b64n", |value| base64(value, STANDARD, false)),
    ("b64w", |value| base64(value, URL_SAFE, true)),
    ("b64wn", |value| base64(value, URL_SAFE, false)),
    ("b64s0", |value| inner(value, 0, 6, STANDARD)),
    ("b64s1", |value| inner(value, 1, 6, STANDARD)),
    ("b64s2", |value| inner(value, 2, 6, STANDARD)),
    ("b64u0", |value| inner(value, 0, 6, URL_SAFE)),
    ("b64u1", |value| inner(value, 1, 6, URL_SAFE)),
    ("b64u2", |value| inner(value, 2, 6, URL_SAFE)),
    ("hex", |value| hex(value, HEX_LOWER, "", "")),
    ("hexu", |value| hex(value, HEX_UPPER, "", "")),
    ("hexc", |value| hex(value, HEX_LOWER, "", ":")),
    ("hexcu", |value| hex(value, HEX_UPPER, "", ":")),
    ("hexb", |value| hex(value, HEX_LOWER, "", " ")),
    ("hexbu", |value| hex(value, HEX_UPPER, "", " ")),
    ("hexx", |value| hex(value, HEX_LOWER, "\\x", "")),
    ("hexxu", |value| hex(value, HEX_UPPER, "\\x", "")),
    ("hex0", |value| hex(value, HEX_LOWER, "0x", ", ")),
    ("url", |value| percent(value, is_unreserved, HEX_UPPER)),
    ("urll", |value| percent(value, is_unreserved, HEX_LOWER)),
    ("urlf", |value| percent(value, |_| false, HEX_UPPER)),
    ("urlfl", |value| percent(value, |_| false, HEX_LOWER)),
    ("uri", |value| percent(value, is_of_uri, HEX_UPPER)),
    ("form", form),
    ("html", |value| html(value, HtmlStyle::Decimal)),
    ("htmlx", |value| html(value, HtmlStyle::Hex)),
    ("htmla", |value| html(value, HtmlStyle::Named)),
    ("htmld", |value| html(value, HtmlStyle::AllDecimal)),
    ("htmlh", |value| html(value, HtmlStyle::AllHex)),
    ("rev", |value| text(value).chars().rev().collect::<String>().into_bytes()),
    ("low", |value| text(value).to_lowercase().into_bytes()),
    ("up", |value| text(value).to_uppercase().into_bytes()),
    ("u16l", |value| text(value).encode_utf16().flat_map(u16::to_le_bytes).collect()),
    ("u16b", |value| text(value).encode_utf16().flat_map(u16::to_be_bytes).collect()),
    ("b320", |value| inner(value, 0, 5, BASE32)),
    ("b321", |value| inner(value, 1, 5, BASE32)),
    ("b322", |value| inner(value, 2, 5, BASE32)),
    ("b323", |value| inner(value, 3, 5, BASE32)),
    ("b324", |value| inner(value, 4, 5, BASE32)),
    ("b32l", |value| inner(value, 0, 5, BASE32_LOWER)),
    ("qp", |value| hex(value, HEX_UPPER, "=", "")),
    ("oct", octal),
    ("sh", |value| text(value).replace('\'', "'\\''").into_bytes()),
    ("deb", |value| quoted(&format!("{:?}", text(value)))),
    ("dec", decimals),
];

/// The encodings that are recognised in other encodings: each of the first in each of the second.
const TWICE: [(&[&str], &[&str]); 7] = [
    (&["json", "url", "hex", "hexu", "b64", "u16l", "html", "rev", "form"], &["b64s0", "b64s1", "b64s2"]),
    (&["json", "url", "b64"], &["b64u0", "b64u1", "b64u2"]),
    (&["b64s1", "b64s2"], &["b64s0", "b64s1", "b64s2"]),
    (&["json", "b64", "url", "u16l"], &["hex", "hexu"]),
    (&["json", "url", "urll", "b64", "b64w", "html", "form"], &["url", "urll"]),
    (&["json", "html", "b64"], &["json", "jsons"]),
    (&["json", "b64", "hex"], &["html", "rev"]),
];

/// A form of a value, with its code.
pub(super) struct Form {
    pub(super) code: String,
    pub(super) bytes: Zeroizing<Vec<u8>>,
}

/// The forms of a value, each different text once.
pub(super) fn forms(value: &str) -> Vec<Form> {
    let mut forms = vec![Form { code: PLAIN.to_string(), bytes: Zeroizing::new(value.as_bytes().to_vec()) }];
    let mut add = |code: String, bytes: Vec<u8>| {
        let bytes = Zeroizing::new(bytes);
        if !forms.iter().any(|known| known.bytes == bytes) {
            forms.push(Form { code, bytes });
        }
    };
    for (code, encode) in SINGLE {
        add(code.to_string(), encode(value.as_bytes()));
    }
    if value.len() <= TWICE_BYTES_MAX {
        for (first, second) in TWICE.iter().flat_map(|(first, second)| {
            first.iter().flat_map(move |first| second.iter().map(move |second| (*first, *second)))
        }) {
            let code = format!("{first}.{second}");
            add(code.clone(), form_of(value, &code).map(|bytes| bytes.to_vec()).unwrap_or_default());
        }
    }
    forms
}

/// The value in the form of a code; `None` if there is no such form.
pub(super) fn form_of(value: &str, code: &str) -> Option<Zeroizing<Vec<u8>>> {
    let plain = Zeroizing::new(value.as_bytes().to_vec());
    if code == PLAIN {
        return Some(plain);
    }
    code.split('.').try_fold(plain, |bytes, code| {
        let (_, encode) = SINGLE.iter().find(|(known, _)| *known == code)?;
        Some(Zeroizing::new(encode(&bytes)))
    })
}

const STANDARD: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const URL_SAFE: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
const BASE32: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
const BASE32_LOWER: &[u8] = b"abcdefghijklmnopqrstuvwxyz234567";
const HEX_LOWER: &[u8; 16] = b"0123456789abcdef";
const HEX_UPPER: &[u8; 16] = b"0123456789ABCDEF";

/// The text of a value. Only encodings of text make other texts of it.
fn text(value: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(value)
}

/// Bytes in digits of `bits` bits, behind `shift` zero bytes; the last digit may be filled up with zeros.
fn digits(value: &[u8], shift: usize, bits: usize, alphabet: &[u8]) -> Vec<u8> {
    let whole = [&vec![0; shift][..], value].concat();
    let bit = |at: usize| whole.get(at / 8).map_or(0, |byte| usize::from(byte >> (7 - at % 8)) & 1);
    let digit = |place: usize| (0..bits).fold(0, |sum, at| sum << 1 | bit(place * bits + at));
    (0..(whole.len() * 8).div_ceil(bits)).map(|place| alphabet[digit(place)]).collect()
}

/// The digits that are the same whatever stands before and behind the value, where `shift` bytes stand before it.
fn inner(value: &[u8], shift: usize, bits: usize, alphabet: &[u8]) -> Vec<u8> {
    let (first, last) = ((shift * 8).div_ceil(bits), (shift + value.len()) * 8 / bits);
    digits(value, shift, bits, alphabet)[first..last].to_vec()
}

fn base64(value: &[u8], alphabet: &[u8], is_padded: bool) -> Vec<u8> {
    let mut encoded = digits(value, 0, 6, alphabet);
    while is_padded && !encoded.len().is_multiple_of(4) {
        encoded.push(b'=');
    }
    encoded
}

fn hex(value: &[u8], alphabet: &[u8; 16], before: &str, between: &str) -> Vec<u8> {
    let mut encoded = Vec::with_capacity(value.len() * (2 + before.len() + between.len()));
    for (place, byte) in value.iter().enumerate() {
        if place > 0 {
            encoded.extend_from_slice(between.as_bytes());
        }
        encoded.extend_from_slice(before.as_bytes());
        encoded.extend([alphabet[usize::from(byte >> 4)], alphabet[usize::from(byte & 15)]]);
    }
    encoded
}

fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)
}

/// Whether `encodeURI` leaves the byte as it is.
fn is_of_uri(byte: u8) -> bool {
    is_unreserved(byte) || b"!*'();:@&=+$,/?#".contains(&byte)
}

fn percent(value: &[u8], is_kept: fn(u8) -> bool, alphabet: &[u8; 16]) -> Vec<u8> {
    let mut encoded = Vec::with_capacity(value.len() * 3);
    for &byte in value {
        match is_kept(byte) {
            true => encoded.push(byte),
            false => encoded.extend(hex(&[byte], alphabet, "%", "")),
        }
    }
    encoded
}

/// As in the body of a posted form.
fn form(value: &[u8]) -> Vec<u8> {
    let is_kept = |byte: u8| byte.is_ascii_alphanumeric() || b"*-._ ".contains(&byte);
    percent(value, is_kept, HEX_UPPER)
        .into_iter()
        .map(|byte| if byte == b' ' { b'+' } else { byte })
        .collect()
}

#[derive(Clone, Copy, PartialEq)]
enum JsonStyle {
    Minimal,
    Slashes,
    AsciiLower,
    AsciiUpper,
    AllLower,
    AllUpper,
}

/// As inside a JSON string.
fn json(value: &[u8], style: JsonStyle) -> Vec<u8> {
    let is_upper = matches!(style, JsonStyle::AsciiUpper | JsonStyle::AllUpper);
    let unit = |unit: u16| match is_upper {
        true => format!("\\u{unit:04X}"),
        false => format!("\\u{unit:04x}"),
    };
    let escaped = |letter: char| letter.encode_utf16(&mut [0; 2]).iter().map(|next| unit(*next)).collect();
    let is_all = matches!(style, JsonStyle::AllLower | JsonStyle::AllUpper);
    let encoded: String = text(value)
        .chars()
        .map(|letter| match letter {
            letter if is_all => escaped(letter),
            '"' => "\\\"".to_string(),
            '\\' => "\\\\".to_string(),
            '\n' => "\\n".to_string(),
            '\r' => "\\r".to_string(),
            '\t' => "\\t".to_string(),
            '\u{8}' => "\\b".to_string(),
            '\u{c}' => "\\f".to_string(),
            '/' if style != JsonStyle::Minimal => "\\/".to_string(),
            letter if letter < ' ' => escaped(letter),
            letter
                if !letter.is_ascii() && matches!(style, JsonStyle::AsciiLower | JsonStyle::AsciiUpper) =>
            {
                escaped(letter)
            }
            letter => letter.to_string(),
        })
        .collect();
    encoded.into_bytes()
}

#[derive(Clone, Copy)]
enum HtmlStyle {
    Decimal,
    Hex,
    Named,
    AllDecimal,
    AllHex,
}

fn html(value: &[u8], style: HtmlStyle) -> Vec<u8> {
    let escaped = |letter: char| match (letter, style) {
        (letter, HtmlStyle::AllDecimal) => format!("&#{};", u32::from(letter)),
        (letter, HtmlStyle::AllHex) => format!("&#x{:x};", u32::from(letter)),
        ('&', _) => "&amp;".to_string(),
        ('<', _) => "&lt;".to_string(),
        ('>', _) => "&gt;".to_string(),
        ('"', HtmlStyle::Hex) => "&#34;".to_string(),
        ('"', _) => "&quot;".to_string(),
        ('\'', HtmlStyle::Decimal) => "&#39;".to_string(),
        ('\'', HtmlStyle::Hex) => "&#x27;".to_string(),
        ('\'', _) => "&apos;".to_string(),
        (letter, _) => letter.to_string(),
    };
    text(value).chars().map(escaped).collect::<String>().into_bytes()
}

fn octal(value: &[u8]) -> Vec<u8> {
    value.iter().map(|byte| format!("\\{byte:03o}")).collect::<String>().into_bytes()
}

/// As a list of numbers.
fn decimals(value: &[u8]) -> Vec<u8> {
    value.iter().map(u8::to_string).collect::<Vec<_>>().join(",").into_bytes()
}

/// A quoted text without its quotes.
fn quoted(text: &str) -> Vec<u8> {
    text.get(1..text.len().saturating_sub(1)).unwrap_or_default().as_bytes().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(value: &str, code: &str) -> String {
        String::from_utf8(form_of(value, code).unwrap().to_vec()).unwrap()
    }

    #[test]
    fn encodings_are_those_that_others_use() {
        let value = "p/s s+\"&'<é~w0rd";
        for (code, expected) in [
            ("p", value),
            ("json", "p/s s+\\\"&'<é~w0rd"),
            ("jsonu", "p\\/s s+\\\"&'<\\u00E9~w0rd"),
            ("b64", "cC9zIHMrIiYnPMOpfncwcmQ="),
            ("b64wn", "cC9zIHMrIiYnPMOpfncwcmQ"),
            ("url", "p%2Fs%20s%2B%22%26%27%3C%C3%A9~w0rd"),
            ("form", "p%2Fs+s%2B%22%26%27%3C%C3%A9%7Ew0rd"),
            ("uri", "p/s%20s+%22&'%3C%C3%A9~w0rd"),
            ("html", "p/s s+&quot;&amp;&#39;&lt;é~w0rd"),
            ("rev", "dr0w~é<'&\"+s s/p"),
            ("url.url", "p%252Fs%2520s%252B%2522%2526%2527%253C%25C3%25A9~w0rd"),
        ] {
            assert_eq!(form(value, code), expected, "{code}");
        }
        assert_eq!(form("foobar", "b320"), "MZXW6YTBO");
        assert_eq!(form("foobar", "hexc"), "66:6f:6f:62:61:72");
        assert_eq!(form("foobar", "u16l"), "f\0o\0o\0b\0a\0r\0");
        assert!(form_of("foobar", "none").is_none() && form_of("foobar", "json.none").is_none());
    }

    #[test]
    fn inner_digits_are_found_at_every_alignment() {
        for shift in 0..9 {
            for after in 0..4 {
                let whole = [&vec![b'x'; shift][..], b"hunter2hunter2", &vec![b'y'; after][..]].concat();
                let encoded = String::from_utf8(base64(&whole, STANDARD, true)).unwrap();
                let inner = ["b64s0", "b64s1", "b64s2"].map(|code| form("hunter2hunter2", code));
                assert!(inner.iter().any(|inner| encoded.contains(inner)), "{shift} {after}");
            }
        }
    }

    #[test]
    fn codes_are_unique_and_every_form_is_found_by_its_code() {
        let value = "pä\"ss'w/rd+<&>\u{1}";
        let forms = forms(value);
        assert!(forms.len() > 80, "{}", forms.len());
        for form in &forms {
            assert_eq!(form_of(value, &form.code), Some(form.bytes.clone()), "{}", form.code);
            assert!(form.bytes.len() >= 8, "{}", form.code);
        }
        let codes: std::collections::BTreeSet<&str> = forms.iter().map(|form| form.code.as_str()).collect();
        assert_eq!(codes.len(), forms.len());
    }
}
