//! The file tools as a model uses them: through a runtime, in a session with a folder.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on ends")]

mod edits;
mod huge;
mod killed;
mod paths;
mod reads;
mod searches;

use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use windlass::sessions::SessionOpening;
use windlass::store::Store;
use windlass::store::memory::MemoryStore;
use windlass::store::sqlite::{Options, SqliteStore};
use windlass::{Args, BatchRequest, CallAnswer, CallRequest, Config, Limits, Runtime};
use windlass_tools::{BuiltinGroup, builtin};

/// A runtime with all built-in tools, and a session `s` in a project folder.
pub struct Rig {
    pub runtime: Runtime,
    pub folder: tempfile::TempDir,
}

impl Rig {
    pub async fn new() -> Rig {
        Rig::with(Limits::default()).await
    }

    pub async fn with(limits: Limits) -> Rig {
        Rig::made(limits, |_| Arc::new(MemoryStore::new().expect("a store"))).await
    }

    /// A rig whose records go to the disk.
    pub async fn on_disk() -> Rig {
        let open = |folder: &Path| SqliteStore::open(Options::new(folder)).expect("a store");
        Rig::made(Limits::default(), |folder| Arc::new(open(folder))).await
    }

    async fn made(limits: Limits, store: impl FnOnce(&Path) -> Arc<dyn Store>) -> Rig {
        let folder = tempfile::tempdir().expect("a folder");
        let project = folder.path().join("projects/p");
        std::fs::create_dir_all(&project).expect("a folder");
        let files = Some(folder.path().join("files"));
        let folders = vec![folder.path().join("projects")];
        let store = store(&folder.path().join("data"));
        let runtime = Runtime::new(Config { limits, files, folders, ..Config::on(store) });
        for tool in builtin(BuiltinGroup::ALL) {
            runtime.register_shared(tool).expect("registered");
        }
        let opening = SessionOpening { folder: Some(project), ..SessionOpening::default() };
        runtime.open_session("s", opening).await.expect("opened");
        Rig { runtime, folder }
    }

    /// A place in the session's folder, seen from outside.
    pub fn inside(&self, path: &str) -> PathBuf {
        self.folder.path().join("projects/p").join(path)
    }

    pub fn put(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.inside(path);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("folders");
        std::fs::write(path, content).expect("written");
    }

    pub fn content(&self, path: &str) -> String {
        String::from_utf8(std::fs::read(self.inside(path)).expect("it is there")).expect("text")
    }

    pub async fn call(&self, tool: &str, args: Value) -> Called {
        let call = CallRequest { tool: tool.into(), args: Args::Json(args), ..CallRequest::default() };
        let batch = BatchRequest { calls: vec![call], ..BatchRequest::default() };
        let submitted = self.runtime.submit("s", batch).await.expect("admitted");
        Called(submitted.settled().await.expect("settled").calls.remove(0))
    }

    /// The value of a call that must succeed.
    pub async fn value(&self, tool: &str, args: Value) -> Value {
        self.call(tool, args).await.value()
    }
}

/// A call that has ended.
pub struct Called(pub CallAnswer);

impl Called {
    pub fn view(&self) -> Value {
        serde_json::to_value(self.0.view()).expect("JSON")
    }

    pub fn value(&self) -> Value {
        let view = self.view();
        assert_eq!(view["state"], "succeeded", "{view:#}");
        view["outcome"]["value"].clone()
    }

    /// The text that the model reads.
    pub fn text(&self) -> String {
        self.0.model_text().to_string()
    }

    /// The message of a failure.
    pub fn error(&self) -> String {
        let view = self.view();
        assert_eq!(view["state"], "failed", "{view:#}");
        view["outcome"]["failure"]["message"].as_str().expect("a message").to_string()
    }

    pub fn code(&self) -> Value {
        self.view()["outcome"]["failure"]["tool_code"].clone()
    }
}

