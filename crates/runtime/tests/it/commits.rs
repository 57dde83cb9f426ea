//! How often a call waits for the disk.

use crate::rig::{Count, batch, call, config, echo, n, quick, run, spec, sqlite, states};
use std::sync::Arc;
use tokio::sync::Barrier;
use windlass::tool::Dedupe;
use windlass::{BatchRequest, Config, Cx, EffectClass, Runtime, ToolSpec, tool_fn};
use windlass_core::entry::{EntryEvent, unpack};
use windlass_core::ids::BatchNo;
use windlass_testkit::fault_store::{FaultPlan, FaultReach, FaultStore, Method};

#[tokio::test]
async fn a_read_waits_once_and_others_twice() {
    let (runtime, _folder) = sqlite();
    for class in EffectClass::ALL {
        runtime.register(echo(spec(class.as_str(), *class), &Count::default())).unwrap();
    }
    for (class, waits) in [("read", 1), ("keyed", 2), ("once", 2)] {
        for round in 0..3 {
            let before = runtime.store().commits();
            run(&runtime, "s", batch(&format!("{class}{round}"), vec![call("c", class, n(1))])).await;
            assert_eq!(runtime.store().commits() - before, waits, "{class}");
        }
    }
}

#[tokio::test]
async fn a_dedupe_key_costs_no_wait_and_its_answer_one() {
    let (runtime, _folder) = sqlite();
    for class in EffectClass::ALL {
        let dedupe = Some(Dedupe { key: "{n}".into(), for_ms: None });
        let spec = ToolSpec { dedupe, ..spec(class.as_str(), *class) };
        runtime.register(echo(spec, &Count::default())).unwrap();
    }
    for (class, first) in [("read", 1), ("keyed", 2), ("once", 2)] {
        for (round, waits) in [(0, first), (1, 1), (2, 1)] {
            let before = runtime.store().commits();
            run(&runtime, "s", batch(&format!("{class}{round}"), vec![call("c", class, n(1))])).await;
            assert_eq!(runtime.store().commits() - before, waits, "{class} {round}");
        }
    }
}

/// A provisional answer costs one change for the batch; where nobody waits, none of its own. Changes are
/// counted, not commits: which changes the writer finds together is chance.
#[tokio::test]
async fn a_provisional_answer_is_one_change_for_the_whole_batch() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(&folder);
    let store = FaultStore::new(config.store.clone(), FaultPlan::Never, FaultReach::Store);
    let runtime = Runtime::new(Config { store: Arc::new(store.clone()), ..config });
    let sent = || store.asked(Method::Commit);
    // Without claims: a call that waits behind another of its batch would start because of the answer, with a change of its own.
    let claims = Some(Vec::new());
    let asks = ToolSpec { claims: claims.clone(), ..spec("asks", EffectClass::Keyed) };
    let asks = crate::inside::body(asks, |_, cx| {
        Box::pin(async move { Ok(windlass::Output::pending(cx.completion("k").await?)) })
    });
    runtime.register(asks).unwrap();
    let read = ToolSpec { claims, ..quick("read", EffectClass::Read) };
    runtime.register(echo(read, &Count::default())).unwrap();
    let calls = vec![call("a", "asks", n(1)), call("b", "asks", n(2)), call("c", "read", n(3))];
    let submitted = runtime.submit("s", batch("k", calls)).await.unwrap();
    submitted.stands_still().await.unwrap();
    let before = sent();
    let answer = submitted.now().await.unwrap();
    assert_eq!(states(&answer), "a awaiting_completion, b awaiting_completion, c succeeded");
    assert!(answer.calls[0].call().is_provisional && answer.calls[1].call().is_provisional);
    assert_eq!(sent() - before, 1, "one mark for the batch");
    let rows = runtime.store().journal(BatchNo(1)).await.unwrap();
    let entries = rows.iter().flat_map(|row| unpack(&row.data).unwrap());
    assert_eq!(entries.filter(|entry| matches!(entry.event, EntryEvent::Answered(_))).count(), 1);

    let calls = vec![call("a", "nothing", n(1)), call("b", "read", n(2))];
    let unattended = BatchRequest { unattended: true, ..batch("none", calls) };
    let before = sent();
    let answer = runtime.submit("other", unattended).await.unwrap().now().await.unwrap();
    assert!(answer.calls.iter().all(|call| call.call().end().is_none() && call.call().is_provisional));
    assert_eq!(
        sent() - before,
        3,
        "the batch with its mark, both ends, and an empty one behind them that is waited for"
    );
}

#[tokio::test]
async fn a_recorded_answer_waits_never() {
    let (runtime, _folder) = sqlite();
    runtime.register(echo(spec("once", EffectClass::Once), &Count::default())).unwrap();
    let again = || batch("k", vec![call("c", "once", n(1))]);
    run(&runtime, "s", again()).await;
    let before = runtime.store().commits();
    run(&runtime, "s", again()).await;
    assert_eq!(runtime.store().commits(), before);
}

#[tokio::test]
async fn quick_reads_of_a_batch_share_one_wait() {
    let (runtime, _folder) = sqlite();
    runtime.register(echo(quick("read", EffectClass::Read), &Count::default())).unwrap();
    let calls = (0..64).map(|i| call(&format!("c{i}"), "read", n(i))).collect();
    run(&runtime, "s", batch("k", calls)).await;
    assert_eq!(runtime.store().commits(), 1);
}

/// Changes are counted, not commits, as above: each costs the store about as much as a whole call, however many share a commit.
#[tokio::test]
async fn calls_of_a_batch_that_start_together_share_a_change() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(&folder);
    let store = FaultStore::new(config.store.clone(), FaultPlan::Never, FaultReach::Store);
    let runtime = Runtime::new(Config { store: Arc::new(store.clone()), ..config });
    let once = ToolSpec { claims: Some(Vec::new()), ..quick("once", EffectClass::Once) };
    runtime.register(echo(once, &Count::default())).unwrap();
    let mut changes = Vec::new();
    for round in 0..4 {
        let before = store.asked(Method::Commit);
        let calls = (0..24).map(|i| call(&format!("c{i}"), "once", n(i))).collect();
        let answer = run(&runtime, "s", batch(&format!("k{round}"), calls)).await;
        assert!(answer.calls.iter().all(|call| call.state() == "succeeded"));
        changes.push(store.asked(Method::Commit) - before);
    }
    // One for the starts, and one for each end; the first use of the session costs one more.
    assert_eq!(changes, [26, 25, 25, 25]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_calls_of_many_sessions_share_waits() {
    const SESSIONS: usize = 64;
    let (runtime, _folder) = sqlite();
    let all_here = Arc::new(Barrier::new(SESSIONS));
    let tool = tool_fn(spec("once", EffectClass::Once), move |args, _: &Cx| {
        let all_here = all_here.clone();
        async move {
            all_here.wait().await;
            Ok(args.into())
        }
    });
    runtime.register(tool).unwrap();
    let tasks = (0..SESSIONS).map(|session| {
        let runtime = runtime.clone();
        tokio::spawn(async move {
            run(&runtime, &format!("s{session}"), batch("k", vec![call("c", "once", n(1))])).await
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        assert_eq!(task.await.unwrap().calls[0].state(), "succeeded");
    }
    // Alone, each would have waited twice: 128 waits.
    let waits = runtime.store().commits();
    assert!(waits <= SESSIONS as u64, "{waits} waits for {SESSIONS} calls");
}
