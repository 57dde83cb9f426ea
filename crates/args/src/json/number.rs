//! Numbers: read exactly or refused.
//!
//! An integer fits `i64` or `u64`. A decimal becomes an `f64` and is exact if the shortest text of that `f64` has
//! the same digits, or if the `f64` has exactly the value that was written; so two different numbers never become
//! one.

use super::parser::ParseFault;
use crate::code::ArgumentCode;
use serde_json::Number;
use std::fmt::Write;

/// Reads the number that begins at `start`; returns it and the place behind it.
pub(super) fn read(text: &str, start: usize) -> Result<(Number, usize), ParseFault> {
    let bytes = text.as_bytes();
    let negative = bytes[start] == b'-';
    let digits_start = start + usize::from(negative);
    let whole = digits(bytes, digits_start, Digits::default());
    let fault = |what: &str, end: usize| ParseFault {
        code: ArgumentCode::InvalidJson,
        at: start,
        what: what.to_string(),
        ended: end == text.len(),
    };
    match whole.end - digits_start {
        0 => return Err(fault("a minus sign needs digits behind it", digits_start)),
        1 => {}
        _ if bytes[digits_start] == b'0' => {
            return Err(fault("a number must not begin with 0; drop the zeros", start));
        }
        _ => {}
    }
    match bytes.get(whole.end) {
        Some(b'.' | b'e' | b'E') => decimal(text, start, whole),
        _ => match integer(negative, &whole) {
            Some(number) => Ok((number, whole.end)),
            None => Err(inexact(text, start, whole.end)),
        },
    }
}

fn integer(negative: bool, whole: &Digits) -> Option<Number> {
    let magnitude = (!whole.overflown).then_some(whole.value)?;
    if negative {
        0i64.checked_sub_unsigned(magnitude).map(Number::from)
    } else {
        Some(Number::from(magnitude))
    }
}

fn decimal(text: &str, start: usize, whole: Digits) -> Result<(Number, usize), ParseFault> {
    let bytes = text.as_bytes();
    let fault = |what: &str, end: usize| ParseFault {
        code: ArgumentCode::InvalidJson,
        at: start,
        what: what.to_string(),
        ended: end == text.len(),
    };
    let mut all = whole;
    let mut exponent: i64 = 0;
    if bytes.get(all.end) == Some(&b'.') {
        let point = all.end;
        all = digits(bytes, point + 1, all);
        exponent = -((all.end - point - 1) as i64);
        if exponent == 0 {
            return Err(fault("a decimal point needs digits behind it", point + 1));
        }
    }
    let mut end = all.end;
    if let Some(b'e' | b'E') = bytes.get(end) {
        let sign = bytes.get(end + 1).copied();
        let from = end + 1 + usize::from(matches!(sign, Some(b'+' | b'-')));
        let power = digits(bytes, from, Digits::default());
        if power.end == from {
            return Err(fault("an exponent needs digits", from));
        }
        end = power.end;
        // An exponent this long is out of range whatever the digits are.
        let size = if power.overflown { 1 << 40 } else { power.value.min(1 << 40) as i64 };
        exponent += if sign == Some(b'-') { -size } else { size };
    }
    let value = match short(&all, exponent) {
        Some(value) if bytes[start] == b'-' => Some(-value),
        Some(value) => Some(value),
        None => text[start..end].parse().ok().filter(|value| is_exact(&text[start..end], *value)),
    };
    match value.and_then(Number::from_f64) {
        Some(number) => Ok((number, end)),
        None => Err(inexact(text, start, end)),
    }
}

/// The value of at most 15 digits and a small exponent: both are exact as `f64`, so one operation rounds once, and
/// 15 digits always survive.
fn short(all: &Digits, exponent: i64) -> Option<f64> {
    const POWERS: [f64; 23] = [
        1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17,
        1e18, 1e19, 1e20, 1e21, 1e22,
    ];
    if all.overflown || all.value >= 1_000_000_000_000_000 {
        return None;
    }
    let power = POWERS.get(usize::try_from(exponent.unsigned_abs()).ok()?)?;
    let digits = all.value as f64;
    Some(if exponent < 0 { digits / power } else { digits * power })
}

