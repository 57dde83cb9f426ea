//! Takeover of an owner's remains.

use crate::rig::{Count, batch, call, echo, n, reopen, run, spec, states, waits_for};
use serde_json::json;
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use tokio::sync::Notify;
use windlass::store::Store;
use windlass::store::memory::MemoryStore;
use windlass::{Config, Cx, EffectClass, Runtime, ToolSpec, tool_fn};
use windlass_testkit::fault_store::{FaultPlan, FaultReach, FaultStore};

/// Runs `calls` on a folder until `running` of them have begun and none of them will return; then its owner is
/// gone, as it would be after a kill.
fn die_in_the_middle(folder: &tempfile::TempDir, tools: &[(&str, EffectClass)], running: usize) {
    let owner = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (begun, begins) = mpsc::channel();
    let guard = owner.enter();
    let runtime = reopen(folder);
    drop(guard);
    for (name, class) in tools {
        let begun = begun.clone();
        let tool = tool_fn(spec(name, *class), move |_, _: &Cx| {
            let begun = begun.clone();
            async move {
                begun.send(()).unwrap();
                std::future::pending().await
            }
        });
        runtime.register(tool).unwrap();
    }
    let calls = tools.iter().map(|(name, _)| call(name, name, n(1))).collect();
    owner.block_on(async { drop(runtime.submit("s", batch("k", calls)).await.unwrap()) });
    (0..running).for_each(|_| begins.recv().unwrap());
    drop(runtime);
    owner.shutdown_timeout(std::time::Duration::from_secs(5));
}

/// The arguments of each attempt of a tool: attempt, re-drive, idempotency key.
type Told = Arc<Mutex<Vec<(u32, bool, String)>>>;

