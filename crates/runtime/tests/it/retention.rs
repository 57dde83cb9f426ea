//! Retention: records of calls that are over expire, by age and by size; the calls are known for ever, and never run again.

mod killed;

use crate::inside::{DAY, body};
use crate::rig::{Begun, Count, batch, call, die_in_an_attempt, echo, hanging, n, run, spec, states};
use serde_json::json;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tempfile::TempDir;
use windlass::ask::{Resolution, Target};
use windlass::batch::StreamRequest;
use windlass::error::{AskError, SessionError};
use windlass::events::News;
use windlass::limits::{ExpiryReport, Retention, SessionLimits};
use windlass::store::memory::MemoryStore;
use windlass::store::{Space, Store};
use windlass::tool::Dedupe;
use windlass::wait::Completed;
use windlass::{BatchError, Config, EffectClass, Limits, Output, Runtime, Tool, ToolSpec, inspect, tool_fn};
use windlass_core::handle::Handle;
use windlass_core::ids::EntryNo;
use windlass_testkit::clock::ManualClock;
use windlass_testkit::fault_store::{Fault, FaultPlan, FaultReach, FaultStore, Method};
use windlass_testkit::sqlite_in;

const HOUR: Duration = Duration::from_hours(1);

fn by_age() -> Retention {
    Retention { age_ms: Some(3_600_000), ..Retention::default() }
}

fn in_memory(retention: Retention) -> (Runtime, ManualClock, Count) {
    on(MemoryStore::new().unwrap(), retention)
}

/// A runtime in which records expire only when the test says so.
fn on(store: impl Store, retention: Retention) -> (Runtime, ManualClock, Count) {
    looking_every(u64::MAX, store, retention)
}

fn looking_every(
    retention_every_ms: u64,
    store: impl Store,
    retention: Retention,
) -> (Runtime, ManualClock, Count) {
    let (clock, count) = (ManualClock::default(), Count::default());
    let limits = Limits { retention_every_ms, ..Limits::default() };
    let config = Config { clock: Arc::new(clock.clone()), retention, limits, ..Config::new(store) };
    let runtime = Runtime::new(config);
    runtime.register(echo(spec("pay", EffectClass::Once), &count)).unwrap();
    (runtime, clock, count)
}

/// A tool that writes each of its runs into a file.
fn echo_into(ledger: PathBuf) -> impl Tool {
    tool_fn(spec("echo", EffectClass::Once), move |args: serde_json::Value, _| {
        let mut file = OpenOptions::new().create(true).append(true).open(&ledger).unwrap();
        writeln!(file, "{}", args["n"]).unwrap();
        async move { Ok(args.into()) }
    })
}

/// How often a run with this number is in the file.
fn runs_of(ledger: &Path, number: u64) -> usize {
    let text = std::fs::read_to_string(ledger).unwrap();
    text.lines().filter(|line| *line == number.to_string()).count()
}

async fn expire(runtime: &Runtime) -> u64 {
    runtime.expire_now().await.unwrap().batches
}

fn paid(key: &str) -> windlass::BatchRequest {
    batch(key, vec![call("a", "pay", n(1)), call("b", "pay", n(2))])
}

/// Every way to ask for an expired batch says that it is expired, and none runs it.
async fn assert_expired(runtime: &Runtime, handle: &str, count: &Count) {
    let before = count.get();
    let again = run(runtime, "s", paid("k")).await;
    assert_eq!(states(&again), "a failed/expired, b failed/expired");
    assert!(again.calls.iter().all(|call| call.is_recorded() && call.call().attempts == 0));
    let other = run(runtime, "s", batch("k", vec![call("x", "pay", n(9))])).await;
    assert_eq!(
        states(&other),
        "x failed/expired",
        "a call of an expired batch is not known by its id any more"
    );
    let pushed = StreamRequest { key: "k".into(), ..StreamRequest::default() };
    let pushed = runtime.open_batch("s", pushed).await.err();
    assert!(matches!(pushed, Some(BatchError::Session(SessionError::Expired { .. }))), "{pushed:?}");
    let expired = |error: &AskError| matches!(error, AskError::Session(SessionError::Expired { .. }));
    for target in [Target::Call(handle), Target::Batch { session: "s", key: "k" }] {
        let asked = runtime.cancel(target, None).await.unwrap_err();
        assert!(expired(&asked), "{asked:?}");
    }
    let resolved = runtime.resolve(handle, Resolution::DidNotHappen).await.err().unwrap();
    assert!(expired(&resolved), "{resolved:?}");
    let shown = inspect::call(runtime.store(), Handle::parse(handle).unwrap()).await;
    assert!(matches!(shown, Err(SessionError::Expired { .. })));
    let session = runtime.store().session("s").await.unwrap().unwrap();
    let shown = inspect::batch(runtime.store(), &session, "k").await;
    assert!(matches!(shown, Err(SessionError::Expired { .. })));
    assert_eq!(count.get(), before, "nothing was run");
}

