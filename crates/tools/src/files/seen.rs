//! Contents that were read or written lately, to say what has changed since.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use windlass::sessions::ContentHash;

/// Contents by session and hash, the latest ones. Losing one only makes a message shorter.
#[derive(Default)]
pub(super) struct SeenContents(Mutex<VecDeque<SeenContent>>);

struct SeenContent {
    session: String,
    hash: ContentHash,
    text: Arc<str>,
}

/// The maximum size of all contents.
const BYTES_MAX: usize = 16 << 20;
/// The maximum number of contents.
const COUNT_MAX: usize = 256;

impl SeenContents {
    pub(super) fn note(&self, session: &str, hash: ContentHash, text: &str) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if text.len() > BYTES_MAX / 4 || all.iter().any(|seen| seen.hash == hash && seen.session == session) {
            return;
        }
        all.push_back(SeenContent { session: session.to_string(), hash, text: text.into() });
        let mut bytes: usize = all.iter().map(|seen| seen.text.len()).sum();
        while bytes > BYTES_MAX || all.len() > COUNT_MAX {
            bytes -= all.pop_front().map_or(bytes, |gone| gone.text.len());
        }
    }

    pub(super) fn get(&self, session: &str, hash: ContentHash) -> Option<Arc<str>> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = all.iter().find(|seen| seen.hash == hash && seen.session == session)?;
        Some(seen.text.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_are_of_one_session_and_bounded() {
        let seen = SeenContents::default();
        let large = "x".repeat(BYTES_MAX / 4);
        seen.note("a", ContentHash::of(b"0"), "first");
        assert_eq!(seen.get("a", ContentHash::of(b"0")).as_deref(), Some("first"));
        assert_eq!(seen.get("b", ContentHash::of(b"0")), None);
        for n in 1..=4_u8 {
            seen.note("a", ContentHash::of(&[n]), &large);
        }
        assert_eq!(seen.get("a", ContentHash::of(b"0")), None, "the oldest makes room");
        assert!(seen.get("a", ContentHash::of(&[4])).is_some());
    }
}
