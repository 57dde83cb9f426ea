//! Removing a session: everything it had goes, whenever it is cut off, and its name is not used again.

use crate::inside::{DAY, body};
use crate::rig::{Count, batch, call, config, echo, quick, run, spec, states};
use serde_json::json;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use windlass::ask::Target;
use windlass::error::{AskError, FileError, Lost, PairError, SessionError};
use windlass::sessions::SessionStanding;
use windlass::store::memory::MemoryStore;
use windlass::store::{RecordChange, Space, Store, StoreSpace};
use windlass::tool::Dedupe;
use windlass::wait::Completed;
use windlass::{BatchError, Config, EffectClass, Limits, Output, Runtime, ToolSpec, tool_fn};
use windlass_core::ids::SessionNo;
use windlass_testkit::fault_store::{Fault, FaultPlan, FaultReach, FaultStore, Method};

/// So small pieces that there are some of every kind.
fn limits() -> Limits {
    Limits { removed_rows_max: 2, chunk_bytes_max: 32 << 10, ..Limits::default() }
}

fn on(store: Arc<dyn Store>) -> Runtime {
    let config = Config { limits: limits(), ..Config::new(MemoryStore::new().unwrap()) };
    Runtime::new(Config { store, ..config })
}

/// The content of a session, for the tests: the handle of a call, and the key of one that waits.
struct Had {
    call: String,
    key: String,
}

/// Registers tools that leave something of every kind behind.
fn register(runtime: &Runtime, count: &Count) -> Arc<Mutex<Option<String>>> {
    runtime.register(echo(quick("echo", EffectClass::Read), count)).unwrap();
    let same = Dedupe { key: "{key}".into(), for_ms: None };
    runtime
        .register(echo(ToolSpec { dedupe: Some(same), ..spec("same", EffectClass::Once) }, count))
        .unwrap();
    let large =
        tool_fn(spec("large", EffectClass::Read), |_, _| async { Ok(json!("long ".repeat(20_000)).into()) });
    runtime.register(large).unwrap();
    let hangs = tool_fn(spec("hangs", EffectClass::Keyed), |_, _| std::future::pending());
    runtime.register(hangs).unwrap();
    let given = Arc::new(Mutex::new(None));
    let keys = given.clone();
    let waits = body(spec("waits", EffectClass::Once), move |_, cx| {
        let keys = keys.clone();
        Box::pin(async move {
            let key = cx.completion("answer").await?;
            *keys.lock().unwrap() = Some(key.to_string());
            Ok(Output::pending(key).within(DAY))
        })
    });
    runtime.register(waits).unwrap();
    given
}

async fn fill(runtime: &Runtime, keys: &Mutex<Option<String>>) -> Had {
    let answer = run(runtime, "s", batch("over", vec![call("c", "echo", json!({"n": 1}))])).await;
    run(runtime, "s", batch("same", vec![call("c", "same", json!({"key": "k"}))])).await;
    run(runtime, "s", batch("large", vec![call("c", "large", json!({}))])).await;
    for number in 0..5 {
        runtime.kv("s").set(&format!("k{number}"), &json!(number)).await.unwrap();
    }
    drop(runtime.submit("s", batch("waits", vec![call("c", "waits", json!({}))])).await.unwrap());
    let wait = async {
        loop {
            let given = keys.lock().unwrap().clone();
            match given {
                Some(key) if runtime.away() == 1 => return key,
                _ => tokio::task::yield_now().await,
            }
        }
    };
    let key = tokio::time::timeout(Duration::from_secs(60), wait).await.expect("it waits");
    let hanging = runtime.submit("s", batch("hangs", vec![call("c", "hangs", json!({}))])).await.unwrap();
    hanging.admitted().await.unwrap();
    let other = RecordChange::put(StoreSpace::Setting, "of the whole store", *b"stays");
    runtime.store().commit(vec![other.into()]).await.unwrap();
    Had { call: answer.calls[0].handle().to_string(), key }
}

/// Nothing of the session is left but hashes, and its name is not used again.
async fn check_gone(runtime: &Runtime, had: &Had, count: &Count) {
    let store = runtime.store();
    assert_eq!(store.session("s").await.unwrap(), None);
    assert_eq!(store.count_records(StoreSpace::Setting.shelf()).await.unwrap(), 1);
    for space in [Space::Blob, Space::Loose, Space::Pair, Space::About, Space::Removing] {
        assert_eq!(store.sessions_with(space, None, 9).await.unwrap(), [], "{space:?}");
        assert_eq!(store.count_records(space.of(SessionNo(1))).await.unwrap(), 0, "{space:?}");
    }
    let cancelled = runtime.cancel(Target::Call(&had.call), None).await;
    assert!(matches!(cancelled, Err(AskError::NotFound { .. })), "{cancelled:?}");
    let completed = runtime.complete(&had.key, Completed::ok(json!(1))).await;
    assert!(matches!(completed, Err(AskError::NoKey)), "{completed:?}");
    assert_eq!(runtime.open_calls(), 0);
    assert_eq!(runtime.kv("s").get("k1").await.unwrap(), None);
    let (before, refused) =
        (count.get(), runtime.submit("s", batch("over", vec![call("c", "echo", json!({"n": 1}))])).await);
    assert!(
        matches!(refused, Err(BatchError::Session(SessionError::Gone { .. }))),
        "the same batch must not run again"
    );
    let set = runtime.kv("s").set("k1", &json!(1)).await;
    assert!(matches!(set, Err(PairError::Session(SessionError::Gone { .. }))), "{set:?}");
    assert_eq!((count.get(), store.session("s").await.unwrap()), (before, None));
    let SessionStanding::Gone(gone) = SessionStanding::of(&**store, "s").await.unwrap() else {
        panic!("the name must stay gone");
    };
    let was_of = |principal: &str| gone.was_of(store.secret(), "s", principal);
    assert_eq!((was_of("alice"), was_of("local"), was_of("")), (false, true, false));
}

