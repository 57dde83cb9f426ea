//! The memory that a JSON text takes once it is read, estimated from the text alone: so a text that would swell is refused
//! before anything is allocated for it.

use super::JsonProblem;
use crate::code::ArgumentCode;
use crate::limits::ArgLimits;

/// A `Value`, wherever it lies.
const VALUE_BYTES: u64 = 32;
/// The first allocation of an array: four values, and what the allocator adds.
const ARRAY_BYTES: u64 = 4 * VALUE_BYTES + 16;
/// A node of the tree that an object is: eleven keys and values, used or not.
const NODE_BYTES: u64 = 656;
/// Keys in such a node at least, when they come in order.
const NODE_KEYS: u64 = 6;
/// The least that the allocator gives for a text that is not empty.
const TEXT_BYTES: u64 = 32;
/// No text takes more than so many times its size (`{"":0},` is the worst).
const SWELLS_MAX: u64 = 128;

/// Estimates the memory of the value that this text is, in bytes. A text that is not JSON has some weight, too. Arrays and
/// objects below `depth_max` levels count nothing: nobody reads them.
pub fn weight(text: &str, depth_max: u64) -> u64 {
    let bytes = text.as_bytes();
    let (mut weight, mut at, mut too_deep) = (VALUE_BYTES, 0, 0_u64);
    // How many keys each open object has; what is open and no object is an array.
    let mut open: Vec<Option<u64>> = Vec::new();
    while let Some(&byte) = bytes.get(at) {
        at += 1;
        match byte {
            b'"' => {
                let end = string_end(bytes, at);
                let length = (end - at) as u64;
                weight += if length == 0 { 0 } else { length.max(TEXT_BYTES) };
                at = end + 1;
            }
            b'[' | b'{' if open.len() as u64 >= depth_max => too_deep += 1,
            b']' | b'}' if too_deep > 0 => too_deep -= 1,
            b'{' => open.push(Some(0)),
            b'[' => {
                let is_empty = next(bytes, at) == Some(b']');
                weight += if is_empty { 0 } else { ARRAY_BYTES };
                open.push(None);
            }
            b']' | b'}' => drop(open.pop()),
            _ if too_deep > 0 => {}
            b',' => weight += VALUE_BYTES,
            b':' => {
                if let Some(Some(keys)) = open.last_mut() {
                    weight += if keys.is_multiple_of(NODE_KEYS) { NODE_BYTES } else { 0 };
                    *keys += 1;
                }
            }
            _ => {}
        }
    }
    weight
}

/// Refuses a text that would take more than `json_memory_bytes_max`.
pub(super) fn check(text: &str, limits: &ArgLimits) -> Result<(), JsonProblem> {
    let max = limits.json_memory_bytes_max;
    if (text.len() as u64).saturating_mul(SWELLS_MAX) <= max || weight(text, limits.args_depth_max) <= max {
        return Ok(());
    }
    let what = format!(
        "the JSON has so many values that it would take more than {max} bytes of memory; send fewer at once, for example in \
         several calls or as a file"
    );
    Err(JsonProblem::whole(ArgumentCode::TooLarge, what))
}

/// Where the string that begins here ends.
fn string_end(bytes: &[u8], mut at: usize) -> usize {
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'"' => return at,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// The next byte that is no white space.
fn next(bytes: &[u8], at: usize) -> Option<u8> {
    bytes[at..].iter().copied().find(|byte| !byte.is_ascii_whitespace())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::{parse, parse_result};

    fn many(item: &str, bytes: usize) -> String {
        format!("[{}{item}]", format!("{item},").repeat(bytes / (item.len() + 1)))
    }

    #[test]
    fn texts_that_swell_are_refused_and_others_are_not() {
        let limits = ArgLimits::default();
        for item in ["{}", r#"{"":0}"#, "[0]", "[]", "0", r#""a""#] {
            let problem = parse_result(&many(item, 7 << 20), &limits).expect_err(item);
            assert_eq!(problem.code, ArgumentCode::TooLarge, "{item}");
        }
        let problem = parse(&many(r#"{"":0}"#, 1_000_000), &limits).expect_err("as arguments, too");
        assert_eq!(problem.code, ArgumentCode::TooLarge);
        let long = "x".repeat(1_000);
        for item in ["123456789", &format!(r#"{{"name": "{long}", "n": 1}}"#)] {
            parse_result(&many(item, 7 << 20), &limits).expect(item);
        }
    }

    #[test]
    fn no_text_swells_more_than_is_assumed() {
        for item in ["{}", r#"{"":0}"#, "[0]", "[[0]]", r#"{"":{"":0}}"#, r#"{"":[0]}"#, r#""a""#, "0"] {
            let text = many(item, 10_000);
            assert!(weight(&text, 64) <= text.len() as u64 * SWELLS_MAX, "{item}");
        }
    }

    #[test]
    fn text_that_is_no_json_is_weighed_without_harm() {
        for text in ["", "\"", "\"\\", "]}]", ":::", "{\"a\\\"", "[\"\\u", "ü\"ü"] {
            weight(text, 64);
        }
    }
}
