//! Strings: the stretch without escapes in one copy, escapes one by one.

use super::parser::ParseFault;
use crate::code::ArgumentCode;

/// Reads the string whose first character is at `start` (behind its quote). Returns it and the place behind its
/// closing quote.
pub(super) fn read(text: &str, start: usize) -> Result<(String, usize), ParseFault> {
    let bytes = text.as_bytes();
    let mut end = plain_end(bytes, start);
    if bytes.get(end) == Some(&b'"') {
        return Ok((text[start..end].to_owned(), end + 1));
    }
    let mut out = text[start..end].to_owned();
    loop {
        match bytes.get(end) {
            Some(b'"') => return Ok((out, end + 1)),
            Some(b'\\') => end = escape(bytes, end, &mut out)?,
            Some(control) => return Err(unescaped(*control, end)),
            None => {
                return Err(ended(invalid(
                    start - 1,
                    "the string that begins here never ends; close it with \"",
                )));
            }
        }
        let plain = end;
        end = plain_end(bytes, plain);
        out.push_str(&text[plain..end]);
    }
}

/// The first place from `at` on that is a quote, a backslash, a control character or the end.
fn plain_end(bytes: &[u8], mut at: usize) -> usize {
    const ONES: u64 = u64::from_le_bytes([1; 8]);
    const HIGHS: u64 = u64::from_le_bytes([0x80; 8]);
    // Eight bytes at a time: a byte of the word is zero exactly where the lowest such high bit is set.
    let zeros = |word: u64| word.wrapping_sub(ONES) & !word & HIGHS;
    while let Some(chunk) = bytes.get(at..at + 8).and_then(|chunk| <[u8; 8]>::try_from(chunk).ok()) {
        let word = u64::from_le_bytes(chunk);
        let quote = zeros(word ^ (ONES * b'"' as u64));
        let backslash = zeros(word ^ (ONES * b'\\' as u64));
        let control = word.wrapping_sub(ONES * 0x20) & !word & HIGHS;
        let special = quote | backslash | control;
        if special != 0 {
            return at + special.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    while bytes.get(at).is_some_and(|&byte| byte != b'"' && byte != b'\\' && byte >= 0x20) {
        at += 1;
    }
    at
}

/// Reads the escape whose backslash is at `at`; returns the place behind it.
fn escape(bytes: &[u8], at: usize, out: &mut String) -> Result<usize, ParseFault> {
    let letter = match bytes.get(at + 1) {
        Some(b'"') => '"',
        Some(b'\\') => '\\',
        Some(b'/') => '/',
        Some(b'b') => '\u{8}',
        Some(b'f') => '\u{c}',
        Some(b'n') => '\n',
        Some(b'r') => '\r',
        Some(b't') => '\t',
        Some(b'u') => return unicode(bytes, at, out),
        Some(_) => {
            return Err(invalid(
                at,
                "this is no JSON escape; write \\\\ for a backslash, \\n for a new line",
            ));
        }
        None => return Err(ended(invalid(at, "the text ends inside an escape; write the whole JSON"))),
    };
    out.push(letter);
    Ok(at + 2)
}

fn unicode(bytes: &[u8], at: usize, out: &mut String) -> Result<usize, ParseFault> {
    let lone = || {
        invalid(at, "half of a surrogate pair stands alone; write both \\u halves or the character itself")
    };
    let first = hex(bytes, at)?;
    let (scalar, end) = match first {
        0xd800..=0xdbff => {
            if bytes.get(at + 6..at + 8) != Some(b"\\u") {
                let is_cut = matches!(bytes[at + 6..], [] | [b'\\']);
                return Err(ParseFault { ended: is_cut, ..lone() });
            }
            let second = hex(bytes, at + 6)?;
            if !(0xdc00..=0xdfff).contains(&second) {
                return Err(lone());
            }
            (0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00), at + 12)
        }
        other => (other, at + 6),
    };
    out.push(char::from_u32(scalar).ok_or_else(lone)?);
    Ok(end)
}

/// The four hexadecimal digits of the `\u` at `at`.
fn hex(bytes: &[u8], at: usize) -> Result<u32, ParseFault> {
    let digits = bytes.get(at + 2..at + 6).unwrap_or_default();
    let value = digits
        .iter()
        .try_fold(0, |value, &digit| (digit as char).to_digit(16).map(|digit| value << 4 | digit));
    match value {
        Some(value) if digits.len() == 4 => Ok(value),
        _ => {
            let rest = bytes.get(at + 2..).unwrap_or_default();
            let is_cut = rest.len() < 4 && rest.iter().all(u8::is_ascii_hexdigit);
            Err(ParseFault { ended: is_cut, ..invalid(at, "\\u needs four hexadecimal digits") })
        }
    }
}

fn unescaped(control: u8, at: usize) -> ParseFault {
    let escape = match control {
        b'\n' => "\\n".to_string(),
        b'\r' => "\\r".to_string(),
        b'\t' => "\\t".to_string(),
        other => format!("\\u{other:04x}"),
    };
    invalid(at, format!("a control character stands in a string; write it as {escape}"))
}

fn invalid(at: usize, what: impl Into<String>) -> ParseFault {
    ParseFault { code: ArgumentCode::InvalidJson, at, what: what.into(), ended: false }
}

fn ended(fault: ParseFault) -> ParseFault {
    ParseFault { ended: true, ..fault }
}