fn is_exact(text: &str, value: f64) -> bool {
    let Some(number) = Number::from_f64(value) else { return false };
    let mut shortest = Short::default();
    // Nearly always the digits are the shortest ones, which needs no allocation to find out.
    if write!(shortest, "{number}").is_ok()
        && let (Some(written), Some(shortest)) = (small(text), small(shortest.as_str()))
        && written == shortest
    {
        return true;
    }
    // No f64 has more than 767 significant digits.
    let written = significant(text);
    written == significant(&format!("{value:e}")) || written == significant(&format!("{value:.800e}"))
}

/// A number as [`significant`] has it, if its digits fit a `u64`.
fn small(text: &str) -> Option<(u64, i64)> {
    let (mut value, mut exponent, mut is_fraction) = (0u64, 0i64, false);
    let mut bytes = text.bytes();
    for byte in bytes.by_ref() {
        match byte {
            b'0'..=b'9' => {
                value = value.checked_mul(10)?.checked_add(u64::from(byte - b'0'))?;
                exponent -= i64::from(is_fraction);
            }
            b'.' => is_fraction = true,
            b'e' | b'E' => break,
            _ => {}
        }
    }
    let power = &text[text.len() - bytes.len()..];
    exponent +=
        if power.is_empty() { 0 } else { power.parse::<i64>().ok().filter(|power| power.abs() < 1 << 40)? };
    while value != 0 && value.is_multiple_of(10) {
        (value, exponent) = (value / 10, exponent + 1);
    }
    Some(if value == 0 { (0, 0) } else { (value, exponent) })
}

/// Room for the shortest text of any `f64`.
#[derive(Default)]
struct Short {
    bytes: [u8; 32],
    length: usize,
}

impl Short {
    fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.length]).unwrap_or_default()
    }
}

impl Write for Short {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let room = self.bytes.get_mut(self.length..self.length + text.len()).ok_or(std::fmt::Error)?;
        room.copy_from_slice(text.as_bytes());
        self.length += text.len();
        Ok(())
    }
}

/// A number as its digits without zeros around them, and the power of ten of the last one.
fn significant(text: &str) -> (String, i64) {
    let (digits, power) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let mut exponent: i64 =
        power.parse().unwrap_or(if power.starts_with('-') { -(1 << 40) } else { 1 << 40 });
    if let Some((_, fraction)) = digits.split_once('.') {
        exponent -= fraction.len() as i64;
    }
    let mut digits: String =
        digits.chars().filter(char::is_ascii_digit).skip_while(|&digit| digit == '0').collect();
    let trimmed = digits.trim_end_matches('0').len();
    exponent += (digits.len() - trimmed) as i64;
    digits.truncate(trimmed);
    if digits.is_empty() { (digits, 0) } else { (digits, exponent) }
}

/// The value of a run of digits.
#[derive(Clone, Copy, Default)]
struct Digits {
    value: u64,
    overflown: bool,
    end: usize,
}

/// Reads digits from `at`, going on from what `before` adds up to.
#[inline]
fn digits(bytes: &[u8], start: usize, before: Digits) -> Digits {
    let Digits { mut value, mut overflown, .. } = before;
    let mut at = start;
    // Ten digits on top of less than a billion cannot overflow.
    let unchecked_end = if value < 1_000_000_000 { bytes.len().min(start + 10) } else { start };
    while at < unchecked_end && bytes[at].is_ascii_digit() {
        value = value * 10 + u64::from(bytes[at] - b'0');
        at += 1;
    }
    while let Some(digit) = bytes.get(at).map(|byte| byte.wrapping_sub(b'0')).filter(|&digit| digit < 10) {
        match value.checked_mul(10).and_then(|tens| tens.checked_add(u64::from(digit))) {
            Some(more) => value = more,
            None => overflown = true,
        }
        at += 1;
    }
    Digits { value, overflown, end: at }
}

fn inexact(text: &str, start: usize, end: usize) -> ParseFault {
    let shown: String = text[start..end].chars().take(40).collect();
    let dots = if end - start > 40 { "…" } else { "" };
    ParseFault {
        code: ArgumentCode::InexactNumber,
        at: start,
        what: format!(
            "the number {shown}{dots} cannot be held without rounding it; write it with fewer digits, or as a string \
             if the tool takes one"
        ),
        ended: false,
    }
}
