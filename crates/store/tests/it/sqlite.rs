//! SQLite's additions to the contract: groups, a bounded log, poison, and reopening after closing.

use crate::{in_folder, open};
use rusqlite::Connection;
use std::error::Error;
use std::sync::Arc;
use tempfile::TempDir;
use windlass_core::ids::{BatchNo, BlobNo, EntryNo, Fence, SessionNo};
use windlass_store::limits::StoreLimits;
use windlass_store::sqlite::Options;
use windlass_store::{
    Durability, Inbound, Removal, Removed, Row, Sequence, Space, SqliteStore, Store, StoreError, blob_key,
};
use windlass_testkit::store_suite::{begin, held, journal, lookup, next, one, open as open_session};

/// A connection that somebody outside has on the store's file.
pub(crate) fn outside(folder: &TempDir) -> Connection {
    Connection::open(folder.path().join("windlass.db")).unwrap()
}

fn open_with(folder: &TempDir, limits: StoreLimits) -> Arc<dyn Store> {
    Arc::new(SqliteStore::open(Options { limits, ..Options::new(folder.path()) }).unwrap())
}

#[tokio::test]
async fn what_was_kept_is_there_after_reopening() {
    let folder = TempDir::new().unwrap();
    let store = open(&folder);
    let session = open_session(&store, "s").await;
    let (done, going) = (begin(&store, session, "done").await, begin(&store, session, "going").await);
    let blob = BlobNo(next(&store, Sequence::Blob).await);
    let piece = Row::Chunk { blob, seq: 0, data: b"bytes"[..].into() };
    one(&store, held(session, vec![journal(done, 1, 3), Row::Close(done), piece])).await.unwrap();
    let message = Inbound { session, key: "m".to_owned(), body: b"hello".to_vec() };
    store.post(message.clone()).await.unwrap();
    let secret = store.secret().0;
    let history = store.history(session, None, 10).await.unwrap();
    drop(store);

    let store = open(&folder);
    assert_eq!(store.secret().0, secret);
    assert_eq!(store.history(session, None, 10).await.unwrap(), history);
    assert_eq!(store.session("s").await.unwrap().unwrap().head, EntryNo(5));
    assert!(!store.batch(lookup(session, "done")).await.unwrap().unwrap().open);
    assert_eq!(store.open_batches(None).await.unwrap()[0].no, going);
    assert_eq!(store.blob(blob, 1, 3).await.unwrap(), Some(b"yte".to_vec()));
    assert_eq!(store.inbound(session, 10).await.unwrap(), [message]);
    for (what, last) in [(Sequence::Session, session.0), (Sequence::Batch, going.0), (Sequence::Blob, blob.0)]
    {
        assert!(next(&store, what).await > last, "{what:?}");
    }
    let receipt = one(&store, held(session, vec![journal(going, 1, 1)])).await.unwrap();
    assert_eq!(receipt.first, EntryNo(6), "the session goes on where it was");
}

#[tokio::test]
async fn the_number_of_a_blob_that_is_gone_is_not_given_out_again() {
    let folder = TempDir::new().unwrap();
    let store = open(&folder);
    let session = open_session(&store, "s").await;
    let (first, last) =
        (BlobNo(next(&store, Sequence::Blob).await), BlobNo(next(&store, Sequence::Blob).await));
    let chunk = |blob| Row::Chunk { blob, seq: 0, data: b"bytes"[..].into() };
    one(&store, held(session, vec![chunk(first), chunk(last)])).await.unwrap();
    // The largest number goes first: what remembers it must not go back.
    for blob in [last, first] {
        one(&store, held(session, vec![Row::Cut { blob, pieces: 0 }])).await.unwrap();
    }
    drop(store);
    assert!(next(&open(&folder), Sequence::Blob).await > last.0);

    outside(&folder).execute("UPDATE meta SET value = zeroblob(32) WHERE key = 'removed'", ()).unwrap();
    let refused = SqliteStore::open(Options::new(folder.path())).err().unwrap();
    assert!(refused.to_string().contains("its numbers are damaged"), "{refused}");
}

#[tokio::test]
async fn closing_writes_what_waits_and_leaves_no_log() {
    let folder = TempDir::new().unwrap();
    let store = open(&folder);
    let session = open_session(&store, "s").await;
    let batch = begin(&store, session, "k").await;
    let sent: Vec<_> =
        (1..100).map(|row| store.commit(vec![held(session, vec![journal(batch, row, 1)]).into()])).collect();
    drop(store);
    for answer in sent {
        assert!(answer.await.unwrap()[0].is_ok());
    }
    assert!(!folder.path().join("windlass.db-wal").exists());
    assert_eq!(open(&folder).journal(batch).await.unwrap().len(), 100);
}

