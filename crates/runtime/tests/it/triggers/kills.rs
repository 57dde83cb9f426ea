//! Owners that are cut off at every commit around events: no event starts anything twice, and none is lost.

use super::{Shop, on_sale};
use crate::rig::{batch, call, states};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use windlass::{BatchAnswer, BatchRequest, Runtime};
use windlass_testkit::fault_store::{Fault, FaultPlan, FaultReach, FaultStore, Method};

/// So many events are told of, and so many triggers take each.
const EVENTS: u64 = 4;
const TRIGGERS: [&str; 3] = ["a", "b", "c"];
const FAULTS: [Fault; 4] = [Fault::FailBefore, Fault::FailAfter, Fault::LostBefore, Fault::LostAfter];

struct Owner {
    runtime: Runtime,
    store: FaultStore,
}

impl Owner {
    fn new(shop: &Shop, plan: FaultPlan) -> Owner {
        let store = FaultStore::new(shop.store.clone(), plan, FaultReach::Store);
        Owner { runtime: shop.owner_on(Arc::new(store.clone())), store }
    }

    fn is_cut_off(&self) -> bool {
        !self.store.happened().is_empty()
    }

    async fn until_cut_off(&self) {
        while !self.is_cut_off() {
            tokio::task::yield_now().await;
        }
    }

    /// Makes the triggers, sells, and sees everything end; unless it is cut off.
    async fn lives(&self) -> Option<BatchAnswer> {
        let life = async {
            for id in TRIGGERS {
                self.runtime.triggers("s").create(on_sale(id, "deliver")).await.ok()?;
            }
            let answer = self.runtime.submit("s", sale()).await.ok()?.settled().await.ok()?;
            self.runtime.idle().await;
            Some(answer)
        };
        tokio::select! {
            answer = life => answer.filter(|_| !self.is_cut_off()),
            () = self.until_cut_off() => None,
        }
    }
}

fn sale() -> BatchRequest {
    let items: Vec<Value> = (0..EVENTS).map(|item| json!({ "item": item })).collect();
    batch("k", vec![call("c", "sell", json!({ "items": items }))])
}

/// Whether an owner is cut off at this commit. Whoever comes next finds all there is to be done.
async fn trial(commit: u64, fault: Fault) -> bool {
    let shop = Shop::new();
    let owner = Owner::new(&shop, FaultPlan::Nth(Method::Commit, commit, fault));
    let first = owner.lives().await;
    let was_cut_off = first.is_none();
    let (owner, answer) = match first {
        Some(answer) => (owner, answer),
        None => {
            owner.store.close();
            drop(owner);
            let next = Owner::new(&shop, FaultPlan::Never);
            next.runtime.resume().await.unwrap();
            let answer = next.lives().await.unwrap();
            (next, answer)
        }
    };
    check(&shop, &owner.runtime, &answer, &format!("commit {commit}, {fault:?}")).await;
    was_cut_off
}

/// Each event has started one call for each trigger, which succeeded and of which the session is told once.
async fn check(shop: &Shop, runtime: &Runtime, answer: &BatchAnswer, what: &str) {
    assert_eq!(states(answer), "c succeeded", "{what}");
    let all = EVENTS as usize * TRIGGERS.len();
    let tasks = runtime.tasks("s").list(None, 100).await.unwrap();
    assert_eq!(tasks.len(), all, "{what}");
    assert!(tasks.iter().all(|task| task.state == "succeeded"), "{what}: {tasks:?}");
    let listed: BTreeSet<String> = tasks.into_iter().map(|task| task.task).collect();
    let triggered: BTreeSet<String> =
        answer.calls[0].triggered().into_iter().map(|(_, task)| task.to_string()).collect();
    assert_eq!(listed, triggered, "{what}");
    let told: BTreeSet<String> = runtime
        .inbox("s")
        .list(None, 100)
        .await
        .unwrap()
        .into_iter()
        .filter_map(|notice| notice.call)
        .collect();
    assert_eq!(told, listed, "{what}");
    let orders: BTreeSet<String> = shop.delivered().iter().map(Value::to_string).collect();
    assert_eq!(orders.len() as u64, EVENTS, "{what}");
    for trigger in runtime.triggers("s").list().await.unwrap() {
        assert_eq!(trigger.count, EVENTS, "{what}: {}", trigger.id);
    }
}

#[tokio::test]
async fn owners_that_are_cut_off_at_every_commit_lose_no_event_and_use_none_twice() {
    let mut cut_off = 0;
    for commit in 1..=30 {
        for fault in FAULTS {
            cut_off += u64::from(trial(commit, fault).await);
        }
    }
    assert!(cut_off >= 60, "only {cut_off} were cut off");
    println!("{cut_off} owners were cut off");
}
