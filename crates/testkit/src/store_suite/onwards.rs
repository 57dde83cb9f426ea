//! A session's journal, read on from any entry.

use super::{begin, held, journal, one, open};
use std::sync::Arc;
use windlass_core::ids::{EntryNo, SessionNo};
use windlass_store::{JournalRow, Store};

/// More rows than any store goes back at once, and not a multiple of that.
const ROWS: u32 = 700;

/// Oldest first, page by page, every row behind the entry exactly once; from the middle of a row that row comes first.
pub async fn a_journal_is_read_on_from_any_entry(store: &Arc<dyn Store>) {
    let (session, other) = (open(store, "s").await, open(store, "t").await);
    let (a, elsewhere) = (begin(store, session, "a").await, begin(store, other, "b").await);
    for row in 1..ROWS {
        one(store, held(session, vec![journal(a, row, 1 + row % 3)])).await.unwrap();
        if row % 100 == 0 {
            one(store, held(other, vec![journal(elsewhere, row / 100, 1)])).await.unwrap();
        }
    }
    let mut all = store.history(session, None, u64::from(ROWS) * 2).await.unwrap();
    all.reverse();
    let head = all.last().map(|row| row.first.0 + u64::from(row.count) - 1).unwrap();
    // Forwards, backwards and to and fro: what was remembered on the way must not matter.
    for (after, page) in
        [(0, 1_000), (0, 7), (head - 40, 3), (head / 2, 64), (1, 300), (head - 1, 1), (head / 3, 5)]
    {
        let wanted: Vec<JournalRow> =
            all.iter().filter(|row| row.first.0 + u64::from(row.count) - 1 > after).cloned().collect();
        let (mut read, mut at) = (Vec::new(), EntryNo(after));
        loop {
            let rows = store.journal_after(session, at, page).await.unwrap();
            assert!(rows.len() as u64 <= page);
            let Some(last) = rows.last() else { break };
            at = EntryNo(last.first.0 + u64::from(last.count) - 1);
            read.extend(rows);
        }
        assert_eq!(read, wanted, "after {after} in pages of {page}");
    }
    for (session, after, limit) in
        [(session, head, 10), (session, u64::MAX, 10), (session, 0, 0), (SessionNo(99), 0, 10)]
    {
        assert_eq!(store.journal_after(session, EntryNo(after), limit).await.unwrap(), []);
    }
}
