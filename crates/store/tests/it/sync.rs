//! A sync of the write-ahead log that fails, on a disk that has lost what it was to make durable.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use windlass_store::limits::StoreLimits;
use windlass_store::sqlite::Options;
use windlass_store::{Durability, Health, Inbound, Posted, SessionChange, SqliteStore, Store};
use windlass_testkit::store_suite::{begin, held, journal, lookup, open as open_session};

/// The folder of the process that works on the failing disk; this program starts itself for that.
const FOLDER: &str = "WINDLASS_SYNC_FOLDER";
/// Set if that process asks for less durability.
const RELAXED: &str = "WINDLASS_SYNC_RELAXED";
/// Enough for several rounds of the log.
const TURNS: u32 = 6;
/// Rows of a batch after its first, which are sent at once.
const ROWS: u32 = 3;
/// So short that the log is brought home, and begun anew, in the midst of the work.
const LOG_BYTES_MAX: u64 = 96 << 10;
/// A process that takes longer hangs.
const HANG: Duration = Duration::from_secs(60);

/// The failing operation, and the promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Case {
    /// The sync alone: SQLite does not see the transaction, so it is written again in the same place of the log.
    Sync,
    /// And the index of the log, which lies on the same disk: SQLite makes it anew from the log as the kernel shows it, and
    /// there the transaction is.
    SyncAndIndex,
    /// The sync alone, where only checkpoints sync what was committed. The store is closed and not cut off, which might lose
    /// what was acknowledged.
    Relaxed,
}

/// The result of one failed sync.
struct Failed {
    _scene: TempDir,
    data: PathBuf,
    /// How much of the log it lost.
    bytes: u64,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sync_that_fails_loses_nothing_and_repeats_nothing() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        let store = tokio::time::timeout(HANG, work(Path::new(&folder))).await.unwrap();
        if store.durability() == Durability::Relaxed {
            return drop(store);
        }
        // The store is not closed: the power is cut here.
        std::process::exit(0);
    }
    let disk = match compile() {
        Ok(disk) => disk,
        Err(reason) => return skip(&reason),
    };
    for (case, least) in [(Case::Sync, TURNS), (Case::SyncAndIndex, TURNS), (Case::Relaxed, 2)] {
        let (mut failed, mut with_loss) = (0, 0);
        for nth in 1.. {
            let Some(after) = fail(disk.path(), nth, case) else { break };
            check(&after.data, &format!("{case:?} {nth}, {} bytes lost", after.bytes)).await;
            failed += 1;
            with_loss += u32::from(after.bytes > 0);
        }
        println!("{case:?}: {failed} syncs failed, {with_loss} of them with something to lose");
        assert!(with_loss >= least, "{case:?}: too few moments, {with_loss} of {failed}");
    }
}

/// The work of the process on the failing disk; everything must be acknowledged.
async fn work(folder: &Path) -> Arc<dyn Store> {
    let limits = StoreLimits { wal_bytes_max: LOG_BYTES_MAX, ..StoreLimits::default() };
    let durability = match std::env::var_os(RELAXED) {
        Some(_) => Durability::Relaxed,
        None => Durability::Full,
    };
    let options = Options { limits, durability, ..Options::new(folder) };
    // Whoever cannot open it is told so, and tries again.
    let store = SqliteStore::open(options.clone()).or_else(|_| SqliteStore::open(options)).unwrap();
    let store: Arc<dyn Store> = Arc::new(store);
    let session = open_session(&store, "s").await;
    for turn in 0..TURNS {
        let key = turn.to_string();
        let batch = begin(&store, session, &key).await;
        let sent: Vec<_> = (1..=ROWS)
            .map(|row| store.commit(vec![held(session, vec![journal(batch, row, 1)]).into()]))
            .collect();
        for answer in sent {
            answer.await.unwrap().pop().unwrap().unwrap();
        }
        let message = Inbound { session, key, body: b"hello".to_vec() };
        assert_eq!(store.post(message).await.unwrap(), Posted::New);
        if turn == TURNS / 2 {
            move_away_and_back(&store, folder, held(session, vec![journal(batch, ROWS + 1, 1)])).await;
        }
    }
    store
}

/// Makes a write fail in the midst of a round of the log, so that what comes after a failed write can fail too.
async fn move_away_and_back(store: &Arc<dyn Store>, folder: &Path, change: SessionChange) {
    let away = folder.with_file_name("away");
    // Whoever asks for it later may notice before the writer does.
    let mut health = store.health();
    std::fs::rename(folder, &away).unwrap();
    let written = store.commit(vec![change.into()]);
    health.wait_for(|health| *health != Health::Ready).await.unwrap();
    std::fs::rename(&away, folder).unwrap();
    written.await.unwrap().pop().unwrap().unwrap();
}