#[tokio::test]
async fn commits_that_wait_share_one() {
    let made = in_folder();
    let (store, folder) = (&made.store, made.folder.as_ref().unwrap());
    let session = open_session(store, "s").await;
    let batch = begin(store, session, "k").await;
    let before = store.commits();
    // While somebody else holds the file, the writer has what it took and everybody else waits.
    let outside = outside(folder);
    outside.execute_batch("BEGIN IMMEDIATE").unwrap();
    let sent: Vec<_> =
        (1..65).map(|row| store.commit(vec![held(session, vec![journal(batch, row, 1)]).into()])).collect();
    outside.execute_batch("ROLLBACK").unwrap();
    for answer in sent {
        assert!(answer.await.unwrap()[0].is_ok());
    }
    let groups = store.commits() - before;
    assert!(groups <= 2, "64 commits took {groups} waits");
}

#[tokio::test]
async fn a_group_is_not_larger_than_its_limit() {
    let folder = TempDir::new().unwrap();
    let store = open_with(&folder, StoreLimits { group_changes_max: 8, ..StoreLimits::default() });
    let session = open_session(&store, "s").await;
    let batch = begin(&store, session, "k").await;
    let before = store.commits();
    // More than the queue holds, so that sending must wait for the writer too.
    let sent: Vec<_> =
        (1..401).map(|row| store.commit(vec![held(session, vec![journal(batch, row, 1)]).into()])).collect();
    for answer in sent {
        assert!(answer.await.unwrap()[0].is_ok());
    }
    assert!(store.commits() - before >= 50, "{} groups", store.commits() - before);
    assert_eq!(store.journal(batch).await.unwrap().len(), 401);
}

#[tokio::test]
async fn a_group_with_a_late_refusal_is_done_again_without_it() {
    let made = in_folder();
    let (store, folder) = (&made.store, made.folder.as_ref().unwrap());
    let (a, b) = (open_session(store, "a").await, open_session(store, "b").await);
    let (in_a, in_b) = (begin(store, a, "k").await, begin(store, b, "k").await);
    let outside = outside(folder);
    outside.execute_batch("BEGIN IMMEDIATE").unwrap();
    let first = store.commit(vec![held(a, vec![journal(in_a, 1, 1)]).into()]);
    let good = store.commit(vec![held(b, vec![journal(in_b, 1, 1)]).into()]);
    let bad = store.commit(vec![held(a, vec![journal(in_a, 2, 1), journal(in_b, 0, 1)]).into()]);
    let after = store.commit(vec![held(a, vec![journal(in_a, 2, 1)]).into()]);
    outside.execute_batch("ROLLBACK").unwrap();
    assert!(first.await.unwrap()[0].is_ok());
    assert!(good.await.unwrap()[0].is_ok());
    assert!(bad.await.unwrap()[0].is_err());
    assert_eq!(after.await.unwrap()[0].unwrap().first, EntryNo(3));
    assert_eq!(store.history(a, None, 10).await.unwrap().len(), 3);
}

#[tokio::test]
async fn the_log_stays_bounded() {
    let folder = TempDir::new().unwrap();
    let max = 512 << 10;
    let store = open_with(&folder, StoreLimits { wal_bytes_max: max, ..StoreLimits::default() });
    let session = open_session(&store, "s").await;
    let log = folder.path().join("windlass.db-wal");
    let mut longest = 0;
    for turn in 0..200 {
        let blob = BlobNo(next(&store, Sequence::Blob).await);
        let row = Row::Chunk { blob, seq: 0, data: vec![turn as u8; 64 << 10].into() };
        one(&store, held(session, vec![row])).await.unwrap();
        longest = longest.max(std::fs::metadata(&log).unwrap().len());
    }
    // The commit that passes the limit is whole before the writer waits.
    assert!(longest < max + (256 << 10), "the log grew to {longest} bytes");
    assert!(longest > max / 2, "the log was used");
}

