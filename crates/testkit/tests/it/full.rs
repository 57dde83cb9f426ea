//! A full disk: a clean error, nothing acknowledged lost, and enough room kept for running work to end.

use crate::skip;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use tempfile::TempDir;
use windlass_core::ids::{BlobNo, SessionNo};
use windlass_store::sqlite::Options;
use windlass_store::{Row, Sequence, SqliteStore, Store, StoreError};
use windlass_testkit::scenario::{self, Client, Reply, Runs};
use windlass_testkit::store_suite::{begin, held, journal, next, one, open as open_session};

/// A small disk of its own, unmounted when it is dropped.
struct Disk(TempDir);

impl Disk {
    fn mount(mib: u64) -> Result<Disk, String> {
        let disk = Disk(TempDir::new().map_err(|error| error.to_string())?);
        run(Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={mib}m"), "none"])
            .arg(disk.0.path()))?;
        Ok(disk)
    }

    fn resize(&self, mib: u64) {
        let size = format!("remount,size={mib}m");
        run(Command::new("mount").args(["-o", &size]).arg(self.0.path())).unwrap();
    }

    fn data(&self) -> PathBuf {
        self.0.path().join("data")
    }

    fn open(&self) -> Result<SqliteStore, StoreError> {
        SqliteStore::open(Options::new(self.data()))
    }

    /// Takes all room there is.
    fn fill(&self) {
        let mut file =
            OpenOptions::new().create(true).append(true).open(self.0.path().join("filler")).unwrap();
        while file.write_all(&[1; 4_096]).is_ok() {}
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        drop(run(Command::new("umount").arg("-l").arg(self.0.path())));
    }
}

fn run(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| error.to_string())?;
    if output.status.success() {
        Ok(())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
    }
}

fn disk(mib: u64) -> Option<Disk> {
    match Disk::mount(mib) {
        Ok(disk) => Some(disk),
        Err(reason) => {
            skip("the full disk", &reason, "WINDLASS_EXPECT_POWERCUT");
            None
        }
    }
}

fn ballast(folder: &Path) -> u64 {
    std::fs::metadata(folder.join("ballast")).map_or(0, |file| file.len())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_on_a_disk_that_fills_up_loses_nothing() {
    let Some(disk) = disk(6) else { return };
    let runs = Runs::default();
    let store: Arc<dyn Store> = Arc::new(disk.open().unwrap());
    let owner = scenario::runtime(store.clone(), &runs).unwrap();
    let (mut work, mut told): (Vec<Client>, Vec<_>) = (Vec::new(), Vec::new());
    for round in 0.. {
        let batch = scenario::endless(0, round);
        work.push(vec![vec![batch.clone()]]);
        told.push(scenario::submit(owner.clone(), batch).await);
        match &told.last().unwrap().reply {
            Reply::Answered(_) => assert!(round < 10_000, "the disk is never full"),
            Reply::Failed { kind, text } => {
                assert_eq!(kind, "lost store", "{text}");
                assert!(text.contains("database or disk is full"), "{text}");
                break;
            }
            Reply::Hung => panic!("nobody was told that the disk is full"),
        }
    }
    assert!(told.len() > 5);
    assert_eq!(ballast(&disk.data()), 0, "the ballast was not used");
    // Whoever asks again is told the same, at once.
    let again = scenario::submit(owner.clone(), scenario::endless(0, 0)).await;
    assert!(matches!(again.reply, Reply::Failed { .. }), "{again:?}");
    drop(owner);
    while Arc::strong_count(&store) > 1 {
        tokio::task::yield_now().await;
    }
    drop(store);
    // With room, a second run goes on where the first was stopped.
    disk.resize(32);
    let store: Arc<dyn Store> = Arc::new(disk.open().unwrap());
    assert_eq!(ballast(&disk.data()), 1 << 20, "the ballast is made again");
    let left = scenario::check(store, &work, (&told, &runs)).await.unwrap();
    println!("{} calls acknowledged before the disk was full, none lost: {left:?}", left.acknowledged);
}

#[tokio::test]
async fn the_ballast_lets_running_work_end() {
    let Some(disk) = disk(6) else { return };
    let store: Arc<dyn Store> = Arc::new(disk.open().unwrap());
    assert_eq!(ballast(&disk.data()), 1 << 20);
    let session = open_session(&store, "s").await;
    let batch = begin(&store, session, "k").await;
    disk.fill();
    // More than the log can take where it is: without the ballast this fails.
    let blob = BlobNo(next(&store, Sequence::Blob).await);
    let rows = vec![
        Row::Chunk { blob, seq: 0, data: vec![7; 200 << 10].into() },
        journal(batch, 1, 1),
        Row::Close(batch),
    ];
    assert!(one(&store, held(session, rows)).await.is_ok());
    assert_eq!(ballast(&disk.data()), 0, "it was released");
    assert_eq!(store.blob(blob, 0, u64::MAX).await.unwrap().unwrap().len(), 200 << 10);
    // When that is used up too, the error is clean and the store is closed until it is opened anew.
    let mut failed = None;
    for _ in 0..100 {
        let blob = BlobNo(next(&store, Sequence::Blob).await);
        let piece = Row::Chunk { blob, seq: 0, data: vec![8; 200 << 10].into() };
        if let Err(error) = store.commit(vec![held(session, vec![piece])]).await {
            failed = Some(error);
            break;
        }
    }
    assert!(matches!(failed, Some(StoreError::Io { doing: "write", .. })), "{failed:?}");
    let later = store.commit(vec![held(session, vec![])]).await;
    assert!(matches!(later, Err(StoreError::Poisoned { .. })), "{later:?}");
    drop(store);
    check_readable(&disk, session).await;
}

/// A full disk that stays full: the folder opens, or says that the disk is full, and what was kept is there.
async fn check_readable(disk: &Disk, session: SessionNo) {
    if let Err(error) = disk.open() {
        let text = windlass::chain(&error);
        assert!(text.contains("full") || text.contains("disk I/O"), "{text}");
    }
    std::fs::remove_file(disk.0.path().join("filler")).unwrap();
    let store = disk.open().unwrap();
    assert_eq!(store.history(session, None, 10).await.unwrap().len(), 2);
    assert!(store.open_batches(Some(session)).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_full_disk_is_opened_with_the_ballast() {
    let Some(disk) = disk(6) else { return };
    let store: Arc<dyn Store> = Arc::new(disk.open().unwrap());
    let session = open_session(&store, "s").await;
    let batch = begin(&store, session, "k").await;
    drop(store);
    disk.fill();
    let store: Arc<dyn Store> = Arc::new(disk.open().unwrap());
    assert!(one(&store, held(session, vec![journal(batch, 1, 1)])).await.is_ok());
}
