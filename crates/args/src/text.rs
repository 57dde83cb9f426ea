//! Texts of calls. The short ones of a batch come and go together, so they lie in one piece of memory instead of one each.

use std::cell::Cell;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// A text, or a part of one that others are parts of too.
#[derive(Clone)]
pub struct Text {
    whole: Arc<str>,
    start: u32,
    /// [`ALL`]: it is no part.
    end: u32,
}

const ALL: u32 = u32::MAX;

/// A longer one is kept apart, so that whoever holds on to a short one does not hold on to much.
const PACKED_BYTES_MAX: usize = 1_024;

/// Texts that are being packed into one.
#[derive(Debug, Default)]
pub struct Packing {
    all: String,
    /// Stands for the whole until that is known.
    unknown: Arc<str>,
}

thread_local! {
    /// The buffer of the last packing, for the next one.
    static SPARE: Cell<String> = const { Cell::new(String::new()) };
}

/// A longer buffer is not kept.
const SPARE_BYTES_MAX: usize = 64 * 1_024;

impl Packing {
    /// Room for so many bytes.
    pub fn with_capacity(bytes: usize) -> Packing {
        let mut all = SPARE.take();
        all.reserve(bytes);
        Packing { all, ..Packing::default() }
    }

    /// Adds a text. It is empty until [`finish`](Self::finish).
    pub fn push(&mut self, text: &str) -> Text {
        if text.len() > PACKED_BYTES_MAX {
            return Text::from(text);
        }
        let start = self.all.len();
        self.all.push_str(text);
        self.pushed(start)
    }

    /// Adds a text by appending it.
    pub fn write<T, E>(&mut self, append: impl FnOnce(&mut String) -> Result<T, E>) -> Result<(Text, T), E> {
        let start = self.all.len();
        match append(&mut self.all) {
            Ok(written) => Ok((self.pushed(start), written)),
            Err(error) => {
                self.all.truncate(start);
                Err(error)
            }
        }
    }

    fn pushed(&mut self, start: usize) -> Text {
        let end = self.all.len();
        match (u32::try_from(start), u32::try_from(end)) {
            (Ok(start), Ok(part_end)) if part_end < ALL && end - start as usize <= PACKED_BYTES_MAX => {
                Text { whole: self.unknown.clone(), start, end: part_end }
            }
            _ => {
                let apart = Text::from(&self.all[start..]);
                self.all.truncate(start);
                apart
            }
        }
    }

    /// Makes texts that were added what they are.
    pub fn finish<'a>(mut self, texts: impl Iterator<Item = &'a mut Text>) {
        let whole: Arc<str> = self.all.as_str().into();
        for text in texts.filter(|text| text.end != ALL) {
            text.whole = whole.clone();
        }
        if self.all.capacity() <= SPARE_BYTES_MAX {
            self.all.clear();
            SPARE.set(self.all);
        }
    }
}

impl Deref for Text {
    type Target = str;

    fn deref(&self) -> &str {
        match self.end {
            ALL => &self.whole,
            end => self.whole.get(self.start as usize..end as usize).unwrap_or_default(),
        }
    }
}

impl From<Arc<str>> for Text {
    fn from(whole: Arc<str>) -> Text {
        Text { whole, start: 0, end: ALL }
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Text {
        Text::from(Arc::<str>::from(text))
    }
}

impl From<String> for Text {
    fn from(text: String) -> Text {
        Text::from(Arc::<str>::from(text))
    }
}

/// For whoever keeps it longer than its call.
impl From<&Text> for Arc<str> {
    fn from(text: &Text) -> Arc<str> {
        if text.end == ALL { text.whole.clone() } else { Arc::from(&**text) }
    }
}

impl PartialEq for Text {
    fn eq(&self, other: &Text) -> bool {
        **self == **other
    }
}

impl Eq for Text {}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_what_was_added() {
        let long = "ä".repeat(PACKED_BYTES_MAX);
        let mut packing = Packing::default();
        let mut texts = vec![packing.push("one"), packing.push(""), packing.push(&long)];
        let refused: Result<(Text, ()), ()> = packing.write(|all| {
            all.push_str("half of it");
            Err(())
        });
        assert!(refused.is_err());
        texts.push(packing.push("zwölf"));
        packing.finish(texts.iter_mut());
        let texts: Vec<&str> = texts.iter().map(|text| &**text).collect();
        assert_eq!(texts, ["one", "", &long, "zwölf"]);
    }

    #[test]
    fn what_is_long_is_kept_apart() {
        let mut packing = Packing::default();
        let (mut short, long) = (packing.push("short"), packing.push(&"x".repeat(PACKED_BYTES_MAX + 1)));
        packing.finish([&mut short].into_iter());
        assert_eq!((&*short, short.whole.len(), long.len()), ("short", 5, PACKED_BYTES_MAX + 1));
    }
}
