//! The files of a session, and everything that tries to leave their folder.

use crate::inside::body;
use crate::rig::{batch, call, memory, n, run, spec};
use serde_json::json;
use std::os::unix::fs::symlink;
use windlass::error::FileError;
use windlass::sessions::{FileEntry, FileKind, SessionFiles};
use windlass::store::memory::MemoryStore;
use windlass::tool::Need;
use windlass::{Config, EffectClass, Limits, Runtime, ToolSpec};

struct Rig {
    runtime: Runtime,
    folder: tempfile::TempDir,
}

impl Rig {
    fn new() -> Rig {
        let folder = tempfile::tempdir().unwrap();
        let limits = Limits { file_bytes_max: 100, files_listed_max: 3, ..Limits::default() };
        let files = Some(folder.path().join("data/files"));
        let store = MemoryStore::new().unwrap();
        let runtime = Runtime::new(Config { limits, files, ..Config::new(store) });
        std::fs::write(folder.path().join("outside.txt"), "outside").unwrap();
        Rig { runtime, folder }
    }

    async fn files(&self) -> SessionFiles {
        self.runtime.files("s").await.unwrap()
    }

    /// A place in the session's folder, as whoever is outside sees it.
    fn inside(&self, path: &str) -> std::path::PathBuf {
        self.folder.path().join("data/files/s").join(path)
    }
}

fn listed(files: &SessionFiles, path: &str) -> Vec<(String, FileKind, u64)> {
    files.list(path).unwrap().into_iter().map(|FileEntry { name, kind, bytes }| (name, kind, bytes)).collect()
}

#[tokio::test]
async fn files_are_written_read_listed_and_removed() {
    let rig = Rig::new();
    let files = rig.files().await;
    assert_eq!(files.list("").unwrap(), []);
    assert!(!files.remove("a/b.txt").unwrap());
    files.write("a/b.txt", b"first").unwrap();
    files.write("a/b.txt", b"second, and longer").unwrap();
    files.write("c.txt", b"").unwrap();
    assert_eq!(files.read("a/b.txt").unwrap(), b"second, and longer");
    assert_eq!(files.read_at("a/b.txt", 8, 3).unwrap(), b"and");
    assert_eq!(files.read_at("a/b.txt", 99, 3).unwrap(), b"");
    assert_eq!(std::fs::read(rig.inside("a/b.txt")).unwrap(), b"second, and longer");
    let root = [("a".into(), FileKind::Folder, 0), ("c.txt".into(), FileKind::File, 0)];
    assert_eq!(listed(&files, ""), root);
    assert_eq!(listed(&files, "a"), [("b.txt".into(), FileKind::File, 18)]);
    // Nothing is left of the writing.
    assert_eq!(std::fs::read_dir(rig.inside("a")).unwrap().count(), 1);
    assert!(matches!(files.remove("a"), Err(FileError::NotEmpty { .. })));
    assert!(files.remove("a/b.txt").unwrap() && files.remove("a").unwrap());
    assert!(matches!(files.read("a/b.txt"), Err(FileError::NotFound { .. })));
    // Another session has files of its own.
    let other = rig.runtime.files("other").await.unwrap();
    assert!(matches!(other.read("c.txt"), Err(FileError::NotFound { .. })));
    other.write("c.txt", b"other").unwrap();
    files.remove_all().unwrap();
    files.remove_all().unwrap();
    assert_eq!((files.list("").unwrap(), other.read("c.txt").unwrap()), (vec![], b"other".to_vec()));
    assert!(!rig.inside("").exists());
}

#[tokio::test]
async fn sizes_are_bounded() {
    let rig = Rig::new();
    let files = rig.files().await;
    files.write("full", &[7; 100]).unwrap();
    assert_eq!(files.read("full").unwrap().len(), 100);
    assert!(matches!(files.write("full", &[7; 101]), Err(FileError::TooLarge { max: 100, .. })));
    std::fs::write(rig.inside("large"), [7; 101]).unwrap();
    assert!(matches!(files.read("large"), Err(FileError::TooLarge { max: 100, .. })));
    assert_eq!(files.read_at("large", 100, 9).unwrap(), [7]);
    files.write("third", b"").unwrap();
    assert_eq!(files.list("").unwrap().len(), 3);
    files.write("fourth", b"").unwrap();
    assert!(files.list("").unwrap_err().to_string().contains("more than 3 entries"));
}

