//! The one suite every store passes: what the contract of [`Store`] says in prose, as cases.
//!
//! A backend takes part with one line, `windlass_testkit::store_suite!(name, make)`, where `make` gives a [`SuiteStore`],
//! or an `Option` of one if what it needs may be missing.
#![expect(clippy::unwrap_used, reason = "a case that cannot go on has failed")]

mod blobs;
mod expiry;
mod marks;
mod messages;
mod onwards;
mod owners;
mod principals;
mod reads;
mod records;
mod removal;
mod workers;

pub use blobs::{
    a_blob_belongs_to_the_session_that_records_it, a_blob_is_cut_from_its_end,
    whoever_cuts_a_blob_needs_the_right,
};
pub use expiry::{
    a_batch_expires_once_and_stays_known, a_journal_is_read_whatever_expired,
    a_removed_session_leaves_no_expired_batch, an_expiry_is_all_of_its_change_or_nothing,
    what_may_not_expire_is_refused,
};
pub use marks::a_mark_is_where_it_was_last_set;
pub use messages::{a_message_is_adopted_once, a_message_is_kept_once};
pub use onwards::a_journal_is_read_on_from_any_entry;
pub use owners::{a_session_is_opened_once, a_stale_owner_changes_nothing, of_two_who_take_one_wins};
pub use principals::{
    a_gone_name_is_not_opened_again, a_removed_session_hears_nothing_and_is_listed_nowhere,
    a_session_belongs_to_the_principal_that_opened_it,
};
pub use reads::what_is_asked_at_once_is_answered_as_alone;
pub use records::{
    a_guard_on_a_record_refuses_the_whole_change, a_key_is_claimed_once, a_record_is_what_was_put_last,
    a_space_has_room_for_so_many, records_are_read_in_pages_by_key, records_of_the_store_are_nobodys,
    records_that_are_too_large_are_refused, sessions_are_found_by_what_they_keep,
};
pub use removal::{
    a_session_is_removed_from_its_end, a_stale_owner_removes_nothing, nothing_of_a_removed_session_is_left,
};
use std::sync::Arc;
use tempfile::TempDir;
use windlass_core::ids::{BatchNo, BlobNo, EntryNo, Fence, Lookup, SessionNo};
use windlass_store::{
    BATCH_ROWS_MAX, Change, Hold, Inbound, JournalRow, Posted, Receipt, Refused, Row, Sequence,
    SessionChange, Store,
};
pub use workers::{
    a_heartbeat_is_refused_once_its_record_is_gone, changes_of_a_former_owner_are_refused,
    heartbeats_and_declarations_meet_in_one_order, of_two_handles_one_takes_a_session,
    what_one_handle_wrote_the_other_reads, what_two_owners_write_keeps_its_order,
};

/// A store to be tested, and the folder it lives in.
pub struct SuiteStore {
    /// The store, empty.
    pub store: Arc<dyn Store>,
    /// Another handle of it, as another worker has.
    pub other: Arc<dyn Store>,
    /// Removed after the store is closed.
    pub folder: Option<TempDir>,
}