#[tokio::test]
async fn what_expired_is_answered_so_for_ever_and_never_run() {
    let folder = TempDir::new().unwrap();
    let handle;
    {
        let (runtime, clock, count) = on(sqlite_in(folder.path()), by_age());
        let answer = run(&runtime, "s", paid("k")).await;
        handle = answer.calls[0].handle().to_string();
        assert_eq!(expire(&runtime).await, 0, "it is young");
        assert_eq!(states(&run(&runtime, "s", paid("k")).await), "a succeeded, b succeeded");
        clock.advance(HOUR);
        let report = runtime.expire_now().await.unwrap();
        assert!(report.batches == 1 && report.bytes > 0 && report.held == 0, "{report:?}");
        assert_eq!(count.get(), 2);
        assert_expired(&runtime, &handle, &count).await;
        assert_eq!(runtime.expire_now().await.unwrap(), ExpiryReport::default(), "once is enough");
        assert_eq!(
            inspect::calls(runtime.store(), &runtime.store().session("s").await.unwrap().unwrap(), 9)
                .await
                .unwrap()
                .len(),
            0
        );
        let fresh = run(&runtime, "s", paid("next")).await;
        assert_eq!(states(&fresh), "a succeeded, b succeeded", "others run");
    }
    let (runtime, _clock, count) = on(sqlite_in(folder.path()), Retention::default());
    assert_expired(&runtime, &handle, &count).await;
    assert_eq!(states(&run(&runtime, "s", paid("next")).await), "a succeeded, b succeeded");
    assert_eq!(count.get(), 0, "what is kept is answered from its record");
}

#[tokio::test]
async fn nothing_expires_unless_a_rule_says_so() {
    let (runtime, clock, _) = in_memory(Retention::default());
    run(&runtime, "s", paid("k")).await;
    clock.advance(DAY * 1_000);
    assert_eq!(runtime.expire_now().await.unwrap(), ExpiryReport::default());
    assert_eq!(states(&run(&runtime, "s", paid("k")).await), "a succeeded, b succeeded");
}

#[tokio::test]
async fn an_open_batch_stays_and_holds_nothing_else_back() {
    let (runtime, clock, _) = in_memory(by_age());
    let given = Arc::new(Mutex::new(None));
    let keys = given.clone();
    let waits =
        body(ToolSpec { claims: Some(Vec::new()), ..spec("waits", EffectClass::Once) }, move |_, cx| {
            let keys = keys.clone();
            Box::pin(async move {
                let key = cx.completion("answer").await?;
                *keys.lock().unwrap() = Some(key.to_string());
                Ok(Output::pending(key).within(DAY))
            })
        });
    runtime.register(waits).unwrap();
    drop(runtime.submit("s", batch("open", vec![call("c", "waits", json!({}))])).await.unwrap());
    while given.lock().unwrap().is_none() || runtime.away() == 0 {
        tokio::task::yield_now().await;
    }
    for number in 0..5 {
        run(&runtime, "s", paid(&format!("k{number}"))).await;
    }
    clock.advance(HOUR * 2);
    let report = runtime.expire_now().await.unwrap();
    assert_eq!((report.batches, report.held), (5, 1));
    let key = given.lock().unwrap().take().unwrap();
    runtime.complete(&key, Completed::ok(json!("yes"))).await.unwrap();
    let answer = run(&runtime, "s", batch("open", vec![call("c", "waits", json!({}))])).await;
    assert_eq!(states(&answer), "c succeeded", "it went on over the gap");
    clock.advance(HOUR * 2);
    assert_eq!(expire(&runtime).await, 1);
}

