//! A store whose disk fails for a while, or whose folder goes away, and the file that is another's copy.

use crate::open;
use crate::sqlite::outside;
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;
use windlass_core::ids::{BatchNo, EntryNo};
use windlass_store::sqlite::Options;
use windlass_store::{Health, Original, Sequence, SqliteStore, Store, StoreError};
use windlass_testkit::store_suite::{begin, held, journal, next, open as open_session};

fn open_at(folder: &Path) -> Arc<dyn Store> {
    Arc::new(SqliteStore::open(Options::new(folder)).unwrap())
}

async fn stalled(store: &Arc<dyn Store>) -> String {
    let mut health = store.health();
    let health = health.wait_for(|health| *health != Health::Ready).await.unwrap();
    health.problem().unwrap().to_string()
}

async fn ready(store: &Arc<dyn Store>) {
    store.health().wait_for(|health| *health == Health::Ready).await.unwrap();
}

/// A folder that is copied file by file, as `cp -r` does.
fn copy(from: &Path) -> TempDir {
    let to = TempDir::new().unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_file() {
            std::fs::copy(entry.path(), to.path().join(entry.file_name())).unwrap();
        }
    }
    to
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_acknowledged_into_a_folder_that_was_moved_away_and_all_of_it_once_it_is_back() {
    let above = TempDir::new().unwrap();
    let (data, away) = (above.path().join("data"), above.path().join("away"));
    let store = open_at(&data);
    let session = open_session(&store, "s").await;
    let batch = begin(&store, session, "k").await;
    std::fs::rename(&data, &away).unwrap();
    let written = store.commit(vec![held(session, vec![journal(batch, 1, 1)]).into()]);
    assert!(stalled(&store).await.contains("moved away"));
    let later = store.commit(vec![held(session, vec![journal(batch, 2, 1)]).into()]);
    let written = written.known().expect_err("it is not acknowledged");
    std::fs::rename(&away, &data).unwrap();
    written.await.unwrap().pop().unwrap().unwrap();
    later.await.unwrap().pop().unwrap().unwrap();
    ready(&store).await;
    drop(store);
    let store = open_at(&data);
    assert_eq!(store.history(session, None, 9).await.unwrap().len(), 3, "each row is there once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_folder_put_in_the_place_of_the_one_that_is_open_is_left_alone() {
    let above = TempDir::new().unwrap();
    let (data, away) = (above.path().join("data"), above.path().join("away"));
    let store = open_at(&data);
    let session = open_session(&store, "s").await;
    std::fs::rename(&data, &away).unwrap();
    drop(open_at(&data));
    let other = std::fs::read(data.join("windlass.db")).unwrap();
    let written = store.commit(vec![held(session, vec![]).into()]);
    assert!(stalled(&store).await.contains("replaced"));
    drop(store);
    let error = written.await.unwrap_err();
    assert!(matches!(error, StoreError::Io { doing: "write", .. }), "{error:?}");
    assert_eq!(std::fs::read(data.join("windlass.db")).unwrap(), other);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_folder_that_was_removed_is_noticed_while_nobody_writes() {
    let above = TempDir::new().unwrap();
    let data = above.path().join("data");
    let store = open_at(&data);
    assert_eq!(*store.health().borrow(), Health::Ready);
    std::fs::remove_dir_all(&data).unwrap();
    assert!(store.health().borrow().problem().unwrap().contains("removed"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_that_was_removed_is_not_acknowledged_into() {
    let folder = TempDir::new().unwrap();
    let store = open(&folder);
    let session = open_session(&store, "s").await;
    std::fs::remove_file(folder.path().join("windlass.db-wal")).unwrap();
    let written = store.commit(vec![held(session, vec![]).into()]);
    assert!(stalled(&store).await.contains("windlass.db-wal"));
    assert!(written.known().is_err(), "it is not acknowledged");
}

/// An outside process that holds the file for longer than a connection waits makes a write fail; then it is made all the same, once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_failed_because_of_the_disk_is_made_once_it_can_be() {
    let folder = TempDir::new().unwrap();
    let store = open(&folder);
    let session = open_session(&store, "s").await;
    let batch = begin(&store, session, "k").await;
    let outside = outside(&folder);
    outside.execute_batch("BEGIN IMMEDIATE").unwrap();
    let written: Vec<_> =
        (1..4).map(|row| store.commit(vec![held(session, vec![journal(batch, row, 1)]).into()])).collect();
    assert!(stalled(&store).await.contains("locked"));
    outside.execute_batch("ROLLBACK").unwrap();
    for written in written {
        written.await.unwrap().pop().unwrap().unwrap();
    }
    ready(&store).await;
    assert_eq!(store.session("s").await.unwrap().unwrap().head, EntryNo(4));
    // What is known of the look-ups outlived the connection.
    assert!(store.batch(windlass_testkit::store_suite::lookup(session, "k")).await.unwrap().is_some());
    begin(&store, session, "k2").await;
}

#[tokio::test]
async fn a_number_that_was_handed_out_names_nothing_else_after_a_crash() {
    let folder = TempDir::new().unwrap();
    let store = open(&folder);
    let session = open_session(&store, "s").await;
    let mut seen = (0, 0);
    // More than one block, and nothing of it recorded but what makes the store commit.
    for turn in 0..5_000 {
        seen = (next(&store, Sequence::Batch).await, next(&store, Sequence::Blob).await);
        if turn % 1_000 == 0 {
            store.commit(vec![held(session, vec![]).into()]).await.unwrap().pop().unwrap().unwrap();
        }
    }
    // What a killed process leaves is what lies in the folder now.
    let left = copy(folder.path());
    let store = open(&left);
    assert!(next(&store, Sequence::Batch).await > seen.0, "a batch number was handed out twice");
    assert!(next(&store, Sequence::Blob).await > seen.1, "a blob number was handed out twice");
}

#[tokio::test]
async fn a_copy_is_known_until_it_owns_its_file_and_a_moved_folder_is_no_copy() {
    let above = TempDir::new().unwrap();
    let (data, moved) = (above.path().join("data"), above.path().join("moved"));
    let store = open_at(&data);
    open_session(&store, "s").await;
    assert!(!store.is_copy());
    let copied = copy(&data);
    drop(store);
    std::fs::rename(&data, &moved).unwrap();
    assert!(!open_at(&moved).is_copy(), "device and path may change");
    for _ in 0..2 {
        let store = open_at(copied.path());
        assert!(store.is_copy(), "it stays one until somebody says otherwise");
        assert!(SqliteStore::open_reader(copied.path()).unwrap().is_copy());
    }
    let store = open_at(copied.path());
    let seen = BatchNo(1);
    assert!(!store.may_have_started(seen), "nothing of a copy is its own yet");
    store.own_file(Original::MayLive).await.unwrap();
    assert!(!store.is_copy());
    drop(store);
    let store = open_at(copied.path());
    assert!(!store.is_copy() && !store.may_have_started(seen), "that one was the original's");
    let new = BatchNo(next(&store, Sequence::Batch).await);
    assert!(store.may_have_started(new));
    // However many batches it makes meanwhile.
    let original = open_at(&moved);
    original.reserve(Sequence::Batch, 1_000_000).await.unwrap();
    assert!(!original.may_have_started(new), "the original never hands out the numbers of its copy");
}

#[tokio::test]
async fn a_file_without_an_identity_adopts_its_own() {
    let folder = TempDir::new().unwrap();
    drop(open(&folder));
    outside(&folder).execute("DELETE FROM meta WHERE key = 'identity'", ()).unwrap();
    let copied = copy(folder.path());
    assert!(!open(&copied).is_copy());
    let again = copy(copied.path());
    assert!(open(&again).is_copy(), "it was recorded");
}

#[tokio::test]
async fn identity_and_numbers_that_are_damaged_are_noticed() {
    for key in ["identity", "reserved"] {
        let folder = TempDir::new().unwrap();
        drop(open(&folder));
        outside(&folder).execute("UPDATE meta SET value = randomblob(24) WHERE key = ?1", [key]).unwrap();
        let error = SqliteStore::open(Options::new(folder.path())).err().unwrap();
        assert!(error.to_string().contains("damaged"), "{key}: {error}");
    }
}

#[test]
fn a_ballast_of_more_than_its_maximum_is_refused() {
    let folder = TempDir::new().unwrap();
    let mut options = Options::new(folder.path());
    options.limits.ballast_bytes = windlass_store::limits::BALLAST_BYTES_MAX + 1;
    let error = SqliteStore::open(options).err().unwrap();
    assert!(error.to_string().contains("ballast_bytes"), "{error}");
    assert!(!folder.path().join("ballast").exists());
}

#[tokio::test]
async fn a_copy_whose_original_is_gone_is_its_heir() {
    let folder = TempDir::new().unwrap();
    let store = open(&folder);
    let session = open_session(&store, "s").await;
    let batch = begin(&store, session, "k").await;
    let copied = copy(folder.path());
    drop(store);
    let store = open(&copied);
    store.own_file(Original::Gone).await.unwrap();
    drop(store);
    assert!(open(&copied).may_have_started(batch), "what its original left running is to be ended");
}
