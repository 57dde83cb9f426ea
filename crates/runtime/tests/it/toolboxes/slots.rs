//! The slots of processes: what runs at once, and processes that take no more.

use super::{ANN, Process, World, settled, submit, tool};
use crate::rig::{batch, call, memory, n, states, waits_for};
use serde_json::json;
use std::time::Duration;
use windlass::toolboxes::{TakeRequest, ToolManifest};
use windlass::{CallRequest, EffectClass};

#[tokio::test]
async fn slots_bound_what_runs_and_the_others_wait_for_room() {
    let runtime = memory();
    let claims = Some(Vec::new());
    let process =
        Process::new(&runtime, vec![ToolManifest { claims, ..tool("greet", EffectClass::Once) }]).await;
    process.ask(2, Duration::ZERO).await.unwrap();
    let calls: Vec<CallRequest> = ["a", "b", "c"].iter().map(|id| call(id, "greet", n(1))).collect();
    let submitted = runtime.submit("s", batch("k", calls)).await.unwrap();
    waits_for(&runtime, "limit").await;
    let mut taken = Vec::new();
    while taken.len() < 2 {
        let max = 2 - taken.len() as u32;
        taken.extend(process.ask(max, Duration::from_secs(5)).await.unwrap());
    }
    let shown = runtime.toolboxes().list().await.unwrap().remove(0);
    assert_eq!((shown.running, shown.waiting, shown.workers[0].slots), (2, 0, 2));
    for attempt in &taken {
        process.returns(attempt, json!(1)).await;
    }
    let last = process.take().await;
    process.returns(&last, json!(1)).await;
    assert_eq!(states(&settled(submitted).await), "a succeeded, b succeeded, c succeeded");
}

#[tokio::test]
async fn slots_that_a_process_names_do_not_shrink_with_what_it_can_take_now() {
    let runtime = memory();
    let claims = Some(Vec::new());
    let process =
        Process::new(&runtime, vec![ToolManifest { claims, ..tool("greet", EffectClass::Once) }]).await;
    // It counts one as running whose end it has just reported.
    let asks = TakeRequest {
        worker: "w1".into(),
        manifest: process.manifest.clone(),
        max: 1,
        slots: Some(2),
        ..TakeRequest::default()
    };
    runtime.toolboxes().take("crm", ANN, asks).await.unwrap();
    let calls: Vec<CallRequest> = ["a", "b"].iter().map(|id| call(id, "greet", n(1))).collect();
    let submitted = runtime.submit("s", batch("k", calls)).await.unwrap();
    // Both start, and wait for the process; a call that waits for a slot would not.
    while runtime.toolboxes().list().await.unwrap()[0].waiting < 2 {
        tokio::task::yield_now().await;
    }
    for attempt in process.ask(2, Duration::from_secs(5)).await.unwrap() {
        process.returns(&attempt, json!(1)).await;
    }
    assert_eq!(states(&settled(submitted).await), "a succeeded, b succeeded");
}

/// Nobody moves the clock: a request that went on waiting would never return.
#[tokio::test]
async fn a_process_that_takes_no_more_is_not_kept_waiting() {
    let world = World::new();
    let owner = world.owner();
    let tools = vec![ToolManifest { claims: Some(Vec::new()), ..tool("greet", EffectClass::Once) }];
    let process = Process::new(&owner.runtime, tools).await;
    for running in [0, 1] {
        let submitted = match running {
            0 => None,
            _ => {
                process.ask(1, Duration::ZERO).await.unwrap();
                let submitted = submit(&owner.runtime, "greet").await;
                Some((process.take().await, submitted))
            }
        };
        let waiting = process.ask(1, Duration::from_secs(5));
        let leaving = async {
            tokio::task::yield_now().await;
            process.ask(0, Duration::ZERO).await.unwrap()
        };
        let (taken, left) = tokio::join!(waiting, leaving);
        assert!(taken.unwrap().is_empty() && left.is_empty());
        if let Some((attempt, submitted)) = submitted {
            process.returns(&attempt, json!(1)).await;
            assert_eq!(states(&settled(submitted).await), "c succeeded");
        }
    }
    drop(process);
    owner.dies().await;
}
