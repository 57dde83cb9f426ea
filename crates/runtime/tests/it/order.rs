//! Calls of a session run in the order of their effects, and as parallel as that allows.

use crate::rig::{batch, call, memory, n, run, spec, states};
use std::sync::{Arc, Mutex};
use tokio::sync::Barrier;
use windlass::{Cx, EffectClass, Runtime, tool_fn};

type Log = Arc<Mutex<Vec<String>>>;

/// A tool that logs its start and end; reads wait in between until `readers` of them are there together.
fn logging(runtime: &Runtime, class: EffectClass, readers: usize, log: &Log) {
    let (log, together) = (log.clone(), Arc::new(Barrier::new(readers)));
    let tool = tool_fn(spec(class.as_str(), class), move |args, cx: &Cx| {
        let (log, together, id) = (log.clone(), together.clone(), cx.id().to_string());
        async move {
            log.lock().unwrap().push(format!("+{id}"));
            if class == EffectClass::Read {
                together.wait().await;
            } else {
                tokio::task::yield_now().await;
            }
            log.lock().unwrap().push(format!("-{id}"));
            Ok(args.into())
        }
    });
    runtime.register(tool).unwrap();
}

async fn check(script: &str, readers: usize) -> Vec<String> {
    let (runtime, log) = (memory(), Log::default());
    for class in EffectClass::ALL {
        logging(&runtime, *class, readers, &log);
    }
    let tools = script.split(' ').enumerate();
    let calls = tools.map(|(place, tool)| call(&place.to_string(), tool, n(0))).collect();
    let answer = run(&runtime, "s", batch("k", calls)).await;
    assert!(!states(&answer).contains("failed"), "{}", states(&answer));
    std::mem::take(&mut *log.lock().unwrap())
}

#[tokio::test]
async fn writes_run_alone_and_in_order() {
    let log = check("once keyed once once", 1).await;
    assert_eq!(log.join(" "), "+0 -0 +1 -1 +2 -2 +3 -3");
}

#[tokio::test]
async fn reads_run_together_between_the_writes() {
    // The barrier only opens when all three reads run at once: otherwise this would never end.
    let log = check("once read read read keyed", 3).await;
    assert_eq!((log[0].as_str(), log[1].as_str()), ("+0", "-0"));
    assert_eq!((log[8].as_str(), log[9].as_str()), ("+4", "-4"));
    assert!(log[2..5].iter().all(|line| line.starts_with('+')), "{log:?}");
}

#[tokio::test]
async fn batches_of_a_session_queue_in_the_order_they_came() {
    let (runtime, log) = (memory(), Log::default());
    logging(&runtime, EffectClass::Once, 1, &log);
    let mut waiting = Vec::new();
    for key in ["a", "b", "c"] {
        let calls = vec![call(&format!("{key}0"), "once", n(0)), call(&format!("{key}1"), "once", n(0))];
        waiting.push(runtime.submit("s", batch(key, calls)).await.unwrap());
    }
    for submitted in waiting {
        submitted.settled().await.unwrap();
    }
    let started: Vec<String> =
        log.lock().unwrap().iter().filter(|line| line.starts_with('+')).cloned().collect();
    assert_eq!(started.join(" "), "+a0 +a1 +b0 +b1 +c0 +c1");
}

#[tokio::test]
async fn sessions_do_not_wait_for_each_other() {
    let (runtime, together) = (memory(), Arc::new(Barrier::new(2)));
    let tool = tool_fn(spec("once", EffectClass::Once), move |args, _: &Cx| {
        let together = together.clone();
        async move {
            together.wait().await;
            Ok(args.into())
        }
    });
    runtime.register(tool).unwrap();
    let one = |session| run(&runtime, session, batch("k", vec![call("c", "once", n(0))]));
    let (a, b) = tokio::join!(one("a"), one("b"));
    assert_eq!((a.calls[0].state(), b.calls[0].state()), ("succeeded", "succeeded"));
}
