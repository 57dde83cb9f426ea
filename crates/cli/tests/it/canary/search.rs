//! The search for canaries, in many encodings that are written apart from those of the runtime.

use super::CANARIES;
use serde_json::json;

/// A value in many encodings, written apart from those of the runtime.
#[expect(clippy::too_many_lines, reason = "it is a list")]
pub fn encodings(value: &str) -> Vec<(String, Vec<u8>)> {
    let bytes = value.as_bytes();
    let hex = |upper: bool, before: &str, between: &str| {
        let digits = bytes.iter().map(|byte| match upper {
            true => format!("{before}{byte:02X}"),
            false => format!("{before}{byte:02x}"),
        });
        digits.collect::<Vec<_>>().join(between).into_bytes()
    };
    let url = |bytes: &[u8], is_all: bool, upper: bool| {
        let encoded = bytes.iter().map(|byte| {
            match (byte.is_ascii_alphanumeric() || b"-._~".contains(byte)) && !is_all {
                true => char::from(*byte).to_string(),
                false if upper => format!("%{byte:02X}"),
                false => format!("%{byte:02x}"),
            }
        });
        encoded.collect::<String>()
    };
    let json_text = |text: &str| json!(text).to_string().trim_matches('"').to_string();
    // `trim_matches` would also take escaped quotes at the ends, which the canaries do not have.
    let units = |upper: bool| {
        value
            .encode_utf16()
            .map(|unit| if upper { format!("\\u{unit:04X}") } else { format!("\\u{unit:04x}") })
            .collect::<String>()
    };
    let html = value.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;");
    let entities = value.chars().map(|letter| format!("&#{};", u32::from(letter))).collect::<String>();
    let le: Vec<u8> = value.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let be: Vec<u8> = value.encode_utf16().flat_map(u16::to_be_bytes).collect();
    let mut found: Vec<(String, Vec<u8>)> = Vec::new();
    let mut add = |name: &str, bytes: Vec<u8>| found.push((name.to_string(), bytes));
    add("plain", bytes.to_vec());
    add("reversed", value.chars().rev().collect::<String>().into_bytes());
    add("lower", value.to_lowercase().into_bytes());
    add("upper", value.to_uppercase().into_bytes());
    for (name, upper, before, between) in [
        ("hex", false, "", ""),
        ("HEX", true, "", ""),
        ("hex:", false, "", ":"),
        ("HEX:", true, "", ":"),
        ("hex ", false, "", " "),
        ("HEX ", true, "", " "),
        ("\\xhex", false, "\\x", ""),
        ("\\xHEX", true, "\\x", ""),
        ("=HEX", true, "=", ""),
        ("0xhex", false, "0x", ", "),
    ] {
        add(name, hex(upper, before, between));
    }
    for (name, is_all, upper) in [
        ("url", false, true),
        ("url lower", false, false),
        ("url all", true, true),
        ("url all lower", true, false),
    ] {
        add(name, url(bytes, is_all, upper).into_bytes());
    }
    add("url twice", url(url(bytes, false, true).as_bytes(), false, true).into_bytes());
    add("url of json", url(json_text(value).as_bytes(), false, true).into_bytes());
    add("json", json_text(value).into_bytes());
    add("json twice", json_text(&json_text(value)).into_bytes());
    add("json with slashes", json_text(value).replace('/', "\\/").into_bytes());
    add("units", units(false).into_bytes());
    add("UNITS", units(true).into_bytes());
    add("utf-16le", le.clone());
    add("utf-16be", be);
    add("html", html.replace('\'', "&#39;").into_bytes());
    add("html x27", html.replace("&quot;", "&#34;").replace('\'', "&#x27;").into_bytes());
    add("html apos", html.replace('\'', "&apos;").into_bytes());
    add("entities", entities.into_bytes());
    add("octal", bytes.iter().map(|byte| format!("\\{byte:03o}")).collect::<String>().into_bytes());
    add(
        "form",
        url(bytes, false, true).replace("%20", "+").replace("%2A", "*").replace('~', "%7E").into_bytes(),
    );
    for (name, of) in [
        ("", bytes.to_vec()),
        (" of json", json_text(value).into_bytes()),
        (" of hex", hex(false, "", "")),
        (" of HEX", hex(true, "", "")),
        (" of url", url(bytes, false, true).into_bytes()),
        (" of utf-16", le),
        (" of base64", base64(bytes, 0, false)),
    ] {
        for shift in 0..3 {
            add(&format!("base64{name} +{shift}"), base64(&of, shift, false));
            add(&format!("base64url{name} +{shift}"), base64(&of, shift, true));
        }
    }
    add(
        "hex of base64",
        base64(bytes, 0, false).iter().map(|byte| format!("{byte:02x}")).collect::<String>().into_bytes(),
    );
    add("url of base64", url(&base64(bytes, 0, false), false, true).into_bytes());
    found
}

/// The digits of a base64 text that the bytes alone decide, behind so many other bytes.
fn base64(bytes: &[u8], shift: usize, is_url_safe: bool) -> Vec<u8> {
    let alphabet: Vec<u8> = (b'A'..=b'Z')
        .chain(b'a'..=b'z')
        .chain(b'0'..=b'9')
        .chain(if is_url_safe { *b"-_" } else { *b"+/" })
        .collect();
    let mut bits = String::new();
    for byte in std::iter::repeat_n(&0, shift).chain(bytes) {
        bits.push_str(&format!("{byte:08b}"));
    }
    let first = (shift * 8).div_ceil(6) * 6;
    let whole = bits.as_bytes()[first..].chunks_exact(6);
    whole
        .map(|digit| digit.iter().fold(0, |sum, bit| sum * 2 + usize::from(bit - b'0')))
        .map(|digit| alphabet[digit])
        .collect()
}

/// Where canaries are in some bytes.
pub fn hits(bytes: &[u8]) -> Vec<String> {
    let mut found = Vec::new();
    for (name, value) in CANARIES {
        for (encoding, wanted) in encodings(value) {
            if has(bytes, &wanted) {
                found.push(format!("{name} as {encoding}"));
            }
        }
    }
    found
}

pub fn has(bytes: &[u8], wanted: &[u8]) -> bool {
    let first = wanted[0];
    let mut rest = bytes;
    while let Some(at) = rest.iter().position(|byte| *byte == first) {
        rest = &rest[at..];
        if rest.starts_with(wanted) {
            return true;
        }
        rest = &rest[1..];
    }
    false
}
