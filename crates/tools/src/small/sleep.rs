//! `sleep`: waits.

use super::HARMLESS;
use serde::Deserialize;
use serde_json::{Value, json};
use std::time::Duration;
use windlass::tool::ToolSource;
use windlass::{Cx, EffectClass, Tool, ToolError, ToolFuture, ToolSpec};

/// A tool that waits.
pub(super) struct SleepTool;

/// Longer than any test needs, and short enough to end by itself.
const SLEEP_MS_MAX: u64 = 600_000;

impl Tool for SleepTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "sleep".into(),
            title: "Sleep".into(),
            description:
                "Waits for a time, for trying out what happens to slow calls. Ends early when it is stopped."
                    .into(),
            input_schema: Some(json!({
                "type": "object",
                "properties": {
                    "ms": {
                        "type": "integer",
                        "minimum": 0,
                        "maximum": SLEEP_MS_MAX,
                        "description": "How long to wait, in milliseconds.",
                    },
                },
                "required": ["ms"],
                "additionalProperties": false,
            })),
            output_schema: Some(json!({
                "type": "object",
                "properties": { "slept_ms": { "type": "integer" } },
                "required": ["slept_ms"],
            })),
            class: Some(EffectClass::Read),
            hints: HARMLESS,
            source: ToolSource::BuiltIn,
            ..ToolSpec::default()
        }
    }

    fn run<'a>(&'a self, args: Value, cx: &'a Cx) -> ToolFuture<'a> {
        Box::pin(async move {
            let SleepArgs { ms } = super::parse(args)?;
            let ms = ms.min(SLEEP_MS_MAX);
            tokio::select! {
                biased;
                () = tokio::time::sleep(Duration::from_millis(ms)) => Ok(json!({ "slept_ms": ms }).into()),
                () = cx.stopping() => Err(ToolError::stopped()),
            }
        })
    }
}

#[derive(Deserialize)]
struct SleepArgs {
    ms: u64,
}