/// The most memory that this process ever used, in KiB.
pub fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Everything below a folder, by path, to see that nothing was changed.
pub fn everything(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_path_buf()];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(folder).expect("readable") {
            let path = entry.expect("an entry").path();
            let kind = std::fs::symlink_metadata(&path).expect("there").file_type();
            match kind.is_dir() {
                true => open.push(path),
                false if kind.is_file() => found.push((path.clone(), std::fs::read(path).expect("readable"))),
                false => found.push((path, Vec::new())),
            }
        }
    }
    found.sort();
    found
}

#[tokio::test]
async fn files_are_written_looked_at_listed_and_deleted() {
    let rig = Rig::new().await;
    let written = rig.value("write_file", json!({ "path": "./src//a.txt", "content": "one\ntwo\n" })).await;
    assert_eq!((&written["path"], &written["result"]), (&json!("src/a.txt"), &json!("created")));
    assert_eq!(rig.content("src/a.txt"), "one\ntwo\n");
    let same = rig.value("write_file", json!({ "path": "src/a.txt", "content": "one\ntwo\n" })).await;
    assert_eq!((&same["result"], &same["hash"]), (&json!("unchanged"), &written["hash"]));
    let again = rig
        .value("write_file", json!({ "path": "src/a.txt", "content": "AQID", "encoding": "base64" }))
        .await;
    assert_eq!((&again["result"], &again["bytes"]), (&json!("overwritten"), &json!(3)));
    assert_eq!(std::fs::read(rig.inside("src/a.txt")).unwrap(), [1, 2, 3]);
    let stale = json!({ "path": "src/a.txt", "content": "x", "expected_hash": written["hash"] });
    let refused = rig.call("write_file", stale).await;
    assert_eq!(refused.code(), "stale");
    assert!(refused.error().contains("was changed: expected the content"), "{}", refused.error());
    let new = json!({ "path": "src/a.txt", "content": "x", "expected_hash": "absent" });
    assert!(rig.call("write_file", new).await.error().contains("exists already"));
    let stat = rig.value("stat_file", json!({ "path": "src/a.txt" })).await;
    assert_eq!((&stat["kind"], &stat["bytes"], &stat["hash"]), (&json!("file"), &json!(3), &again["hash"]));
    assert_eq!(
        rig.value("stat_file", json!({ "path": "src/b" })).await,
        json!({ "path": "src/b", "exists": false })
    );
    let listed = rig.value("list_directory", json!({})).await;
    assert_eq!(listed, json!({ "path": ".", "exists": true, "total": 1, "entries": [{ "name": "src/" }] }));
    assert_eq!(rig.value("list_directory", json!({ "path": "no" })).await["exists"], false);
    let refused = rig.call("delete_file", json!({ "path": "src" })).await;
    assert_eq!(refused.code(), "not_empty");
    let gone = rig.value("delete_file", json!({ "path": "src", "recursive": true })).await;
    assert_eq!(gone, json!({ "path": "src", "exists": true, "deleted": true, "kind": "folder" }));
    assert!(!rig.inside("src").exists() && rig.inside("").exists());
    assert_eq!(rig.value("delete_file", json!({ "path": "src" })).await["exists"], false);
}

#[tokio::test]
async fn permissions_stay_and_nothing_is_left_of_writing() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    let rig = Rig::new().await;
    rig.put("run.sh", "#!/bin/sh\n");
    std::fs::set_permissions(rig.inside("run.sh"), PermissionsExt::from_mode(0o751)).unwrap();
    std::fs::hard_link(rig.inside("run.sh"), rig.inside("other")).unwrap();
    let hash = rig.value("stat_file", json!({ "path": "run.sh" })).await["hash"].clone();
    let edit = json!({ "path": "run.sh", "expected_hash": hash, "old_text": "sh\n", "new_text": "bash\n" });
    rig.value("edit_file", edit).await;
    assert_eq!(std::fs::metadata(rig.inside("run.sh")).unwrap().mode() & 0o7777, 0o751);
    assert_eq!(
        (rig.content("run.sh").as_str(), rig.content("other").as_str()),
        ("#!/bin/bash\n", "#!/bin/sh\n")
    );
    assert_eq!(std::fs::read_dir(rig.inside("")).unwrap().count(), 2);
}

