//! Removing sessions, piece by piece.

use super::{begin, bytes, held, journal, lookup, message, next, one, open, snapshot};
use std::sync::Arc;
use windlass_core::ids::{BatchNo, BlobNo, CallId, EntryNo, Fence, Mark, Ordinal, SessionNo};
use windlass_store::{RecordPage, Refused, Removal, Removed, Row, Sequence, Space, Store, blob_key};

/// Pieces of this size.
const MOST: u64 = 3;

async fn remove(store: &Arc<dyn Store>, session: SessionNo, fence: u64) -> Result<Removed, Refused> {
    store.remove(Removal { session, fence: Fence(fence), most: MOST }).await.unwrap()
}

/// Removes all of a session; says how many pieces that took.
async fn remove_all(store: &Arc<dyn Store>, session: SessionNo) -> u64 {
    let mut pieces = 1;
    while remove(store, session, 1).await.unwrap() == Removed::Piece {
        pieces += 1;
        assert!(pieces < 1_000, "it has no end");
    }
    pieces
}

/// The rest after a piece is a valid journal: its newest entries are gone, and everything else is as it was.
pub async fn a_session_is_removed_from_its_end(store: &Arc<dyn Store>) {
    let (session, other) = (open(store, "s").await, open(store, "other").await);
    let (first, second) = (begin(store, session, "first").await, begin(store, session, "second").await);
    for row in 1..6 {
        // Two batches whose rows lie between each other's, and another session's.
        one(store, held(session, vec![journal(first, row, 2), journal(second, row, 1)])).await.unwrap();
        begin(store, other, &format!("k{row}")).await;
    }
    one(store, held(session, vec![Row::Close(first)])).await.unwrap();
    let history = async |session| store.history(session, None, 100).await.unwrap();
    let (all, others) = (history(session).await, history(other).await);
    let mut left = all.len();
    while left > 0 {
        assert_eq!(remove(store, session, 1).await, Ok(Removed::Piece));
        left = left.saturating_sub(MOST as usize);
        let rows = &all[all.len() - left..];
        assert_eq!(history(session).await, rows, "{left} are left");
        assert_eq!(store.journal_after(session, EntryNo(0), 100).await.unwrap().len(), left);
        let head = rows.first().map_or(0, |row| row.first.0 + u64::from(row.count) - 1);
        assert_eq!(store.session_by_no(session).await.unwrap().unwrap().head, EntryNo(head));
        for (batch, key) in [(first, "first"), (second, "second")] {
            let of_batch = rows.iter().filter(|row| row.batch == batch).count();
            assert_eq!(store.journal(batch).await.unwrap().len(), of_batch);
            let found = store.batch(lookup(session, key)).await.unwrap();
            assert_eq!(found.is_some(), of_batch > 0, "a batch goes with its first row");
        }
        let open: Vec<BatchNo> =
            store.open_batches(Some(session)).await.unwrap().iter().map(|batch| batch.no).collect();
        assert_eq!(open.contains(&second), rows.iter().any(|row| row.batch == second));
    }
    remove_all(store, session).await;
    assert_eq!(history(other).await, others, "others are left alone");
    assert_eq!(store.open_batches(None).await.unwrap().len(), 5);
}

/// Messages, records, blobs and marks go too, and the name is free for a session that meets nothing of it.
pub async fn nothing_of_a_removed_session_is_left(store: &Arc<dyn Store>) {
    let (session, other) = (open(store, "s").await, open(store, "other").await);
    let batch = begin(store, session, "k").await;
    let blobs = [BlobNo(next(store, Sequence::Blob).await), BlobNo(next(store, Sequence::Blob).await)];
    let call = CallId { batch, ordinal: Ordinal(0) };
    let put = |space, key: String| Row::Put { space, key, value: bytes("v") };
    for session in [session, other] {
        for number in 0..7 {
            let key = format!("k{number}");
            let mark = Row::Mark { mark: Mark::of(session, "tool", &key), call };
            one(store, held(session, vec![put(Space::Pair, key.clone()), mark])).await.unwrap();
            store.post(message(session, &key, "body")).await.unwrap();
        }
        one(store, held(session, vec![Row::Adopt { key: "k1".to_owned() }])).await.unwrap();
    }
    for (blob, session) in blobs.into_iter().zip([session, other]) {
        for seq in 0..5 {
            one(store, held(session, vec![Row::Chunk { blob, seq, data: bytes("x") }])).await.unwrap();
        }
        one(store, held(session, vec![put(Space::Blob, blob_key(blob))])).await.unwrap();
    }
    assert!(remove_all(store, session).await > 10, "it was not done in pieces");

    assert_eq!(store.session("s").await.unwrap(), None);
    assert_eq!(store.session_by_no(session).await.unwrap(), None);
    assert_eq!(remove(store, session, 9).await, Ok(Removed::All), "of what is not there nothing is left");
    let stale = one(store, held(session, vec![journal(batch, 1, 1)])).await;
    assert_eq!(stale, Err(Refused::Fenced { now: Fence(0) }));
    for (gone, is_there) in [(session, false), (other, true)] {
        let count = |number| if is_there { number } else { 0 };
        assert_eq!(store.inbound(gone, 100).await.unwrap().len(), count(6));
        for (space, number) in [(Space::Pair, 7), (Space::Blob, 1)] {
            let page = RecordPage { shelf: space.of(gone), prefix: "", after: None, limit: 100 };
            assert_eq!(store.records(page).await.unwrap().len(), count(number), "{space:?}");
        }
        for number in 0..7 {
            let mark = Mark::of(gone, "tool", &format!("k{number}"));
            assert_eq!(store.marked(mark).await.unwrap(), is_there.then_some(call));
        }
    }
    assert_eq!(store.blob(blobs[0], 0, 9).await.unwrap(), None);
    assert_eq!(store.blob(blobs[1], 0, 9).await.unwrap().unwrap(), b"xxxxx");

    let again = open(store, "another").await;
    assert!(again > other, "a number is never used twice");
    assert_eq!(store.batch(lookup(again, "k")).await.unwrap(), None);
    assert!(begin(store, again, "k").await > batch);
    assert_eq!(store.history(again, None, 9).await.unwrap().len(), 1);
}

/// A process that does not own a session removes nothing of it.
pub async fn a_stale_owner_removes_nothing(store: &Arc<dyn Store>) {
    let session = open(store, "s").await;
    begin(store, session, "k").await;
    let before = snapshot(store, session).await;
    assert_eq!(remove(store, session, 2).await, Err(Refused::Fenced { now: Fence(1) }));
    assert_eq!(snapshot(store, session).await, before);
}
