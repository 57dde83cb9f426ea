//! Principals of sessions and the remains of removed ones: principals in the change that opens a session,
//! files written during a removal, folders that are hard to remove, and records of older versions.

use crate::rig::{Count, batch, call, echo, memory, n, reopen, run, spec};
use rustix::fs::{CWD, Mode, OFlags};
use serde_json::json;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use windlass::error::{ChildError, FileError, Lost, SessionError};
use windlass::limits::SessionLimits;
use windlass::schedules::NewSchedule;
use windlass::sessions::{ChildSpec, LOCAL, SessionOpening, SessionStanding};
use windlass::store::memory::MemoryStore;
use windlass::store::{Space, Store};
use windlass::triggers::NewTrigger;
use windlass::{Config, EffectClass, Limits, Runtime, ToolSpec};
use windlass_testkit::fault_store::{Fault, FaultPlan, FaultReach, FaultStore, Method};

fn on(store: &Arc<dyn Store>, files: &Path) -> Runtime {
    let config = Config { files: Some(files.into()), ..Config::new(MemoryStore::new().unwrap()) };
    Runtime::new(Config { store: store.clone(), ..config })
}

fn free(name: &str, class: EffectClass) -> ToolSpec {
    ToolSpec { claims: Some(Vec::new()), ..spec(name, class) }
}

fn of(principal: &str) -> SessionOpening {
    SessionOpening { principal: principal.into(), ..SessionOpening::default() }
}

async fn principal(store: &dyn Store, session: &str) -> Option<String> {
    store.session(session).await.unwrap().unwrap_or_else(|| panic!("{session} is not recorded")).principal
}

/// Every way to use a session that nobody has used writes whose it is with the session's row.
#[tokio::test]
async fn every_way_to_open_a_session_says_whose_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new().unwrap());
    let runtime = on(&store, folder.path());
    let emits = [("sold".to_string(), json!({"type": "object"}))].into();
    let flags = windlass::Flags { background: true, ..Default::default() };
    let tick = ToolSpec { flags, emits, ..free("tick", EffectClass::Keyed) };
    runtime.register(echo(tick, &Count::default())).unwrap();
    run(&runtime, "batch", batch("k", vec![call("c", "tick", n(1))])).await;
    runtime.kv("kv").set("k", &json!(1)).await.unwrap();
    runtime.files("files").await.unwrap();
    runtime
        .limit_session("limits", SessionLimits { calls_running_max: Some(1), ..SessionLimits::default() })
        .await
        .unwrap();
    let schedule = NewSchedule {
        cron: Some("0 0 * * *".into()),
        tool: "tick".into(),
        args: json!({}),
        ..NewSchedule::default()
    };
    runtime.schedules("schedule").create(schedule).await.unwrap();
    let trigger =
        NewTrigger { event: "sold".into(), tool: "tick".into(), args: json!({}), ..NewTrigger::default() };
    runtime.triggers("trigger").create(trigger).await.unwrap();
    let request = windlass::batch::StreamRequest { key: "k".into(), ..Default::default() };
    let stream = runtime.open_batch("stream", request).await.unwrap();
    stream.push(vec![call("c", "tick", n(2))]).await.unwrap();
    runtime.open_child("parent", "child", ChildSpec::default()).await.unwrap();
    let used = ["batch", "kv", "files", "limits", "schedule", "trigger", "stream", "parent", "child"];
    for session in used {
        assert_eq!(principal(&*store, session).await.as_deref(), Some(LOCAL), "{session}");
    }
    runtime.open_session("alices", of("alice")).await.unwrap();
    runtime.open_child("alices", "alices.child", ChildSpec::default()).await.unwrap();
    for session in ["alices", "alices.child"] {
        assert_eq!(principal(&*store, session).await.as_deref(), Some("alice"), "{session}");
        run(&runtime, session, batch("k", vec![call("c", "tick", n(1))])).await;
        assert_eq!(principal(&*store, session).await.as_deref(), Some("alice"), "{session}");
    }
}