/// One `#[tokio::test]` per case, in a module of this name; or one for all cases, with `as one test:` before the name. `$make` is
/// called once per case.
#[macro_export]
macro_rules! store_suite {
    (as one test: $name:ident, $make:expr) => {
        $crate::store_suite! { cases: one $name, $make }
    };
    ($name:ident, $make:expr) => {
        $crate::store_suite! { cases: each $name, $make }
    };
    (cases: $how:ident $name:ident, $make:expr) => {
        $crate::store_suite! { $how: $name, $make,
            a_change_is_applied_whole_or_not_at_all,
            neighbours_of_a_refused_change_are_applied,
            entries_are_numbered_in_order_without_gaps,
            a_session_is_opened_once,
            a_stale_owner_changes_nothing,
            of_two_who_take_one_wins,
            a_batch_is_recorded_once,
            rows_that_exist_are_refused,
            numbers_past_the_keys_are_refused,
            batches_are_open_until_closed,
            a_journal_is_read_by_batch,
            a_history_is_read_backwards_in_pages,
            a_journal_is_read_on_from_any_entry,
            sessions_are_listed_in_pages,
            a_blob_is_read_across_its_pieces,
            a_blob_is_cut_from_its_end,
            whoever_cuts_a_blob_needs_the_right,
            a_blob_belongs_to_the_session_that_records_it,
            a_message_is_kept_once,
            a_message_is_adopted_once,
            a_mark_is_where_it_was_last_set,
            a_record_is_what_was_put_last,
            a_guard_on_a_record_refuses_the_whole_change,
            a_space_has_room_for_so_many,
            a_key_is_claimed_once,
            records_are_read_in_pages_by_key,
            sessions_are_found_by_what_they_keep,
            records_of_the_store_are_nobodys,
            records_that_are_too_large_are_refused,
            a_session_is_removed_from_its_end,
            nothing_of_a_removed_session_is_left,
            a_stale_owner_removes_nothing,
            a_batch_expires_once_and_stays_known,
            what_may_not_expire_is_refused,
            an_expiry_is_all_of_its_change_or_nothing,
            a_journal_is_read_whatever_expired,
            a_removed_session_leaves_no_expired_batch,
            a_session_belongs_to_the_principal_that_opened_it,
            a_removed_session_hears_nothing_and_is_listed_nowhere,
            a_gone_name_is_not_opened_again,
            numbers_are_reserved_once,
            any_text_and_bytes_are_kept,
            the_secret_stays,
            reads_see_commits_that_returned,
            concurrent_commits_keep_each_order,
            what_is_asked_at_once_is_answered_as_alone;
            of_two_handles_one_takes_a_session,
            changes_of_a_former_owner_are_refused,
            heartbeats_and_declarations_meet_in_one_order,
            a_heartbeat_is_refused_once_its_record_is_gone,
            what_one_handle_wrote_the_other_reads,
            what_two_owners_write_keeps_its_order,
        }
    };
    (one: $name:ident, $make:expr, $($case:ident),+; $($shared:ident,)+) => {
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            $(
                println!("{}", stringify!($shared));
                let made: Option<$crate::store_suite::SuiteStore> = $make.into();
                let Some(made) = made else { return };
                $crate::store_suite::$shared(&made.store, &made.other).await;
            )+
            $(
                println!("{}", stringify!($case));
                let made: Option<$crate::store_suite::SuiteStore> = $make.into();
                let Some(made) = made else { return };
                $crate::store_suite::$case(&made.store).await;
            )+
        }
    };
    (each: $name:ident, $make:expr, $($case:ident),+; $($shared:ident,)+) => {
        mod $name {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $shared() {
                    let made: Option<$crate::store_suite::SuiteStore> = $make.into();
                    // Whoever could not make one has said why.
                    let Some(made) = made else { return };
                    $crate::store_suite::$shared(&made.store, &made.other).await;
                }
            )+
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    let made: Option<$crate::store_suite::SuiteStore> = $make.into();
                    // Whoever could not make one has said why.
                    let Some(made) = made else { return };
                    $crate::store_suite::$case(&made.store).await;
                }
            )+
        }
    };
}

/// All rows of a change are there, or none: here the last one cannot be.
pub async fn a_change_is_applied_whole_or_not_at_all(store: &Arc<dyn Store>) {
    let session = open(store, "s").await;
    let taken = begin(store, session, "taken").await;
    let (batch, blob) = (next(store, Sequence::Batch).await, next(store, Sequence::Blob).await);
    let before = snapshot(store, session).await;
    let rows = vec![
        Row::Batch { no: BatchNo(batch), lookup: lookup(session, "new") },
        journal(BatchNo(batch), 0, 3),
        Row::Chunk { blob: BlobNo(blob), seq: 0, data: bytes("x") },
        Row::Close(taken),
        journal(taken, 0, 1),
    ];
    assert_eq!(one(store, held(session, rows)).await, Err(Refused::Exists));
    assert_eq!(snapshot(store, session).await, before);
    assert_eq!(store.batch(lookup(session, "new")).await.unwrap(), None);
    assert_eq!(store.journal(BatchNo(batch)).await.unwrap(), []);
    assert_eq!(store.blob(BlobNo(blob), 0, 1).await.unwrap(), None);
    assert!(store.batch(lookup(session, "taken")).await.unwrap().unwrap().open);

    // Opening is part of the change.
    let no = SessionNo(next(store, Sequence::Session).await);
    let hold = Hold::Open { name: "t".to_owned(), principal: None };
    let refused = SessionChange { session: no, hold, guards: vec![], rows: vec![journal(taken, 0, 1)] };
    assert_eq!(one(store, refused).await, Err(Refused::Exists));
    assert_eq!(store.session("t").await.unwrap(), None);
}

