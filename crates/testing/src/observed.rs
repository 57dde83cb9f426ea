//! A tool that notes each run of its body.

use serde_json::Value;
use std::sync::{Arc, Mutex, PoisonError};
use windlass::tool::{Claims, Dedupe, PrepareCx, PrepareFuture, Reconcile};
use windlass::{Cx, Tool, ToolError, ToolFuture, ToolSpec};

/// One run of a tool's body: an attempt, or its replay after a wait or a restart.
#[derive(Clone, Debug, PartialEq)]
pub struct ObservedRun {
    /// The handle of the call.
    pub call: String,
    /// The attempt, from 1.
    pub attempt: u32,
    /// The arguments.
    pub args: Value,
    /// The idempotency key that the tool could send on.
    pub key: String,
}

/// The runs of all tools, in their order.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunLog(Arc<Mutex<Vec<ObservedRun>>>);

impl RunLog {
    fn note(&self, run: ObservedRun) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(run);
    }

    /// The runs of a call.
    pub(crate) fn of(&self, call: &str) -> Vec<ObservedRun> {
        let runs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        runs.iter().filter(|run| run.call == call).cloned().collect()
    }
}

/// A tool with its runs noted; everything else is the tool's own.
pub(crate) struct ObservedTool<T> {
    pub(crate) tool: Arc<T>,
    pub(crate) runs: RunLog,
}

impl<T: Tool> Tool for ObservedTool<T> {
    fn spec(&self) -> ToolSpec {
        self.tool.spec()
    }

    fn run<'a>(&'a self, args: Value, cx: &'a Cx) -> ToolFuture<'a> {
        self.runs.note(ObservedRun {
            call: cx.handle().to_string(),
            attempt: cx.attempt().0,
            args: args.clone(),
            key: cx.idempotency_key(),
        });
        self.tool.run(args, cx)
    }

    fn prepare<'a>(&'a self, args: &'a Value, cx: &'a PrepareCx<'a>) -> Option<PrepareFuture<'a>> {
        self.tool.prepare(args, cx)
    }

    fn claims(&self, args: &Value) -> Option<Result<Claims, ToolError>> {
        self.tool.claims(args)
    }

    fn dedupe(&self, args: &Value) -> Option<Dedupe> {
        self.tool.dedupe(args)
    }

    fn asks(&self, args: &Value) -> bool {
        self.tool.asks(args)
    }

    fn reconciler(&self) -> Option<&dyn Reconcile> {
        self.tool.reconciler()
    }
}
