//! A call whose going on without its caller cannot be recorded does not go on.

use super::{BUDGET, background};
use crate::rig::{batch, call, n, until_runs};
use std::sync::Arc;
use std::time::Duration;
use windlass::error::{Lost, SessionError};
use windlass::store::memory::MemoryStore;
use windlass::{BatchError, Config, Cx, EffectClass, Runtime, ToolError, tool_fn};
use windlass_testkit::clock::ManualClock;
use windlass_testkit::fault_store::{Fault, FaultPlan, FaultReach, FaultStore, Method};

/// Which commit records the detach: the first is the start of the attempt, where that is recorded at all.
fn detach_commit(class: EffectClass) -> u64 {
    if class == EffectClass::Read { 1 } else { 2 }
}

#[tokio::test]
async fn a_call_whose_detach_cannot_be_recorded_is_stopped_and_says_so() {
    for class in [EffectClass::Read, EffectClass::Keyed, EffectClass::Once] {
        for fault in [Fault::FailBefore, Fault::FailAfter, Fault::LostBefore, Fault::LostAfter] {
            let plan = FaultPlan::Nth(Method::Commit, detach_commit(class), fault);
            let store = FaultStore::new(Arc::new(MemoryStore::new().unwrap()), plan, FaultReach::Store);
            let clock = ManualClock::default();
            let config = Config::new(MemoryStore::new().unwrap());
            let runtime = Runtime::new(Config {
                store: Arc::new(store.clone()),
                clock: Arc::new(clock.clone()),
                ..config
            });
            let (told, mut stopped) = tokio::sync::mpsc::unbounded_channel();
            let tool = tool_fn(background("build", class), move |_, cx: &Cx| {
                let (cx, told) = (cx.clone(), told.clone());
                async move {
                    cx.stopping().await;
                    told.send(()).unwrap();
                    Err(ToolError::stopped())
                }
            });
            runtime.register(tool).unwrap();
            let submitted = runtime.submit("s", batch("k", vec![call("c", "build", n(1))])).await.unwrap();
            let settled = tokio::spawn(submitted.settled());
            until_runs(&runtime).await;
            tokio::task::yield_now().await;
            clock.advance(BUDGET);
            let place = format!("{class} {fault:?}");
            let stopped = tokio::time::timeout(Duration::from_secs(60), stopped.recv()).await;
            assert_eq!(stopped.expect("the attempt is told to stop"), Some(()), "{place}");
            let answer = tokio::time::timeout(Duration::from_secs(60), settled).await;
            let answer = answer.expect("the caller is told").unwrap().map(|_| ());
            assert!(
                matches!(answer, Err(BatchError::Session(SessionError::Lost(Lost::Store(_))))),
                "{place}: {answer:?}"
            );
            assert_eq!(store.happened().keys().copied().collect::<Vec<_>>(), [(Method::Commit, fault)]);
            runtime.idle().await;
            assert_eq!(runtime.kept(), 0, "{place}: nothing goes on");
        }
    }
}
