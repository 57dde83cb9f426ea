//! The last rows of a session that became durable here, while it is followed: they need not be read back.

use std::collections::BTreeMap;
use windlass_core::ids::{BatchNo, EntryNo, SessionNo};
use windlass_store::{JournalRow, Row};

/// Their maximum total size. Later readers read the journal.
const BYTES_MAX: usize = 256 << 10;

/// Rows of a journal, by the number of their first entry.
#[derive(Default)]
pub(super) struct Recent {
    rows: BTreeMap<EntryNo, JournalRow>,
    bytes: usize,
}

impl Recent {
    pub(super) fn add(&mut self, row: JournalRow) {
        self.bytes += row.data.len();
        self.rows.insert(row.first, row);
        while self.bytes > BYTES_MAX {
            self.drop_first();
        }
    }

    /// How far they reach after an entry, if they follow it without a gap: unreported rows would be in
    /// between.
    pub(super) fn head(&mut self, after: EntryNo) -> Option<EntryNo> {
        while self.rows.first_key_value().is_some_and(|(first, _)| *first <= after) {
            self.drop_first();
        }
        let mut next = EntryNo(after.0 + 1);
        let follow = self.rows.values().all(|row| std::mem::replace(&mut next, after_row(row)) == row.first);
        (follow && !self.rows.is_empty()).then_some(EntryNo(next.0 - 1))
    }

    /// Takes the rows after an entry, up to another.
    pub(super) fn take(&mut self, after: EntryNo, upto: EntryNo) -> Vec<JournalRow> {
        if self.head(after).is_none() {
            return Vec::new();
        }
        let later = self.rows.split_off(&EntryNo(upto.0.saturating_add(1)));
        let taken: Vec<JournalRow> = std::mem::replace(&mut self.rows, later).into_values().collect();
        self.bytes -= taken.iter().map(|row| row.data.len()).sum::<usize>();
        taken
    }

    fn drop_first(&mut self) {
        if let Some((_, row)) = self.rows.pop_first() {
            self.bytes -= row.data.len();
        }
    }
}

/// The number of the entry after a row.
fn after_row(row: &JournalRow) -> EntryNo {
    EntryNo(row.first.0 + u64::from(row.count))
}

/// The journal rows of one change, complete but for their entry numbers.
pub(crate) struct EntryRows(Vec<(BatchNo, u32, u32, Vec<u8>)>);

impl EntryRows {
    pub(crate) fn of(rows: &[Row]) -> EntryRows {
        let journal = rows.iter().filter_map(|row| {
            let Row::Journal { batch, row, count, data } = row else { return None };
            Some((*batch, *row, *count, data.clone()))
        });
        EntryRows(journal.collect())
    }

    /// The rows, with their entries numbered from this one on.
    pub(super) fn numbered(self, session: SessionNo, mut first: EntryNo) -> impl Iterator<Item = JournalRow> {
        self.0.into_iter().map(move |(batch, row, count, data)| {
            let journal = JournalRow { session, batch, row, first, count, data };
            first = after_row(&journal);
            journal
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(first: u64, count: u32) -> JournalRow {
        let (session, batch, first) = (SessionNo(1), BatchNo(1), EntryNo(first));
        JournalRow { session, batch, row: 0, first, count, data: vec![0; 80 << 10] }
    }

    fn head(recent: &mut Recent, after: u64) -> Option<u64> {
        recent.head(EntryNo(after)).map(|head| head.0)
    }

    fn take(recent: &mut Recent, after: u64, upto: u64) -> Vec<u64> {
        recent.take(EntryNo(after), EntryNo(upto)).iter().map(|row| row.first.0).collect()
    }

    #[test]
    fn rows_follow_without_a_gap_or_are_not_given() {
        let mut recent = Recent::default();
        recent.add(row(5, 2));
        assert_eq!(head(&mut recent, 4), Some(6));
        recent.add(row(9, 1));
        assert_eq!(head(&mut recent, 4), None, "7 and 8 are missing");
        assert_eq!(take(&mut recent, 4, 9), [0; 0]);
        assert_eq!(head(&mut recent, 8), Some(9), "what is before was told");
        assert_eq!(head(&mut recent, 9), None);
        recent.add(row(11, 1));
        recent.add(row(10, 1));
        assert_eq!(head(&mut recent, 9), Some(11), "whoever tells of it first");
    }

    #[test]
    fn what_is_taken_is_taken_once() {
        let mut recent = Recent::default();
        (1..=2).for_each(|first| recent.add(row(first, 1)));
        assert_eq!(take(&mut recent, 0, 1), [1]);
        assert_eq!((head(&mut recent, 0), head(&mut recent, 1)), (None, Some(2)));
        assert_eq!(take(&mut recent, 1, u64::MAX), [2]);
        assert_eq!((recent.bytes, head(&mut recent, 1)), (0, None));
    }

    #[test]
    fn they_are_bounded() {
        let mut recent = Recent::default();
        (1..=10).for_each(|first| recent.add(row(first, 1)));
        assert_eq!(recent.rows.len(), 3);
        assert_eq!(head(&mut recent, 0), None, "whoever is late reads the journal");
        assert_eq!(take(&mut recent, 8, 10), [9, 10]);
    }
}
