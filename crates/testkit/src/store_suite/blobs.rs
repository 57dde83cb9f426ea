//! Blobs are measured and cut.

use super::{bytes, held, next, one, open};
use std::sync::Arc;
use windlass_core::ids::{BlobNo, Fence};
use windlass_store::{
    BlobSize, Guard, Hold, Refused, Removal, Removed, Row, Sequence, SessionChange, Space, Store, blob_key,
};

/// A blob is cut from its end until nothing of it is there; its neighbours stay, and what is not there can be cut too.
pub async fn a_blob_is_cut_from_its_end(store: &Arc<dyn Store>) {
    let session = open(store, "s").await;
    let (before, blob, after) = (made(store).await, made(store).await, made(store).await);
    let pieces = |blob| {
        let all = ["abcd", "efgh", "ij"].into_iter().zip(0..);
        all.map(move |(piece, seq)| Row::Chunk { blob, seq, data: bytes(piece) }).collect()
    };
    for blob in [before, blob, after] {
        assert_eq!(store.blob_size(blob).await.unwrap(), None);
        one(store, held(session, pieces(blob))).await.unwrap();
    }
    let size = |bytes, pieces| Some(BlobSize { bytes, pieces });
    assert_eq!(store.blob_size(blob).await.unwrap(), size(10, 3));
    let empty = made(store).await;
    one(store, held(session, vec![Row::Chunk { blob: empty, seq: 0, data: bytes("") }])).await.unwrap();
    assert_eq!(store.blob_size(empty).await.unwrap(), size(0, 1));

    for (pieces, left) in [(3, size(10, 3)), (2, size(8, 2)), (1, size(4, 1)), (0, None), (0, None)] {
        one(store, held(session, vec![Row::Cut { blob, pieces }])).await.unwrap();
        assert_eq!(store.blob_size(blob).await.unwrap(), left, "cut to {pieces}");
    }
    assert_eq!(store.blob(blob, 0, 10).await.unwrap(), None);
    for neighbour in [before, after] {
        assert_eq!(store.blob(neighbour, 0, 99).await.unwrap().unwrap(), b"abcdefghij");
    }
    // What is written and cut in one change is not there, and what is cut and written is.
    let both = made(store).await;
    let mut rows: Vec<Row> = pieces(both);
    rows.push(Row::Cut { blob: both, pieces: 1 });
    one(store, held(session, rows)).await.unwrap();
    assert_eq!(store.blob_size(both).await.unwrap(), size(4, 1));
    one(store, held(session, vec![Row::Cut { blob: both, pieces: 0 }])).await.unwrap();
    one(store, held(session, pieces(both))).await.unwrap();
    assert_eq!(store.blob_size(both).await.unwrap(), size(10, 3));
}

/// A blob is cut under a guard of its session, and a stale owner cuts nothing.
pub async fn whoever_cuts_a_blob_needs_the_right(store: &Arc<dyn Store>) {
    let session = open(store, "s").await;
    let (blob, key) = (made(store).await, "loose".to_owned());
    let put = Row::Put { space: Space::Loose, key: key.clone(), value: bytes("since then") };
    let rows = vec![Row::Chunk { blob, seq: 0, data: bytes("x") }, put];
    let generation = one(store, held(session, rows)).await.unwrap().generation;
    let rows = vec![Row::Cut { blob, pieces: 0 }, Row::Remove { space: Space::Loose, key: key.clone() }];
    let cut = |is| SessionChange {
        guards: vec![Guard::Generation { space: Space::Loose, key: key.clone(), is }],
        ..held(session, rows.clone())
    };
    assert_eq!(one(store, cut(generation + 1)).await, Err(Refused::Changed { now: generation }));
    let stale =
        SessionChange { hold: Hold::Held(Fence(9)), ..held(session, vec![Row::Cut { blob, pieces: 0 }]) };
    assert_eq!(one(store, stale).await, Err(Refused::Fenced { now: Fence(1) }));
    assert_eq!(store.blob(blob, 0, 1).await.unwrap().unwrap(), b"x");
    one(store, cut(generation)).await.unwrap();
    assert_eq!(store.blob(blob, 0, 1).await.unwrap(), None);
    assert_eq!(store.record(Space::Loose.of(session), &key).await.unwrap(), None);
}

/// A blob is found by its number, whichever session has its record, until the record is removed or the session is.
pub async fn a_blob_belongs_to_the_session_that_records_it(store: &Arc<dyn Store>) {
    let (session, other) = (open(store, "s").await, open(store, "t").await);
    let (blob, theirs) = (made(store).await, made(store).await);
    let put = |blob, value| Row::Put { space: Space::Blob, key: blob_key(blob), value: bytes(value) };
    assert_eq!(store.blob_session(blob).await.unwrap(), None);
    one(store, held(session, vec![Row::Chunk { blob, seq: 0, data: bytes("x") }, put(blob, "")]))
        .await
        .unwrap();
    one(store, held(other, vec![put(theirs, "")])).await.unwrap();
    one(store, held(session, vec![put(blob, "known")])).await.unwrap();
    let homes = async || (store.blob_session(blob).await.unwrap(), store.blob_session(theirs).await.unwrap());
    assert_eq!(homes().await, (Some(session), Some(other)));
    one(store, held(session, vec![Row::Remove { space: Space::Blob, key: blob_key(blob) }])).await.unwrap();
    assert_eq!(homes().await, (None, Some(other)));
    let piece = Removal { session: other, fence: Fence(1), most: 100 };
    while store.remove(piece).await.unwrap() == Ok(Removed::Piece) {}
    assert_eq!(homes().await, (None, None));
}

async fn made(store: &Arc<dyn Store>) -> BlobNo {
    BlobNo(next(store, Sequence::Blob).await)
}
