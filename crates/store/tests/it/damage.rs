//! Damage inside a whole file: it is noticed, it is named, and it stops the session it is in and no other.

use crate::open;
use crate::sqlite::outside;
use std::sync::Arc;
use tempfile::TempDir;
use windlass_core::ids::{BatchNo, BlobNo, CallId, Mark, Ordinal, SessionNo};
use windlass_store::{RecordPage, Row, Sequence, Space, Store, StoreError, blob_key};
use windlass_testkit::store_suite::{begin, held, journal, next, one, open as open_session};

/// Two sessions with a batch of three rows each.
struct Scene {
    folder: TempDir,
    store: Arc<dyn Store>,
    hurt: (SessionNo, BatchNo),
    whole: (SessionNo, BatchNo),
}

async fn scene() -> Scene {
    let folder = TempDir::new().unwrap();
    let store = open(&folder);
    let mut sessions = Vec::new();
    for name in ["whole", "hurt"] {
        let session = open_session(&store, name).await;
        let batch = begin(&store, session, "k").await;
        for row in 1..3 {
            one(&store, held(session, vec![journal(batch, row, 2)])).await.unwrap();
        }
        sessions.push((session, batch));
    }
    Scene { folder, store, hurt: sessions[1], whole: sessions[0] }
}

impl Scene {
    async fn history(&self) -> Option<StoreError> {
        self.store.history(self.hurt.0, None, 10).await.err()
    }

    async fn journal(&self) -> Option<StoreError> {
        self.store.journal(self.hurt.1).await.err()
    }

    async fn check_the_other_is_well(&self) {
        assert_eq!(self.store.history(self.whole.0, None, 10).await.unwrap().len(), 3);
        assert_eq!(self.store.journal(self.whole.1).await.unwrap().len(), 3);
    }
}

#[tokio::test]
async fn every_part_of_a_row_is_vouched_for() {
    for (set, entry) in [
        ("data = x'00'", 2),
        ("data = CAST('row 1 of batch 9' AS BLOB)", 2),
        ("count = 3", 2),
        ("first = 3", 3),
        ("prev = NULL", 2),
        ("prev = row", 2),
        ("prev = 12345", 2),
        ("link = zeroblob(32)", 2),
    ] {
        let scene = scene().await;
        let row = scene.hurt.1.0 << 20 | 1;
        outside(&scene.folder).execute(&format!("UPDATE journal SET {set} WHERE row = {row}"), ()).unwrap();
        let error = scene.journal().await.unwrap();
        let StoreError::Damaged { session, entry: named, .. } = &error else { panic!("{set}: {error:?}") };
        assert_eq!((*session, *named), (scene.hurt.0, entry), "{set}: {error}");
        // Walking back, a wrong link is first noticed by the row that was chained to it.
        let error = scene.history().await.unwrap();
        assert!(
            matches!(error, StoreError::Damaged { session, .. } if session == scene.hurt.0),
            "{set}: {error:?}"
        );
        scene.check_the_other_is_well().await;
    }
}

#[tokio::test]
async fn a_row_in_the_wrong_session_or_place_is_noticed() {
    for set in ["session = 1", "row = row + 7"] {
        let scene = scene().await;
        let row = scene.hurt.1.0 << 20 | 2;
        outside(&scene.folder).execute(&format!("UPDATE journal SET {set} WHERE row = {row}"), ()).unwrap();
        assert!(matches!(scene.journal().await, Some(StoreError::Damaged { .. })), "{set}");
        assert!(matches!(scene.history().await, Some(StoreError::Damaged { .. })), "{set}");
        scene.check_the_other_is_well().await;
    }
}

#[tokio::test]
async fn missing_rows_are_noticed() {
    for row in 0..3 {
        let scene = scene().await;
        let row = scene.hurt.1.0 << 20 | row;
        outside(&scene.folder).execute("DELETE FROM journal WHERE row = ?1", [row as i64]).unwrap();
        assert!(matches!(scene.history().await, Some(StoreError::Damaged { .. })));
        scene.check_the_other_is_well().await;
    }
}

#[tokio::test]
async fn a_session_row_that_does_not_fit_its_journal_is_noticed() {
    for set in ["chain = zeroblob(32)", "head = head - 1", "last_row = last_row - 1"] {
        let scene = scene().await;
        outside(&scene.folder)
            .execute(&format!("UPDATE sessions SET {set} WHERE name = 'hurt'"), ())
            .unwrap();
        assert!(matches!(scene.history().await, Some(StoreError::Damaged { .. })), "{set}");
        scene.check_the_other_is_well().await;
    }
}

#[tokio::test]
async fn a_mark_that_was_moved_by_somebody_else_is_noticed() {
    for set in ["call = call + 1", "session = session + 1", "mark = zeroblob(16)"] {
        let scene = scene().await;
        let (mark, call) = (Mark([0; 16]), CallId { batch: scene.hurt.1, ordinal: Ordinal(0) });
        let other = Mark([1; 16]);
        let rows = vec![Row::Mark { mark: if set.starts_with("mark") { other } else { mark }, call }];
        one(&scene.store, held(scene.hurt.0, rows)).await.unwrap();
        outside(&scene.folder).execute(&format!("UPDATE marks SET {set}"), ()).unwrap();
        assert!(matches!(scene.store.marked(mark).await, Err(StoreError::Damaged { .. })), "{set}");
        scene.check_the_other_is_well().await;
    }
}

