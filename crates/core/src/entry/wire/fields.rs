//! Writing the fields of an entry: a CBOR map with small integers as keys, straight into the entry's bytes.
//! Every call writes five of them, so they are not converted first.

use minicbor::Encode;
use std::sync::Arc;

/// The kinds of CBOR items that fields are made of.
const NUMBER: u8 = 0 << 5;
const BYTES: u8 = 2 << 5;
const TEXT: u8 = 3 << 5;
const LIST: u8 = 4 << 5;
const MAP: u8 = 5 << 5;
const FALSE: u8 = 0xf4;
const TRUE: u8 = 0xf5;

/// The limit for the first byte of an item; keys and the number of fields stay below.
const SMALL: u8 = 24;

/// A map being written. Fields come in the order of their keys.
pub(super) struct Fields<'a> {
    bytes: &'a mut Vec<u8>,
    start: usize,
    count: u8,
}

impl<'a> Fields<'a> {
    pub(super) fn begin(bytes: &'a mut Vec<u8>) -> Fields<'a> {
        let start = bytes.len();
        bytes.push(MAP);
        Fields { bytes, start, count: 0 }
    }

    pub(super) fn number(mut self, key: u8, value: u64) -> Fields<'a> {
        self.key(key);
        self.head(NUMBER, value);
        self
    }

    pub(super) fn truth(mut self, key: u8, value: bool) -> Fields<'a> {
        self.key(key);
        self.bytes.push(if value { TRUE } else { FALSE });
        self
    }

    pub(super) fn text(mut self, key: u8, value: &str) -> Fields<'a> {
        self.key(key);
        self.head(TEXT, value.len() as u64);
        self.bytes.extend_from_slice(value.as_bytes());
        self
    }

    pub(super) fn bytes(mut self, key: u8, value: &[u8]) -> Fields<'a> {
        self.key(key);
        self.head(BYTES, value.len() as u64);
        self.bytes.extend_from_slice(value);
        self
    }

    /// A list of texts.
    pub(super) fn texts(mut self, key: u8, values: &[Arc<str>]) -> Fields<'a> {
        self.key(key);
        self.head(LIST, values.len() as u64);
        for value in values {
            self.head(TEXT, value.len() as u64);
            self.bytes.extend_from_slice(value.as_bytes());
        }
        self
    }

    /// An optional field of another shape: mostly there is none, and that is checked inline.
    #[inline]
    pub(super) fn maybe(self, key: u8, value: Option<impl Encode<()>>) -> Fields<'a> {
        match value {
            Some(value) => self.other(key, &value),
            None => self,
        }
    }

    #[cold]
    fn other(mut self, key: u8, value: &impl Encode<()>) -> Fields<'a> {
        self.key(key);
        super::encode(value, self.bytes);
        self
    }

    /// All fields are there.
    pub(super) fn end(self) {
        self.bytes[self.start] = MAP | self.count;
    }

    fn key(&mut self, key: u8) {
        debug_assert!(key < SMALL && self.count + 1 < SMALL, "a key or a map of more than one byte");
        self.count += 1;
        self.bytes.push(key);
    }

    #[inline]
    fn head(&mut self, kind: u8, value: u64) {
        match value {
            0..=23 => self.bytes.push(kind | value as u8),
            _ => self.long_head(kind, value),
        }
    }

    fn long_head(&mut self, kind: u8, value: u64) {
        let bytes = &mut *self.bytes;
        match value {
            0..=0xff => bytes.extend_from_slice(&[kind | SMALL, value as u8]),
            0x100..=0xffff => {
                let [high, low] = (value as u16).to_be_bytes();
                bytes.extend_from_slice(&[kind | 25, high, low]);
            }
            0x1_0000..=0xffff_ffff => {
                bytes.push(kind | 26);
                bytes.extend_from_slice(&(value as u32).to_be_bytes());
            }
            _ => {
                bytes.push(kind | 27);
                bytes.extend_from_slice(&value.to_be_bytes());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Encode)]
    #[cbor(map)]
    struct Same<'a> {
        #[n(0)]
        number: u64,
        #[n(1)]
        truth: bool,
        #[b(2)]
        text: &'a str,
        #[cbor(b(3), with = "minicbor::bytes")]
        bytes: &'a [u8],
        #[n(4)]
        none: Option<i64>,
        #[n(5)]
        texts: Vec<&'a str>,
        #[n(23)]
        some: Option<i64>,
    }

    #[test]
    fn what_is_written_is_what_the_derived_encoding_writes() {
        let long = "ä".repeat(40_000);
        let numbers = (0..64).flat_map(|bits| [(1u64 << bits) - 1, 1 << bits]).chain([u64::MAX]);
        for (number, end) in numbers.zip([0, 1, 23, 24, 255, 256, 65_535, 65_536, 80_000].into_iter().cycle())
        {
            let text = &long[..long.floor_char_boundary(end)];
            let same = Same {
                number,
                truth: end % 2 == 0,
                text,
                bytes: text.as_bytes(),
                none: None,
                texts: vec![text; end % 30],
                some: Some(-7),
            };
            let mut expected = vec![9];
            minicbor::encode(&same, &mut expected).unwrap();
            let mut written = vec![9];
            let fields = Fields::begin(&mut written).number(0, number).truth(1, same.truth).text(2, text);
            let texts: Vec<Arc<str>> = same.texts.iter().map(|text| Arc::from(*text)).collect();
            let fields = fields.bytes(3, text.as_bytes()).maybe(4, same.none).texts(5, &texts);
            fields.maybe(23, same.some).end();
            assert!(written == expected, "{number} and {end} bytes");
        }
    }
}
