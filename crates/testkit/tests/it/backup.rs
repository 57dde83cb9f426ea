//! Backups under load, killed at random instants: nothing acknowledged is missing, and the owner notices nothing.

use crate::full::disk;
use crate::golden;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;
use windlass_store::sqlite::Options;
use windlass_store::sqlite::backup::{BackupError, BackupOptions, BackupSummary, backup};
use windlass_store::{SqliteStore, Store};
use windlass_testkit::proof::backup::{BackupPrograms, BackupTrials, run};
use windlass_testkit::scenario::{self, RunCounts};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_under_load_has_everything_acknowledged_before_it_began() {
    let programs = BackupPrograms {
        owner: env!("CARGO_BIN_EXE_scenario").into(),
        backup: env!("CARGO_BIN_EXE_backup").into(),
    };
    let report = run(&programs, &BackupTrials { count: 6, seed: 1 }).await.unwrap();
    println!("{report:#?}");
    assert!(report.violations.is_empty(), "{:#?}", report.violations);
    assert!(report.killed > 0 && report.acknowledged > 100 && report.answers > 100, "too little happened");
}

/// A folder with calls of every end, closed.
async fn worked(folder: &Path) {
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(Options::new(folder)).unwrap());
    let owner = scenario::runtime(store.clone(), &RunCounts::default()).unwrap();
    scenario::run(&owner, scenario::work(), |_| {}).await;
    drop((owner, store));
    drop(windlass_testkit::sqlite_in(folder));
}

fn backup_to(data: &Path, target: PathBuf) -> Result<BackupSummary, BackupError> {
    backup(&BackupOptions { folder: data.to_owned(), target, rate: None }, &mut |_| ())
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_goes_to_another_file_system_and_not_over_a_mount_point() {
    let Some(disk) = disk(64) else { return };
    let data = TempDir::new().unwrap();
    worked(data.path()).await;
    let summary = backup_to(data.path(), disk.path().join("copy")).unwrap();
    assert!(summary.sessions == 3 && summary.entries > 100, "{summary:?}");
    assert_eq!(names(disk.path()), ["copy"]);
    let original: Arc<dyn Store> = Arc::new(SqliteStore::open_reader(data.path()).unwrap());
    let copy: Arc<dyn Store> = Arc::new(SqliteStore::open_reader(disk.path().join("copy")).unwrap());
    let shown = async |store| format!("{:?}", scenario::recorded(store).await.unwrap());
    assert_eq!(shown(&copy).await, shown(&original).await);
    assert!(copy.is_copy() && !original.is_copy());
    std::fs::remove_dir_all(disk.path().join("copy")).unwrap();
    let onto = backup_to(data.path(), disk.path().to_owned());
    let Err(BackupError::Target { help, .. }) = &onto else { panic!("{onto:?}") };
    assert!(help.contains("mount point"), "{help}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_ends_a_backup_and_leaves_nothing_of_it() {
    let Some(disk) = disk(2) else { return };
    let data = TempDir::new().unwrap();
    worked(data.path()).await;
    // First only the files do not fit, then the database does not either.
    std::fs::create_dir_all(data.path().join("files/s")).unwrap();
    std::fs::write(data.path().join("files/s/large"), vec![1; 4 << 20]).unwrap();
    let tried = backup_to(data.path(), disk.path().join("copy"));
    let Err(BackupError::File { source, path, .. }) = &tried else { panic!("{tried:?}") };
    assert_eq!((source.kind(), &**path), (ErrorKind::StorageFull, Path::new("files/s/large")));
    assert_eq!(names(disk.path()), [""; 0]);
    disk.fill();
    let tried = backup_to(data.path(), disk.path().join("copy"));
    let full = matches!(&tried, Err(BackupError::Copy { help, .. }) if help.contains("is full"))
        || matches!(&tried, Err(BackupError::File { source, .. }) if source.kind() == ErrorKind::StorageFull);
    assert!(full, "{tried:?}");
    assert_eq!(names(disk.path()), ["filler"]);
    disk.free();
    std::fs::remove_file(data.path().join("files/s/large")).unwrap();
    backup_to(data.path(), disk.path().join("copy")).unwrap();
}

/// A backup is made before an upgrade, so a folder of an older Windlass is copied as it is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_folder_of_every_release_can_be_backed_up() {
    for release in std::fs::read_dir(golden::folders()).unwrap() {
        let (release, all) = (release.unwrap().path(), TempDir::new().unwrap());
        let (data, target) = (all.path().join("data"), all.path().join("copy"));
        std::fs::create_dir(&data).unwrap();
        std::fs::copy(release.join("windlass.db"), data.join("windlass.db")).unwrap();
        backup_to(&data, target.clone()).unwrap();
        let copy = SqliteStore::open(Options::new(&target)).unwrap();
        assert!(copy.is_copy());
        let calls = golden::calls(&(Arc::new(copy) as Arc<dyn Store>)).await;
        let expected: serde_json::Value =
            serde_json::from_slice(&std::fs::read(release.join("expected.json")).unwrap()).unwrap();
        assert_eq!(serde_json::json!(calls), expected, "{}", release.display());
    }
}