#[tokio::test]
async fn a_record_that_somebody_else_wrote_is_noticed() {
    for set in ["value = x'00'", "generation = generation + 1", "owner = owner + 1", "key = 'b'", "space = 1"]
    {
        let scene = scene().await;
        let space = if set == "space = 1" { Space::Notice } else { Space::Pair };
        let put = Row::Put { space, key: "a".to_owned(), value: b"value"[..].into() };
        one(&scene.store, held(scene.whole.0, vec![put])).await.unwrap();
        outside(&scene.folder).execute(&format!("UPDATE records SET {set}"), ()).unwrap();
        // The whole session has number 1, the hurt one 2.
        let owner = SessionNo(1 + u64::from(set.starts_with("owner")));
        let key = if set.starts_with("key") { "b" } else { "a" };
        let read = scene.store.record(Space::Pair.of(owner), key).await;
        assert!(matches!(read, Err(StoreError::Damaged { .. })), "{set}: {read:?}");
        let page = RecordPage { shelf: Space::Pair.of(owner), prefix: "", after: None, limit: 9 };
        let read = scene.store.records(page).await;
        assert!(matches!(read, Err(StoreError::Damaged { .. })), "{set}: {read:?}");
        scene.check_the_other_is_well().await;
    }
}

#[tokio::test]
async fn a_flipped_bit_on_the_disk_is_noticed() {
    let Scene { folder, store, hurt, whole } = scene().await;
    drop(store);
    let path = folder.path().join("windlass.db");
    let mut bytes = std::fs::read(&path).unwrap();
    let text = format!("row 1 of batch {}", hurt.1);
    let at = bytes.windows(text.len()).position(|part| part == text.as_bytes()).unwrap();
    bytes[at + 4] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let scene = Scene { store: open(&folder), folder, hurt, whole };
    for error in [scene.journal().await.unwrap(), scene.history().await.unwrap()] {
        assert!(
            matches!(&error, StoreError::Damaged { session, entry: 2, .. } if *session == hurt.0),
            "{error:?}"
        );
        assert!(error.to_string().contains("session 2 is damaged at entry 2"), "{error}");
    }
    scene.check_the_other_is_well().await;
    assert!(one(&scene.store, held(whole.0, vec![journal(whole.1, 3, 1)])).await.is_ok());
}

#[tokio::test]
async fn a_damaged_piece_of_a_blob_is_noticed() {
    let scene = scene().await;
    let (blob, other) =
        (BlobNo(next(&scene.store, Sequence::Blob).await), BlobNo(next(&scene.store, Sequence::Blob).await));
    for (blob, seq) in [(blob, 0), (blob, 1), (other, 0)] {
        let piece = Row::Chunk { blob, seq, data: b"four"[..].into() };
        one(&scene.store, held(scene.whole.0, vec![piece])).await.unwrap();
    }
    let piece = (blob.0 << 24 | 1) as i64;
    outside(&scene.folder).execute("UPDATE chunks SET data = x'66' WHERE piece = ?1", [piece]).unwrap();
    assert_eq!(scene.store.blob(blob, 0, 4).await.unwrap().unwrap(), b"four");
    let error = scene.store.blob(blob, 0, 5).await.unwrap_err();
    assert!(matches!(error, StoreError::DamagedBlob { piece: 1, .. }), "{error:?}");
    assert_eq!(scene.store.blob(other, 0, 9).await.unwrap().unwrap(), b"four");
}

#[tokio::test]
async fn a_blob_whose_pieces_are_lost_is_not_taken_for_none() {
    let scene = scene().await;
    let blob = BlobNo(next(&scene.store, Sequence::Blob).await);
    let owned = Row::Put { space: Space::Blob, key: blob_key(blob), value: Arc::from([]) };
    let piece = Row::Chunk { blob, seq: 0, data: b"four"[..].into() };
    one(&scene.store, held(scene.whole.0, vec![piece, owned])).await.unwrap();
    assert_eq!(scene.store.blob(BlobNo(blob.0 + 1), 0, 4).await.unwrap(), None, "there is no such blob");
    outside(&scene.folder).execute("DELETE FROM chunks", ()).unwrap();
    let error = scene.store.blob(blob, 0, 4).await.unwrap_err();
    assert!(matches!(error, StoreError::DamagedBlob { piece: 0, .. }), "{error:?}");
    assert!(scene.store.blob_size(blob).await.is_err());
    // The pieces of a session that is being removed go first.
    let removing = Row::Put { space: Space::Removing, key: String::new(), value: Arc::from([]) };
    one(&scene.store, held(scene.whole.0, vec![removing])).await.unwrap();
    assert_eq!(scene.store.blob(blob, 0, 4).await.unwrap(), None);
    assert_eq!(scene.store.blob_size(blob).await.unwrap(), None);
}