#[tokio::test]
async fn a_session_goes_with_all_it_had() {
    let folder = tempfile::tempdir().unwrap();
    let runtime = Runtime::new(Config { files: Some(folder.path().join("files")), ..config(&folder) });
    let count = Count::default();
    let keys = register(&runtime, &count);
    let had = fill(&runtime, &keys).await;
    for session in ["s", "other"] {
        runtime.files(session).await.unwrap().write("notes/a.txt", b"hers").unwrap();
    }
    let mut events = runtime.events("s", None).await.unwrap();
    let running = runtime.submit("s", batch("hangs", vec![call("c", "hangs", json!({}))])).await.unwrap();
    let removals = runtime.removals();
    assert!(runtime.remove_session("s").await.unwrap());
    assert!(runtime.removals() > removals, "whoever remembers a setting is told to look again");
    assert_eq!(states(&running.settled().await.unwrap()), "c cancelled");
    while let Some(news) =
        tokio::time::timeout(Duration::from_secs(60), events.next()).await.expect("it ends")
    {
        drop(news);
    }
    check_gone(&runtime, &had, &count).await;
    assert!(matches!(runtime.files("s").await, Err(FileError::Session(SessionError::Gone { .. }))));
    assert!(!folder.path().join("files/s").exists());
    assert_eq!(runtime.files("other").await.unwrap().read("notes/a.txt").unwrap(), b"hers");
    assert!(!runtime.remove_session("nobody").await.unwrap());
}

/// At every write of a removal the store fails once, and the next runtime on it goes on by itself.
#[tokio::test]
async fn a_removal_that_was_cut_off_is_finished_by_the_next_owner() {
    let (mut pieces, mut cuts) = (0, 0);
    for method in [Method::Remove, Method::Commit] {
        for fault in [Fault::FailBefore, Fault::FailAfter] {
            for nth in 1.. {
                let inner: Arc<dyn Store> = Arc::new(MemoryStore::new().unwrap());
                let count = Count::default();
                let first = on(inner.clone());
                let keys = register(&first, &count);
                let had = fill(&first, &keys).await;
                drop(first);
                let store = Arc::new(FaultStore::new(
                    inner.clone(),
                    FaultPlan::Nth(method, nth, fault),
                    FaultReach::Store,
                ));
                let cut = on(store.clone());
                register(&cut, &count);
                let removed = cut.remove_session("s").await;
                pieces = pieces.max(store.asked(Method::Remove));
                let was_cut = !store.happened().is_empty();
                assert_eq!(removed.is_ok(), !was_cut, "{method:?} {nth}: {removed:?}");
                drop(cut);
                let next = on(inner.clone());
                register(&next, &count);
                if was_cut {
                    cuts += 1;
                    // Before the mark is there nothing was promised; after it nobody has to ask again.
                    let begun = !inner.sessions_with(Space::Removing, None, 9).await.unwrap().is_empty();
                    next.resume().await.unwrap();
                    if !begun && inner.session("s").await.unwrap().is_some() {
                        next.remove_session("s").await.unwrap();
                    }
                    let gone = async {
                        while inner.session("s").await.unwrap().is_some() {
                            tokio::task::yield_now().await;
                        }
                    };
                    let waited = tokio::time::timeout(Duration::from_secs(60), gone).await;
                    assert!(waited.is_ok(), "{method:?} {nth} {fault:?}: nobody went on");
                }
                // Whoever asks meanwhile waits until it is done.
                assert!(!next.remove_session("s").await.unwrap());
                check_gone(&next, &had, &count).await;
                if !was_cut {
                    break;
                }
            }
        }
    }
    assert!(pieces > 10 && cuts > 30, "{pieces} pieces, cut off {cuts} times");
}

/// The call that runs is told to stop and takes its time; meanwhile nothing is taken, and a second removal waits for the first.
#[tokio::test]
async fn what_is_about_to_go_takes_nothing_new() {
    let runtime = on(Arc::new(MemoryStore::new().unwrap()));
    let count = Count::default();
    register(&runtime, &count);
    let running = runtime.submit("s", batch("hangs", vec![call("c", "hangs", json!({}))])).await.unwrap();
    running.admitted().await.unwrap();
    let remove = || {
        let runtime = runtime.clone();
        tokio::spawn(async move { runtime.remove_session("s").await.unwrap() })
    };
    let (first, second) = (remove(), remove());
    let (mut refused, mut number) = (0, 0);
    while !first.is_finished() {
        number += 1;
        let calls = vec![call("c", "echo", json!({"n": number}))];
        match runtime.submit("s", batch(&format!("b{number}"), calls)).await {
            Err(BatchError::Session(SessionError::Lost(Lost::Removed) | SessionError::Gone { .. })) => {
                refused += 1
            }
            Err(error) => panic!("{error}"),
            Ok(taken) => drop(taken.settled().await),
        }
        tokio::task::yield_now().await;
    }
    assert!(refused > 0, "nothing was refused");
    let mut removed = [first.await.unwrap(), second.await.unwrap()];
    removed.sort_unstable();
    assert_eq!(removed, [false, true], "one of them removed it");
    assert_eq!(states(&running.settled().await.unwrap()), "c cancelled");
}