fn telling(runtime: &Runtime, spec: ToolSpec) -> Told {
    let told = Told::default();
    let log = told.clone();
    let tool = tool_fn(spec, move |args, cx: &Cx| {
        log.lock().unwrap().push((cx.attempt().0, cx.is_redrive(), cx.idempotency_key()));
        async move { Ok(args.into()) }
    });
    runtime.register(tool).unwrap();
    told
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_class_goes_on_as_it_promises() {
    for (class, state, ran) in [
        (EffectClass::Read, "x succeeded, y succeeded", 2),
        (EffectClass::Keyed, "x succeeded, y succeeded", 2),
        (EffectClass::Once, "x unknown, y succeeded", 1),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_path_buf();
        let folder = tokio::task::spawn_blocking(move || {
            // Writes run one at a time: only x has begun. Reads run together, and nothing of them is recorded.
            let running = if class == EffectClass::Read { 2 } else { 1 };
            die_in_the_middle(&folder, &[("x", class), ("y", class)], running);
            folder
        })
        .await
        .unwrap();
        assert_eq!(folder.path(), path);
        let runtime = reopen(&folder);
        let x = telling(&runtime, spec("x", class));
        let y = telling(&runtime, spec("y", class));
        let answer = run(&runtime, "s", batch("k", vec![call("x", "x", n(1)), call("y", "y", n(1))])).await;
        assert_eq!(states(&answer), state, "{class}");
        let (x, y) = (x.lock().unwrap().clone(), y.lock().unwrap().clone());
        assert_eq!(x.len() + y.len(), ran, "{class}");
        if class == EffectClass::Keyed {
            let key = answer.calls[0].call();
            assert_eq!((x[0].0, x[0].1, key.attempts, key.deaths), (2, true, 2, 0));
            assert_ne!(x[0].2, y[0].2);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_key_is_the_same_over_attempts_and_restarts() {
    let folder = tempfile::tempdir().unwrap();
    let first = {
        let runtime = reopen(&folder);
        let told = telling(&runtime, spec("x", EffectClass::Keyed));
        run(&runtime, "s", batch("other", vec![call("x", "x", n(1))])).await;
        run(&runtime, "s", batch("k2", vec![call("x", "x", n(1))])).await;
        let told = told.lock().unwrap();
        assert_ne!(told[0].2, told[1].2, "another batch, another key");
        told[0].2.clone()
    };
    // The folder's secret makes the key, so the same identity elsewhere has another one.
    let elsewhere = tempfile::tempdir().unwrap();
    let runtime = reopen(&elsewhere);
    let told = telling(&runtime, spec("x", EffectClass::Keyed));
    run(&runtime, "s", batch("other", vec![call("x", "x", n(1))])).await;
    assert_ne!(told.lock().unwrap()[0].2, first);
}

/// A call of each class whose tool has changed or is gone once its owner is: the folder in which it waits.
pub async fn left_with(class: EffectClass) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    tokio::task::spawn_blocking(move || {
        die_in_the_middle(&folder, &[("x", class)], 1);
        folder
    })
    .await
    .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_started_call_waits_for_a_tool_that_changed_until_it_is_accepted() {
    for class in [EffectClass::Read, EffectClass::Keyed] {
        let folder = left_with(class).await;
        let runtime = reopen(&folder);
        let told = telling(&runtime, ToolSpec { version: "2".into(), ..spec("x", class) });
        let waiting = runtime.submit("s", batch("k", vec![call("x", "x", n(1))])).await.unwrap();
        // What was never recorded was never started: it is prepared under what the tool is now.
        if class == EffectClass::Keyed {
            let call = waits_for(&runtime, "tool_changed").await;
            assert!(told.lock().unwrap().is_empty());
            runtime.accept(&call).await.unwrap();
        }
        assert_eq!(states(&waiting.settled().await.unwrap()), "x succeeded", "{class}");
        assert_eq!(told.lock().unwrap().len(), 1, "{class}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_whose_tool_is_gone_waits_for_it() {
    let folder = left_with(EffectClass::Keyed).await;
    let runtime = reopen(&folder);
    let waiting = runtime.submit("s", batch("k", vec![call("x", "x", n(1))])).await.unwrap();
    waits_for(&runtime, "no_such_tool").await;
    let told = telling(&runtime, spec("x", EffectClass::Keyed));
    assert_eq!(states(&waiting.settled().await.unwrap()), "x succeeded");
    assert_eq!(told.lock().unwrap()[0].0, 2, "the attempt that was lost counts");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_must_not_be_repeated_needs_no_tool_to_be_unknown() {
    let folder = left_with(EffectClass::Once).await;
    let runtime = reopen(&folder);
    let answer = run(&runtime, "s", batch("k", vec![call("x", "x", n(1))])).await;
    assert_eq!(states(&answer), "x unknown");
}

#[tokio::test]
async fn resume_takes_over_every_session_that_was_left() {
    let store = MemoryStore::new().unwrap();
    let first = Runtime::new(Config::new(store.clone()));
    let started = Arc::new(Notify::new());
    let begun = started.clone();
    let stuck = tool_fn(spec("x", EffectClass::Keyed), move |_, _: &Cx| {
        begun.notify_one();
        std::future::pending()
    });
    first.register(stuck).unwrap();
    for session in ["a", "b"] {
        drop(first.submit(session, batch("k", vec![call("x", "x", n(1))])).await.unwrap());
        started.notified().await;
    }
    let second = Runtime::new(Config::new(store));
    let ran = Count::default();
    second.register(echo(spec("x", EffectClass::Keyed), &ran)).unwrap();
    assert_eq!(second.resume().await.unwrap(), 2);
    for session in ["a", "b"] {
        let answer = run(&second, session, batch("k", vec![call("x", "x", n(1))])).await;
        assert_eq!(states(&answer), "x succeeded");
    }
    assert_eq!(ran.get(), 2);
}

#[tokio::test]
async fn a_stale_owner_changes_nothing_and_is_told() {
    let store = MemoryStore::new().unwrap();
    let (stale, owner) = (Runtime::new(Config::new(store.clone())), Runtime::new(Config::new(store)));
    let (started, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (begun, gate) = (started.clone(), go.clone());
    let slow = tool_fn(spec("x", EffectClass::Once), move |_, _: &Cx| {
        let (begun, gate) = (begun.clone(), gate.clone());
        async move {
            begun.notify_one();
            gate.notified().await;
            Ok(json!("too late").into())
        }
    });
    stale.register(slow).unwrap();
    owner.register(echo(spec("x", EffectClass::Once), &Count::default())).unwrap();
    let again = || batch("k", vec![call("a", "x", n(1)), call("b", "x", n(2)), call("c", "x", n(3))]);
    let waiting = stale.submit("s", again()).await.unwrap();
    started.notified().await;

    let taken = run(&owner, "s", again()).await;
    assert_eq!(states(&taken), "a unknown, b succeeded, c succeeded");
    go.notify_one();
    let told = waiting.settled().await.map(|_| ()).unwrap_err();
    assert_eq!(told.to_string(), "the session is lost to this runtime; its new owner goes on with it");
    stale.idle().await;
    assert_eq!((stale.kept(), owner.kept()), (0, 0), "what is lost holds nothing");
    assert!(stale.submit("s", again()).await.is_err(), "it does not go on as if nothing had happened");
    assert_eq!(states(&run(&owner, "s", again()).await), "a unknown, b succeeded, c succeeded");
}

/// The error of a write says nothing about it: it may still arrive. Until the session's new fence is durable, what is read of the
/// session may be outdated.
#[tokio::test]
async fn a_write_that_arrives_after_its_session_was_taken_again_changes_nothing() {
    let store = FaultStore::new(Arc::new(MemoryStore::new().unwrap()), FaultPlan::Never, FaultReach::Session);
    let runtime = Runtime::new(Config::on(Arc::new(store.clone())));
    let count = Count::default();
    runtime.register(echo(spec("x", EffectClass::Once), &count)).unwrap();
    let (entered, leave) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (enters, leaves) = (entered.clone(), leave.clone());
    let reads = ToolSpec { claims: Some(Vec::new()), ..spec("reads", EffectClass::Read) };
    let tool = tool_fn(reads, move |_, _: &Cx| {
        let (enters, leaves) = (enters.clone(), leaves.clone());
        async move {
            enters.notify_one();
            leaves.notified().await;
            Ok(json!("read").into())
        }
    });
    runtime.register(tool).unwrap();
    let doubtful = || batch("doubtful", vec![call("b", "x", n(2))]);

    assert_eq!(states(&run(&runtime, "s", batch("first", vec![call("a", "x", n(1))])).await), "a succeeded");
    store.doubt_next();
    let answered = runtime.submit("s", doubtful()).await.unwrap().settled().await;
    assert!(answered.is_err(), "the write is in doubt");
    // A read that runs writes nothing: the session is taken again here, if it is taken at all.
    let reading = loop {
        match runtime.submit("s", batch("reading", vec![call("c", "reads", n(3))])).await {
            Ok(reading) => break reading,
            Err(_) => tokio::task::yield_now().await,
        }
    };
    entered.notified().await;
    store.hold_back(false);

    assert_eq!(states(&run(&runtime, "s", doubtful()).await), "b succeeded");
    leave.notify_one();
    assert_eq!(states(&reading.settled().await.unwrap()), "c succeeded");
    assert_eq!(count.get(), 2);
    assert_eq!(store.open_batches(None).await.unwrap(), []);
}