/// Changes before and after a refused one in the same commit are applied as if it were not there.
pub async fn neighbours_of_a_refused_change_are_applied(store: &Arc<dyn Store>) {
    let (a, b) = (open(store, "a").await, open(store, "b").await);
    let (in_a, in_b) = (begin(store, a, "k").await, begin(store, b, "k").await);
    let stale = SessionChange { hold: Hold::Held(Fence(9)), ..held(a, vec![journal(in_a, 1, 1)]) };
    let half_way = held(a, vec![journal(in_a, 7, 1), journal(in_b, 0, 1)]);
    let answers = store
        .commit(changes([
            held(a, vec![journal(in_a, 1, 2)]),
            stale,
            held(b, vec![journal(in_b, 1, 1)]),
            half_way,
            held(a, vec![journal(in_a, 2, 1)]),
        ]))
        .await
        .unwrap();
    let firsts = |first| Ok(Receipt { first: EntryNo(first), generation: 0 });
    let expected =
        [firsts(2), Err(Refused::Fenced { now: Fence(1) }), firsts(2), Err(Refused::Exists), firsts(4)];
    assert_eq!(answers, expected);
    assert_eq!(numbers(&store.journal(in_a).await.unwrap()), [(0, 1, 1), (1, 2, 2), (2, 4, 1)]);
    assert_eq!(numbers(&store.journal(in_b).await.unwrap()), [(0, 1, 1), (1, 2, 1)]);
}

/// The store numbers entries; a change without entries gets the number of the next one.
pub async fn entries_are_numbered_in_order_without_gaps(store: &Arc<dyn Store>) {
    let session = open(store, "s").await;
    let batch = begin(store, session, "k").await;
    let mut expected = 2;
    for (row, count) in [(1, 1), (2, 5), (3, 1), (4, 2)] {
        let rows = vec![journal(batch, row, count)];
        assert_eq!(
            one(store, held(session, rows)).await,
            Ok(Receipt { first: EntryNo(expected), generation: 0 })
        );
        expected += u64::from(count);
        assert_eq!(
            one(store, held(session, vec![])).await,
            Ok(Receipt { first: EntryNo(expected), generation: 0 })
        );
    }
    let two = held(session, vec![journal(batch, 5, 2), journal(batch, 6, 1)]);
    assert_eq!(one(store, two).await, Ok(Receipt { first: EntryNo(expected), generation: 0 }));
    assert_eq!(store.session("s").await.unwrap().unwrap().head, EntryNo(expected + 2));
}

/// A look-up and a number that are recorded are refused.
pub async fn a_batch_is_recorded_once(store: &Arc<dyn Store>) {
    let session = open(store, "s").await;
    let batch = begin(store, session, "k").await;
    let found = store.batch(lookup(session, "k")).await.unwrap().unwrap();
    assert_eq!((found.no, found.session, found.open), (batch, session, true));
    let before = snapshot(store, session).await;
    let no = BatchNo(next(store, Sequence::Batch).await);
    let again = Row::Batch { no, lookup: lookup(session, "k") };
    for rows in [
        vec![again.clone(), journal(no, 0, 1)],
        vec![journal(no, 0, 1), again.clone()],
        vec![again],
        vec![Row::Batch { no: batch, lookup: lookup(session, "other") }],
    ] {
        assert_eq!(one(store, held(session, rows)).await, Err(Refused::Exists));
    }
    assert_eq!(snapshot(store, session).await, before);
    assert_eq!(store.journal(no).await.unwrap(), []);
    assert_eq!(store.batch(lookup(session, "other")).await.unwrap(), None);
}