#[tokio::test]
async fn an_unknown_call_stays_until_somebody_resolves_it() {
    for unknown_too in [false, true] {
        let folder = Arc::new(TempDir::new().unwrap());
        let request = || batch("k", vec![call("x", "send", json!({}))]);
        let make = |config: Config, begun: Begun| {
            let runtime = Runtime::new(config);
            runtime.register(hanging(spec("send", EffectClass::Once), begun)).unwrap();
            runtime
        };
        die_in_an_attempt(&folder, request(), make).await;
        let rule = Retention { session_bytes: Some(0), unknown_too, ..Retention::default() };
        let (runtime, _clock, _) = on(sqlite_in(folder.path()), rule);
        runtime.register(echo(spec("send", EffectClass::Once), &Count::default())).unwrap();
        let answer = run(&runtime, "s", request()).await;
        assert_eq!(states(&answer), "x unknown");
        let report = runtime.expire_now().await.unwrap();
        assert_eq!((report.batches, report.held), if unknown_too { (1, 0) } else { (0, 1) });
        if !unknown_too {
            let handle = answer.calls[0].handle().to_string();
            runtime.resolve(&handle, Resolution::DidNotHappen).await.unwrap();
            // The resolution is told in a notice, and that is still owed.
            while expire(&runtime).await == 0 {
                let taken = runtime.inbox("s").take(9, 1_000).await.unwrap();
                for notice in taken {
                    runtime.inbox("s").acknowledge(&notice.id).await.unwrap();
                }
            }
        }
        assert_eq!(states(&run(&runtime, "s", request()).await), "x failed/expired");
    }
}

#[tokio::test]
async fn a_session_stays_below_its_size() {
    let rule = Retention { session_bytes: Some(20_000), ..Retention::default() };
    let (runtime, _clock, _) = in_memory(rule);
    let text = "x".repeat(1_000);
    for number in 0..50 {
        let calls = vec![call("a", "pay", json!({ "text": text, "n": number }))];
        run(&runtime, "s", batch(&format!("k{number}"), calls.clone())).await;
        run(&runtime, &format!("small{number}"), batch("k", calls)).await;
    }
    let report = runtime.expire_now().await.unwrap();
    assert!(report.batches > 20 && report.batches < 50, "{report:?}");
    let kept = runtime.store().kept_batches(windlass_core::ids::BatchNo(0), 1_000).await.unwrap();
    let session = runtime.store().session("s").await.unwrap().unwrap().no;
    let size: u64 = kept.iter().filter(|batch| batch.session == session).map(|batch| batch.bytes).sum();
    assert!(size <= 20_000 && size > 15_000, "{size}");
    assert_eq!(kept.iter().filter(|batch| batch.session != session).count(), 50, "small sessions stay whole");
    let calls = |number: u64| {
        batch(&format!("k{number}"), vec![call("a", "pay", json!({ "text": text, "n": number }))])
    };
    assert_eq!(states(&run(&runtime, "s", calls(0)).await), "a failed/expired", "the oldest go");
    assert_eq!(states(&run(&runtime, "s", calls(49)).await), "a succeeded", "the newest stay");
}

#[tokio::test]
async fn the_store_stays_below_its_size_and_the_oldest_of_all_sessions_go() {
    let rule = Retention { store_bytes: Some(20_000), ..Retention::default() };
    let (runtime, _clock, _) = in_memory(rule);
    let text = "x".repeat(1_000);
    let calls = || vec![call("a", "pay", json!({ "text": text }))];
    for number in 0..30 {
        run(&runtime, &format!("s{number}"), batch("k", calls())).await;
    }
    runtime.expire_now().await.unwrap();
    let usage = runtime.store().usage().await.unwrap();
    assert!(usage.journal_bytes <= 20_000 && usage.journal_bytes > 15_000, "{usage:?}");
    assert_eq!(states(&run(&runtime, "s0", batch("k", calls())).await), "a failed/expired");
    assert_eq!(states(&run(&runtime, "s29", batch("k", calls())).await), "a succeeded");
}

#[tokio::test]
async fn a_session_has_rules_of_its_own() {
    let (runtime, clock, _) = in_memory(by_age());
    let limits = |age, bytes| SessionLimits {
        retention_age_ms: Some(age),
        retention_bytes: Some(bytes),
        ..SessionLimits::default()
    };
    runtime.limit_session("kept", limits(0, 0)).await.unwrap();
    runtime.limit_session("short", limits(1_000, 0)).await.unwrap();
    for session in ["kept", "short", "plain"] {
        run(&runtime, session, paid("k")).await;
    }
    clock.advance(Duration::from_secs(2));
    assert_eq!(expire(&runtime).await, 1);
    assert_eq!(states(&run(&runtime, "short", paid("k")).await), "a failed/expired, b failed/expired");
    clock.advance(HOUR);
    assert_eq!(expire(&runtime).await, 1);
    assert_eq!(states(&run(&runtime, "kept", paid("k")).await), "a succeeded, b succeeded");
}

