//! Taking over what another worker left: the order of effects holds across the change.

use std::sync::Arc;
use windlass::{Args, BatchRequest, CallRequest, Config, Deadlines, Limits, Runtime, ToolSpec, tool_fn};
use windlass_core::call::Fact;
use windlass_core::entry::{self, EntryEvent};
use windlass_store::{MemoryStore, Store};

fn runtime(store: &Arc<dyn Store>) -> Runtime {
    Runtime::new(Config::on(store.clone()))
}

fn batch() -> BatchRequest {
    let call = |id: &str| CallRequest {
        id: Some(id.into()),
        tool: "work".into(),
        args: Args::Json(serde_json::json!({})),
        ..CallRequest::default()
    };
    BatchRequest { key: Some("b".into()), calls: vec![call("cut"), call("next")], ..BatchRequest::default() }
}

/// The call that was cut may have taken effect, so it keeps its claim until its end is in the journal.
#[tokio::test(flavor = "multi_thread")]
async fn the_next_call_starts_behind_the_end_of_the_one_that_was_cut() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new().unwrap());
    let first = runtime(&store);
    let (started, mut starts) = tokio::sync::mpsc::unbounded_channel();
    let spec = || ToolSpec { name: "work".into(), ..ToolSpec::default() };
    let hangs = tool_fn(spec(), move |_, _| {
        let _running = started.send(());
        std::future::pending()
    });
    first.register(hangs).unwrap();
    let _left = first.submit("s", batch()).await.unwrap();
    starts.recv().await.unwrap();

    let second = runtime(&store);
    second.register(tool_fn(spec(), |_, _| async { Ok(serde_json::json!("done").into()) })).unwrap();
    let answer = second.submit("s", batch()).await.unwrap().settled().await.unwrap();
    let states: Vec<&str> = answer.calls.iter().map(|call| call.state()).collect();
    assert_eq!(states, ["unknown", "succeeded"]);

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
    assert_eq!(story, ["0 starts", "0 ends", "1 starts", "1 ends"]);
}

/// How long a call may wait for its turn its tool says; that it was taken over before that was recorded is no reason to
/// give it up by the usual time.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_was_not_prepared_waits_as_long_as_its_tool_says() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new().unwrap());
    let first = runtime(&store);
    let (started, mut starts) = tokio::sync::mpsc::unbounded_channel();
    let deadlines = Deadlines { queue_ms: Some(600_000), ..Deadlines::default() };
    let spec = || ToolSpec { name: "work".into(), deadlines, ..ToolSpec::default() };
    let hangs = tool_fn(spec(), move |_, _| {
        let _running = started.send(());
        std::future::pending()
    });
    first.register(hangs).unwrap();
    let _left = first.submit("s", batch()).await.unwrap();
    starts.recv().await.unwrap();

    let limits = Limits { queue_ms: 0, ..Limits::default() };
    let second = Runtime::new(Config { limits, ..Config::on(store.clone()) });
    second.register(tool_fn(spec(), |_, _| async { Ok(serde_json::json!("done").into()) })).unwrap();
    let answer = second.submit("s", batch()).await.unwrap().settled().await.unwrap();
    let states: Vec<&str> = answer.calls.iter().map(|call| call.state()).collect();
    assert_eq!(states, ["unknown", "succeeded"]);
}
