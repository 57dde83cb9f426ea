//! Opening: who owns a folder, and files that are not a whole store of ours.

use crate::open;
use crate::sqlite::outside;
use rusqlite::Connection;
use std::path::Path;
use tempfile::TempDir;
use windlass_store::sqlite::Options;
use windlass_store::{SqliteStore, Store, StoreError};
use windlass_testkit::store_suite::{begin, held, open as open_session};

/// Why the store of a folder cannot be opened.
fn refusal(folder: &TempDir) -> StoreError {
    SqliteStore::open(Options::new(folder.path())).err().unwrap()
}

fn file(folder: &TempDir) -> std::path::PathBuf {
    folder.path().join("windlass.db")
}

/// The file is refused with this in the text, by owner and reader, and not a byte of it changes.
fn check_refused(folder: &TempDir, why: &str) {
    let before = std::fs::read(file(folder)).unwrap();
    for error in [refusal(folder), SqliteStore::open_reader(folder.path()).err().unwrap()] {
        assert!(matches!(error, StoreError::Open { .. } | StoreError::Newer { .. }), "{error:?}");
        assert!(error.to_string().contains(why), "{error}");
    }
    assert_eq!(std::fs::read(file(folder)).unwrap(), before, "the file was touched");
}

/// A closed store with something in it.
async fn closed() -> TempDir {
    let folder = TempDir::new().unwrap();
    let store = open(&folder);
    let session = open_session(&store, "s").await;
    for turn in 0..50 {
        begin(&store, session, &turn.to_string()).await;
    }
    folder
}

fn damage(folder: &TempDir, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = std::fs::read(file(folder)).unwrap();
    change(&mut bytes);
    std::fs::write(file(folder), bytes).unwrap();
}

#[test]
fn a_second_owner_is_told_who_the_first_is() {
    let folder = TempDir::new().unwrap();
    let store = open(&folder);
    let error = refusal(&folder);
    let StoreError::Owned { holder, .. } = &error else { panic!("{error:?}") };
    assert!(holder.contains(&format!("process {} (", std::process::id())), "{holder}");
    assert!(holder.contains(&std::env::args().next().unwrap()), "{holder}");
    assert!(holder.contains(" UTC"), "{holder}");
    drop(store);
    open(&folder);
}

#[cfg(unix)]
#[test]
fn nobody_else_may_look_into_the_folder() {
    use std::os::unix::fs::PermissionsExt;
    let parent = TempDir::new().unwrap();
    let folder = parent.path().join("a/b");
    let _store = SqliteStore::open(Options::new(&folder)).unwrap();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&folder), 0o700);
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        assert_eq!(mode(&path), 0o600, "{}", path.display());
    }
}

#[tokio::test]
async fn a_reader_needs_no_ownership_and_writes_nothing() {
    let folder = TempDir::new().unwrap();
    let owner = open(&folder);
    let session = open_session(&owner, "s").await;
    let reader = SqliteStore::open_reader(folder.path()).unwrap();
    let batch = begin(&owner, session, "k").await;
    assert_eq!(reader.journal(batch).await.unwrap(), owner.journal(batch).await.unwrap());
    assert_eq!(reader.secret().0, owner.secret().0);
    let write = reader.commit(vec![held(session, vec![]).into()]).await;
    assert!(matches!(write, Err(StoreError::ReadOnly { .. })), "{write:?}");
    drop(owner);
    assert_eq!(reader.journal(batch).await.unwrap().len(), 1, "the owner's end is not the reader's");
    drop(reader);
    let reader = SqliteStore::open_reader(folder.path()).unwrap();
    assert_eq!(reader.journal(batch).await.unwrap().len(), 1);
    assert!(reader.session("s").await.unwrap().is_some());
}

