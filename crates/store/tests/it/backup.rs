//! Backups: one moment of the database, all files, the whole or nothing.

use rusqlite::Connection;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::runtime::Handle;
use windlass_core::ids::BlobNo;
use windlass_store::sqlite::backup::{
    BackupError, BackupOptions, BackupPhase, BackupProgress, BackupSummary, backup,
};
use windlass_store::sqlite::{Options, SqliteStore};
use windlass_store::{Inbound, Original, Row, Sequence, Space, Store, StoreError};
use windlass_testkit::store_suite::{begin, held, journal, next, one, open as open_session};

/// Large enough for several pieces of a copy.
const BLOB_BYTES: usize = 600_000;

/// A data folder, and room for its backups.
struct BackupFolders {
    all: TempDir,
}

impl BackupFolders {
    fn new() -> BackupFolders {
        BackupFolders { all: TempDir::new().unwrap() }
    }

    fn data(&self) -> PathBuf {
        self.all.path().join("data")
    }

    fn target(&self) -> PathBuf {
        self.all.path().join("copy")
    }

    fn open(&self) -> Arc<dyn Store> {
        Arc::new(SqliteStore::open(Options::new(self.data())).unwrap())
    }

    fn backup(&self, report: &mut dyn FnMut(BackupProgress)) -> Result<BackupSummary, BackupError> {
        backup(&BackupOptions { folder: self.data(), target: self.target(), rate: None }, report)
    }

    /// The names beside the data folder.
    fn beside(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.all.path()).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.filter(|name| name != "data").collect();
        names.sort();
        names
    }
}

/// A batch with a blob.
async fn fill(store: &Arc<dyn Store>, key: &str) -> BlobNo {
    let session = match store.session("s").await.unwrap() {
        Some(session) => session.no,
        None => open_session(store, "s").await,
    };
    let batch = begin(store, session, key).await;
    let blob = BlobNo(next(store, Sequence::Blob).await);
    let chunk = Row::Chunk { blob, seq: 0, data: vec![7; BLOB_BYTES].into() };
    let record = Row::Put { space: Space::Pair, key: key.to_owned(), value: b"value".as_slice().into() };
    one(store, held(session, vec![chunk, record, journal(batch, 1, 1)])).await.unwrap();
    store.post(Inbound { session, key: key.to_owned(), body: b"message".to_vec() }).await.unwrap();
    blob
}

/// A connection past the store.
fn outside(folder: &Path) -> Connection {
    Connection::open(folder.join("windlass.db")).unwrap()
}

