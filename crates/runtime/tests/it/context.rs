//! A tool's context: its place, tasks that it awaits, models that it asks, events and notices. What is recorded is cut off at
//! every commit.

mod awaits;
mod events;
mod example;
mod facts;
mod model;
mod notices;
mod observed;
mod tasks;

use crate::rig::{batch, call, run, spec};
use serde_json::Value;
use std::sync::Arc;
use windlass::store::{MemoryStore, Store};
use windlass::{BatchAnswer, Config, EffectClass, Flags, Runtime, ToolSpec};
use windlass_testkit::clock::ManualClock;
use windlass_testkit::fault_store::{Fault, FaultPlan, FaultReach, FaultStore, Method};

/// A runtime whose time stands still, on this store.
fn owner(store: &Arc<dyn Store>, clock: &ManualClock) -> Runtime {
    Runtime::new(config(store, clock))
}

fn config(store: &Arc<dyn Store>, clock: &ManualClock) -> Config {
    let unused = Config::new(MemoryStore::new().unwrap());
    Config { store: store.clone(), clock: Arc::new(clock.clone()), ..unused }
}

fn memory() -> Arc<dyn Store> {
    Arc::new(MemoryStore::new().unwrap())
}

fn background(name: &str, class: EffectClass) -> ToolSpec {
    let flags = Flags { background: true, ..Flags::default() };
    ToolSpec { flags, ..free(name, class) }
}

fn free(name: &str, class: EffectClass) -> ToolSpec {
    ToolSpec { claims: Some(Vec::new()), ..spec(name, class) }
}

async fn one(runtime: &Runtime, tool: &str, args: Value) -> BatchAnswer {
    run(runtime, "s", batch("k", vec![call("c", tool, args)])).await
}

/// The session has nothing before its first call.
async fn over_every_death<C: AsyncFn(&Runtime, BatchAnswer, &str)>(
    tool: &str,
    make: impl Fn(&Arc<dyn Store>, &ManualClock) -> Runtime,
    check: C,
) {
    over_every_death_after(tool, make, async |_| true, check).await;
}

/// Runs one call of `tool` on owners that are cut off at every commit, each followed by one that lives: `check` looks at what
/// the second one left once nothing is open.
async fn over_every_death_after<B: AsyncFn(&Runtime) -> bool, C: AsyncFn(&Runtime, BatchAnswer, &str)>(
    tool: &str,
    make: impl Fn(&Arc<dyn Store>, &ManualClock) -> Runtime,
    before: B,
    check: C,
) {
    let mut deaths = 0;
    for fault in [Fault::LostAfter, Fault::LostBefore, Fault::FailAfter] {
        for at in 1..100 {
            let (store, clock, what) = (memory(), ManualClock::default(), format!("{fault:?} at {at}"));
            let plan = FaultPlan::Nth(Method::Commit, at, fault);
            let dies = FaultStore::new(store.clone(), plan, FaultReach::Store);
            let dying: Arc<dyn Store> = Arc::new(dies.clone());
            let first = make(&dying, &clock);
            let lived = async {
                if !before(&first).await {
                    return;
                }
                let submitted = first.submit("s", batch("k", vec![call("c", tool, Value::Null)])).await;
                if let Ok(submitted) = submitted {
                    let _answered = submitted.settled().await;
                }
                first.idle().await;
            };
            let cut_off = async {
                while dies.happened().is_empty() {
                    tokio::task::yield_now().await;
                }
            };
            tokio::select! { () = lived => {} () = cut_off => {} }
            let is_over = dies.happened().is_empty();
            dies.close();
            drop(first);
            let next = make(&store, &clock);
            next.resume().await.unwrap();
            assert!(before(&next).await, "{what}");
            let answer = one(&next, tool, Value::Null).await;
            next.idle().await;
            check(&next, answer, &what).await;
            if is_over {
                break;
            }
            deaths += 1;
        }
    }
    assert!(deaths > 6, "only {deaths} owners were cut off");
}