/// A row, piece or batch that is there already, or comes twice in one change, is refused.
pub async fn rows_that_exist_are_refused(store: &Arc<dyn Store>) {
    let session = open(store, "s").await;
    let batch = begin(store, session, "k").await;
    let blob = BlobNo(next(store, Sequence::Blob).await);
    let piece = Row::Chunk { blob, seq: 0, data: bytes("x") };
    one(store, held(session, vec![piece.clone()])).await.unwrap();
    let before = snapshot(store, session).await;
    let other = BatchNo(next(store, Sequence::Batch).await);
    let twice = Row::Batch { no: other, lookup: lookup(session, "twice") };
    for rows in [
        vec![journal(batch, 0, 1)],
        vec![piece],
        vec![journal(batch, 5, 1), journal(batch, 5, 1)],
        vec![twice.clone(), twice],
    ] {
        assert_eq!(one(store, held(session, rows)).await, Err(Refused::Exists));
    }
    assert_eq!(snapshot(store, session).await, before);
}

/// A row that would take another batch's place is refused.
pub async fn numbers_past_the_keys_are_refused(store: &Arc<dyn Store>) {
    let session = open(store, "s").await;
    let batch = begin(store, session, "k").await;
    let change = held(session, vec![journal(batch, 1, 1), journal(batch, BATCH_ROWS_MAX, 1)]);
    assert_eq!(one(store, change).await, Err(Refused::TooLarge));
    assert_eq!(store.journal(batch).await.unwrap().len(), 1);
}

/// Open batches are listed oldest first, of one session or of all, until they are closed by their session.
pub async fn batches_are_open_until_closed(store: &Arc<dyn Store>) {
    let (a, b) = (open(store, "a").await, open(store, "b").await);
    let first = begin(store, a, "1").await;
    let second = begin(store, b, "2").await;
    let third = begin(store, a, "3").await;
    let listed = async |session| {
        let found = store.open_batches(session).await.unwrap();
        assert!(found.iter().all(|batch| batch.open));
        found.iter().map(|batch| batch.no).collect::<Vec<_>>()
    };
    assert_eq!(listed(None).await, [first, second, third]);
    assert_eq!(listed(Some(a)).await, [first, third]);
    one(store, held(b, vec![Row::Close(first)])).await.unwrap();
    assert_eq!(listed(Some(a)).await, [first, third], "b cannot close what is a's");
    for _again in 0..2 {
        one(store, held(a, vec![Row::Close(first)])).await.unwrap();
        assert_eq!(listed(None).await, [second, third]);
    }
    assert!(!store.batch(lookup(a, "1")).await.unwrap().unwrap().open);
    one(store, held(b, vec![Row::Reopen(first)])).await.unwrap();
    assert_eq!(listed(None).await, [second, third], "b cannot reopen what is a's");
    for _again in 0..2 {
        one(store, held(a, vec![Row::Reopen(first)])).await.unwrap();
        assert_eq!(listed(None).await, [first, second, third]);
    }
    one(store, held(a, vec![Row::Close(first)])).await.unwrap();
    assert!(!store.batch(lookup(a, "1")).await.unwrap().unwrap().open);
    assert!(store.batch(lookup(a, "3")).await.unwrap().unwrap().open);
}

