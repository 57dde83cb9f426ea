//! Expired rows in the file: damage beside them is noticed, the identity outlives a reopening, and their space comes back.

use crate::open;
use crate::sqlite::outside;
use std::sync::Arc;
use tempfile::TempDir;
use windlass_core::ids::{BatchNo, SessionNo};
use windlass_store::{Row, Sequence, Store, StoreError};
use windlass_testkit::store_suite::{begin, held, lookup, next, one, open as open_session};

/// A session with five batches of which the third is expired; and another session.
async fn scene() -> (TempDir, Arc<dyn Store>, SessionNo, Vec<BatchNo>) {
    let folder = TempDir::new().unwrap();
    let store = open(&folder);
    let (session, other) = (open_session(&store, "s").await, open_session(&store, "other").await);
    begin(&store, other, "k").await;
    let mut batches = Vec::new();
    for number in 0..5 {
        batches.push(begin(&store, session, &format!("k{number}")).await);
    }
    expire(&store, session, batches[2]).await;
    (folder, store, session, batches)
}

async fn expire(store: &Arc<dyn Store>, session: SessionNo, batch: BatchNo) {
    one(store, held(session, vec![Row::Close(batch)])).await.unwrap();
    one(store, held(session, vec![Row::Expire(batch)])).await.unwrap();
}

#[tokio::test]
async fn damage_in_a_run_of_expired_rows_is_noticed() {
    for hurt in [
        "UPDATE gaps SET first = first - 1",
        "UPDATE gaps SET count = count + 1",
        "UPDATE gaps SET last_row = last_row + 1",
        "UPDATE gaps SET link = zeroblob(32)",
        "UPDATE gaps SET prev = NULL",
        "UPDATE gaps SET before = zeroblob(32)",
        "UPDATE gaps SET seal = seal + 1",
        "UPDATE gaps SET session = session + 1",
        "DELETE FROM gaps",
    ] {
        let (folder, store, session, batches) = scene().await;
        outside(&folder).execute(hurt, ()).unwrap();
        let found = store.history(session, None, 10).await;
        assert!(
            matches!(found, Err(StoreError::Damaged { session: of, .. }) if of == session),
            "{hurt}: {found:?}"
        );
        assert!(store.journal(batches[3]).await.is_err(), "the row behind it is chained to it: {hurt}");
        let other = store.session("other").await.unwrap().unwrap();
        assert_eq!(store.history(other.no, None, 10).await.unwrap().len(), 1, "others go on");
    }
}

#[tokio::test]
async fn damage_beside_expired_rows_is_noticed() {
    for (place, hurt) in [
        (1, "UPDATE journal SET data = x'00' WHERE row >> 20 = ?1"),
        (3, "UPDATE journal SET data = x'00' WHERE row >> 20 = ?1"),
        (1, "DELETE FROM journal WHERE row >> 20 = ?1"),
        (3, "DELETE FROM journal WHERE row >> 20 = ?1"),
        (0, "UPDATE journal SET link = zeroblob(32) WHERE row >> 20 = ?1"),
    ] {
        let (folder, store, session, batches) = scene().await;
        outside(&folder).execute(hurt, [batches[place].0 as i64]).unwrap();
        let found = store.history(session, None, 10).await;
        assert!(matches!(found, Err(StoreError::Damaged { .. })), "{hurt} at {place}: {found:?}");
    }
}

#[tokio::test]
async fn an_expired_batch_is_known_to_the_next_owner() {
    let (folder, store, session, batches) = scene().await;
    drop(store);
    let store = open(&folder);
    let known = store.batch(lookup(session, "k2")).await.unwrap().unwrap();
    assert!(known.expired && known.no == batches[2]);
    drop(store);
    // A batch that only looks expired is damage: the rows of an identity do not vanish unnoticed.
    outside(&folder)
        .execute("UPDATE batches SET seal = seal + 1 WHERE no = ?1", [batches[2].0 as i64])
        .unwrap();
    let options = windlass_store::sqlite::Options::new(folder.path());
    assert!(windlass_store::SqliteStore::open(options).is_err());
}

#[tokio::test]
async fn the_space_of_expired_rows_comes_back_while_the_file_is_in_use() {
    let folder = TempDir::new().unwrap();
    let store = open(&folder);
    let session = open_session(&store, "s").await;
    let mut batches = Vec::new();
    for number in 0..64 {
        let no = BatchNo(next(&store, Sequence::Batch).await);
        let data = vec![7; 200_000];
        let rows = vec![
            Row::Batch { no, lookup: lookup(session, &format!("k{number}")) },
            Row::Journal { batch: no, row: 0, count: 1, data },
        ];
        one(&store, held(session, rows)).await.unwrap();
        batches.push(no);
    }
    let full = store.usage().await.unwrap();
    assert!(full.journal_bytes == 64 * 200_000 && full.file_bytes > full.journal_bytes, "{full:?}");
    for no in &batches {
        expire(&store, session, *no).await;
    }
    let emptied = store.usage().await.unwrap();
    assert!(emptied.journal_bytes == 0 && emptied.file_bytes == full.file_bytes, "{emptied:?}");
    assert!(emptied.free_bytes > 12_000_000, "{emptied:?}");
    let mut pieces = 0;
    while store.shrink(256).await.unwrap() {
        pieces += 1;
        assert!(pieces < 100, "it has no end");
    }
    assert!(pieces > 2, "it was not done in pieces");
    let shrunk = store.usage().await.unwrap();
    assert!(shrunk.file_bytes < full.file_bytes / 2, "{shrunk:?}");
    assert!(shrunk.free_bytes > 0, "some is kept for the next rows: {shrunk:?}");
    assert!(!store.shrink(256).await.unwrap(), "and then it is left alone");
    begin(&store, session, "new").await;
    assert_eq!(store.history(session, None, 9).await.unwrap().len(), 1);
    drop(store);
    let len = std::fs::metadata(folder.path().join("windlass.db")).unwrap().len();
    assert!(len <= shrunk.file_bytes + (1 << 20), "the file itself is smaller: {len}");
    assert_eq!(open(&folder).history(session, None, 9).await.unwrap().len(), 1, "and it is whole");
}
