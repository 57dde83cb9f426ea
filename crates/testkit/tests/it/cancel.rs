//! Requests about calls are acknowledged when they are durable, and not before.

use serde_json::json;
use std::sync::Arc;
use windlass::ask::Target;
use windlass::error::{AskError, SessionError};
use windlass::store::memory::MemoryStore;
use windlass::{
    Args, BatchRequest, CallRequest, Config, Cx, EffectClass, Flags, Runtime, Tool, ToolFuture, ToolSpec,
    tool_fn,
};
use windlass_core::call::Fact;
use windlass_core::entry::{self, EntryEvent};
use windlass_store::Store;
use windlass_testkit::fault_store::{Fault, FaultPlan, FaultReach, FaultStore, Method};

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

fn call(id: &str, tool: &str) -> CallRequest {
    let args = Args::Json(json!({}));
    CallRequest { id: Some(id.into()), tool: tool.into(), args, ..CallRequest::default() }
}

fn batch(calls: Vec<CallRequest>) -> BatchRequest {
    BatchRequest { key: Some("b".into()), calls, ..BatchRequest::default() }
}

/// A call behind one that is cancelled while it waits may start when that one's end is in the journal: a
/// crash before that would run it after later calls.
#[tokio::test(flavor = "multi_thread")]
async fn who_is_cancelled_in_the_queue_keeps_its_place_until_its_end_is_recorded() {
    for _ in 0..20 {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new().unwrap());
        let runtime = Runtime::new(Config::on(store.clone()));
        let (running, mut runs) = tokio::sync::mpsc::unbounded_channel();
        runtime.register(Obeys(running)).unwrap();
        let done = |name: &str, class| {
            let flags = Flags { quick: true, ..Flags::default() };
            let spec = ToolSpec { name: name.into(), class: Some(class), flags, ..ToolSpec::default() };
            tool_fn(spec, |_, _| async { Ok(json!("done").into()) })
        };
        runtime.register(done("writes", EffectClass::Once)).unwrap();
        runtime.register(done("reads", EffectClass::Read)).unwrap();
        let calls = vec![call("holds", "obeys"), call("waits", "writes"), call("behind", "reads")];
        let submitted = runtime.submit("s", batch(calls)).await.unwrap();
        runs.recv().await.unwrap();
        let waits = runtime.open().await.unwrap().into_iter().find(|open| open.id == "waits").unwrap();
        // It joins who reads before it, once nobody stands between them.
        let cancelled = runtime.cancel(Target::Call(&waits.call), None).await.unwrap();
        assert_eq!(cancelled.asked, 1);
        runtime.cancel(Target::Session("s"), None).await.unwrap();
        let answer = submitted.settled().await.unwrap();
        assert_eq!(answer.calls[1].state(), "cancelled");
        let story = story(&store).await;
        let place = |what: &str| story.iter().position(|told| told == what);
        if let Some(starts) = place("2 starts") {
            assert!(place("1 ends").is_some_and(|ends| ends < starts), "{story:?}");
        }
    }
}

/// The starts and ends of the calls of the session, in the order of its journal.
async fn story(store: &Arc<dyn Store>) -> Vec<String> {
    let session = store.session("s").await.unwrap().unwrap();
    let mut story = Vec::new();
    for row in store.history(session.no, None, 100).await.unwrap().iter().rev() {
        for entry in entry::unpack(&row.data).unwrap() {
            match entry.event {
                EntryEvent::Call { ordinal, fact: Fact::Started(_) } => {
                    story.push(format!("{ordinal} starts"))
                }
                EntryEvent::Call { ordinal, fact: Fact::Ended(_) } => story.push(format!("{ordinal} ends")),
                EntryEvent::Call { .. }
                | EntryEvent::Batch(_)
                | EntryEvent::Closed(_)
                | EntryEvent::Answered(_)
                | EntryEvent::ClockMoved(_) => {}
            }
        }
    }
    story
}

/// Nothing of a call that only reads is recorded while it runs: that it is to stop is durable with its end.
#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_that_could_not_be_recorded_is_not_acknowledged() {
    for (fault, acknowledged) in
        [(None, true), (Some(Fault::FailBefore), false), (Some(Fault::LostBefore), false)]
    {
        let plan = fault.map_or(FaultPlan::Never, |fault| FaultPlan::Nth(Method::Commit, 1, fault));
        let inner: Arc<dyn Store> = Arc::new(MemoryStore::new().unwrap());
        let store = Arc::new(FaultStore::new(inner, plan, FaultReach::Store));
        let runtime = Runtime::new(Config::on(store));
        let (running, mut runs) = tokio::sync::mpsc::unbounded_channel();
        runtime.register(Obeys(running)).unwrap();
        let _under_way = runtime.submit("s", batch(vec![call("c", "obeys")])).await.unwrap();
        runs.recv().await.unwrap();
        let asked = runtime.cancel(Target::Batch { session: "s", key: "b" }, None).await;
        match asked {
            Ok(asked) => assert!(acknowledged && asked.asked == 1, "{fault:?}: {asked:?}"),
            Err(AskError::Session(SessionError::Lost(_))) => assert!(!acknowledged, "{fault:?}"),
            Err(error) => panic!("{fault:?}: {error}"),
        }
    }
}
