//! The text of a page: which characters its bytes are.

use encoding_rs::{Encoding, UTF_8, WINDOWS_1252};

/// The text of a body. The byte order mark counts most, then the header, then what the page says of itself; a page that says nothing is
/// UTF-8 if it can be.
pub(super) fn text(body: &[u8], content_type: &str) -> String {
    let said = || {
        let of_header = content_type.split(';').skip(1).find_map(charset_of);
        of_header.or_else(|| charset_in_page(body)).and_then(|label| Encoding::for_label(label.as_bytes()))
    };
    let fallback = || if str::from_utf8(body).is_ok() { UTF_8 } else { WINDOWS_1252 };
    let encoding = match Encoding::for_bom(body) {
        Some((encoding, _)) => encoding,
        None => said().unwrap_or_else(fallback),
    };
    encoding.decode(body).0.into_owned()
}

/// The label in a parameter like `charset="utf-8"`.
fn charset_of(parameter: &str) -> Option<&str> {
    let (name, value) = parameter.split_once('=')?;
    let is_it = name.trim().eq_ignore_ascii_case("charset");
    is_it.then(|| value.trim().trim_matches(['"', '\'']))
}

/// Browsers look no further either.
const LOOKED_AT: usize = 1_024;

/// The label in `<meta charset=…>`, `<meta content="text/html; charset=…">` or `<?xml encoding=…?>`.
fn charset_in_page(body: &[u8]) -> Option<&str> {
    let head = &body[..body.len().min(LOOKED_AT)];
    ["charset=", "encoding="].into_iter().find_map(|key| {
        let at = head.windows(key.len()).position(|window| window.eq_ignore_ascii_case(key.as_bytes()))?
            + key.len();
        let rest = head.get(at..)?;
        let rest = rest.strip_prefix(b"\"").or(rest.strip_prefix(b"'")).unwrap_or(rest);
        let end = rest.iter().position(|byte| !(byte.is_ascii_alphanumeric() || b"-_:".contains(byte)));
        str::from_utf8(&rest[..end.unwrap_or(rest.len())]).ok().filter(|label| !label.is_empty())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_to_name_an_encoding_is_heard() {
        for (body, content_type, expected) in [
            (&b"gr\xc3\xbc\xc3\x9fe"[..], "text/html", "grüße"),
            (b"gr\xfc\xdfe", "text/html", "grüße"),
            (b"gr\xfc\xdfe", "text/html; charset=iso-8859-1", "grüße"),
            (b"\xc3\xbc", "text/plain; charset=\"latin1\"", "Ã¼"),
            (b"<meta charset=\"windows-1251\">\xcf", "text/html", "<meta charset=\"windows-1251\">П"),
            (
                b"<?xml version='1.0' encoding='windows-1251'?>\xcf",
                "text/xml",
                "<?xml version='1.0' encoding='windows-1251'?>П",
            ),
            (b"\xef\xbb\xbfx", "text/plain; charset=latin1", "x"),
            (b"\xff\xfea\0", "text/plain", "a"),
            (b"\x82\xa0", "text/html; charset=Shift_JIS", "あ"),
            (b"x", "text/html; charset=nonesuch", "x"),
            (b"", "", ""),
        ] {
            assert_eq!(text(body, content_type), expected, "{content_type}");
        }
    }
}
