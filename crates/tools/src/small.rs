//! The small built-in tools, one file each.

mod arithmetic;
mod echo;
mod fail;
mod get_current_time;
mod kv;
mod read_artifact;
mod report_progress;
mod schedules;
mod sleep;
mod weather;
mod write_todos;

use serde::de::DeserializeOwned;
use serde_json::Value;
use std::sync::Arc;
use windlass::error::FailureClass;
use windlass::tool::Hints;
use windlass::{Cx, Output, Tool, ToolError, ToolFuture, ToolSpec};

/// The tool that answers name, whatever is chosen.
pub(crate) fn always() -> Vec<Arc<dyn Tool>> {
    vec![Arc::new(read_artifact::ReadArtifact)]
}

/// The group `time`.
pub(crate) fn time() -> Vec<Arc<dyn Tool>> {
    vec![Arc::new(get_current_time::GetCurrentTime { now: std::time::SystemTime::now })]
}

/// The group `todos`.
pub(crate) fn todos() -> Vec<Arc<dyn Tool>> {
    vec![Arc::new(report_progress::ReportProgress), Arc::new(write_todos::WriteTodos)]
}

/// The group `demo`.
pub(crate) fn demo() -> Vec<Arc<dyn Tool>> {
    vec![
        Arc::new(PlainTool { spec: arithmetic::add, run: arithmetic::run_add }),
        Arc::new(PlainTool { spec: arithmetic::divide, run: arithmetic::run_divide }),
        Arc::new(PlainTool { spec: echo::spec, run: echo::run }),
        Arc::new(PlainTool { spec: fail::spec, run: fail::run }),
        Arc::new(PlainTool { spec: weather::forecast, run: weather::run_forecast }),
        Arc::new(PlainTool { spec: weather::weather, run: weather::run_weather }),
        Arc::new(PlainTool { spec: arithmetic::multiply, run: arithmetic::run_multiply }),
        Arc::new(sleep::SleepTool),
        Arc::new(PlainTool { spec: arithmetic::subtract, run: arithmetic::run_subtract }),
    ]
}

/// The hints of a tool that only computes.
const HARMLESS: Hints = Hints {
    read_only: Some(true),
    destructive: Some(false),
    idempotent: None,
    open_world: Some(false),
    requires_secrets: None,
    long_running: None,
    reads_private: Some(false),
    ingests_untrusted: Some(false),
    sends_out: Some(false),
};
/// The group `kv`.
pub(crate) fn pairs() -> Vec<Arc<dyn Tool>> {
    kv::tools()
}

/// The group `schedules`.
pub(crate) fn schedules() -> Vec<Arc<dyn Tool>> {
    schedules::tools()
}

/// A tool that needs only its arguments.
struct PlainTool {
    spec: fn() -> ToolSpec,
    run: fn(Value) -> Result<Value, ToolError>,
}

impl Tool for PlainTool {
    fn spec(&self) -> ToolSpec {
        (self.spec)()
    }

    fn run<'a>(&'a self, args: Value, _cx: &'a Cx) -> ToolFuture<'a> {
        Box::pin(async move { (self.run)(args).map(Output::from) })
    }
}

/// The arguments as a type. They fit the schema, so this fails only where a type is stricter than a schema can be.
pub(crate) fn parse<T: DeserializeOwned>(args: Value) -> Result<T, ToolError> {
    serde_json::from_value(args).map_err(|error| ToolError {
        class: FailureClass::InvalidRequest,
        did_not_happen: true,
        ..ToolError::new(format!("the arguments do not fit: {error}; see the input schema"))
    })
}
