//! Journal rows of the memory store: in order of writing, each linked to the previous one in its batch and in
//! its session, so that a row costs one append and no list of its own.

use crate::JournalRow;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use windlass_core::ids::EntryNo;

/// A map whose keys are our own numbers or hashes already, so that hashing needs no defence against attackers.
pub(super) type NumberMap<K, V> = HashMap<K, V, BuildHasherDefault<Spread>>;

/// Rows in pages, so that growing never moves existing rows.
#[derive(Default)]
pub(super) struct Rows(Vec<RowPage>);

/// A page of rows, and the number of removed ones.
#[derive(Default)]
struct RowPage {
    rows: Vec<MemoryRow>,
    gone: usize,
}

const PAGE_ROWS: usize = 4_096;

pub(super) struct MemoryRow {
    pub row: JournalRow,
    pub in_batch: Option<usize>,
    pub in_session: Option<usize>,
}

impl Rows {
    /// Stores a row and returns its place.
    pub fn push(&mut self, kept: MemoryRow) -> usize {
        if self.0.last().is_none_or(|page| page.rows.len() == PAGE_ROWS || page.gone == PAGE_ROWS) {
            self.0.push(RowPage { rows: Vec::with_capacity(PAGE_ROWS), gone: 0 });
        }
        let page_no = self.0.len() - 1;
        let page = &mut self.0[page_no].rows;
        page.push(kept);
        page_no * PAGE_ROWS + page.len() - 1
    }

    /// The row at a place.
    pub fn at(&self, at: usize) -> &MemoryRow {
        &self.0[at / PAGE_ROWS].rows[at % PAGE_ROWS]
    }

    /// Removes a row; the caller makes sure that nothing refers to it any more. An empty page is dropped.
    pub fn take(&mut self, at: usize) -> MemoryRow {
        let page = &mut self.0[at / PAGE_ROWS];
        let kept = &mut page.rows[at % PAGE_ROWS];
        let row = JournalRow { data: std::mem::take(&mut kept.row.data), ..kept.row };
        let taken = MemoryRow { row, ..*kept };
        page.gone += 1;
        if page.gone == PAGE_ROWS {
            page.rows = Vec::new();
        }
        taken
    }

    /// The rows of a batch from its last one back.
    pub fn of_batch(&self, last: Option<usize>) -> impl Iterator<Item = &JournalRow> {
        let chain =
            std::iter::successors(last.map(|at| self.at(at)), |this| this.in_batch.map(|at| self.at(at)));
        chain.map(|kept| &kept.row)
    }
}

/// The places of every n-th row of a session, so that a walk back through its links can begin anywhere.
#[derive(Default)]
pub(super) struct Posts {
    rows: usize,
    posts: Vec<(EntryNo, usize)>,
}

const POST_ROWS: usize = 256;

impl Posts {
    /// A row of the session was added.
    pub fn passed(&mut self, first: EntryNo, at: usize) {
        self.rows += 1;
        if self.rows.is_multiple_of(POST_ROWS) {
            self.posts.push((first, at));
        }
    }

    /// The last row of the session was removed; it began with this entry.
    pub fn cut(&mut self, first: EntryNo) {
        self.rows = self.rows.saturating_sub(1);
        self.posts.pop_if(|(post, _)| *post >= first);
    }

    /// A row in the middle of the session expired; it began with this entry.
    pub fn expired(&mut self, first: EntryNo) {
        if let Ok(place) = self.posts.binary_search_by_key(&first, |(post, _)| *post) {
            self.posts.remove(place);
        }
    }

    /// A row at least `rows` rows after the entry; `None`: the last row of the session is near enough.
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
        // An odd constant without a pattern; the rotation moves the well-mixed high bits to where tables look.
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95).rotate_left(26);
    }

    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }
}
