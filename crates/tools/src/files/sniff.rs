//! The kind of a file's content, by its first bytes.

/// How many first bytes decide.
pub(super) const HEAD_BYTES: usize = 8 << 10;

/// The kind of a content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ContentKind {
    Text,
    /// An image of this media type, which models take.
    Image(&'static str),
    /// Something else, of this media type as far as it is known.
    Binary(&'static str),
}

/// Media types by the bytes at the beginning.
const MAGIC: &[(&[u8], ContentKind)] = &[
    (b"\x89PNG\r\n\x1a\n", ContentKind::Image("image/png")),
    (b"\xff\xd8\xff", ContentKind::Image("image/jpeg")),
    (b"GIF87a", ContentKind::Image("image/gif")),
    (b"GIF89a", ContentKind::Image("image/gif")),
    (b"%PDF-", ContentKind::Binary("application/pdf")),
    (b"PK\x03\x04", ContentKind::Binary("application/zip")),
    (b"\x1f\x8b", ContentKind::Binary("application/gzip")),
    (b"\x28\xb5\x2f\xfd", ContentKind::Binary("application/zstd")),
    (b"\x7fELF", ContentKind::Binary("application/x-executable")),
    (b"SQLite format 3\0", ContentKind::Binary("application/vnd.sqlite3")),
    (b"\xff\xfe", ContentKind::Binary("text/plain; charset=utf-16le")),
    (b"\xfe\xff", ContentKind::Binary("text/plain; charset=utf-16be")),
];

/// The kind of the content that begins so.
pub(super) fn kind(head: &[u8]) -> ContentKind {
    if head.starts_with(b"RIFF") && head.get(8..12) == Some(b"WEBP") {
        return ContentKind::Image("image/webp");
    }
    if let Some((_, kind)) = MAGIC.iter().find(|(magic, _)| head.starts_with(magic)) {
        return *kind;
    }
    let head = &head[..head.len().min(HEAD_BYTES)];
    if head.contains(&0) {
        return ContentKind::Binary("application/octet-stream");
    }
    // A letter that is cut at the end does not count, and some stray bytes are no reason to show nothing.
    let strange: usize = head.utf8_chunks().map(|chunk| chunk.invalid().len()).sum();
    match strange * 10 > head.len().max(40) {
        true => ContentKind::Binary("application/octet-stream"),
        false => ContentKind::Text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds() {
        let cases: &[(&[u8], ContentKind)] = &[
            (b"", ContentKind::Text),
            (b"fn main() {}", ContentKind::Text),
            ("grüße".as_bytes(), ContentKind::Text),
            (b"caf\xe9 au lait, s'il vous plait, et un croissant", ContentKind::Text),
            (b"\x89PNG\r\n\x1a\n....", ContentKind::Image("image/png")),
            (b"RIFF....WEBPVP8 ", ContentKind::Image("image/webp")),
            (b"RIFF....WAVE", ContentKind::Text),
            (b"a\0b", ContentKind::Binary("application/octet-stream")),
            (&[0xfd; 100], ContentKind::Binary("application/octet-stream")),
        ];
        for (head, expected) in cases {
            assert_eq!(kind(head), *expected, "{:?}", String::from_utf8_lossy(head));
        }
    }
}
