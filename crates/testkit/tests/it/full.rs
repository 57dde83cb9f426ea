//! A full disk: nothing acknowledged is lost, running work can end, and what waits is written once there is room.

use crate::skip;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use tempfile::TempDir;
use windlass_core::ids::{BlobNo, SessionNo};
use windlass_store::sqlite::Options;
use windlass_store::{Health, Row, Sequence, SqliteStore, Store, StoreError};
use windlass_testkit::scenario::{self, BatchReplyKind, ClientRounds, RunCounts};
use windlass_testkit::store_suite::{begin, held, journal, next, one, open as open_session};

/// A small disk of its own, unmounted when it is dropped.
pub(crate) struct Disk(TempDir);

impl Disk {
    fn mount(mib: u64) -> Result<Disk, String> {
        let disk = Disk(TempDir::new().map_err(|error| error.to_string())?);
        run(Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={mib}m"), "none"])
            .arg(disk.0.path()))?;
        Ok(disk)
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    fn data(&self) -> PathBuf {
        self.0.path().join("data")
    }

    fn open(&self) -> Result<SqliteStore, StoreError> {
        SqliteStore::open(Options::new(self.data()))
    }

    /// Takes all room there is.
    pub(crate) fn fill(&self) {
        let mut file =
            OpenOptions::new().create(true).append(true).open(self.0.path().join("filler")).unwrap();
        while file.write_all(&[1; 4_096]).is_ok() {}
    }

    /// Gives it back.
    pub(crate) fn free(&self) {
        std::fs::remove_file(self.0.path().join("filler")).unwrap();
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

pub(crate) fn disk(mib: u64) -> Option<Disk> {
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

async fn stalled(store: &Arc<dyn Store>) -> String {
    let mut health = store.health();
    let health = health.wait_for(|health| *health != Health::Ready).await.unwrap();
    health.problem().unwrap().to_string()
}

async fn ready(store: &Arc<dyn Store>) {
    store.health().wait_for(|health| *health == Health::Ready).await.unwrap();
}

/// Calls run while the disk is filled and freed again and again, under one owner: what was acknowledged is there, nothing that
/// is recorded runs twice, and nobody has to start anything anew.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_on_a_disk_that_fills_up_goes_on_once_there_is_room() {
    let Some(disk) = disk(8) else { return };
    let runs = RunCounts::default();
    let store: Arc<dyn Store> = Arc::new(disk.open().unwrap());
    let owner = scenario::runtime(store.clone(), &runs).unwrap();
    let (mut work, mut told): (Vec<ClientRounds>, Vec<_>) = (Vec::new(), Vec::new());
    let mut round = 0;
    for _ in 0..3 {
        disk.fill();
        // Whoever is under way when the disk is found to be full waits; whoever comes then is refused, and told why.
        let mut waiting = Vec::new();
        let refused = loop {
            let batch = scenario::endless(0, round);
            round += 1;
            assert!(round < 10_000, "the disk is never full");
            work.push(vec![vec![batch.clone()]]);
            let mut submitted = Box::pin(tokio::spawn(scenario::submit(owner.clone(), batch.clone())));
            tokio::select! {
                answered = &mut submitted => {
                    let answered = answered.unwrap();
                    if let BatchReplyKind::Failed { kind, text } = &answered.reply {
                        assert_eq!(kind, "stalled", "{text}");
                        assert!(text.contains("database or disk is full"), "{text}");
                        break batch;
                    }
                    told.push(answered);
                }
                problem = stalled(&store), if waiting.is_empty() => {
                    assert!(problem.contains("full"), "{problem}");
                    waiting.push(submitted);
                }
            }
        };
        assert_eq!(ballast(&disk.data()), 0, "the ballast was not used");
        disk.free();
        ready(&store).await;
        for submitted in waiting {
            told.push(submitted.await.unwrap());
        }
        told.push(scenario::submit(owner.clone(), refused).await);
        let last = told.last().unwrap();
        assert!(matches!(last.reply, BatchReplyKind::Answered(_)), "it goes on without a restart: {last:?}");
    }
    assert!(told.len() > 5);
    drop(owner);
    while Arc::strong_count(&store) > 1 {
        tokio::task::yield_now().await;
    }
    drop(store);
    let store: Arc<dyn Store> = Arc::new(disk.open().unwrap());
    assert_eq!(ballast(&disk.data()), 1 << 20, "the ballast is made again");
    let left = scenario::check(store, &work, &told, &runs).await.unwrap();
    println!("{} calls acknowledged around three full disks, none lost: {left:?}", left.acknowledged);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
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
    // When that is used up too, nothing is acknowledged, and the store says so and keeps trying.
    let piece = || async {
        let blob = BlobNo(next(&store, Sequence::Blob).await);
        let piece = Row::Chunk { blob, seq: 0, data: vec![8; 200 << 10].into() };
        (blob, store.commit(vec![held(session, vec![piece]).into()]))
    };
    let mut written = Vec::new();
    let (last, waits) = loop {
        let (blob, mut answer) = piece().await;
        tokio::select! {
            receipts = &mut answer => {
                receipts.unwrap().pop().unwrap().unwrap();
                written.push(blob);
            }
            problem = stalled(&store) => {
                assert!(problem.contains("full"), "{problem}");
                break (blob, answer);
            }
        }
    };
    assert_eq!(store.blob_size(last).await.unwrap(), None, "what is not acknowledged is not shown");
    disk.free();
    waits.await.unwrap().pop().unwrap().unwrap();
    ready(&store).await;
    written.push(last);
    drop(store);
    let store = disk.open().unwrap();
    for blob in written {
        assert_eq!(store.blob(blob, 0, u64::MAX).await.unwrap().unwrap(), vec![8; 200 << 10]);
    }
    assert_eq!(store.history(session, None, 10).await.unwrap().len(), 2);
    assert!(store.open_batches(Some(session)).await.unwrap().is_empty());
}

/// A transaction that begins the log anew and finds the disk full is not in the log, although the log does not end where it did.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_begins_the_log_anew_on_a_full_disk_is_not_taken_for_done() {
    let Some(disk) = disk(6) else { return };
    let store: Arc<dyn Store> = Arc::new(disk.open().unwrap());
    let session = open_session(&store, "s").await;
    for turn in 0..40 {
        begin(&store, session, &turn.to_string()).await;
    }
    disk.fill();
    // All of the log is brought home, so that the next transaction begins it anew.
    let outside = rusqlite::Connection::open(disk.data().join("windlass.db")).unwrap();
    let home = |row: &rusqlite::Row<'_>| Ok((row.get::<_, i64>(1)?, row.get::<_, i64>(2)?));
    let (pages, home) = outside.query_row("PRAGMA wal_checkpoint(PASSIVE)", (), home).unwrap();
    assert!(pages > 0 && pages == home, "{pages} {home}");
    let blob = BlobNo(next(&store, Sequence::Blob).await);
    let pieces = (0..12).map(|seq| Row::Chunk { blob, seq, data: vec![8; 200 << 10].into() }).collect();
    let waits = store.commit(vec![held(session, pieces).into()]);
    assert!(stalled(&store).await.contains("full"));
    let waits = waits.known().expect_err("it is not acknowledged");
    assert_eq!(store.blob_size(blob).await.unwrap(), None);
    disk.free();
    waits.await.unwrap().pop().unwrap().unwrap();
    assert_eq!(store.blob_size(blob).await.unwrap().unwrap().pieces, 12);
}

/// A store closed on a full disk reports that nothing was written, and the next owner finds everything acknowledged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_is_closed_on_a_full_disk_says_what_was_not_written() {
    let Some(disk) = disk(6) else { return };
    let store: Arc<dyn Store> = Arc::new(disk.open().unwrap());
    let session = open_session(&store, "s").await;
    let batch = begin(&store, session, "k").await;
    assert!(one(&store, held(session, vec![journal(batch, 1, 1), Row::Close(batch)])).await.is_ok());
    disk.fill();
    let blob = BlobNo(next(&store, Sequence::Blob).await);
    let pieces = (0..12).map(|seq| Row::Chunk { blob, seq, data: vec![8; 200 << 10].into() }).collect();
    let waits = store.commit(vec![held(session, pieces).into()]);
    assert!(stalled(&store).await.contains("full"));
    drop(store);
    let error = waits.await.unwrap_err();
    assert!(matches!(error, StoreError::Io { doing: "write", .. }), "{error:?}");
    check_readable(&disk, session).await;
}

/// A full disk that stays full: the folder opens, or says that the disk is full, and what was kept is there.
async fn check_readable(disk: &Disk, session: SessionNo) {
    if let Err(error) = disk.open() {
        let text = windlass::error::chain(&error);
        assert!(text.contains("full") || text.contains("disk I/O"), "{text}");
    }
    disk.free();
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
