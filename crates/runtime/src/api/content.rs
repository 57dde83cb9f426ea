//! The content of a file that a change was made for.

use std::io::Read;

/// The hash of a file's content: 32 hex digits. Two contents with one hash do not occur by accident, and nothing here
/// protects against anybody who looks for them.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ContentHash([u8; ContentHash::BYTES]);

/// The state of a file without which it is not changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FileExpectation {
    /// Any.
    #[default]
    Anything,
    /// It does not exist.
    Absent,
    /// It has this content.
    Content(ContentHash),
}

/// Memory for hashing a file.
const BUFFER_BYTES: usize = 64 << 10;

impl ContentHash {
    const BYTES: usize = 16;

    /// The hash of these bytes.
    ///
    /// ```
    /// use windlass::sessions::ContentHash;
    ///
    /// let hash = ContentHash::of(b"hello");
    /// assert_eq!(ContentHash::parse(&hash.to_string()), Some(hash));
    /// ```
    pub fn of(bytes: &[u8]) -> ContentHash {
        ContentHash::from(blake3::hash(bytes))
    }

    /// The hash of everything that is read.
    pub fn of_reader(mut reader: impl Read) -> std::io::Result<ContentHash> {
        let mut hasher = blake3::Hasher::new();
        let mut buffer = vec![0; BUFFER_BYTES];
        loop {
            match reader.read(&mut buffer)? {
                0 => return Ok(ContentHash::from(hasher.finalize())),
                read => drop(hasher.update(&buffer[..read])),
            }
        }
    }

    /// Parses the digits.
    pub fn parse(text: &str) -> Option<ContentHash> {
        let text = text.trim();
        if text.len() != ContentHash::BYTES * 2 || !text.is_ascii() {
            return None;
        }
        let mut bytes = [0; ContentHash::BYTES];
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[at * 2..at * 2 + 2], 16).ok()?;
        }
        Some(ContentHash(bytes))
    }

    fn from(hash: blake3::Hash) -> ContentHash {
        let mut bytes = [0; ContentHash::BYTES];
        bytes.copy_from_slice(&hash.as_bytes()[..ContentHash::BYTES]);
        ContentHash(bytes)
    }
}

impl std::fmt::Display for ContentHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl std::fmt::Debug for ContentHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self}")
    }
}