/// A batch's rows come in order, whatever was written between them.
pub async fn a_journal_is_read_by_batch(store: &Arc<dyn Store>) {
    let session = open(store, "s").await;
    let (one_batch, other) = (begin(store, session, "1").await, begin(store, session, "2").await);
    for row in 1..4 {
        one(store, held(session, vec![journal(other, row, 1), journal(one_batch, row, 2)])).await.unwrap();
    }
    let rows = store.journal(one_batch).await.unwrap();
    assert_eq!(numbers(&rows), [(0, 1, 1), (1, 4, 2), (2, 7, 2), (3, 10, 2)]);
    for row in rows {
        let kept = (row.session, row.batch, &*row.data);
        assert_eq!(kept, (session, one_batch, text(one_batch, row.row).as_bytes()));
    }
    assert_eq!(store.journal(BatchNo(next(store, Sequence::Batch).await)).await.unwrap(), []);
}

/// Newest first, page by page, every row of the session exactly once.
pub async fn a_history_is_read_backwards_in_pages(store: &Arc<dyn Store>) {
    let (session, other) = (open(store, "s").await, open(store, "t").await);
    let (a, b) = (begin(store, session, "a").await, begin(store, session, "b").await);
    let elsewhere = begin(store, other, "c").await;
    for row in 1..6 {
        one(store, held(session, vec![journal(a, row, 2), journal(b, row, 1)])).await.unwrap();
        one(store, held(other, vec![journal(elsewhere, row, 1)])).await.unwrap();
    }
    let all = store.history(session, None, 100).await.unwrap();
    assert_eq!(all.len(), 12);
    assert!(all.iter().all(|row| row.session == session));
    assert!(all.is_sorted_by(|newer, older| newer.first.0 == older.first.0 + u64::from(older.count)));
    assert_eq!(all.last().unwrap().first, EntryNo(1));
    for page in [1, 3, 5, 12] {
        let (mut before, mut read) = (None, Vec::new());
        loop {
            let rows = store.history(session, before, page).await.unwrap();
            assert!(rows.len() as u64 <= page);
            let Some(last) = rows.last() else { break };
            before = Some(last.first);
            read.extend(rows);
        }
        assert_eq!(read, all, "in pages of {page}");
    }
    // Entry 4 is the second of a row that begins with 3.
    assert_eq!(store.history(session, Some(EntryNo(4)), 1).await.unwrap()[0].first, EntryNo(3));
    assert_eq!(store.history(session, None, 0).await.unwrap(), []);
    assert_eq!(store.history(SessionNo(99), None, 10).await.unwrap(), []);
}

/// By number, after a number, not more than asked for.
pub async fn sessions_are_listed_in_pages(store: &Arc<dyn Store>) {
    let mut opened = Vec::new();
    for name in ["c", "a", "b"] {
        opened.push(open(store, name).await);
    }
    let listed = async |after, limit| {
        let found = store.sessions(after, limit).await.unwrap();
        found.into_iter().map(|row| (row.no, row.name)).collect::<Vec<_>>()
    };
    let named = |place: usize, name: &str| (opened[place], name.to_owned());
    assert_eq!(listed(None, 10).await, [named(0, "c"), named(1, "a"), named(2, "b")]);
    assert_eq!(listed(Some(opened[0]), 1).await, [named(1, "a")]);
    assert_eq!(listed(Some(opened[2]), 10).await, []);
}

/// Any range of a blob of three pieces, across their borders and past its end.
pub async fn a_blob_is_read_across_its_pieces(store: &Arc<dyn Store>) {
    let session = open(store, "s").await;
    let (blob, empty) =
        (BlobNo(next(store, Sequence::Blob).await), BlobNo(next(store, Sequence::Blob).await));
    let pieces = ["abcd", "efgh", "ij"].into_iter().enumerate();
    for (seq, piece) in pieces {
        let row = Row::Chunk { blob, seq: seq as u32, data: bytes(piece) };
        one(store, held(session, vec![row])).await.unwrap();
    }
    one(store, held(session, vec![Row::Chunk { blob: empty, seq: 0, data: bytes("") }])).await.unwrap();
    let whole = b"abcdefghij";
    for offset in 0..12_u64 {
        for len in 0..12_u64 {
            let start = whole.len().min(offset as usize);
            let end = whole.len().min((offset + len) as usize);
            let read = store.blob(blob, offset, len).await.unwrap();
            assert_eq!(read.as_deref(), Some(&whole[start..end]), "{len} from {offset}");
        }
    }
    assert_eq!(store.blob(blob, u64::MAX, u64::MAX).await.unwrap(), Some(vec![]));
    assert_eq!(store.blob(empty, 0, 10).await.unwrap(), Some(vec![]));
    let nothing = BlobNo(next(store, Sequence::Blob).await);
    assert_eq!(store.blob(nothing, 0, 10).await.unwrap(), None);
}