#[tokio::test]
async fn no_path_leaves_the_folder() {
    let rig = Rig::new();
    let files = rig.files().await;
    files.write("folder/file", b"x").unwrap();
    let absolute = rig.folder.path().join("outside.txt").display().to_string();
    let long = "a/".repeat(40) + "a";
    let (longer, part) = ("a".repeat(2_000), "a".repeat(256));
    for path in [
        "",
        "/",
        "..",
        ".",
        "../outside.txt",
        "../../outside.txt",
        "../other/c.txt",
        "folder/../../s/folder/file",
        "folder/./file",
        "folder//file",
        "folder/",
        "/etc/passwd",
        &absolute,
        "folder\\..\\file",
        "nul\0byte",
        "new\nline",
        ".windlass-0000000000000000",
        &long,
        &longer,
        &part,
    ] {
        let refused = |error: FileError| matches!(error, FileError::Path { .. });
        assert!(refused(files.read(path).unwrap_err()), "{path:?}");
        assert!(refused(files.write(path, b"y").unwrap_err()), "{path:?}");
        assert!(refused(files.remove(path).unwrap_err()), "{path:?}");
        assert!(path.is_empty() || refused(files.list(path).unwrap_err()), "{path:?}");
    }
    for session in ["..", ".", "a/b", ""] {
        assert!(matches!(rig.runtime.files(session).await, Err(FileError::Path { .. })), "{session:?}");
    }
    assert_eq!(std::fs::read(rig.folder.path().join("outside.txt")).unwrap(), b"outside");
    // A file is no folder, and a folder no file.
    assert!(matches!(files.read("folder/file/x"), Err(FileError::Path { .. })));
    assert!(matches!(files.read("folder"), Err(FileError::Path { .. })));
    assert!(matches!(files.write("folder", b"y"), Err(FileError::Path { .. })));
    assert!(matches!(files.list("folder/file"), Err(FileError::Path { .. })));
}

#[tokio::test]
async fn planted_links_are_not_followed() {
    let rig = Rig::new();
    let (files, outside) = (rig.files().await, rig.folder.path());
    files.write("here", b"inside").unwrap();
    symlink(outside, rig.inside("folder")).unwrap();
    symlink(outside.join("outside.txt"), rig.inside("file")).unwrap();
    symlink("here", rig.inside("own")).unwrap();
    for path in ["folder/outside.txt", "file", "own", "folder/data/files/s/here"] {
        assert!(matches!(files.read(path), Err(FileError::Path { .. })), "{path}");
    }
    assert!(matches!(files.write("folder/new.txt", b"y"), Err(FileError::Path { .. })));
    assert!(matches!(files.remove("folder/outside.txt"), Err(FileError::Path { .. })));
    assert!(matches!(files.list("folder"), Err(FileError::Path { .. })));
    // Written over, the link goes and what it led to stays.
    files.write("file", b"mine").unwrap();
    assert_eq!(files.read("file").unwrap(), b"mine");
    assert!(files.remove("own").unwrap());
    assert_eq!(files.read("here").unwrap(), b"inside");
    // All of them go, and nothing behind them.
    symlink(outside, rig.inside("again")).unwrap();
    files.write("deep/er/file", b"x").unwrap();
    symlink(outside, rig.inside("deep/er/link")).unwrap();
    files.remove_all().unwrap();
    assert!(!rig.inside("").exists());
    assert_eq!(std::fs::read(outside.join("outside.txt")).unwrap(), b"outside");
    // The session's own folder may be a link too.
    symlink(outside, rig.folder.path().join("data/files/s")).unwrap();
    assert!(matches!(files.read("outside.txt"), Err(FileError::Path { .. })));
    assert!(matches!(files.write("outside.txt", b"y"), Err(FileError::Path { .. })));
    files.remove_all().unwrap();
    assert_eq!(std::fs::read(outside.join("outside.txt")).unwrap(), b"outside");
}

#[tokio::test]
async fn a_link_that_is_put_in_the_way_meanwhile_is_not_followed() {
    let rig = Rig::new();
    let files = rig.files().await;
    let (own, link) = (rig.inside("swap"), rig.inside("swap-link"));
    files.write("swap/outside.txt", b"inside").unwrap();
    symlink(rig.folder.path(), &link).unwrap();
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let mut answers = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                let flags = rustix::fs::RenameFlags::EXCHANGE;
                let cwd = rustix::fs::CWD;
                rustix::fs::renameat_with(cwd, &own, cwd, &link, flags).unwrap();
            }
        });
        for _ in 0..2_000 {
            answers.push(files.read("swap/outside.txt"));
        }
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    for answer in answers {
        match answer {
            Ok(bytes) => assert_eq!(bytes, b"inside"),
            Err(error) => assert!(matches!(error, FileError::Path { .. }), "{error:?}"),
        }
    }
}

#[tokio::test]
async fn a_tool_that_needs_files_is_refused_without_them() {
    let tool = || {
        let spec = ToolSpec { needs: vec![Need::Files], ..spec("t", EffectClass::Once) };
        body(spec, |_, cx| {
            Box::pin(async move {
                let files = cx.files()?;
                files.write("a.txt", b"from a tool")?;
                Ok(json!(String::from_utf8(files.read("a.txt")?).unwrap()).into())
            })
        })
    };
    let without = memory();
    let refused = without.register(tool()).unwrap_err().to_string();
    assert!(refused.contains("needs files") && refused.contains("set `files`"), "{refused}");
    assert!(without.overlay().add(tool()).is_err());
    assert!(matches!(without.files("s").await, Err(FileError::NotConfigured)));
    let rig = Rig::new();
    rig.runtime.register(tool()).unwrap();
    let answer = run(&rig.runtime, "s", batch("k", vec![call("c", "t", n(1))])).await;
    assert_eq!(answer.calls[0].model_text(), "from a tool");
    assert_eq!(rig.files().await.read("a.txt").unwrap(), b"from a tool");
}
