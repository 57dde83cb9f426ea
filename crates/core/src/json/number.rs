//! Numbers: read exactly or refused.
//!
//! An integer fits `i64` or `u64`. A decimal becomes an `f64` and is exact if the shortest text of that `f64` has
//! the same digits, or if the `f64` has exactly the value that was written; so two different numbers never become
//! one.

use super::parser::Fault;
use crate::code::Code;
use serde_json::Number;

/// Reads the number that begins at `start`; returns it and the place behind it.
pub(super) fn read(text: &str, start: usize) -> Result<(Number, usize), Fault> {
    let bytes = text.as_bytes();
    let negative = bytes[start] == b'-';
    let digits_start = start + usize::from(negative);
    let whole = digits(bytes, digits_start, Digits::default());
    let fault = |what: &str| Fault { code: Code::InvalidJson, at: start, what: what.to_string() };
    match whole.end - digits_start {
        0 => return Err(fault("a minus sign needs digits behind it")),
        1 => {}
        _ if bytes[digits_start] == b'0' => {
            return Err(fault("a number must not begin with 0; drop the zeros"));
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

fn decimal(text: &str, start: usize, whole: Digits) -> Result<(Number, usize), Fault> {
    let bytes = text.as_bytes();
    let fault = |what: &str| Fault { code: Code::InvalidJson, at: start, what: what.to_string() };
    let mut all = whole;
    let mut exponent: i64 = 0;
    if bytes.get(all.end) == Some(&b'.') {
        let point = all.end;
        all = digits(bytes, point + 1, all);
        exponent = -((all.end - point - 1) as i64);
        if exponent == 0 {
            return Err(fault("a decimal point needs digits behind it"));
        }
    }
    let mut end = all.end;
    if let Some(b'e' | b'E') = bytes.get(end) {
        let sign = bytes.get(end + 1).copied();
        let from = end + 1 + usize::from(matches!(sign, Some(b'+' | b'-')));
        let power = digits(bytes, from, Digits::default());
        if power.end == from {
            return Err(fault("an exponent needs digits"));
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
    if !value.is_finite() {
        return false;
    }
    let written = significant(text);
    // No f64 has more than 767 significant digits.
    written == significant(&format!("{value:e}")) || written == significant(&format!("{value:.800e}"))
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

/// What a run of digits adds up to.
#[derive(Clone, Copy, Default)]
struct Digits {
    value: u64,
    overflown: bool,
    end: usize,
}

/// Reads digits from `at`, going on from what `before` adds up to.
fn digits(bytes: &[u8], mut at: usize, before: Digits) -> Digits {
    let Digits { mut value, mut overflown, .. } = before;
    while let Some(digit) = bytes.get(at).map(|byte| byte.wrapping_sub(b'0')).filter(|&digit| digit < 10) {
        match value.checked_mul(10).and_then(|tens| tens.checked_add(u64::from(digit))) {
            Some(more) => value = more,
            None => overflown = true,
        }
        at += 1;
    }
    Digits { value, overflown, end: at }
}

fn inexact(text: &str, start: usize, end: usize) -> Fault {
    let shown: String = text[start..end].chars().take(40).collect();
    let dots = if end - start > 40 { "…" } else { "" };
    Fault {
        code: Code::InexactNumber,
        at: start,
        what: format!(
            "the number {shown}{dots} cannot be held without rounding it; write it with fewer digits, or as a string \
             if the tool takes one"
        ),
    }
}
