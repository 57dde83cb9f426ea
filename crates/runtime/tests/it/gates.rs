//! A tool whose calls begin when they may and end when the test says so.

use crate::rig::config;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use tokio::sync::{Notify, mpsc};
use windlass::{BatchRequest, Cx, Runtime, Tool, ToolSpec, tool_fn};

/// The calls of gated tools.
#[derive(Clone, Default)]
pub struct Gates(Arc<Mutex<HashMap<String, Arc<Notify>>>>);

/// The calls that have begun, in order.
pub type Begun = mpsc::UnboundedReceiver<String>;
type Begins = mpsc::UnboundedSender<String>;

impl Gates {
    /// Lets the call of this id end.
    pub fn open(&self, id: &str) {
        self.of(id).notify_one();
    }

    fn of(&self, id: &str) -> Arc<Notify> {
        self.0.lock().unwrap().entry(id.to_string()).or_default().clone()
    }

    pub fn tool(&self, spec: ToolSpec, begins: &Begins) -> impl Tool + use<> {
        let (gates, begins) = (self.clone(), begins.clone());
        tool_fn(spec, move |args, cx: &Cx| {
            let gate = gates.of(cx.id());
            begins.send(cx.id().to_string()).unwrap();
            async move {
                gate.notified().await;
                Ok(args.into())
            }
        })
    }
}

/// Registers gated tools.
pub fn gated(runtime: &Runtime, specs: impl IntoIterator<Item = ToolSpec>) -> (Gates, Begun) {
    let (gates, (begins, begun)) = (Gates::default(), mpsc::unbounded_channel());
    for spec in specs {
        runtime.register(gates.tool(spec, &begins)).unwrap();
    }
    (gates, begun)
}

/// The next calls that begin, sorted: those that may run together begin in any order.
pub async fn next(begun: &mut Begun, count: usize) -> String {
    let mut ids = Vec::new();
    for _ in 0..count {
        ids.push(begun.recv().await.unwrap());
    }
    ids.sort();
    ids.join(" ")
}

/// Submits a batch on the folder and waits until so many of its calls have begun. Then their owner is gone, as it would
/// be after a kill.
pub async fn left_running(
    folder: &Arc<tempfile::TempDir>,
    specs: Vec<ToolSpec>,
    asked: BatchRequest,
    count: usize,
) -> String {
    let folder = folder.clone();
    let dying = tokio::task::spawn_blocking(move || {
        let owner =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let began = owner.block_on(async {
            let runtime = Runtime::new(config(&folder));
            let (_gates, mut begun) = gated(&runtime, specs);
            drop(runtime.submit("s", asked).await.unwrap());
            next(&mut begun, count).await
        });
        owner.shutdown_timeout(std::time::Duration::from_secs(5));
        began
    });
    dying.await.unwrap()
}