#[test]
fn a_reader_makes_no_store() {
    let parent = TempDir::new().unwrap();
    for folder in [parent.path().to_owned(), parent.path().join("none")] {
        let error = SqliteStore::open_reader(&folder).err().unwrap();
        assert!(error.to_string().contains("run `windlass run` first"), "{error}");
    }
    assert_eq!(std::fs::read_dir(parent.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn a_format_that_never_was_is_damage() {
    let folder = closed().await;
    damage(&folder, |bytes| bytes[60..64].fill(0));
    check_refused(&folder, "its beginning is damaged");
}

#[tokio::test]
async fn a_newer_format_is_left_to_a_newer_windlass() {
    let folder = closed().await;
    outside(&folder).pragma_update(None, "user_version", 99).unwrap();
    check_refused(&folder, "format 99, this Windlass reads up to 7");
}

#[test]
fn files_of_others_are_not_touched() {
    let folder = TempDir::new().unwrap();
    let foreign = Connection::open(file(&folder)).unwrap();
    foreign.execute_batch("CREATE TABLE mine (x); INSERT INTO mine VALUES (1)").unwrap();
    drop(foreign);
    check_refused(&folder, "another program");
    std::fs::write(file(&folder), "dear diary, ".repeat(1_000)).unwrap();
    check_refused(&folder, "not a database");
}

#[tokio::test]
async fn a_cut_file_is_noticed() {
    let folder = closed().await;
    let whole = std::fs::metadata(file(&folder)).unwrap().len() as usize;
    for keep in [whole - 1, whole / 2, 4_096, 100, 50, 0] {
        damage(&folder, |bytes| bytes.truncate(keep));
        check_refused(&folder, "cut short");
    }
}

#[tokio::test]
async fn a_file_cut_beside_its_log_is_noticed() {
    let folder = closed().await;
    let store = open(&folder);
    open_session(&store, "late").await;
    let copy = TempDir::new().unwrap();
    let copied = |cut: u64| {
        for name in ["windlass.db", "windlass.db-wal"] {
            std::fs::copy(folder.path().join(name), copy.path().join(name)).unwrap();
        }
        damage(&copy, |bytes| bytes.truncate(bytes.len() - cut as usize));
    };
    copied(8_192);
    let error = refusal(&copy);
    assert!(error.to_string().contains("cut short"), "{error}");
    copied(0);
    assert!(open(&copy).session("late").await.unwrap().is_some(), "the log of a killed process is read");
}

#[tokio::test]
async fn a_damaged_header_is_noticed() {
    let folder = closed().await;
    // Everything but the counters and sizes that differ from file to file.
    for at in (0..24).chain(44..48).chain(56..60).chain(68..92) {
        damage(&folder, |bytes| bytes[at] ^= 0xff);
        let error = refusal(&folder);
        assert!(matches!(error, StoreError::Open { .. }), "byte {at}: {error:?}");
        damage(&folder, |bytes| bytes[at] ^= 0xff);
    }
}

#[tokio::test]
async fn a_damaged_secret_is_noticed() {
    let folder = closed().await;
    let flip = "UPDATE meta SET value = randomblob(32) WHERE key = 'secret'";
    outside(&folder).execute(flip, ()).unwrap();
    check_refused(&folder, "secret is damaged");
}

#[tokio::test]
async fn a_log_without_its_file_is_not_given_to_a_new_one() {
    let folder = closed().await;
    std::fs::remove_file(file(&folder)).unwrap();
    std::fs::write(folder.path().join("windlass.db-wal"), "frames").unwrap();
    let error = refusal(&folder);
    assert!(error.to_string().contains("its write-ahead log is there"), "{error}");
    assert!(!file(&folder).exists());
}

#[test]
fn a_half_made_store_is_made_anew() {
    let folder = TempDir::new().unwrap();
    for leftover in ["windlass.db.new", "windlass.db.new-journal"] {
        std::fs::write(folder.path().join(leftover), "half").unwrap();
    }
    open(&folder);
    assert!(!folder.path().join("windlass.db.new").exists());
}