#[tokio::test]
async fn long_folders_come_in_pages() {
    let rig = Rig::new().await;
    (0..450).for_each(|n| rig.put(&format!("d/{n:03}"), ""));
    let (mut after, mut names) = (Value::Null, Vec::new());
    loop {
        let mut args = json!({ "path": "d" });
        if after.is_string() {
            args["after"] = after;
        }
        let page = rig.value("list_directory", args).await;
        assert_eq!(page["total"], 450);
        names.extend(page["entries"].as_array().unwrap().iter().map(|entry| entry["name"].to_string()));
        match page.get("next_after") {
            Some(next) => after = next.clone(),
            None => break,
        }
    }
    assert_eq!(names.len(), 450);
    assert!(names.is_sorted());
}

#[tokio::test]
async fn a_session_is_opened_only_with_a_folder_that_is_allowed() {
    let rig = Rig::new().await;
    let folder = rig.folder.path().join("elsewhere");
    std::fs::create_dir_all(&folder).unwrap();
    let open = |name: &'static str, folder: PathBuf| {
        let opening = SessionOpening { folder: Some(folder), ..SessionOpening::default() };
        let runtime = rig.runtime.clone();
        async move { runtime.open_session(name, opening).await.map(|_| ()).map_err(|error| error.to_string()) }
    };
    assert!(open("a", folder.clone()).await.unwrap_err().contains("add one of them to `allow`"));
    assert!(open("b", "projects/p".into()).await.unwrap_err().contains("not absolute"));
    assert!(open("c", rig.folder.path().join("projects/none")).await.is_err());
    // A link out of what is allowed is not allowed.
    std::os::unix::fs::symlink(&folder, rig.folder.path().join("projects/link")).unwrap();
    assert!(open("d", rig.folder.path().join("projects/link")).await.is_err());
    // Deleting the session leaves the project as it is.
    rig.put("kept.txt", "kept");
    assert!(rig.runtime.remove_session("s").await.unwrap());
    assert_eq!(rig.content("kept.txt"), "kept");
}

#[tokio::test]
async fn todos_progress_pairs_and_schedules_are_kept_with_the_session() {
    let rig = Rig::new().await;
    let todo = |content: &str, status: &str| json!({ "content": content, "status": status });
    let todos = json!({ "todos": [todo("a", "completed"), todo("b", "in_progress"), todo("c", "pending")] });
    let told = rig.value("write_todos", todos).await;
    assert_eq!(told, json!({ "total": 3, "completed": 1, "in_progress": "b" }));
    let kept = rig.runtime.kv("s").get("windlass.todos").await.unwrap().unwrap();
    assert_eq!(kept.value[2], todo("c", "pending"));
    let report = json!({ "status": "blocked", "summary": "The build fails" });
    assert_eq!(rig.value("report_progress", report.clone()).await, report);
    let notices = rig.runtime.inbox("s").take(5, 60_000).await.unwrap();
    assert_eq!(notices[0].title, "blocked: The build fails");
    rig.value("kv_set", json!({ "key": "a/../b", "value": { "n": 1 } })).await;
    assert_eq!(rig.value("kv_get", json!({ "key": "a/../b" })).await["value"], json!({ "n": 1 }));
    let keys = rig.value("kv_list", json!({ "prefix": "a" })).await;
    assert_eq!(keys["keys"], json!(["a/../b"]));
    rig.value("kv_delete", json!({ "key": "a/../b" })).await;
    assert_eq!(rig.value("kv_get", json!({ "key": "a/../b" })).await["exists"], false);
    let both = json!({ "tool": "echo", "cron": "0 9 * * 1", "at": "2030-01-01T00:00:00" });
    assert!(rig.call("create_schedule", both).await.error().contains("not both"));
    let refused = rig.call("create_schedule", json!({ "tool": "echo", "cron": "0 9 * * 1" })).await;
    assert!(refused.error().contains("background"), "{}", refused.error());
    assert_eq!(rig.value("list_schedules", json!({})).await, json!({ "schedules": [] }));
    assert_eq!(rig.value("cancel_schedule", json!({ "id": "none" })).await["exists"], false);
}