/// The row, the principal, the limits and what is set are one change: whoever is cut off before it leaves nothing, and whoever is
/// cut off behind it leaves a whole session.
#[tokio::test]
async fn a_session_is_opened_whole_or_not_at_all() {
    for fault in [Fault::FailBefore, Fault::FailAfter] {
        let inner: Arc<dyn Store> = Arc::new(MemoryStore::new().unwrap());
        let plan = FaultPlan::Nth(Method::Commit, 1, fault);
        let store: Arc<dyn Store> = Arc::new(FaultStore::new(inner.clone(), plan, FaultReach::Store));
        let limits = SessionLimits { calls_running_max: Some(3), ..SessionLimits::default() };
        let settings = vec![("setting".to_string(), Arc::from(&b"{}"[..]))];
        let opening =
            SessionOpening { principal: "alice".into(), limits, settings, ..SessionOpening::default() };
        let opened = on(&store, Path::new("/nowhere")).open_session("s", opening).await;
        assert!(opened.is_err(), "{opened:?}");
        let row = inner.session("s").await.unwrap();
        assert_eq!(row.is_some(), fault == Fault::FailAfter);
        let Some(row) = row else { continue };
        assert_eq!(row.principal.as_deref(), Some("alice"));
        assert_eq!(SessionLimits::of(&inner, "s").await.unwrap(), limits);
        assert!(inner.record(Space::About.of(row.no), "setting").await.unwrap().is_some());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_principals_that_open_a_name_at_once_one_has_it() {
    let runtime = memory();
    for round in 0..200 {
        let name = format!("s{round}");
        let open = |principal: &'static str| {
            let (runtime, name) = (runtime.clone(), name.clone());
            tokio::spawn(async move { runtime.open_session(&name, of(principal)).await.unwrap() })
        };
        let (alice, bob) = (open("alice"), open("bob"));
        let (alice, bob) = (alice.await.unwrap(), bob.await.unwrap());
        assert!(alice.is_new != bob.is_new, "{alice:?} and {bob:?}");
        let winner = if alice.is_new { "alice" } else { "bob" };
        for opened in [alice, bob] {
            assert_eq!(opened.principal.as_deref(), Some(winner));
        }
    }
}

/// An opening that found a name unused, and is late with its change, does not get a name that was used up meanwhile.
#[tokio::test]
async fn a_name_that_is_used_up_while_it_is_opened_is_not_opened() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new().unwrap());
    let late = FaultStore::new(store.clone(), FaultPlan::Never, FaultReach::Store);
    let bobs = on(&(Arc::new(late.clone()) as Arc<dyn Store>), Path::new("/nowhere"));
    late.hold_back(true);
    let opening = tokio::spawn(async move { bobs.open_session("s", of("bob")).await });
    while late.held_back() == 0 {
        tokio::task::yield_now().await;
    }
    let alices = on(&store, Path::new("/nowhere"));
    alices.open_session("s", of("alice")).await.unwrap();
    assert!(alices.remove_session("s").await.unwrap());
    late.hold_back(false);
    let opened = opening.await.unwrap();
    assert!(opened.is_err(), "{opened:?}");
    assert_eq!(store.session("s").await.unwrap(), None);
    let standing = SessionStanding::of(&*store, "s").await.unwrap();
    assert!(matches!(standing, SessionStanding::Gone(gone) if gone.was_of(store.secret(), "s", "alice")));
}

/// A handle that somebody kept writes nothing once the session is removed, also if the session has left memory in between.
#[tokio::test]
async fn files_kept_from_before_write_nothing_after_a_removal() {
    let folder = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new().unwrap());
    let limits = Limits { sessions_owned_max: 1, ..Limits::default() };
    let files = Some(folder.path().to_path_buf());
    let runtime = Runtime::new(Config { store, limits, files, ..Config::new(MemoryStore::new().unwrap()) });
    let kept = runtime.files("s").await.unwrap();
    kept.write("a", b"before").unwrap();
    for other in ["t", "u", "v"] {
        runtime.kv(other).set("k", &json!(1)).await.unwrap();
    }
    assert!(runtime.sessions_in_memory() < 4, "none has left memory");
    assert!(runtime.remove_session("s").await.unwrap());
    let late = kept.write("b", b"after");
    assert!(matches!(late, Err(FileError::Session(SessionError::Lost(Lost::Removed)))), "{late:?}");
    assert!(!folder.path().join("s").exists());
}

/// So many files are written after a removal.
const LATE: u64 = 3;

/// Files are written by threads all through a removal: none of them is there afterwards.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_written_beside_a_removal_go_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new().unwrap());
    let runtime = on(&store, folder.path());
    for round in 0..40 {
        let name = format!("s{round}");
        let files = runtime.files(&name).await.unwrap();
        let is_over = AtomicBool::new(false);
        let refused = std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let (mut refused, mut late) = (0, 0);
                for number in 0_u64.. {
                    late += u64::from(is_over.load(Ordering::Relaxed));
                    refused += u64::from(files.write(&format!("a/{number}"), b"x").is_err());
                    if late == LATE {
                        break;
                    }
                }
                refused
            });
            let removed = tokio::task::block_in_place(|| {
                tokio::runtime::Handle::current().block_on(runtime.remove_session(&name))
            });
            is_over.store(true, Ordering::Relaxed);
            assert!(removed.unwrap());
            writer.join().unwrap()
        });
        assert!(refused >= LATE && !folder.path().join(&name).exists(), "round {round}");
    }
}

