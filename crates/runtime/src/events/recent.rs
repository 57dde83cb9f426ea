//! The last rows of a session that became durable here, while somebody follows it: what was just written need not be read back.

use std::collections::BTreeMap;
use windlass_core::ids::{BatchNo, EntryNo, SessionNo};
use windlass_store::{JournalRow, Row};

/// What they may weigh together. Whoever is later reads the journal.
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

    /// The rows behind an entry, if all that are here follow it without a gap: those of whom nobody told would be in between.
    pub(super) fn behind(&mut self, after: EntryNo) -> Vec<JournalRow> {
        while self.rows.first_key_value().is_some_and(|(first, _)| *first <= after) {
            self.drop_first();
        }
        let mut next = EntryNo(after.0 + 1);
        let follows = |row: &&JournalRow| std::mem::replace(&mut next, after_row(row)) == row.first;
        let rows: Vec<JournalRow> = self.rows.values().take_while(follows).cloned().collect();
        if rows.len() == self.rows.len() { rows } else { Vec::new() }
    }

    fn drop_first(&mut self) {
        if let Some((_, row)) = self.rows.pop_first() {
            self.bytes -= row.data.len();
        }
    }
}

/// The number of the entry behind a row.
pub(super) fn after_row(row: &JournalRow) -> EntryNo {
    EntryNo(row.first.0 + u64::from(row.count))
}

/// Rows of one change that are entries, as they will be in the journal but for their numbers.
pub(crate) struct Written(Vec<(BatchNo, u32, u32, Vec<u8>)>);

impl Written {
    pub(crate) fn of(rows: &[Row]) -> Written {
        let journal = rows.iter().filter_map(|row| {
            let Row::Journal { batch, row, count, data } = row else { return None };
            Some((*batch, *row, *count, data.clone()))
        });
        Written(journal.collect())
    }

    /// The rows, now that their entries have numbers from this one on.
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
        JournalRow { session, batch, row: 0, first, count, data: vec![0; 100 << 10] }
    }

    fn behind(recent: &mut Recent, after: u64) -> Vec<u64> {
        recent.behind(EntryNo(after)).iter().map(|row| row.first.0).collect()
    }

    #[test]
    fn rows_follow_without_a_gap_or_are_not_given() {
        let mut recent = Recent::default();
        recent.add(row(5, 2));
        assert_eq!(behind(&mut recent, 4), [5]);
        recent.add(row(9, 1));
        assert_eq!(behind(&mut recent, 4), [0; 0], "7 and 8 are missing");
        assert_eq!(behind(&mut recent, 8), [9], "what is before was told");
        assert_eq!(behind(&mut recent, 9), [0; 0]);
        recent.add(row(11, 1));
        recent.add(row(10, 1));
        assert_eq!(behind(&mut recent, 9), [10, 11], "whoever tells of it first");
    }

    #[test]
    fn they_are_bounded() {
        let mut recent = Recent::default();
        (1..=10).for_each(|first| recent.add(row(first, 1)));
        assert_eq!(recent.rows.len(), 2);
        assert_eq!(behind(&mut recent, 0), [0; 0], "whoever is late reads the journal");
        assert_eq!(behind(&mut recent, 8), [9, 10]);
    }
}
