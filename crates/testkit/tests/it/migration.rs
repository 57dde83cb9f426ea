//! A data folder of the landed version before this one is migrated, whatever happens meanwhile, and goes on.

use crate::golden::calls;
use crate::points::with_points;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::Arc;
use tempfile::TempDir;
use windlass::ids::Handle;
use windlass::sessions::{Child, SessionOpening, SessionStanding};
use windlass::store::{RecordPage, Space, Store};
use windlass::{Config, Runtime};
use windlass_store::SqliteStore;
use windlass_store::sqlite::Options;
use windlass_testkit::proof::points::ACTIONS;

const FILE: &str = "windlass.db";

/// The folder that `windlass serve` of that version left, driven over HTTP: calls of two principals, a child session, settings, artifacts, tasks,
/// pairs, a schedule, and the name of a removed session. It was stopped in good order.
fn older() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/older/format-4")
}

fn copied() -> TempDir {
    let folder = TempDir::new().unwrap();
    std::fs::copy(older().join(FILE), folder.path().join(FILE)).unwrap();
    folder
}

fn open(folder: &Path) -> Arc<dyn Store> {
    Arc::new(SqliteStore::open(Options::new(folder)).unwrap())
}

/// Everything about it that callers can see.
async fn seen(store: &Arc<dyn Store>) -> Value {
    let keys = async |shelf| {
        let page = RecordPage { shelf, prefix: "", after: None, limit: 100 };
        store.records(page).await.unwrap().into_iter().map(|record| record.key).collect::<Vec<_>>()
    };
    let mut sessions = BTreeMap::new();
    for row in store.sessions(None, u64::MAX).await.unwrap() {
        let about = json!({
            "principal": row.principal,
            "child": Child::of(&**store, &row.name).await.unwrap(),
            "children": Child::page(&**store, &row.name, None, 100).await.unwrap(),
            "pairs": keys(Space::Pair.of(row.no)).await,
            "about": keys(Space::About.of(row.no)).await,
            "schedules": keys(Space::Schedule.of(row.no)).await,
        });
        sessions.insert(row.name, about);
    }
    let calls = calls(store).await;
    let runtime = Runtime::new(Config::on(store.clone()));
    let mut artifacts = BTreeMap::new();
    for handle in calls.values().flat_map(handles) {
        let known = runtime.artifact(handle).await.unwrap().expect("it is known");
        let bytes = runtime.read_artifact(handle, 0, u64::MAX).await.unwrap();
        assert_eq!(bytes.len() as u64, known.bytes);
        artifacts
            .insert(handle.to_string(), json!({"session": known.session, "media_type": known.media_type}));
    }
    json!({"sessions": sessions, "calls": calls, "artifacts": artifacts})
}

/// The artifacts that an answer names.
fn handles(call: &Value) -> Vec<Handle> {
    let mut found = Vec::new();
    let mut rest = vec![call];
    while let Some(value) = rest.pop() {
        match value {
            Value::Object(members) => {
                found.extend(members.get("artifact").and_then(|artifact| Handle::parse(artifact.as_str()?)));
                rest.extend(members.values());
            }
            Value::Array(items) => rest.extend(items),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    found
}

async fn check(folder: &Path) {
    let store = open(folder);
    let expected: Value =
        serde_json::from_slice(&std::fs::read(older().join("expected.json")).unwrap()).unwrap();
    assert_eq!(seen(&store).await, expected);
    closed(store).await;
}

/// Waits until nobody else has the store, and closes it.
async fn closed(store: Arc<dyn Store>) {
    while Arc::strong_count(&store) > 1 {
        tokio::task::yield_now().await;
    }
    drop(store);
}

#[tokio::test]
async fn a_folder_of_the_version_before_opens_and_goes_on() {
    let folder = copied();
    let store = open(folder.path());
    if std::env::var_os("UPDATE").is_some_and(|update| update == "1") {
        let text = format!("{:#}\n", seen(&store).await);
        std::fs::write(older().join("expected.json"), text).unwrap();
    }
    closed(store).await;
    check(folder.path()).await;
    let store = open(folder.path());
    let runtime = Runtime::new(Config::on(store.clone()));
    runtime.kv("alices").set("new", &json!(1)).await.unwrap();
    // A child goes with its parent, and neither name is used again.
    assert!(runtime.remove_session("parent").await.unwrap());
    for name in ["parent", "parent.child", "removed"] {
        let standing = SessionStanding::of(&*store, name).await.unwrap();
        let was_removed_here = name != "removed";
        assert_eq!(matches!(standing, SessionStanding::Gone(_)), was_removed_here, "{name}: {standing:?}");
    }
    assert!(runtime.open_session("parent", SessionOpening::default()).await.is_err());
}

fn run(worker: &Path, folder: &Path, point: &str) -> ExitStatus {
    let mut command = Command::new(worker);
    command.arg("--open").arg(folder).env("WINDLASS_KILL_POINT", point);
    command.output().unwrap().status
}

/// It dies or fails before and after each step of the migration; then it is let through.
#[test]
fn a_migration_that_is_cut_off_is_done_again() {
    let worker = with_points().worker;
    let listed = Command::new(&worker).arg("--migration-points").output().unwrap().stdout;
    let points: Vec<String> = String::from_utf8(listed).unwrap().lines().map(str::to_owned).collect();
    assert!(points.len() >= 5, "{points:?}");
    let running = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for point in &points {
        for action in ACTIONS {
            let folder = copied();
            let told = format!("{point} 1 {action}");
            let status = run(&worker, folder.path(), &told);
            assert!(!status.success(), "{told}: it was never visited");
            assert_eq!(status.signal() == Some(9), action.starts_with("die"), "{told}: {status}");
            running.block_on(check(folder.path()));
            let left: Vec<_> =
                std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
            let is_copy = |name: &&std::ffi::OsString| name.to_string_lossy().contains(".format-");
            assert_eq!(left.iter().filter(is_copy).count(), 0, "{told}: {left:?}");
        }
    }
}
