//! Calls that are the same over a store that fails at every commit: what one key stands for succeeds once.

use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use windlass::tool::Dedupe;
use windlass::{
    Args, BatchAnswer, BatchRequest, CallRequest, Config, Cx, EffectClass, Runtime, ToolError, ToolSpec,
    tool_fn,
};
use windlass_store::sqlite::Options;
use windlass_store::{MemoryStore, SqliteStore, Store};
use windlass_testkit::fault_store::{Fault, FaultPlan, FaultReach, FaultStore, Method};

/// A runtime whose tool fails for the call `a` and succeeds for all others, and how often it did.
fn runtime(store: Arc<dyn Store>, succeeded: &Arc<AtomicU64>) -> Runtime {
    // What a configuration is made of, but for the store.
    let config = Config::new(MemoryStore::new().unwrap());
    let runtime = Runtime::new(Config { store, ..config });
    let spec = ToolSpec {
        name: "pay".into(),
        class: Some(EffectClass::Keyed),
        dedupe: Some(Dedupe { key: "{order}".into(), for_ms: None }),
        ..ToolSpec::default()
    };
    let succeeded = succeeded.clone();
    let pay = tool_fn(spec, move |_, cx: &Cx| {
        let (fails, succeeded) = (cx.id() == "a", succeeded.clone());
        async move {
            // Others have the time to come.
            tokio::task::yield_now().await;
            if fails {
                return Err(ToolError::new("no"));
            }
            succeeded.fetch_add(1, Ordering::SeqCst);
            Ok(json!("paid").into())
        }
    });
    runtime.register(pay).unwrap();
    runtime
}

fn batch(key: &str, ids: &[&str]) -> BatchRequest {
    let call = |id: &&str| CallRequest {
        id: Some((*id).into()),
        tool: "pay".into(),
        args: Args::Json(json!({"order": 7})),
        ..CallRequest::default()
    };
    BatchRequest { key: Some(key.into()), calls: ids.iter().map(call).collect(), ..BatchRequest::default() }
}

/// Submits everything, two batches at once and one behind them; what cannot be answered is left.
async fn work(runtime: &Runtime) -> Vec<BatchAnswer> {
    let ask = async |request| match runtime.submit("s", request).await {
        Ok(submitted) => submitted.settled().await.ok(),
        Err(_) => None,
    };
    let (first, second) = tokio::join!(ask(batch("k1", &["a", "b"])), ask(batch("k2", &["c", "d"])));
    let third = ask(batch("k3", &["e"])).await;
    [first, second, third].into_iter().flatten().collect()
}

/// One call of all succeeded by itself, and the others have its answer.
fn check(answers: &[BatchAnswer]) -> Result<(), String> {
    let calls: Vec<_> = answers.iter().flat_map(|answer| &answer.calls).collect();
    let told: Vec<String> = calls
        .iter()
        .map(|call| format!("{} {} {} {:?}", call.id(), call.state(), call.call().attempts, call.same_as()))
        .collect();
    let ran: Vec<_> =
        calls.iter().filter(|call| call.state() == "succeeded" && call.same_as().is_none()).collect();
    let [ran] = ran[..] else { return Err(format!("{} succeeded: {told:?}", ran.len())) };
    for call in calls.iter().filter(|call| call.handle() != ran.handle()) {
        let fine = match call.same_as() {
            Some(first) => call.call().attempts == 0 && (first == ran.handle() || call.state() == "failed"),
            None => call.id() == "a" && call.state() == "failed",
        };
        if !fine {
            return Err(format!("{told:?}"));
        }
    }
    Ok(())
}

async fn disturbed(inner: &Arc<dyn Store>, nth: u64, fault: Fault) -> bool {
    let succeeded = Arc::new(AtomicU64::new(0));
    let faulty =
        FaultStore::new(inner.clone(), FaultPlan::Nth(Method::Commit, nth, fault), FaultReach::Store);
    let owner = runtime(Arc::new(faulty.clone()), &succeeded);
    let before = work(&owner).await;
    faulty.close();
    // What the dead owner had sent is done or not when this returns.
    inner.commit(vec![]).await.unwrap();
    let next = runtime(inner.clone(), &succeeded);
    let after = work(&next).await;
    assert_eq!(after.len(), 3, "{nth} {fault:?}");
    check(&after).unwrap_or_else(|broken| panic!("{nth} {fault:?}: {broken}"));
    // Whoever was answered before is answered the same again.
    for (told, call) in
        before.iter().flat_map(|answer| answer.calls.iter().map(move |call| (&answer.key, call)))
    {
        let again = after.iter().find(|answer| answer.key == *told).unwrap();
        let again = again.calls.iter().find(|again| again.id() == call.id()).unwrap();
        let shown = |call| serde_json::to_value(call).unwrap();
        assert_eq!(shown(call), shown(again), "{nth} {fault:?}");
    }
    // Nothing of the second owner is left, and a third finds the same.
    next.idle().await;
    assert_eq!(next.kept(), 0);
    let third = work(&runtime(inner.clone(), &succeeded)).await;
    check(&third).unwrap_or_else(|broken| panic!("{nth} {fault:?}: {broken}"));
    // A run whose record was lost is repeated, under the same idempotency key, and no other is.
    assert!((1..=2).contains(&succeeded.load(Ordering::SeqCst)), "{nth} {fault:?}");
    faulty.happened().is_empty()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_key_succeeds_once_whichever_commit_fails() {
    for fault in [Fault::FailBefore, Fault::FailAfter, Fault::LostBefore, Fault::LostAfter] {
        let mut nth = 1;
        loop {
            let inner: Arc<dyn Store> = Arc::new(MemoryStore::new().unwrap());
            if disturbed(&inner, nth, fault).await {
                break;
            }
            nth += 1;
        }
        assert!(nth > 7, "the work commits only {nth} times");
    }
    for nth in 1..9 {
        let folder = tempfile::tempdir().unwrap();
        let inner: Arc<dyn Store> = Arc::new(SqliteStore::open(Options::new(folder.path())).unwrap());
        disturbed(&inner, nth, Fault::LostAfter).await;
    }
}