/// Deeper than descriptors and paths allow, names that are no text, folders without rights, many files, links.
#[tokio::test]
async fn a_folder_that_is_hard_to_remove_goes() {
    let folder = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new().unwrap());
    let runtime = on(&store, folder.path());
    runtime.files("s").await.unwrap().write("a.txt", b"x").unwrap();
    let own = folder.path().join("s");
    let outside = folder.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("kept"), b"kept").unwrap();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut at = rustix::fs::openat(CWD, &own, flags, Mode::empty()).unwrap();
    for depth in 0..3_000 {
        let name = format!("level-{depth}-with-a-name-that-makes-paths-long");
        rustix::fs::mkdirat(&at, name.as_str(), Mode::RWXU).unwrap();
        at = rustix::fs::openat(&at, name.as_str(), flags, Mode::empty()).unwrap();
    }
    let unreadable = std::ffi::OsStr::from_bytes(b"no text \xff\xfe");
    std::fs::create_dir_all(own.join(unreadable).join(unreadable)).unwrap();
    std::fs::write(own.join(unreadable).join("file"), b"x").unwrap();
    std::fs::create_dir_all(own.join("locked/inside/deeper")).unwrap();
    for locked in ["locked/inside", "locked"] {
        let rights = std::os::unix::fs::PermissionsExt::from_mode(0o000);
        std::fs::set_permissions(own.join(locked), rights).unwrap();
    }
    std::fs::create_dir(own.join("many")).unwrap();
    for number in 0..5_000 {
        std::fs::write(own.join(format!("many/{number}")), b"").unwrap();
    }
    std::fs::create_dir(own.join(".windlass-gone-1")).unwrap();
    std::fs::write(own.join(".windlass-gone-1/x"), b"").unwrap();
    std::os::unix::fs::symlink(&outside, own.join("link")).unwrap();
    std::os::unix::fs::symlink(&outside, own.join("many/link")).unwrap();
    assert!(runtime.remove_session("s").await.unwrap());
    assert!(!own.exists());
    assert_eq!(std::fs::read(outside.join("kept")).unwrap(), b"kept");
}

/// A failed removal is reported, the session takes nothing meanwhile, and a later removal finishes.
#[tokio::test]
async fn a_removal_that_cannot_remove_files_is_tried_again() {
    let folder = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new().unwrap());
    // What stands where the folders should be is no folder: nothing can be removed there.
    let base = folder.path().join("files");
    std::fs::write(&base, b"in the way").unwrap();
    let runtime = on(&store, &base);
    runtime.kv("s").set("k", &json!(1)).await.unwrap();
    for _ in 0..2 {
        let error = runtime.remove_session("s").await.unwrap_err().to_string();
        assert!(error.contains("files of the session could not be removed"), "{error}");
        let set = runtime.kv("s").set("k", &json!(2)).await;
        assert!(
            matches!(set, Err(windlass::error::PairError::Session(SessionError::Lost(Lost::Removed)))),
            "{set:?}"
        );
    }
    std::fs::remove_file(&base).unwrap();
    assert!(runtime.remove_session("s").await.unwrap());
    assert!(matches!(SessionStanding::of(&*store, "s").await.unwrap(), SessionStanding::Gone(_)));
}

/// Older versions wrote files without a record of their session: they go, and the name with them.
#[tokio::test]
async fn files_of_a_session_that_nothing_records_go() {
    let folder = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new().unwrap());
    let runtime = on(&store, folder.path());
    std::fs::create_dir(folder.path().join("s")).unwrap();
    std::fs::write(folder.path().join("s/a.txt"), b"x").unwrap();
    assert!(runtime.remove_session("s").await.unwrap());
    assert!(!folder.path().join("s").exists());
    let opened = runtime.open_session("s", of("bob")).await;
    assert!(matches!(opened, Err(SessionError::Gone { .. })), "{opened:?}");
    assert!(!runtime.remove_session("t").await.unwrap(), "there is nothing");
}

/// A name that was used up is refused to whoever opens a child under it, and after a restart.
#[tokio::test]
async fn a_gone_name_stays_gone_for_children_and_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let runtime = reopen(&folder);
    runtime.open_session("s", of("alice")).await.unwrap();
    runtime.open_child("s", "child", ChildSpec::default()).await.unwrap();
    assert!(runtime.remove_session("s").await.unwrap());
    drop(runtime);
    let runtime = reopen(&folder);
    for name in ["s", "child"] {
        let child = runtime.open_child("other", name, ChildSpec::default()).await;
        assert!(matches!(child, Err(ChildError::Session(SessionError::Gone { .. }))), "{child:?}");
        let opened = runtime.open_session(name, of("alice")).await;
        assert!(matches!(opened, Err(SessionError::Gone { .. })), "{opened:?}");
        assert!(!runtime.remove_session(name).await.unwrap());
        let standing = SessionStanding::of(&**runtime.store(), name).await.unwrap();
        let SessionStanding::Gone(gone) = standing else { panic!("{name} must be gone") };
        assert!(gone.was_of(runtime.store().secret(), name, "alice"), "{name}");
    }
    assert_eq!(runtime.store().session("child").await.unwrap(), None);
}
