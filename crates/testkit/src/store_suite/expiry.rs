//! Batches that expire: their rows go, their identities stay.

use super::{begin, bytes, held, journal, lookup, next, one, open, snapshot};
use std::sync::Arc;
use windlass_core::ids::{BatchNo, EntryNo, Fence, SessionNo};
use windlass_store::{
    Hold, JournalRow, KeptBatch, Refused, Removal, Removed, Row, Sequence, SessionChange, Space, Store,
};

async fn close(store: &Arc<dyn Store>, session: SessionNo, batch: BatchNo) {
    one(store, held(session, vec![Row::Close(batch)])).await.unwrap();
}

async fn kept(store: &Arc<dyn Store>) -> Vec<BatchNo> {
    let all: Vec<KeptBatch> = store.kept_batches(BatchNo(0), 1_000).await.unwrap();
    all.iter().map(|batch| batch.no).collect()
}

/// The rows go; number, look-up and the numbers of entries stay.
pub async fn a_batch_expires_once_and_stays_known(store: &Arc<dyn Store>) {
    let session = open(store, "s").await;
    let (first, second) = (begin(store, session, "first").await, begin(store, session, "second").await);
    one(store, held(session, vec![journal(first, 1, 3), journal(second, 1, 2), Row::Close(first)]))
        .await
        .unwrap();
    let (head, rows) =
        (store.session("s").await.unwrap().unwrap().head, store.journal(second).await.unwrap());
    assert_eq!(kept(store).await, [first, second]);
    let measured = store.kept_batches(first, 9).await.unwrap();
    let size: usize = rows.iter().map(|row| row.data.len()).sum();
    assert_eq!(measured, [KeptBatch { no: second, session, bytes: size as u64 }]);

    for _ in 0..2 {
        one(store, held(session, vec![Row::Expire(first)])).await.unwrap();
        let known = store.batch(lookup(session, "first")).await.unwrap().unwrap();
        assert_eq!((known.no, known.session, known.open, known.expired), (first, session, false, true));
        assert_eq!(store.batch_by_no(first).await.unwrap(), Some(known));
        assert_eq!(store.journal(first).await.unwrap(), []);
        assert_eq!(kept(store).await, [second]);
        assert_eq!(store.journal(second).await.unwrap(), rows, "others keep theirs");
        assert!(!store.batch_by_no(second).await.unwrap().unwrap().expired);
        assert_eq!(store.session("s").await.unwrap().unwrap().head, head);
    }
    let usage = store.usage().await.unwrap();
    assert_eq!((usage.journal_bytes, usage.batches, usage.expired_batches), (size as u64, 2, 1));

    let again = BatchNo(next(store, Sequence::Batch).await);
    let repeated = vec![Row::Batch { no: again, lookup: lookup(session, "first") }, journal(again, 0, 1)];
    assert_eq!(one(store, held(session, repeated)).await, Err(Refused::Exists), "it is never made again");
    let receipt = one(store, held(session, vec![journal(second, 2, 1)])).await.unwrap();
    assert_eq!(receipt.first, EntryNo(head.0 + 1), "numbers go on");
}

/// An open batch, one of another session, and one that nobody knows stay as they are; so does everything under a stale fence.
pub async fn what_may_not_expire_is_refused(store: &Arc<dyn Store>) {
    let (session, other) = (open(store, "s").await, open(store, "other").await);
    let (still_open, closed) = (begin(store, session, "open").await, begin(store, session, "closed").await);
    close(store, session, closed).await;
    let before = snapshot(store, session).await;
    for (of, batch) in [(session, still_open), (other, closed), (session, BatchNo(closed.0 + 1_000))] {
        assert_eq!(one(store, held(of, vec![Row::Expire(batch)])).await, Err(Refused::NotOver), "{batch:?}");
    }
    let (guards, rows) = (Vec::new(), vec![Row::Expire(closed)]);
    let stale = SessionChange { session, hold: Hold::Held(Fence(9)), guards, rows };
    assert_eq!(one(store, stale).await, Err(Refused::Fenced { now: Fence(1) }));
    assert_eq!(snapshot(store, session).await, before);
    assert_eq!(kept(store).await, [still_open, closed]);
}

/// Records that go with a batch go in its change.
pub async fn an_expiry_is_all_of_its_change_or_nothing(store: &Arc<dyn Store>) {
    let session = open(store, "s").await;
    let (first, second) = (begin(store, session, "first").await, begin(store, session, "second").await);
    let log = Row::Put { space: Space::Log, key: "l".into(), value: bytes("v") };
    one(store, held(session, vec![log, Row::Close(first), Row::Close(second)])).await.unwrap();
    let gone = || Row::Remove { space: Space::Log, key: "l".into() };
    let before = snapshot(store, session).await;
    let refused = vec![Row::Expire(first), gone(), journal(second, 0, 1)];
    assert_eq!(one(store, held(session, refused)).await, Err(Refused::Exists));
    assert_eq!(snapshot(store, session).await, before);
    assert_eq!(store.journal(first).await.unwrap().len(), 1);
    assert!(!store.batch_by_no(first).await.unwrap().unwrap().expired);
    assert!(store.record(Space::Log.of(session), "l").await.unwrap().is_some());

    one(store, held(session, vec![Row::Expire(second), Row::Expire(first), gone()])).await.unwrap();
    assert_eq!(kept(store).await, []);
    assert_eq!(store.record(Space::Log.of(session), "l").await.unwrap(), None);
}

