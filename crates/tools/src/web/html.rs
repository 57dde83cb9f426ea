//! HTML as a sequence of tags and texts, in one pass and without a tree.
//!
//! A tree that is built as browsers do it may be far larger than its page, and deeper than a stack: pages of strangers can be made so
//! on purpose. Reading Markdown needs only the order of tags, so a page costs time and memory in proportion to its length.

/// A piece of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HtmlPiece<'a> {
    /// Text, with its entities.
    Text(&'a str),
    /// A tag that begins an element, and its attributes as they are written.
    Open(TagName, &'a str),
    /// A tag that ends an element.
    Close(TagName),
}

/// The name of a tag in lower case; longer names than any that matters are cut.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct TagName {
    bytes: [u8; TagName::BYTES_MAX],
    len: usize,
}

impl TagName {
    const BYTES_MAX: usize = 12;

    fn new(name: &str) -> TagName {
        let mut bytes = [0; TagName::BYTES_MAX];
        let len = name.len().min(TagName::BYTES_MAX);
        for (place, byte) in bytes.iter_mut().zip(name.bytes()) {
            *place = byte.to_ascii_lowercase();
        }
        TagName { bytes, len }
    }

    pub(super) fn as_str(&self) -> &str {
        // A name that is no ASCII is none of HTML.
        str::from_utf8(&self.bytes[..self.len]).unwrap_or_default()
    }
}

impl std::fmt::Debug for TagName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The pieces of a page, in order.
pub(super) struct HtmlPieces<'a> {
    rest: &'a str,
    /// The element whose content is text whatever it looks like.
    raw: Option<TagName>,
}

/// Elements whose content has no tags.
const RAW: [&str; 5] = ["script", "style", "textarea", "title", "xmp"];

impl<'a> HtmlPieces<'a> {
    pub(super) fn new(page: &'a str) -> HtmlPieces<'a> {
        HtmlPieces { rest: page, raw: None }
    }

    fn take(&mut self, len: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(len);
        self.rest = rest;
        taken
    }

    /// The content of an element without tags, up to the tag that ends it.
    fn raw_text(&mut self, name: TagName) -> &'a str {
        let mut from = 0;
        while let Some(at) = self.rest[from..].find("</").map(|at| from + at) {
            let follows = self.rest.as_bytes().get(at + 2..at + 2 + name.len).unwrap_or_default();
            if follows.eq_ignore_ascii_case(name.as_str().as_bytes()) {
                return self.take(at);
            }
            from = at + 2;
        }
        self.take(self.rest.len())
    }

    /// The piece that begins with this `<`, if it is a tag; a comment or the like is passed over.
    fn markup(&mut self) -> Option<HtmlPiece<'a>> {
        let after = self.rest.as_bytes().get(1).copied().unwrap_or(0);
        match after {
            b'!' | b'?' => {
                let comment = self.rest.starts_with("<!--");
                let (from, end) = if comment { (4, "-->") } else { (2, ">") };
                let at = self.rest.get(from..).and_then(|rest| rest.find(end));
                let len = at.map_or(self.rest.len(), |at| from + at + end.len());
                self.take(len);
                None
            }
            b'/' => {
                let tag = self.take(tag_len(self.rest));
                Some(HtmlPiece::Close(TagName::new(name_of(&tag[2..]))))
            }
            _ => {
                let tag = self.take(tag_len(self.rest));
                let inside = tag[1..].strip_suffix('>').unwrap_or(&tag[1..]);
                let name = name_of(inside);
                let found = TagName::new(name);
                if RAW.contains(&found.as_str()) {
                    self.raw = Some(found);
                }
                Some(HtmlPiece::Open(found, &inside[name.len()..]))
            }
        }
    }
}

impl<'a> Iterator for HtmlPieces<'a> {
    type Item = HtmlPiece<'a>;

    fn next(&mut self) -> Option<HtmlPiece<'a>> {
        if let Some(name) = self.raw.take() {
            let text = self.raw_text(name);
            if !text.is_empty() {
                return Some(HtmlPiece::Text(text));
            }
        }
        while !self.rest.is_empty() {
            if begins_tag(self.rest) {
                match self.markup() {
                    Some(piece) => return Some(piece),
                    None => continue,
                }
            }
            let brackets = self.rest.bytes().enumerate().skip(1).filter(|(_, byte)| *byte == b'<');
            let next = brackets.map(|(at, _)| at).find(|at| begins_tag(&self.rest[*at..]));
            return Some(HtmlPiece::Text(self.take(next.unwrap_or(self.rest.len()))));
        }
        None
    }
}