/// No number is handed out twice, to however many ask at once.
pub async fn numbers_are_reserved_once(store: &Arc<dyn Store>) {
    for what in [Sequence::Session, Sequence::Batch, Sequence::Blob] {
        assert_eq!(store.reserve(what, 1).await.unwrap(), 1);
        let askers: Vec<_> = (1..=8)
            .map(|count| {
                let store = Arc::clone(store);
                tokio::spawn(async move { (store.reserve(what, count).await.unwrap(), count) })
            })
            .collect();
        let mut got = Vec::new();
        for asker in askers {
            let (from, count) = asker.await.unwrap();
            got.extend(from..from + count);
        }
        got.sort_unstable();
        assert_eq!(got, (2..2 + 36).collect::<Vec<u64>>());
    }
}

/// Names, keys and payloads are whatever they are: empty, with NUL, longer than an index takes, alike in some locale.
pub async fn any_text_and_bytes_are_kept(store: &Arc<dyn Store>) {
    let long = "n".repeat(20_000);
    for text in ["", "\0", "a\0b", "a\0c", "ä", "a\u{308}", "A", "a", "a ", long.as_str()] {
        let session = open(store, text).await;
        let batch = begin(store, session, text).await;
        let data = [0, 255, 0xc3, 0x28].repeat(text.len());
        let blob = BlobNo(next(store, Sequence::Blob).await);
        let piece = Row::Chunk { blob, seq: 0, data: data.as_slice().into() };
        let rows = vec![Row::Journal { batch, row: 1, count: 1, data: data.clone() }, piece];
        one(store, held(session, rows)).await.unwrap();
        let found = store.session(text).await.unwrap().unwrap();
        assert_eq!((found.no, found.name.as_str()), (session, text));
        assert_eq!(store.journal(batch).await.unwrap()[1].data, data);
        assert_eq!(store.blob(blob, 0, u64::MAX).await.unwrap().unwrap(), *data);
        let sent = Inbound { session, key: text.to_owned(), body: data.clone() };
        assert_eq!(store.post(sent.clone()).await.unwrap(), Posted::New);
        assert_eq!(store.inbound(session, 10).await.unwrap(), [sent]);
        one(store, held(session, vec![Row::Adopt { key: text.to_owned() }])).await.unwrap();
    }
}

/// The secret is random and the same whenever it is asked for.
pub async fn the_secret_stays(store: &Arc<dyn Store>) {
    let secret = store.secret().0;
    assert_ne!(secret, [0; 32]);
    open(store, "s").await;
    assert_eq!(store.secret().0, secret);
}

/// Whatever a commit that returned wrote, the next read sees, from any thread.
pub async fn reads_see_commits_that_returned(store: &Arc<dyn Store>) {
    let session = open(store, "s").await;
    for turn in 0..50_u64 {
        let key = turn.to_string();
        let batch = begin(store, session, &key).await;
        let store = Arc::clone(store);
        let read = tokio::spawn(async move {
            let head = store.session_by_no(session).await.unwrap().unwrap().head;
            let found = store.batch(lookup(session, &key)).await.unwrap().map(|batch| batch.no);
            (head, found, store.journal(batch).await.unwrap().len())
        });
        assert_eq!(read.await.unwrap(), (EntryNo(turn + 1), Some(batch), 1));
    }
}