/// Whatever expired, in whatever order: histories and journals are the rest, in order, from any entry and in pages of any size.
pub async fn a_journal_is_read_whatever_expired(store: &Arc<dyn Store>) {
    let session = open(store, "s").await;
    let mut batches = Vec::new();
    for number in 0..9 {
        batches.push(begin(store, session, &format!("k{number}")).await);
    }
    for row in 1..3 {
        for batch in batches.iter().skip(row as usize) {
            one(store, held(session, vec![journal(*batch, row, row + 1)])).await.unwrap();
        }
    }
    let rows = batches.iter().map(|batch| Row::Close(*batch)).collect();
    one(store, held(session, rows)).await.unwrap();
    let mut left = store.journal_after(session, EntryNo(0), 100).await.unwrap();
    assert_eq!(left.len(), 9 + 8 + 7);
    // In the middle, at the end, at the beginning, between two that are gone: the runs are made, grow at both ends and meet.
    for (step, place) in [4, 8, 0, 3, 5, 1, 7, 6].into_iter().enumerate() {
        one(store, held(session, vec![Row::Expire(batches[place])])).await.unwrap();
        left.retain(|row| row.batch != batches[place]);
        assert_reads(store, session, &left).await;
        if step % 3 == 2 {
            let key = format!("new{step}");
            let new = begin(store, session, &key).await;
            left.extend(store.journal(new).await.unwrap());
            assert_reads(store, session, &left).await;
        }
    }
    one(store, held(session, vec![Row::Expire(batches[2])])).await.unwrap();
    left.retain(|row| row.batch != batches[2]);
    assert_reads(store, session, &left).await;
    for batch in batches {
        assert!(store.batch_by_no(batch).await.unwrap().unwrap().expired);
    }
}

async fn assert_reads(store: &Arc<dyn Store>, session: SessionNo, left: &[JournalRow]) {
    let back: Vec<JournalRow> = left.iter().rev().cloned().collect();
    assert_eq!(store.history(session, None, 100).await.unwrap(), back);
    for size in [1, 2, 5] {
        let (mut found, mut before) = (Vec::new(), None);
        loop {
            let page = store.history(session, before, size).await.unwrap();
            let Some(last) = page.last() else { break };
            before = Some(last.first);
            found.extend(page);
        }
        assert_eq!(found, back, "in pages of {size}");
    }
    let head = store.session_by_no(session).await.unwrap().unwrap().head;
    for after in 0..=head.0 {
        let later: Vec<&JournalRow> =
            left.iter().filter(|row| row.first.0 + u64::from(row.count) > after + 1).collect();
        let found = store.journal_after(session, EntryNo(after), 2).await.unwrap();
        assert!(found.iter().eq(later.iter().take(found.len()).copied()), "after {after}");
        assert!(found.len() <= 2 && found.is_empty() == later.is_empty(), "after {after}: {}", found.len());
    }
}

/// The identities go with their session.
pub async fn a_removed_session_leaves_no_expired_batch(store: &Arc<dyn Store>) {
    let (session, other) = (open(store, "s").await, open(store, "other").await);
    let mut batches = Vec::new();
    for number in 0..8 {
        let key = format!("k{number}");
        batches.push(begin(store, session, &key).await);
        let others = begin(store, other, &key).await;
        close(store, other, others).await;
        one(store, held(other, vec![Row::Expire(others)])).await.unwrap();
    }
    for batch in [0, 1, 4, 7] {
        close(store, session, batches[batch]).await;
        one(store, held(session, vec![Row::Expire(batches[batch])])).await.unwrap();
    }
    let mut left: Vec<_> = [2, 3, 5, 6].map(|place: usize| batches[place]).to_vec();
    for pieces in 0.. {
        assert!(pieces < 100, "it has no end");
        let history = store.history(session, None, 100).await.unwrap();
        let rows: Vec<BatchNo> = history.iter().rev().map(|row| row.batch).collect();
        assert!(left.starts_with(&rows), "the rest is a valid journal: {rows:?}");
        left = rows;
        let piece = Removal { session, fence: Fence(1), most: 2 };
        if store.remove(piece).await.unwrap() == Ok(Removed::All) {
            break;
        }
    }
    for (number, batch) in batches.iter().enumerate() {
        let key = format!("k{number}");
        assert_eq!(store.batch(lookup(session, &key)).await.unwrap(), None, "{key}");
        assert_eq!(store.batch_by_no(*batch).await.unwrap(), None, "{key}");
        assert!(store.batch(lookup(other, &key)).await.unwrap().unwrap().expired, "others stay");
    }
    assert_eq!(store.history(other, None, 9).await.unwrap(), []);
    assert!(begin(store, other, "new").await > batches[7], "numbers are not used again");
}
