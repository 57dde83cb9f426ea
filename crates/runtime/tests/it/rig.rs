//! Shared by the tests: runtimes, small tools, batches, answers as text.

use serde_json::{Value, json};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;
use windlass::store::memory::MemoryStore;
use windlass::{
    Args, BatchAnswer, BatchRequest, CallRequest, Config, Cx, EffectClass, Flags, Output, Runtime, Tool,
    ToolError, ToolSpec, tool_fn,
};
use windlass_testkit::sqlite_in;

pub fn memory() -> Runtime {
    Runtime::new(Config::new(MemoryStore::new().unwrap()))
}

/// A runtime on SQLite, and the folder that goes with it.
pub fn sqlite() -> (Runtime, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    (reopen(&folder), folder)
}

/// A runtime on the folder, as soon as whoever owned it has let go of it.
pub fn reopen(folder: &tempfile::TempDir) -> Runtime {
    Runtime::new(config(folder))
}

/// The configuration of a runtime on the folder, as soon as the last owner has released it.
pub fn config(folder: &tempfile::TempDir) -> Config {
    Config::new(sqlite_in(folder.path()))
}

/// Submits the batch to the runtime that `make` makes on the folder, and waits until a [`hanging`] tool has begun.
/// Then its owner is gone, as it would be after a kill.
pub async fn die_in_an_attempt(
    folder: &Arc<tempfile::TempDir>,
    request: BatchRequest,
    make: impl FnOnce(Config, Begun) -> Runtime + Send + 'static,
) {
    let folder = folder.clone();
    let died = tokio::task::spawn_blocking(move || {
        let owner =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (begun, begins) = mpsc::channel();
        let runtime = {
            let _inside = owner.enter();
            make(config(&folder), begun)
        };
        owner.block_on(async { drop(runtime.submit("s", request).await.unwrap()) });
        begins.recv().unwrap();
        drop(runtime);
        owner.shutdown_timeout(Duration::from_secs(5));
    });
    died.await.unwrap();
}

/// Told when an attempt has begun.
pub type Begun = mpsc::Sender<()>;

/// A tool that begins and never returns.
pub fn hanging(spec: ToolSpec, begun: Begun) -> impl Tool {
    tool_fn(spec, move |_, _: &Cx| {
        begun.send(()).unwrap();
        std::future::pending()
    })
}

pub fn spec(name: &str, class: EffectClass) -> ToolSpec {
    ToolSpec { name: name.into(), class: Some(class), ..ToolSpec::default() }
}

pub fn quick(name: &str, class: EffectClass) -> ToolSpec {
    ToolSpec { flags: Flags { quick: true, ..Flags::default() }, ..spec(name, class) }
}

/// How often a tool ran.
#[derive(Clone, Default)]
pub struct Count(Arc<AtomicU32>);

impl Count {
    pub fn up(&self) -> u32 {
        self.0.fetch_add(1, Ordering::SeqCst) + 1
    }

    pub fn down(&self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }

    pub fn get(&self) -> u32 {
        self.0.load(Ordering::SeqCst)
    }
}

/// A tool that returns its arguments, and counts how often it ran.
pub fn echo(spec: ToolSpec, count: &Count) -> impl Tool + use<> {
    let count = count.clone();
    tool_fn(spec, move |args, _: &Cx| {
        count.up();
        async move { Ok(args.into()) }
    })
}

/// A tool that always returns the same.
pub fn returns(spec: ToolSpec, result: Result<Value, ToolError>) -> impl Tool {
    tool_fn(spec, move |_, _: &Cx| {
        let result = result.clone();
        async move { result.map(Output::from) }
    })
}

pub fn call(id: &str, tool: &str, args: Value) -> CallRequest {
    CallRequest { id: Some(id.into()), tool: tool.into(), args: Args::Json(args), ..CallRequest::default() }
}

pub fn batch(key: &str, calls: Vec<CallRequest>) -> BatchRequest {
    BatchRequest { key: Some(key.into()), calls, ..BatchRequest::default() }
}

pub async fn run(runtime: &Runtime, session: &str, batch: BatchRequest) -> BatchAnswer {
    runtime.submit(session, batch).await.unwrap().settled().await.unwrap()
}

/// One call in a batch of its own, and its answer as JSON without what differs from run to run.
pub async fn one(runtime: &Runtime, tool: &str, args: Value) -> Value {
    let key = windlass::batch::fresh_key().unwrap();
    let answer = run(runtime, "s", batch(&key, vec![call("c", tool, args)])).await;
    let mut shown = serde_json::to_value(&answer.calls[0]).unwrap();
    for changing in ["call", "queued_ms", "waited_ms", "ran_ms"] {
        shown.as_object_mut().unwrap().remove(changing);
    }
    shown
}

/// `id state` of each answer.
pub fn states(answer: &BatchAnswer) -> String {
    let calls = answer.calls.iter().map(|call| {
        let code = call.failure().map(|failure| format!("/{}", failure.code)).unwrap_or_default();
        format!("{} {}{code}", call.id(), call.state())
    });
    calls.collect::<Vec<_>>().join(", ")
}

pub fn n(value: u64) -> Value {
    json!({ "n": value })
}

/// A call's end, folded from the journal, and the model's view.
pub fn end(answer: &BatchAnswer) -> String {
    let call = &answer.calls[0];
    let shown = serde_json::to_value(call).unwrap();
    let effect =
        shown["outcome"]["effect"].as_str().map(|effect| format!("{{{effect}}}")).unwrap_or_default();
    format!("{}{effect}, {} attempts", states(answer), call.call().attempts)
}

/// Waits until an open call says that it waits for this, and names it.
pub async fn waits_for(runtime: &Runtime, what: &str) -> String {
    until_open(runtime, |open| {
        open.waiting_for.as_deref().is_some_and(|why| why.split(' ').next() == Some(what))
    })
    .await
}

/// Waits until an attempt runs, and names its call.
pub async fn until_runs(runtime: &Runtime) -> String {
    until_open(runtime, |open| open.state == "running").await
}

/// Waits until every call has ended, without asking for its answer.
pub async fn until_none_is_open(runtime: &Runtime) {
    while !runtime.open().await.unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
}

async fn until_open(runtime: &Runtime, found: impl Fn(&windlass::inspect::OpenCall) -> bool) -> String {
    loop {
        if let Some(open) = runtime.open().await.unwrap().iter().find(|open| found(open)) {
            return open.call.clone();
        }
        tokio::task::yield_now().await;
    }
}
