//! Ways out of the folder: at least 200 paths, each shown to lead out of a careless implementation, and races with links. None
//! leads out of ours.

use super::{Rig, everything};
use serde_json::{Value, json};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const CANARY: &str = "canary-5f3a";

/// A way to spell `..` and `/` that some careless code takes for them: a name, `..`, `/`.
const SPELLINGS: &[(&str, &str, &str)] = &[
    ("plain", "..", "/"),
    ("twice the slash", "..", "//"),
    ("dots between", "..", "/./"),
    ("encoded dots", "%2e%2e", "/"),
    ("encoded in upper case", "%2E%2E", "/"),
    ("one dot encoded", ".%2e", "/"),
    ("encoded slash", "..", "%2f"),
    ("all encoded", "%2e%2e", "%2F"),
    ("encoded twice", "%252e%252e", "/"),
    ("slash encoded twice", "..", "%252f"),
    ("backslash", "..", "\\"),
    ("encoded backslash", "..", "%5c"),
    ("wide dots", "\u{ff0e}\u{ff0e}", "/"),
    ("one dot leader", "\u{2024}\u{2024}", "/"),
    ("two dot leader", "\u{2025}", "/"),
    ("wide slash", "..", "\u{ff0f}"),
    ("division slash", "..", "\u{2215}"),
    ("fraction slash", "..", "\u{2044}"),
    ("trailing space", ".. ", "/"),
    ("what a filter leaves", "....", "//"),
    ("what a filter leaves, dotted", "...", "/./"),
    ("zero width", ".\u{200b}.", "/"),
    ("soft hyphen", ".\u{ad}.", "/"),
    ("trailing NUL", "..\0", "/"),
];

/// Names that are no way out by themselves, and must do no harm either.
const STRANGE: &[&str] = &[
    "..",
    ".",
    "/",
    "",
    "~",
    "~root/.ssh/id_rsa",
    "$HOME",
    "CON",
    "nul",
    "a:stream",
    "C:\\Windows",
    "\\\\host\\share",
    "...",
    "a\nb",
    "a\rb",
    "\u{202e}txt.exe",
    "-rf",
    "--",
    "*",
    "?",
    "a|b",
    "`id`",
    "$(id)",
    "a;b",
    "{path}",
    "\u{feff}..",
    ".windlass-0",
    "%",
    "%zz",
    "a\u{301}",
    "\u{e1}",
    "A.TXT",
    "a.txt.",
    "a.txt ",
    "a.txt...",
    " a.txt",
    "CAFÉ",
    "ｆ",
    "\u{7f}",
];

/// A path, and whether careless code must be seen to leave by it.
struct Vector {
    about: String,
    path: String,
    leads_out: bool,
}

fn vectors(rig: &Rig) -> Vec<Vector> {
    let mut all = Vec::new();
    let mut add = |about: &str, path: String, leads_out: bool| {
        all.push(Vector { about: about.to_string(), path, leads_out });
    };
    for (about, up, slash) in SPELLINGS {
        for (depth, folders) in ["", "a", "a/b", "a/b/c"].into_iter().enumerate() {
            let ups = format!("{up}{slash}").repeat(depth + 1);
            let below = if folders.is_empty() { String::new() } else { format!("{folders}/") };
            add(about, format!("{below}{ups}{CANARY}.txt"), true);
            add(about, format!("./{below}{ups}{CANARY}.txt"), true);
        }
    }
    let outside = rig.folder.path().join("projects").join(format!("{CANARY}.txt")).display().to_string();
    for prefix in ["", "/", "//", "/proc/self/root", "/proc/thread-self/root", "file://", "/./", "/dev/../"] {
        add("absolute", format!("{prefix}{outside}"), true);
        add("absolute, encoded", format!("{prefix}{}", outside.replace('/', "%2f")), true);
    }
    for link in ["to-file", "to-folder/", "to-folder-up/", "a/chain/", "to-root", "to-proc", "a/b/relative/"]
    {
        let path = match link.strip_suffix('/') {
            Some(folder) => format!("{folder}/{CANARY}.txt"),
            None if link == "to-file" => link.to_string(),
            None => format!("{link}{outside}"),
        };
        add("link", path.clone(), true);
        add("link behind a dot", format!("./{path}"), true);
        add("link and back", format!("a/../{path}"), true);
    }
    for end in ["\0.png", "\0", "%00.png"] {
        add("cut at NUL", format!("../{CANARY}.txt{end}"), true);
    }
    STRANGE.iter().for_each(|strange| add("strange", strange.to_string(), false));
    add("long part", "x".repeat(300), false);
    add("long path", "y/".repeat(500) + "z", false);
    add("very long path", "../".repeat(2_000), false);
    add("deep", "d/".repeat(40) + "e", false);
    all
}

/// The inside of a folder with links out of it, and a canary beside it.
async fn rig() -> Rig {
    let rig = Rig::new().await;
    let outside = rig.folder.path().join("projects");
    std::fs::write(outside.join(format!("{CANARY}.txt")), CANARY).unwrap();
    plant(&rig);
    rig
}