/// The number of entries of the session.
async fn entries(store: &Arc<dyn Store>) -> u64 {
    store.session("s").await.unwrap().unwrap().head.0
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_is_one_moment_however_much_is_written_meanwhile() {
    let folders = BackupFolders::new();
    let store = folders.open();
    for turn in 0..8 {
        fill(&store, &turn.to_string()).await;
    }
    let before = entries(&store).await;
    let (mut pieces, handle) = (0, Handle::current());
    let summary = tokio::task::block_in_place(|| {
        folders.backup(&mut |progress| {
            if progress.phase == BackupPhase::Database && pieces < 3 {
                pieces += 1;
                // The owner commits, and goes on doing so, between two pieces.
                handle.block_on(fill(&store, &format!("meanwhile {pieces}")));
            }
        })
    });
    let summary = summary.unwrap();
    assert_eq!(pieces, 3, "the copy was too short to write meanwhile");
    assert!(entries(&store).await > before);
    assert_eq!((summary.sessions, summary.entries), (1, before));
    let copy: Arc<dyn Store> = Arc::new(SqliteStore::open_reader(folders.target()).unwrap());
    assert_eq!(entries(&copy).await, before);
    assert_eq!(copy.blob(BlobNo(1), 0, 10).await.unwrap(), Some(vec![7; 10]));
    assert_eq!(copy.secret().0, store.secret().0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_low_rate_is_given_up_before_the_log_of_the_owner_grows_for_long() {
    let folders = BackupFolders::new();
    let store = folders.open();
    fill(&store, "a").await;
    // At this rate the database alone takes a quarter of a minute.
    let options = BackupOptions { folder: folders.data(), target: folders.target(), rate: Some(40_960) };
    let (mut written, handle) = (false, Handle::current());
    let summary = tokio::task::block_in_place(|| {
        backup(&options, &mut |_| {
            if !std::mem::replace(&mut written, true) {
                for turn in 0..130 {
                    handle.block_on(fill(&store, &format!("meanwhile {turn}")));
                }
            }
        })
    });
    assert!(summary.unwrap().rate_exceeded);
    // Within the rate, where nobody writes.
    let options = BackupOptions { target: folders.all.path().join("again"), rate: Some(1 << 30), ..options };
    assert!(!backup(&options, &mut |_| ()).unwrap().rate_exceeded);
}

/// A command that owns the folder for a moment must not wait for a backup that takes minutes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_that_stops_during_a_backup_does_not_wait_for_it() {
    let folders = BackupFolders::new();
    let store = folders.open();
    fill(&store, "a").await;
    let before = entries(&store).await;
    let reader = outside(&folders.data());
    let snapshot = reader.unchecked_transaction().unwrap();
    let _held: i64 = snapshot.query_row("SELECT count(*) FROM journal", (), |row| row.get(0)).unwrap();
    fill(&store, "b").await;
    let began = Instant::now();
    drop(store);
    // SQLite's own patience is 5 s.
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    drop(snapshot);
    assert!(entries(&folders.open()).await > before, "the log that stayed is used by the next start");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_is_a_copy_until_it_is_started() {
    let folders = BackupFolders::new();
    let store = folders.open();
    fill(&store, "a").await;
    let summary = folders.backup(&mut |_| ()).unwrap();
    let reader = SqliteStore::open_reader(folders.target()).unwrap();
    assert!(reader.is_copy() && reader.backup_taken() == Some(summary.taken));
    drop(reader);
    // Wherever it lies: an identity that no file has is recorded, not the inode of the original.
    let identity: Vec<u8> = outside(&folders.target())
        .query_row("SELECT value FROM meta WHERE key = 'identity'", (), |row| row.get(0))
        .unwrap();
    assert_eq!(identity[..16], [0; 16]);
    // A copy of it that was never started is no newer.
    let second = folders.all.path().join("second");
    let options = BackupOptions { folder: folders.target(), target: second.clone(), rate: None };
    assert!(backup(&options, &mut |_| ()).unwrap().taken > summary.taken);
    assert_eq!(SqliteStore::open_reader(second).unwrap().backup_taken(), Some(summary.taken));
    let copy = SqliteStore::open(Options::new(folders.target())).unwrap();
    assert!(copy.is_copy());
    copy.own_file(Original::MayLive).await.unwrap();
    drop(copy);
    let reader = SqliteStore::open_reader(folders.target()).unwrap();
    assert!(!reader.is_copy() && reader.backup_taken().is_none());
    assert!(!store.is_copy(), "the original is as it was");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_target_is_refused_unless_it_is_missing_or_empty_and_elsewhere() {
    let folders = BackupFolders::new();
    fill(&folders.open(), "a").await;
    let refused = |target: PathBuf| {
        let tried = backup(&BackupOptions { folder: folders.data(), target, rate: None }, &mut |_| ());
        let Err(BackupError::Target { help, .. }) = tried else { panic!("{tried:?}") };
        help
    };
    let at = |name: &str| folders.all.path().join(name);
    assert!(refused(folders.data()).contains("inside the data folder"));
    assert!(refused(folders.data().join("files/x")).contains("does not exist"));
    assert!(refused(folders.data().join("x")).contains("inside the data folder"));
    symlink(folders.data(), at("link")).unwrap();
    assert!(refused(at("link/x")).contains("inside the data folder"));
    std::fs::remove_file(at("link")).unwrap();
    assert!(refused(at("missing/x")).contains("create that first"));
    std::fs::write(at("file"), "x").unwrap();
    assert!(refused(at("file")).contains("it is a file"));
    std::fs::create_dir(at("full")).unwrap();
    std::fs::write(at("full/x"), "x").unwrap();
    assert!(refused(at("full")).contains("not empty"));
    assert_eq!(std::fs::read_dir(at("full")).unwrap().count(), 1, "nothing was added");
    std::fs::create_dir(folders.target()).unwrap();
    folders.backup(&mut |_| ()).unwrap();
    assert_eq!(folders.beside(), ["copy", "file", "full"]);
    let missing = BackupOptions { folder: at("none"), target: at("new"), rate: None };
    let missing = backup(&missing, &mut |_| ());
    assert!(matches!(missing, Err(BackupError::Source(StoreError::Open { .. }))), "{missing:?}");
    assert!(!at("none").exists() && !at("new").exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_backup_is_cleared_away_by_the_next_and_a_running_one_is_not() {
    let folders = BackupFolders::new();
    fill(&folders.open(), "a").await;
    // As a kill leaves it: under its unfinished name, with the lock that the kernel released.
    let unfinished = folders.all.path().join(".copy.unfinished");
    std::fs::create_dir_all(unfinished.join("files/s")).unwrap();
    for name in ["backup.lock", "database.unfinished", "database.unfinished-wal", "files/s/left"] {
        std::fs::write(unfinished.join(name), "left").unwrap();
    }
    let mut during = None;
    folders
        .backup(&mut |progress| {
            if during.is_none() && progress.bytes > 0 {
                during = Some((folders.beside(), folders.backup(&mut |_| ())));
            }
        })
        .unwrap();
    let (seen, second) = during.unwrap();
    assert_eq!(seen, [".copy.unfinished"], "it has its name before it is complete");
    assert!(matches!(second, Err(BackupError::Busy { .. })), "{second:?}");
    assert_eq!(folders.beside(), ["copy"]);
    let mut names: Vec<_> =
        std::fs::read_dir(folders.target()).unwrap().map(|e| e.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["windlass.db"], "what the killed one left, or a lock, is in it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_folder_is_not_backed_up() {
    // A journal row, a piece of a blob, a table, an index.
    for damage in [
        "UPDATE journal SET data = zeroblob(length(data)) WHERE row = (SELECT max(row) FROM journal)",
        "UPDATE chunks SET data = zeroblob(length(data))",
        "UPDATE sessions SET fence = fence + 1",
        "UPDATE sessions SET open = open + 1",
        "UPDATE records SET value = x'00'",
        "UPDATE inbound SET body = x'00'",
        "UPDATE meta SET value = zeroblob(32) WHERE key = 'identity'",
        "UPDATE meta SET value = zeroblob(32) WHERE key = 'secret'",
    ] {
        let folders = BackupFolders::new();
        fill(&folders.open(), "a").await;
        outside(&folders.data()).execute(damage, ()).unwrap();
        let tried = folders.backup(&mut |_| ());
        assert!(matches!(tried, Err(BackupError::Damaged { .. })), "{damage}: {tried:?}");
        assert_eq!(folders.beside(), [""; 0], "{damage}");
    }
}

/// A log with a damaged frame before its end: SQLite would use the part before it, and the copy would miss the rest.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_log_that_a_dead_owner_left_is_noticed() {
    let folders = BackupFolders::new();
    let store = folders.open();
    for turn in 0..4 {
        fill(&store, &turn.to_string()).await;
    }
    let dead = TempDir::new().unwrap();
    for name in ["windlass.db", "windlass.db-wal"] {
        std::fs::copy(folders.data().join(name), dead.path().join(name)).unwrap();
    }
    let log = dead.path().join("windlass.db-wal");
    let mut bytes = std::fs::read(&log).unwrap();
    assert!(bytes.len() > 200_000, "the log was emptied");
    bytes[100_000] ^= 1;
    std::fs::write(&log, bytes).unwrap();
    let options = BackupOptions { folder: dead.path().to_owned(), target: folders.target(), rate: None };
    let tried = backup(&options, &mut |_| ());
    let Err(BackupError::Source(StoreError::Open { help, .. })) = &tried else { panic!("{tried:?}") };
    assert!(help.contains("write-ahead log is damaged"), "{help}");
}

/// The tree below a folder: each path with what it is, links as they are.
fn tree(folder: &Path) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut left = vec![folder.to_owned()];
    while let Some(at) = left.pop() {
        for entry in std::fs::read_dir(&at).unwrap() {
            let path = entry.unwrap().path();
            let metadata = path.symlink_metadata().unwrap();
            let mode = metadata.permissions().mode() & 0o777;
            let what = if metadata.is_symlink() {
                format!("-> {}", std::fs::read_link(&path).unwrap().display())
            } else if metadata.is_dir() {
                left.push(path.clone());
                format!("folder {mode:o}")
            } else {
                let written = metadata.modified().unwrap();
                format!("{mode:o} {written:?} {:?}", std::fs::read(&path).unwrap())
            };
            found.push((path.strip_prefix(folder).unwrap().to_owned(), what));
        }
    }
    found.sort();
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_file_is_in_a_backup_with_any_name_and_depth_and_links_are_not_followed() {
    let folders = BackupFolders::new();
    fill(&folders.open(), "a").await;
    let data = folders.data();
    let files = data.join("files");
    let mut deep = files.join("s");
    for _ in 0..300 {
        deep.push("d");
    }
    std::fs::create_dir_all(&deep).unwrap();
    std::fs::write(deep.join("bottom"), "here").unwrap();
    std::fs::write(files.join("s").join(OsStr::from_bytes(b"\xff\xfe name\n")), "odd").unwrap();
    std::fs::write(files.join("s/large"), vec![3; 3 << 20]).unwrap();
    std::fs::write(files.join("s/empty"), "").unwrap();
    std::fs::write(files.join("s/script"), "#!").unwrap();
    std::fs::set_permissions(files.join("s/script"), PermissionsExt::from_mode(0o755)).unwrap();
    symlink("/etc", files.join("s/outside")).unwrap();
    symlink("nothing", files.join("s/dangling")).unwrap();
    std::fs::write(data.join("token"), "secret").unwrap();
    std::fs::set_permissions(data.join("token"), PermissionsExt::from_mode(0o600)).unwrap();
    let expected = tree(&data);
    // What is being written, and what belongs to the process that owns the folder.
    std::fs::write(files.join("s/.windlass-0123"), "half").unwrap();
    let socket = std::os::unix::net::UnixListener::bind(data.join("control.sock")).unwrap();
    let other = std::os::unix::net::UnixListener::bind(files.join("s/socket")).unwrap();
    let summary = folders.backup(&mut |_| ()).unwrap();
    drop((socket, other));
    let owners =
        ["owner.lock", "ballast", "windlass.db", "windlass.db-wal", "windlass.db-shm"].map(Path::new);
    let without = |tree: Vec<(PathBuf, String)>| -> Vec<_> {
        tree.into_iter().filter(|(path, _)| !owners.contains(&path.as_path())).collect()
    };
    let copied = tree(&folders.target());
    assert_eq!(without(copied.clone()), without(expected));
    let top: Vec<&Path> =
        copied.iter().map(|(path, _)| path.as_path()).filter(|path| path.components().count() == 1).collect();
    assert_eq!(top, ["files", "token", "windlass.db"].map(Path::new));
    assert_eq!((summary.files, &*summary.left_out), (6, &[PathBuf::from("files/s/socket")][..]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_that_vanish_or_change_during_a_backup_do_no_harm() {
    let folders = BackupFolders::new();
    fill(&folders.open(), "a").await;
    let session = folders.data().join("files/s");
    std::fs::create_dir_all(session.join("gone")).unwrap();
    for name in ["gone/a", "replaced"] {
        std::fs::write(session.join(name), "old").unwrap();
    }
    std::fs::write(session.join("changing"), vec![1; 3 << 20]).unwrap();
    let (mut turns, mut begun) = (0_u8, false);
    let summary = folders.backup(&mut |progress| {
        if progress.phase != BackupPhase::Files {
            return;
        }
        if !begun {
            begun = true;
            std::fs::remove_dir_all(session.join("gone")).unwrap();
            std::fs::write(session.join("new"), "new").unwrap();
            std::fs::rename(session.join("new"), session.join("replaced")).unwrap();
            return;
        }
        // Whenever a piece of it is copied, a program writes to it in place.
        turns = turns.wrapping_add(1);
        let file = std::fs::OpenOptions::new().append(true).open(session.join("changing")).unwrap();
        std::io::Write::write_all(&mut &file, &[turns]).unwrap();
    });
    let summary = summary.unwrap();
    assert_eq!(summary.changed, [PathBuf::from("files/s/changing")]);
    let copy = folders.target().join("files/s");
    assert!(!copy.join("gone").exists());
    assert_eq!(std::fs::read(copy.join("replaced")).unwrap(), b"new");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn folders_that_the_host_has_elsewhere_are_copied_and_never_into_themselves() {
    let folders = BackupFolders::new();
    fill(&folders.open(), "a").await;
    let elsewhere = folders.all.path().join("elsewhere");
    std::fs::create_dir_all(elsewhere.join("s")).unwrap();
    std::fs::write(elsewhere.join("s/x"), "x").unwrap();
    symlink(&elsewhere, folders.data().join("files")).unwrap();
    folders.backup(&mut |_| ()).unwrap();
    let copied = folders.target().join("files");
    assert!(!copied.is_symlink(), "original and copy would share their files");
    assert_eq!(std::fs::read(copied.join("s/x")).unwrap(), b"x");
    let options = BackupOptions { folder: folders.data(), target: elsewhere.join("s/copy"), rate: None };
    let tried = backup(&options, &mut |_| ());
    assert!(matches!(tried, Err(BackupError::Target { .. })), "{tried:?}");
    assert_eq!(std::fs::read_dir(elsewhere.join("s")).unwrap().count(), 1, "nothing is left of it");
}