/// Many owners at once, several commits of each on the way: each session is in order and without gaps.
pub async fn concurrent_commits_keep_each_order(store: &Arc<dyn Store>) {
    let owners: Vec<_> = (0..16)
        .map(|owner: u32| {
            let store = Arc::clone(store);
            tokio::spawn(async move {
                let session = open(&store, &format!("s{owner}")).await;
                let batch = begin(&store, session, "k").await;
                // All are sent before the first is awaited: sending gives the order.
                let sent: Vec<_> = (1..40)
                    .map(|row| store.commit(changes([held(session, vec![journal(batch, row, row % 3 + 1)])])))
                    .collect();
                let mut first = 2;
                for (row, answer) in (1..40_u64).zip(sent) {
                    assert_eq!(answer.await.unwrap(), [Ok(Receipt { first: EntryNo(first), generation: 0 })]);
                    first += row % 3 + 1;
                }
                let history = store.history(session, None, 100).await.unwrap();
                let order: Vec<_> = history.iter().rev().map(|row| row.row).collect();
                assert_eq!(order, (0..40).collect::<Vec<_>>());
            })
        })
        .collect();
    for owner in owners {
        owner.await.unwrap();
    }
}

/// Opens a session under fence 1.
pub async fn open(store: &Arc<dyn Store>, name: &str) -> SessionNo {
    let session = SessionNo(next(store, Sequence::Session).await);
    let hold = Hold::Open { name: name.to_owned(), principal: None };
    one(store, SessionChange { session, hold, guards: vec![], rows: vec![] }).await.unwrap();
    session
}

/// Records a batch under this key, with a row of one entry.
pub async fn begin(store: &Arc<dyn Store>, session: SessionNo, key: &str) -> BatchNo {
    let no = BatchNo(next(store, Sequence::Batch).await);
    let lookup = lookup(session, key);
    let rows = vec![Row::Batch { no, lookup }, journal(no, 0, 1)];
    one(store, held(session, rows)).await.unwrap();
    no
}

/// A change under fence 1.
pub fn held(session: SessionNo, rows: Vec<Row>) -> SessionChange {
    SessionChange { session, hold: Hold::Held(Fence(1)), guards: vec![], rows }
}

/// A journal row that says where it belongs.
pub fn journal(batch: BatchNo, row: u32, count: u32) -> Row {
    Row::Journal { batch, row, count, data: text(batch, row).into_bytes() }
}

/// How a key of a session is found.
pub fn lookup(session: SessionNo, key: &str) -> Lookup {
    Lookup::of(session, key)
}

/// Commits one change.
pub async fn one(store: &Arc<dyn Store>, change: impl Into<Change>) -> Result<Receipt, Refused> {
    let [answer] = store.commit(vec![change.into()]).await.unwrap()[..] else {
        panic!("one change, one answer")
    };
    answer
}

/// Changes of sessions as one commit takes them.
pub fn changes(changes: impl IntoIterator<Item = SessionChange>) -> Vec<Change> {
    changes.into_iter().map(Change::from).collect()
}

/// A number of its own.
pub async fn next(store: &Arc<dyn Store>, what: Sequence) -> u64 {
    store.reserve(what, 1).await.unwrap()
}

fn text(batch: BatchNo, row: u32) -> String {
    format!("row {row} of batch {batch}")
}

fn bytes(text: &str) -> Arc<[u8]> {
    text.as_bytes().into()
}

fn message(session: SessionNo, key: &str, body: &str) -> Inbound {
    Inbound { session, key: key.to_owned(), body: body.as_bytes().to_vec() }
}

/// Row, first entry and count of each.
fn numbers(rows: &[JournalRow]) -> Vec<(u32, u64, u32)> {
    rows.iter().map(|row| (row.row, row.first.0, row.count)).collect()
}

/// Everything readable of a session, to see that nothing changed.
async fn snapshot(store: &Arc<dyn Store>, session: SessionNo) -> String {
    let row = store.session_by_no(session).await.unwrap();
    let open = store.open_batches(None).await.unwrap();
    let history = store.history(session, None, 1_000).await.unwrap();
    let inbound = store.inbound(session, 1_000).await.unwrap();
    format!("{row:?}\n{open:?}\n{history:?}\n{inbound:?}")
}
