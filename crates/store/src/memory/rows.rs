//! Where the memory store keeps journal rows: in order of writing, each pointing back to the one before it in
//! its batch and in its session, so that a row costs one append and no list of its own.

use crate::JournalRow;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use windlass_core::ids::EntryNo;

/// A map whose keys are our own numbers or hashes already, so that hashing them needs no defence.
pub(super) type Numbers<K, V> = HashMap<K, V, BuildHasherDefault<Spread>>;

/// Rows in pages, so that growing never moves what is there.
#[derive(Default)]
pub(super) struct Rows(Vec<Page>);

/// Some rows, and how many of them were removed.
#[derive(Default)]
struct Page {
    rows: Vec<Kept>,
    gone: usize,
}

const PAGE_ROWS: usize = 4_096;

pub(super) struct Kept {
    pub row: JournalRow,
    pub in_batch: Option<usize>,
    pub in_session: Option<usize>,
}

impl Rows {
    /// Keeps a row and says where.
    pub fn push(&mut self, kept: Kept) -> usize {
        if self.0.last().is_none_or(|page| page.rows.len() == PAGE_ROWS || page.gone == PAGE_ROWS) {
            self.0.push(Page { rows: Vec::with_capacity(PAGE_ROWS), gone: 0 });
        }
        let page_no = self.0.len() - 1;
        let page = &mut self.0[page_no].rows;
        page.push(kept);
        page_no * PAGE_ROWS + page.len() - 1
    }

    /// Takes the last row of a session out; the caller sees to it that nothing leads there any more. With the last of a page
    /// goes the page.
    pub fn take(&mut self, at: usize) -> Kept {
        let page = &mut self.0[at / PAGE_ROWS];
        let kept = &mut page.rows[at % PAGE_ROWS];
        let row = JournalRow { data: std::mem::take(&mut kept.row.data), ..kept.row };
        let taken = Kept { row, ..*kept };
        page.gone += 1;
        if page.gone == PAGE_ROWS {
            page.rows = Vec::new();
        }
        taken
    }

    /// The rows of a batch from its last one back.
    pub fn of_batch(&self, last: Option<usize>) -> impl Iterator<Item = &JournalRow> {
        self.back(last, |kept| kept.in_batch)
    }

    /// The rows of a session from its last one back.
    pub fn of_session(&self, last: Option<usize>) -> impl Iterator<Item = &JournalRow> {
        self.back(last, |kept| kept.in_session)
    }

    fn back(
        &self,
        last: Option<usize>,
        before: fn(&Kept) -> Option<usize>,
    ) -> impl Iterator<Item = &JournalRow> {
        let kept = |at: usize| &self.0[at / PAGE_ROWS].rows[at % PAGE_ROWS];
        let chain = std::iter::successors(last.map(kept), move |this| before(this).map(kept));
        chain.map(|kept| &kept.row)
    }
}

/// Where every so many rows of a session lie, so that a walk back through its links can begin anywhere.
#[derive(Default)]
pub(super) struct Posts {
    rows: usize,
    posts: Vec<(EntryNo, usize)>,
}

const POST_ROWS: usize = 256;

impl Posts {
    /// A row of the session was kept.
    pub fn passed(&mut self, first: EntryNo, at: usize) {
        self.rows += 1;
        if self.rows.is_multiple_of(POST_ROWS) {
            self.posts.push((first, at));
        }
    }

    /// The last row of the session was removed; it began with this entry.
    pub fn cut(&mut self, first: EntryNo) {
        self.rows -= 1;
        self.posts.pop_if(|(post, _)| *post >= first);
    }

    /// A row with at least so many between it and the entry; `None`: the last row of the session is near enough.
    pub fn behind(&self, after: EntryNo, rows: usize) -> Option<usize> {
        let next = self.posts.partition_point(|(first, _)| *first <= after);
        self.posts.get(next.saturating_add(rows.div_ceil(POST_ROWS))).map(|(_, at)| *at)
    }
}

/// Spreads keys over a table with a multiplication per word.
#[derive(Default)]
pub(super) struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks();
        for word in words {
            self.write_u64(u64::from_le_bytes(*word));
        }
        if !rest.is_empty() {
            let mut word = [0; 8];
            word[..rest.len()].copy_from_slice(rest);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u64(&mut self, word: u64) {
        // An odd constant without a pattern; the rotation brings the well-mixed high bits to where tables look.
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95).rotate_left(26);
    }

    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }
}