#[tokio::test]
async fn a_duplicate_of_an_expired_call_is_not_run_while_the_first_stands_for_it() {
    let (runtime, clock, _) = in_memory(by_age());
    let count = Count::default();
    for (name, for_ms) in [("ever", None), ("a_day", Some(86_400_000))] {
        let same = Dedupe { key: "{n}".into(), for_ms };
        runtime
            .register(echo(ToolSpec { dedupe: Some(same), ..spec(name, EffectClass::Once) }, &count))
            .unwrap();
    }
    let fails = ToolSpec {
        dedupe: Some(Dedupe { key: "{n}".into(), for_ms: None }),
        ..spec("fails", EffectClass::Read)
    };
    let failed = count.clone();
    let tool = tool_fn(fails, move |_, _| {
        let run = failed.up();
        async move { Err(windlass::ToolError::new(format!("no {run}"))) }
    });
    runtime.register(tool).unwrap();
    let calls =
        |key: &str| batch(key, ["ever", "a_day", "fails"].map(|tool| call(tool, tool, n(1))).to_vec());
    run(&runtime, "s", batch("ever", vec![call("ever", "ever", n(1))])).await;
    run(&runtime, "s", batch("a_day", vec![call("a_day", "a_day", n(1))])).await;
    run(&runtime, "s", batch("fails", vec![call("fails", "fails", n(1))])).await;
    let before = count.get();
    clock.advance(HOUR * 2);
    let report = runtime.expire_now().await.unwrap();
    assert_eq!((report.batches, report.held), (2, 1), "the window of one is not over");
    let again = run(&runtime, "s", calls("again")).await;
    assert_eq!(states(&again), "ever failed/expired, a_day succeeded, fails failed/tool_failed");
    assert_eq!(again.calls[1].call().attempts, 0, "it has the answer of the first");
    assert!(count.get() > before, "a failed call stands for nobody");
    clock.advance(DAY * 2);
    assert_eq!(expire(&runtime).await, 2, "the first of the window, and the batch just run");
    let before = count.get();
    let again = run(&runtime, "s", calls("later")).await;
    assert_eq!(states(&again), "ever failed/expired, a_day succeeded, fails failed/tool_failed");
    assert_eq!(again.calls[1].call().attempts, 1, "the window is over");
    assert!(count.get() > before);
}

#[tokio::test]
async fn artifacts_logs_and_lists_go_with_their_calls() {
    let folder = TempDir::new().unwrap();
    let limits = Limits { artifact_loose_ms: 60_000, retention_every_ms: u64::MAX, ..Limits::default() };
    let clock = ManualClock::default();
    let config = Config::new(sqlite_in(folder.path()));
    let runtime =
        Runtime::new(Config { clock: Arc::new(clock.clone()), retention: by_age(), limits, ..config });
    let long = tool_fn(spec("long", EffectClass::Read), |args: serde_json::Value, _| {
        let text = format!("{} ", args["n"]).repeat(100_000);
        async move { Ok(json!(text).into()) }
    });
    runtime.register(long).unwrap();
    let calls = |number| vec![call("c", "long", n(number))];
    run(&runtime, "s", batch("own", calls(1))).await;
    run(&runtime, "s", batch("both", calls(2))).await;
    let full = runtime.store().usage().await.unwrap();
    assert_eq!(full.blob_bytes, 400_000);
    clock.advance(HOUR);
    run(&runtime, "s", batch("later", calls(2))).await;
    assert_eq!(runtime.store().usage().await.unwrap().blob_bytes, 400_000, "equal bytes are stored once");
    assert_eq!(expire(&runtime).await, 2);
    clock.advance(Duration::from_secs(120));
    // The runtime looks by itself, too: either of them removes it.
    runtime.collect_artifacts().await.unwrap();
    let left = runtime.store().usage().await.unwrap().blob_bytes;
    assert_eq!(left, 200_000, "the other is used by a call that stays");
    let kept = run(&runtime, "s", batch("later", calls(2))).await;
    let shown = serde_json::to_value(&kept.calls[0]).unwrap();
    let artifact = Handle::parse(shown["outcome"]["kept"]["artifact"].as_str().unwrap()).unwrap();
    assert_eq!(runtime.read_artifact(artifact, 0, 4).await.unwrap(), b"2 2 ");
    let session = runtime.store().session("s").await.unwrap().unwrap().no;
    assert_eq!(runtime.store().count_records(Space::Task.of(session)).await.unwrap(), 0);
}

