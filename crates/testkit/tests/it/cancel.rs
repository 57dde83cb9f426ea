//! What is asked of calls is acknowledged when it is durable, and not before.

use serde_json::json;
use std::sync::Arc;
use windlass::store::memory::MemoryStore;
use windlass::{
    Args, AskError, BatchError, BatchRequest, CallRequest, Config, Cx, EffectClass, Runtime, SystemClock,
    Target, Tool, ToolFuture, ToolSpec,
};
use windlass_store::Store;
use windlass_testkit::fault_store::{Fault, FaultStore, Method, Plan, Reach};

/// Says that it runs, and returns when it is told to stop.
struct Obeys(tokio::sync::mpsc::UnboundedSender<()>);

impl Tool for Obeys {
    fn spec(&self) -> ToolSpec {
        ToolSpec { name: "obeys".into(), class: Some(EffectClass::Read), ..ToolSpec::default() }
    }

    fn run<'a>(&'a self, _args: serde_json::Value, cx: &'a Cx) -> ToolFuture<'a> {
        let _running = self.0.send(());
        Box::pin(async move {
            cx.stopping().await;
            Ok(json!("stopped").into())
        })
    }
}

/// Nothing of a call that only reads is recorded while it runs: that it is to stop is durable with its end.
#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_that_could_not_be_recorded_is_not_acknowledged() {
    for (fault, acknowledged) in
        [(None, true), (Some(Fault::FailBefore), false), (Some(Fault::LostBefore), false)]
    {
        let plan = fault.map_or(Plan::Never, |fault| Plan::Nth(Method::Commit, 1, fault));
        let inner: Arc<dyn Store> = Arc::new(MemoryStore::new().unwrap());
        let store = Arc::new(FaultStore::new(inner, plan, Reach::Store));
        let clock = Arc::new(SystemClock::default());
        let runtime = Runtime::new(Config { store, clock, limits: Default::default(), hooks: Vec::new() });
        let (running, mut runs) = tokio::sync::mpsc::unbounded_channel();
        runtime.register(Obeys(running)).unwrap();
        let call = CallRequest {
            id: Some("c".into()),
            tool: "obeys".into(),
            args: Args::Json(json!({})),
            ..CallRequest::default()
        };
        let batch = BatchRequest { key: Some("b".into()), calls: vec![call], ..BatchRequest::default() };
        let _under_way = runtime.submit("s", batch).await.unwrap();
        runs.recv().await.unwrap();
        let asked = runtime.cancel(Target::Batch { session: "s", key: "b" }, None).await;
        match asked {
            Ok(asked) => assert!(acknowledged && asked.asked == 1, "{fault:?}: {asked:?}"),
            Err(AskError::Batch(BatchError::Lost(_))) => assert!(!acknowledged, "{fault:?}"),
            Err(error) => panic!("{fault:?}: {error}"),
        }
    }
}
