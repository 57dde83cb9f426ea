//! The tools of a world: each tells the truth what it runs with, before it does anything else.

use super::chances::{OUTER, schema};
use super::truth::{SeenExecution, ToolTruth, Truth};
use serde_json::{Value, json};
use std::any::Any;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use windlass::batch::NestedBatch;
use windlass::grants::GrantToken;
use windlass::tool::{BoundContent, BoundFuture, Claims, PrepareCx};
use windlass::{
    Args, CallRequest, Cx, Deadlines, Flags, Limits, Output, Tool, ToolError, ToolFuture, ToolSpec,
};

/// Longer than the time that passes in a world.
const LONG_MS: u64 = 86_400_000;

/// The truth, as tools and driver share it.
#[derive(Clone, Default)]
pub struct SharedTruth(Arc<Mutex<Truth>>);

impl SharedTruth {
    /// The truth now.
    pub fn now(&self) -> MutexGuard<'_, Truth> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A tool of a world.
pub struct HostileTool {
    /// As it is registered.
    pub truth: ToolTruth,
    /// The truth, which is told of its executions.
    pub seen: SharedTruth,
}

impl Tool for HostileTool {
    fn spec(&self) -> ToolSpec {
        let ToolTruth { name, id, source, class, hints, approval, has_schema, version, .. } =
            self.truth.clone();
        ToolSpec {
            name,
            id,
            source,
            class: Some(class),
            hints,
            approval,
            input_schema: has_schema.then(schema),
            version: version.to_string(),
            // Time passes by hours here, and nobody is late.
            deadlines: Deadlines {
                queue_ms: Some(LONG_MS),
                attempt_ms: Some(LONG_MS),
                silence_ms: Some(LONG_MS),
                total_ms: Some(LONG_MS),
            },
            // In the driver's own thread: nothing comes between the last look at the policy and the execution.
            flags: Flags { quick: true, ..Flags::default() },
            ..ToolSpec::default()
        }
    }

    fn run<'a>(&'a self, args: Value, cx: &'a Cx) -> ToolFuture<'a> {
        let (call, tool) = (cx.handle().to_string(), &self.truth);
        // It runs the content that was approved, if it was: that is what a hold on it is for.
        let bound = cx.approved::<u32>().map(|content| *content);
        let (session, turn, binding) = (cx.session(), cx.turn(), cx.binding());
        let binding = binding.as_ref();
        let seen = SeenExecution { call: &call, session, turn, tool, args: &args, bound, binding };
        self.seen.now().executed(&seen);
        Box::pin(async move {
            if tool.name != OUTER {
                return Ok(Output::from(args));
            }
            let call = CallRequest {
                tool: args["tool"].as_str().unwrap_or_default().to_owned(),
                args: Args::Json(args["args"].clone()),
                grant: args["grant"].as_str().map(GrantToken::given),
                ..CallRequest::default()
            };
            let inner = NestedBatch { calls: vec![call], ..NestedBatch::default() };
            let inner = cx.batch("inner", inner).await?;
            Ok(json!({"inner": inner.calls[0].state()}).into())
        })
    }

    /// Calls with a lane wait for each other, all others for nobody.
    fn claims(&self, args: &Value) -> Option<Result<Claims, ToolError>> {
        let lane = args["lane"].as_u64().map(|lane| format!("write lane{lane}"));
        let claims = Claims::parse(lane.as_deref(), &Limits::default().call());
        Some(claims.map_err(|error| ToolError::internal(error.to_string())))
    }

    fn asks(&self, args: &Value) -> bool {
        self.truth.asks(args)
    }

    fn bound<'a>(&'a self, _: &'a Value, _: &'a PrepareCx<'a>) -> Option<BoundFuture<'a>> {
        self.truth.is_bound.then(|| {
            let content = self.seen.now().bound.get(&self.truth.name).copied().unwrap_or_default();
            let (fixed, held): (_, Arc<dyn Any + Send + Sync>) =
                (content.to_le_bytes().to_vec(), Arc::new(content));
            let bound = BoundContent { fixed, held: Some(held), ..BoundContent::default() };
            Box::pin(async move { Ok(bound) }) as BoundFuture<'a>
        })
    }
}
