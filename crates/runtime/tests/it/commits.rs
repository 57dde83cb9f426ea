//! How often a call waits for the disk.

use crate::rig::{Count, batch, call, echo, n, quick, run, spec, sqlite};
use std::sync::Arc;
use tokio::sync::Barrier;
use windlass::{Cx, Dedupe, EffectClass, ToolSpec, tool_fn};

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