#[tokio::test]
async fn after_a_failed_write_nothing_is_written_until_it_is_opened_anew() {
    let folder = TempDir::new().unwrap();
    let store = open(&folder);
    let session = open_session(&store, "s").await;
    let batch = begin(&store, session, "k").await;
    let outside = outside(&folder);
    outside
        .execute_batch(
            "CREATE TRIGGER broken BEFORE INSERT ON journal WHEN NEW.count = 7
             BEGIN SELECT RAISE(ABORT, 'the disk is on fire'); END;
             BEGIN IMMEDIATE",
        )
        .unwrap();
    // The first may be taken alone; the second and the third are one group.
    let alone = store.commit(vec![held(session, vec![journal(batch, 1, 1)]).into()]);
    let neighbour = store.commit(vec![held(session, vec![journal(batch, 2, 1)]).into()]);
    let failing = store.commit(vec![held(session, vec![journal(batch, 3, 7)]).into()]);
    outside.execute_batch("ROLLBACK").unwrap();
    let acknowledged = 1 + u64::from(alone.await.is_ok());
    assert!(matches!(neighbour.await, Err(StoreError::Io { .. })));
    let error = failing.await.unwrap_err();
    assert!(matches!(error, StoreError::Io { doing: "write", .. }), "{error:?}");
    assert!(error.source().unwrap().to_string().contains("on fire"));
    for _ in 0..2 {
        let later = store.commit(vec![held(session, vec![]).into()]).await;
        assert!(matches!(later, Err(StoreError::Poisoned { .. })), "{later:?}");
    }
    let message = Inbound { session, key: "m".to_owned(), body: vec![] };
    assert!(matches!(store.post(message).await, Err(StoreError::Poisoned { .. })));
    assert_eq!(store.journal(batch).await.unwrap().len() as u64, acknowledged, "reading goes on");
    outside.execute_batch("DROP TRIGGER broken").unwrap();
    drop(store);
    let store = open(&folder);
    assert_eq!(store.session("s").await.unwrap().unwrap().head, EntryNo(acknowledged));
    assert!(one(&store, held(session, vec![journal(batch, 9, 7)])).await.is_ok());
}

#[tokio::test]
async fn somebody_elses_write_is_not_overlooked() {
    let made = in_folder();
    let (store, folder) = (&made.store, made.folder.as_ref().unwrap());
    let session = open_session(store, "s").await;
    assert!(one(store, held(session, vec![])).await.is_ok());
    outside(folder).execute("UPDATE sessions SET fence = 9", ()).unwrap();
    assert!(one(store, held(session, vec![])).await.is_err(), "the fence was remembered and is not in force");
}

#[tokio::test]
async fn relaxed_must_be_asked_for_and_says_so() {
    let folder = TempDir::new().unwrap();
    assert_eq!(open(&folder).durability(), Durability::Full);
    let relaxed = Options { durability: Durability::Relaxed, ..Options::new(folder.path()) };
    let store = SqliteStore::open(relaxed).unwrap();
    assert_eq!(store.durability(), Durability::Relaxed);
    drop(store);
    for durability in [Durability::Memory, Durability::Replicated] {
        let impossible = Options { durability, ..Options::new(folder.path()) };
        assert!(matches!(SqliteStore::open(impossible), Err(StoreError::Open { .. })));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn numbers_of_what_was_removed_are_not_used_again_after_reopening() {
    let folder = TempDir::new().unwrap();
    let store = open_with(&folder, StoreLimits::default());
    let (kept, session) = (open_session(&store, "kept").await, open_session(&store, "s").await);
    let batch = begin(&store, session, "k").await;
    let blob = BlobNo(next(&store, Sequence::Blob).await);
    let rows = vec![
        Row::Chunk { blob, seq: 0, data: b"x"[..].into() },
        Row::Put { space: Space::Blob, key: blob_key(blob), value: b""[..].into() },
    ];
    one(&store, held(session, rows)).await.unwrap();
    let piece = Removal { session, fence: Fence(1), most: 1 };
    let mut pieces = 0;
    // Every piece by another owner: each finds where the last one was cut off.
    let mut store = Some(store);
    loop {
        let opened = store.take().unwrap_or_else(|| open_with(&folder, StoreLimits::default()));
        pieces += 1;
        if opened.remove(piece).await.unwrap().unwrap() == Removed::All {
            store = Some(opened);
            break;
        }
    }
    assert!(pieces > 2);
    drop(store);
    let store = open_with(&folder, StoreLimits::default());
    assert!(SessionNo(next(&store, Sequence::Session).await) > session);
    assert!(BatchNo(next(&store, Sequence::Batch).await) > batch);
    assert!(BlobNo(next(&store, Sequence::Blob).await) > blob);
    assert_eq!(store.sessions(None, 9).await.unwrap().len(), 1);
    assert_eq!(store.session("kept").await.unwrap().unwrap().no, kept);
}