/// Makes the ways out that are there no longer.
fn plant(rig: &Rig) {
    let outside = rig.folder.path().join("projects");
    std::fs::create_dir_all(rig.inside("a/b/c")).unwrap();
    rig.put("a/inside.txt", "inside");
    let canary = outside.join(format!("{CANARY}.txt"));
    for (at, to) in [
        ("to-file", canary.as_path()),
        ("to-folder", &outside),
        ("to-folder-up", Path::new("..")),
        ("a/chain", Path::new("../to-folder")),
        ("a/b/relative", Path::new("../../..")),
        ("to-root", Path::new("/")),
        ("to-proc", Path::new("/proc/self/root")),
    ] {
        if std::fs::symlink_metadata(rig.inside(at)).is_err() {
            symlink(to, rig.inside(at)).unwrap();
        }
    }
}

/// The paths that careless implementations make of a path before they open it.
fn careless(root: &Path, path: &str) -> Vec<PathBuf> {
    let decoded = |text: &str| {
        let mut bytes = Vec::new();
        let mut rest = text.as_bytes();
        while let Some((first, more)) = rest.split_first() {
            let digits = more.get(..2).and_then(|digits| str::from_utf8(digits).ok());
            match (first, digits.and_then(|digits| u8::from_str_radix(digits, 16).ok())) {
                (b'%', Some(byte)) => (bytes.push(byte), rest = &more[2..]).1,
                _ => (bytes.push(*first), rest = more).1,
            }
        }
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let folded = |text: &str| {
        text.replace(['\u{ff0e}', '\u{2024}'], ".")
            .replace('\u{2025}', "..")
            .replace(['\u{ff0f}', '\u{2215}', '\u{2044}', '\\'], "/")
            .replace(['\u{200b}', '\u{ad}', '\0'], "")
    };
    let trimmed = |text: &str| {
        let parts: Vec<&str> = text.split('/').map(str::trim).collect();
        parts.join("/")
    };
    let once = decoded(path);
    let twice = decoded(&once);
    let shapes = [
        path.to_string(),
        once.clone(),
        twice,
        folded(path),
        folded(&once),
        trimmed(path),
        path.replace("../", ""),
        path.replace("./", ""),
        path.split('\0').next().unwrap_or_default().to_string(),
        once.split('\0').next().unwrap_or_default().to_string(),
        path.trim_start_matches("file://").to_string(),
        once.trim_start_matches("file://").to_string(),
        path.replace("..././", "../").replace("..././", "../").replace("....//", "../"),
        path.replace(".../.", "..").replace("//", "/"),
    ];
    shapes.into_iter().map(|shape| root.join(shape)).collect()
}

fn is_out(path: &Path) -> bool {
    std::fs::read(path).is_ok_and(|content| content == CANARY.as_bytes())
}

/// The calls of every file tool with a path.
fn calls(path: &str) -> [(&'static str, Value); 8] {
    let hash = "00000000000000000000000000000000";
    [
        ("read_file", json!({ "path": path })),
        ("stat_file", json!({ "path": path })),
        ("list_directory", json!({ "path": path })),
        ("grep_files", json!({ "pattern": "canary|inside", "path": path, "all": true })),
        ("edit_file", json!({ "path": path, "expected_hash": hash, "old_text": "canary", "new_text": "x" })),
        ("write_file", json!({ "path": path, "content": "written" })),
        ("delete_file", json!({ "path": path })),
        ("delete_file", json!({ "path": path, "recursive": true })),
    ]
}

#[tokio::test]
async fn no_path_leads_out_of_the_folder() {
    let rig = rig().await;
    let all = vectors(&rig);
    let ways_out = all.iter().filter(|vector| vector.leads_out).count();
    assert!(ways_out >= 200, "{ways_out}");
    let outside = rig.folder.path().join("projects").join(format!("{CANARY}.txt"));
    for Vector { about, path, leads_out } in &all {
        let found = careless(&rig.inside(""), path).iter().any(|path| is_out(path));
        assert_eq!(
            found, *leads_out,
            "{about}: {path:?} is no test, since careless code does not leave by it"
        );
    }
    for Vector { about, path, leads_out } in all {
        for (tool, args) in calls(&path) {
            // A call may delete a link itself, and a vector is one only while its link is there.
            plant(&rig);
            assert!(
                !leads_out || careless(&rig.inside(""), &path).iter().any(|path| is_out(path)),
                "{about}: {path:?}"
            );
            let called = rig.call(tool, args).await;
            // The name of the canary may be repeated: its content is the name without the end.
            let told = called.view().to_string().replace(&format!("{CANARY}.txt"), "");
            let given = path.replace(&format!("{CANARY}.txt"), "");
            assert!(!told.replace(&given, "").contains(CANARY), "{about}: {tool} {path:?}: {told}");
            assert_eq!(std::fs::read_to_string(&outside).unwrap(), CANARY, "{about}: {tool} {path:?}");
            assert!(rig.inside("").is_dir(), "{about}: {tool} {path:?}");
        }
    }
    let left: Vec<PathBuf> = everything(&rig.folder.path().join("projects"))
        .into_iter()
        .map(|(path, _)| path)
        .filter(|path| !path.starts_with(rig.inside("")))
        .collect();
    assert_eq!(left, [outside], "nothing was written beside the folder");
}

#[tokio::test]
async fn the_same_paths_are_refused_for_the_files_of_a_session_over_the_library() {
    let rig = rig().await;
    let files = rig.runtime.files("s").await.unwrap();
    let outside = rig.folder.path().join("projects");
    let before: Vec<_> =
        everything(&outside).into_iter().filter(|(path, _)| !path.starts_with(rig.inside(""))).collect();
    for Vector { path, .. } in vectors(&rig) {
        plant(&rig);
        assert!(!files.read(&path).is_ok_and(|content| content == CANARY.as_bytes()), "{path:?}");
        assert!(
            !files.list(&path).is_ok_and(|all| all.iter().any(|entry| entry.name.contains(CANARY))),
            "{path:?}"
        );
        if let Ok(folder) = files.folder(&path) {
            assert!(folder.open(Path::new(&format!("../{CANARY}.txt"))).unwrap().is_none());
        }
        let _written = files.write(&path, b"written");
        let _made = files.make_folder(&path);
        let _gone = files.remove_tree(&path);
    }
    let after: Vec<_> =
        everything(&outside).into_iter().filter(|(path, _)| !path.starts_with(rig.inside(""))).collect();
    assert_eq!(before, after);
}

/// Swaps a folder with a link out of it, again and again, until it is dropped.
struct Swapping<'a>(&'a AtomicBool);

impl Drop for Swapping<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn swap(own: &Path, link: &Path, is_over: &AtomicBool) {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    while !is_over.load(Ordering::Relaxed) {
        // A racing delete may have taken either.
        let _swapped = renameat_with(CWD, own, CWD, link, RenameFlags::EXCHANGE);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn links_swapped_in_meanwhile_lead_nowhere() {
    let rig = Rig::new().await;
    let outside = rig.folder.path().join("projects/outside");
    std::fs::create_dir_all(&outside).unwrap();
    std::fs::write(outside.join("x.txt"), CANARY).unwrap();
    rig.put("swap/x.txt", "inside");
    let (own, link) = (rig.inside("swap"), rig.inside(".link"));
    symlink(&outside, &link).unwrap();
    let is_over = AtomicBool::new(false);
    let mut escaped = false;
    std::thread::scope(|scope| {
        scope.spawn(|| swap(&own, &link, &is_over));
        let _swapping = Swapping(&is_over);
        // Careless: the path is resolved and checked, then opened.
        let until = Instant::now() + Duration::from_secs(20);
        while !escaped && Instant::now() < until {
            let path = own.join("x.txt");
            let is_inside = path.canonicalize().is_ok_and(|path| path.starts_with(rig.inside("")));
            escaped = is_inside && std::fs::read(&path).is_ok_and(|content| content == CANARY.as_bytes());
        }
        assert!(escaped, "the race is no test, since code that checks before it opens does not lose it");
        tokio::task::block_in_place(|| {
            tokio::runtime::Handle::current().block_on(async {
                for round in 0..150 {
                    for (tool, args) in [
                        ("read_file", json!({ "path": "swap/x.txt" })),
                        ("grep_files", json!({ "pattern": "canary|inside", "all": true })),
                        ("grep_files", json!({ "pattern": "canary|inside", "path": "swap" })),
                        ("list_directory", json!({ "path": "swap" })),
                        ("write_file", json!({ "path": format!("swap/{round}.txt"), "content": "new" })),
                        ("delete_file", json!({ "path": format!("swap/{round}.txt") })),
                    ] {
                        let told = rig.call(tool, args).await.view().to_string();
                        assert!(!told.contains(CANARY), "{tool}: {told}");
                    }
                }
            });
        });
    });
    let outside: Vec<_> = everything(&outside).into_iter().map(|(path, _)| path).collect();
    assert_eq!(outside.len(), 1, "nothing was written or deleted outside: {outside:?}");
}

#[tokio::test]
async fn pipes_and_sockets_do_not_hang() {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    let rig = Rig::new().await;
    mknodat(CWD, rig.inside("pipe"), FileType::Fifo, Mode::RWXU, 0).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(rig.inside("socket")).unwrap();
    rig.put("file.txt", "inside");
    for path in ["pipe", "socket"] {
        for (tool, args) in calls(path).into_iter().take(6) {
            let called = tokio::time::timeout(Duration::from_secs(30), rig.call(tool, args)).await;
            let called = called.unwrap_or_else(|_| panic!("{tool} of a {path} hangs"));
            let state = called.view()["state"].clone();
            assert!(state == "failed" || tool == "stat_file", "{tool} of a {path}: {}", called.view());
        }
    }
    let found = rig.call("grep_files", json!({ "pattern": "inside" })).await;
    assert!(found.text().contains("file.txt:1:inside"), "{}", found.text());
    assert_eq!(rig.value("delete_file", json!({ "path": "pipe" })).await["deleted"], true);
}
