//! Children over every death of whoever owns them.

use super::{check_gone, children, delegate, hangs, is_closed, leaves, on, recorded};
use crate::rig::{Count, batch, call, echo, n, run};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use windlass::sessions::{Child, ChildSpec};
use windlass::store::{MemoryStore, Space, Store};
use windlass::{EffectClass, Limits, Runtime};
use windlass_testkit::fault_store::{Fault, FaultPlan, FaultReach, FaultStore, Method};

fn dies(store: &Arc<dyn Store>, at: u64) -> FaultStore {
    FaultStore::new(store.clone(), FaultPlan::Nth(Method::Commit, at, Fault::LostAfter), FaultReach::Store)
}

async fn until(what: &str, mut done: impl AsyncFnMut() -> bool) {
    let looked = async {
        while !done().await {
            tokio::task::yield_now().await;
        }
    };
    assert!(tokio::time::timeout(Duration::from_secs(30), looked).await.is_ok(), "{what}");
}

#[tokio::test]
async fn a_body_that_runs_again_has_one_child_and_repeats_no_turn() {
    for class in [EffectClass::Keyed, EffectClass::Stepped] {
        for at in 1..100 {
            let store: Arc<dyn Store> = Arc::new(MemoryStore::new().unwrap());
            let ran = Count::default();
            let start = |store: &Arc<dyn Store>| {
                let runtime = on(store, Limits::default());
                runtime.register(delegate(class)).unwrap();
                runtime.register(echo(super::free("work", EffectClass::Once), &ran)).unwrap();
                runtime
            };
            let asked = || batch("k", vec![call("c", "delegate", n(1))]);
            let dying = dies(&store, at);
            let runtime = start(&(Arc::new(dying.clone()) as Arc<dyn Store>));
            let over = match runtime.submit("s", asked()).await {
                Ok(submitted) => submitted.settled().await.is_ok(),
                Err(_) => false,
            };
            dying.close();
            drop(runtime);
            let runtime = start(&store);
            runtime.resume().await.unwrap();
            let answer = run(&runtime, "s", asked()).await;
            runtime.idle().await;
            let opened = children(&runtime, "s").await;
            assert_eq!(opened.len(), 1, "{class}, death {at}");
            // Of what must not be repeated one may be unknown; then its turn says so, and nothing ran twice.
            assert!(ran.get() <= 2, "{class}, death {at}: {}", ran.get());
            if answer.calls[0].state() == "succeeded" {
                let told: Value = answer.calls[0].value().unwrap();
                assert_eq!(told, json!([opened[0], { "n": 1 }, { "n": 1 }]), "{class}, death {at}");
                assert_eq!(ran.get(), 2);
            }
            assert!(is_closed(&runtime, &opened[0]).await, "{class}, death {at}");
            if over {
                assert!(at > 5, "some of them died: {at}");
                break;
            }
            assert_ne!(at, 99);
        }
    }
}

#[tokio::test]
async fn a_child_is_closed_whoever_died_when_its_call_ended() {
    for at in 1..100 {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new().unwrap());
        let begun = Arc::new(Semaphore::new(0));
        let start = |store: &Arc<dyn Store>| {
            let runtime = on(store, Limits::default());
            runtime.register(hangs(&begun)).unwrap();
            runtime.register(leaves(&begun)).unwrap();
            runtime
        };
        let asked = || batch("k", vec![call("c", "leaves", json!({}))]);
        let dying = dies(&store, at);
        let runtime = start(&(Arc::new(dying.clone()) as Arc<dyn Store>));
        if let Ok(submitted) = runtime.submit("s", asked()).await {
            let _over = submitted.settled().await;
        }
        until("it dies or is idle", async || !dying.happened().is_empty() || runtime.open_calls() == 0).await;
        let died = !dying.happened().is_empty();
        dying.close();
        drop(runtime);
        let runtime = start(&store);
        runtime.resume().await.unwrap();
        let answer = run(&runtime, "s", asked()).await;
        let child: String = answer.calls[0].value().unwrap();
        assert_eq!(recorded(&runtime, &child, "turn", "hangs").await, "c cancelled", "death {at}");
        assert!(is_closed(&runtime, &child).await, "death {at}");
        runtime.idle().await;
        if !died {
            assert!(at > 5, "some of them died: {at}");
            break;
        }
        assert_ne!(at, 99);
    }
}

/// At every write of a removal the store fails once, and the next runtime on it goes on by itself.
#[tokio::test]
async fn children_go_with_their_parent_whoever_died_meanwhile() {
    let mut cuts = 0;
    for method in [Method::Remove, Method::Commit] {
        for nth in 1..200 {
            let store: Arc<dyn Store> = Arc::new(MemoryStore::new().unwrap());
            let start = |store: &Arc<dyn Store>| {
                let runtime = on(store, Limits { removed_rows_max: 2, ..Limits::default() });
                runtime.register(echo(super::free("work", EffectClass::Keyed), &Count::default())).unwrap();
                runtime
            };
            let first = start(&store);
            fill(&first).await;
            drop(first);
            let plan = FaultPlan::Nth(method, nth, Fault::FailAfter);
            let cut = Arc::new(FaultStore::new(store.clone(), plan, FaultReach::Store));
            let runtime = start(&(cut.clone() as Arc<dyn Store>));
            let removed = runtime.remove_session("s").await;
            let was_cut = !cut.happened().is_empty();
            assert_eq!(removed.is_ok(), !was_cut, "{method:?} {nth}: {removed:?}");
            drop(runtime);
            let next = start(&store);
            if was_cut {
                cuts += 1;
                let begun = !store.sessions_with(Space::Removing, None, 9).await.unwrap().is_empty();
                next.resume().await.unwrap();
                if !begun && store.session("s").await.unwrap().is_some() {
                    next.remove_session("s").await.unwrap();
                }
                until("somebody goes on", async || store.session("s").await.unwrap().is_none()).await;
                let _waits = next.remove_session("s").await.unwrap();
            }
            check_gone(&next, &["s", "a", "b", "a.a"]).await;
            if !was_cut {
                break;
            }
        }
    }
    assert!(cuts > 10, "cut off {cuts} times");
}

async fn fill(runtime: &Runtime) {
    for (parent, name) in [("s", "a"), ("s", "b"), ("a", "a.a")] {
        let settings = vec![("setting".to_string(), Arc::from(&b"{}"[..]))];
        let spec = ChildSpec { settings, ..ChildSpec::default() };
        assert!(runtime.open_child(parent, name, spec).await.unwrap());
    }
    for session in ["s", "a", "a.a"] {
        for key in ["1", "2"] {
            run(runtime, session, batch(key, vec![call("c", "work", n(1))])).await;
        }
    }
    assert!(Child::of(&**runtime.store(), "b").await.unwrap().is_some());
}