#[tokio::test]
async fn a_follower_is_told_what_expired_before_it_came() {
    let (runtime, clock, _) = in_memory(by_age());
    for number in 0..3 {
        run(&runtime, "s", paid(&format!("old{number}"))).await;
    }
    let head = runtime.store().session("s").await.unwrap().unwrap().head;
    clock.advance(HOUR);
    run(&runtime, "s", paid("new")).await;
    assert_eq!(expire(&runtime).await, 3);
    let mut events = runtime.events("s", Some(EntryNo(0))).await.unwrap();
    let page = loop {
        if let News::Page(page) = events.next().await.unwrap().unwrap() {
            break page;
        }
    };
    assert_eq!((page.after, page.expired), (EntryNo(0), Some(head)));
    assert!(page.events.iter().all(|event| &*event.subject.batch == "new" && event.cursor > head));
    let mut events = runtime.events("s", Some(head)).await.unwrap();
    let page = loop {
        if let News::Page(page) = events.next().await.unwrap().unwrap() {
            break page;
        }
    };
    assert_eq!(page.expired, None, "a follower that read everything missed nothing");
}

/// Nothing is left that could tell it, so it is told at once.
#[tokio::test]
async fn a_follower_is_told_that_all_of_it_expired() {
    let (runtime, clock, _) = in_memory(by_age());
    run(&runtime, "s", paid("old")).await;
    let session = runtime.store().session("s").await.unwrap().unwrap();
    clock.advance(HOUR);
    assert_eq!(expire(&runtime).await, 1);
    let mut events = runtime.events("s", Some(EntryNo(1))).await.unwrap();
    let page = loop {
        if let News::Page(page) = events.next().await.unwrap().unwrap() {
            break page;
        }
    };
    assert_eq!((page.after, page.expired, page.end), (EntryNo(1), Some(session.head), session.head));
    assert!(page.events.is_empty());
    // From the record alone too, once.
    let mut record = windlass::events::Record::new(runtime.store(), session.clone(), EntryNo(0));
    let page = record.next().await.unwrap().unwrap();
    assert_eq!((page.expired, record.cursor()), (Some(session.head), session.head));
    assert!(record.next().await.unwrap().is_none());
    // Later entries follow.
    run(&runtime, "s", paid("new")).await;
    let page = loop {
        if let News::Page(page) = events.next().await.unwrap().unwrap() {
            break page;
        }
    };
    assert_eq!((page.after, page.expired), (session.head, None));
    assert!(page.events.iter().all(|event| &*event.subject.batch == "new"));
}

#[tokio::test]
async fn it_goes_on_by_itself_while_the_runtime_lives() {
    let (runtime, clock, _) = looking_every(10_000, MemoryStore::new().unwrap(), by_age());
    run(&runtime, "s", paid("k")).await;
    let lookup = windlass_core::ids::Lookup::of(runtime.store().session("s").await.unwrap().unwrap().no, "k");
    let is_expired = async || runtime.store().batch(lookup).await.unwrap().unwrap().expired;
    assert!(!is_expired().await);
    clock.advance(HOUR * 2);
    while !is_expired().await {
        // Each look is scheduled by the clock of the test.
        clock.advance(Duration::from_secs(10));
        tokio::task::yield_now().await;
    }
}

/// Whatever becomes of the change by which batches expire, it is all of it or nothing.
#[tokio::test]
async fn a_store_that_fails_in_the_change_leaves_nothing_half_expired() {
    for fault in Fault::ALL {
        let store = MemoryStore::new().unwrap();
        let (runtime, clock, count) = on(store.clone(), by_age());
        for number in 0..4 {
            run(&runtime, "s", paid(&format!("k{number}"))).await;
        }
        drop(runtime);
        // The first commit takes the session; the second is the expiry.
        let faulty = FaultStore::new(
            Arc::new(store.clone()),
            FaultPlan::Nth(Method::Commit, 2, fault),
            FaultReach::Store,
        );
        let config = Config { clock: Arc::new(clock.clone()), retention: by_age(), ..Config::new(faulty) };
        let limits = Limits { retention_every_ms: u64::MAX, ..Limits::default() };
        let runtime = Runtime::new(Config { limits, ..config });
        clock.advance(HOUR);
        let passed = tokio::time::timeout(Duration::from_secs(1), runtime.expire_now()).await;
        drop((passed, runtime));
        let (runtime, _, again) = on(store, Retention::default());
        let mut states_seen = Vec::new();
        for number in 0..4 {
            states_seen.push(states(&run(&runtime, "s", paid(&format!("k{number}"))).await));
        }
        let is_done = matches!(fault, Fault::FailAfter | Fault::LostAfter | Fault::Slow);
        let expected =
            if is_done { "a failed/expired, b failed/expired" } else { "a succeeded, b succeeded" };
        assert_eq!(states_seen, [expected; 4], "they expire together: {fault:?}");
        assert_eq!((count.get(), again.get()), (8, 0), "{fault:?}: nothing ran again");
    }
}