fn begins_tag(text: &str) -> bool {
    match text.as_bytes() {
        [b'<', b'/', letter, ..] => letter.is_ascii_alphabetic(),
        [b'<', letter, ..] => letter.is_ascii_alphabetic() || matches!(letter, b'!' | b'?'),
        _ => false,
    }
}

/// The length of a tag with its brackets; a quoted value may hold a `>`. A tag without an end goes to the end of the page.
fn tag_len(tag: &str) -> usize {
    let (mut quote, mut last) = (None, b'<');
    for (at, byte) in tag.bytes().enumerate() {
        match (quote, byte) {
            (None, b'>') => return at + 1,
            // Elsewhere a quotation mark is a letter like others.
            (None, b'"' | b'\'') if last == b'=' => quote = Some(byte),
            (Some(open), byte) if open == byte => quote = None,
            _ => {}
        }
        if !byte.is_ascii_whitespace() {
            last = byte;
        }
    }
    tag.len()
}

fn name_of(tag: &str) -> &str {
    let end = tag.find(|letter: char| letter.is_ascii_whitespace() || matches!(letter, '/' | '>'));
    &tag[..end.unwrap_or(tag.len())]
}

/// The value of the first attribute of this name, with its entities decoded.
pub(super) fn attribute<'a>(attributes: &'a str, name: &str) -> Option<std::borrow::Cow<'a, str>> {
    let mut rest = attributes;
    loop {
        rest = rest.trim_start_matches(|letter: char| letter.is_ascii_whitespace() || letter == '/');
        if rest.is_empty() {
            return None;
        }
        let is_end = |letter: char| letter.is_ascii_whitespace() || matches!(letter, '=' | '/');
        let end =
            rest.char_indices().skip(1).find(|(_, letter)| is_end(*letter)).map_or(rest.len(), |(at, _)| at);
        let (found, after) = rest.split_at(end);
        let (value, after) = match after.trim_start().strip_prefix('=') {
            Some(after) => value(after.trim_start()),
            None => ("", after),
        };
        if found.eq_ignore_ascii_case(name) {
            return Some(html_escape::decode_html_entities(value));
        }
        rest = after;
    }
}

/// The value at the beginning of the text, and what follows it.
fn value(text: &str) -> (&str, &str) {
    for quote in ['"', '\''] {
        if let Some(quoted) = text.strip_prefix(quote) {
            return quoted.split_once(quote).unwrap_or((quoted, ""));
        }
    }
    text.split_at(text.find(|letter: char| letter.is_ascii_whitespace()).unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(page: &str) -> String {
        HtmlPieces::new(page).map(|piece| format!("{piece:?}")).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn tags_texts_and_what_is_neither() {
        for (page, expected) in [
            ("a<b>c</b>", r#"Text("a") Open(b, "") Text("c") Close(b)"#),
            ("<A HREF='x>y' id=1>", r#"Open(a, " HREF='x>y' id=1")"#),
            ("1 < 2 <3", r#"Text("1 < 2 <3")"#),
            ("<!-- <b> -->x<!doctype html>y<?pi>z", r#"Text("x") Text("y") Text("z")"#),
            (
                "<script>if (a </b) x</SCRIPT>y",
                r#"Open(script, "") Text("if (a </b) x") Close(script) Text("y")"#,
            ),
            ("<title>a<b</title>", r#"Open(title, "") Text("a<b") Close(title)"#),
            ("<br/>", r#"Open(br, "/")"#),
            ("<b", r#"Open(b, "")"#),
            ("<!--", ""),
            ("<style>a", r#"Open(style, "") Text("a")"#),
            ("ü<é>ß", r#"Text("ü<é>ß")"#),
        ] {
            assert_eq!(pieces(page), expected, "{page}");
        }
    }

    #[test]
    fn attributes_are_found_however_they_are_written() {
        for (attributes, expected) in [
            (r#" href="a&amp;b" "#, Some("a&b")),
            (" href = 'a' ", Some("a")),
            (" id=x HREF=a/b class=c", Some("a/b")),
            (" disabled href", Some("")),
            (r#" title="href=no""#, None),
            ("/", None),
            (" ü=ß é", None),
        ] {
            assert_eq!(attribute(attributes, "href").as_deref(), expected, "{attributes}");
        }
    }
}