/// Everything is there, once.
async fn check(folder: &Path, what: &str) {
    let store = SqliteStore::open(Options::new(folder));
    let store: Arc<dyn Store> = Arc::new(store.unwrap_or_else(|error| panic!("{what}: {error}")));
    let (rows, keys) = left(&store).await;
    let last = |turn| if turn == TURNS / 2 { ROWS + 1 } else { ROWS };
    let every_row: Vec<_> =
        (0..TURNS).flat_map(|turn| (0..=last(turn)).map(move |row| (turn.to_string(), row))).collect();
    let every_key: Vec<_> = (0..TURNS).map(|turn| turn.to_string()).collect();
    assert_eq!((rows, keys), (every_row, every_key), "{what}");
    let session = open_session(&store, "afterwards").await;
    begin(&store, session, "k").await;
}

/// The rows of the session in their order, each with its batch's key, and the keys of the messages.
async fn left(store: &Arc<dyn Store>) -> (Vec<(String, u32)>, Vec<String>) {
    let Some(session) = store.session("s").await.unwrap() else { return Default::default() };
    let mut keys = HashMap::new();
    for key in (0..TURNS).map(|turn| turn.to_string()) {
        if let Some(batch) = store.batch(lookup(session.no, &key)).await.unwrap() {
            keys.insert(batch.no, key);
        }
    }
    let history = store.history(session.no, None, 1_000).await.unwrap();
    let rows = history.iter().rev().map(|row| (keys[&row.batch].clone(), row.row)).collect();
    let messages = store.inbound(session.no, 1_000).await.unwrap();
    (rows, messages.into_iter().map(|message| message.key).collect())
}

/// Lets a process work while its n-th sync of the log fails, and leaves of the log what is on the disk. `None`: it has fewer.
fn fail(disk: &Path, nth: u32, case: Case) -> Option<Failed> {
    // In memory where there is some: what fails here is not the real disk.
    let scene = TempDir::new_in("/dev/shm").or_else(|_| TempDir::new()).unwrap();
    let [data, on_disk, hit] = ["data", "disk", "hit"].map(|name| scene.path().join(name));
    let beside = |suffix: &str| data.join(format!("windlass.db{suffix}"));
    let mut child = Command::new(std::env::current_exe().unwrap());
    child
        .args(["sync::a_sync_that_fails_loses_nothing_and_repeats_nothing", "--exact", "--nocapture"])
        .env(FOLDER, &data)
        .env("LD_PRELOAD", library(disk))
        .env("WINDLASS_SYNC_LOG", beside("-wal"))
        .env("WINDLASS_SYNC_DISK", &on_disk)
        .env("WINDLASS_SYNC_NTH", nth.to_string())
        .env("WINDLASS_SYNC_HIT", &hit);
    match case {
        Case::Sync => &mut child,
        Case::SyncAndIndex => child.env("WINDLASS_SYNC_INDEX", beside("-shm")),
        Case::Relaxed => child.env(RELAXED, "1").env("WINDLASS_SYNC_HOME", beside("")),
    };
    let ended = child.output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{case:?} {nth}: {}\n{said}", ended.status);
    let bytes = std::fs::read_to_string(&hit).ok()?.parse().unwrap();
    if case != Case::Relaxed {
        std::fs::copy(&on_disk, beside("-wal")).unwrap();
        std::fs::remove_file(beside("-shm")).unwrap();
    }
    Some(Failed { _scene: scene, data, bytes })
}

/// Compiles the failing disk; the reason why not, if this machine cannot.
fn compile() -> Result<TempDir, String> {
    let folder = TempDir::new().unwrap();
    let source = folder.path().join("disk.c");
    std::fs::write(&source, include_str!("sync/disk.c")).unwrap();
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-O1", "-o"]).arg(library(folder.path())).arg(&source).arg("-ldl");
    let output = cc.output().map_err(|error| format!("there is no C compiler `cc` ({error})"))?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(folder)
}

fn library(folder: &Path) -> PathBuf {
    folder.join("disk.so")
}

/// Says aloud that this was not tested. Where the environment says it must be, that is a failure.
fn skip(reason: &str) {
    assert!(std::env::var_os("WINDLASS_EXPECT_SHIM").is_none(), "the failing disk cannot run: {reason}");
    // Not by a macro: the runner hides what passing tests print.
    let line = format!("SKIP the failing disk: {reason}\n");
    std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes()).unwrap();
}
