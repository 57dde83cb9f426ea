//! The model's tools for a large catalog: `search_tools` finds and reveals, `call_tool` calls by name.

use crate::api::answer::CallAnswer;
use crate::api::misuse::Misuse;
use crate::api::output::{Output, ToolError};
use crate::features::catalog;
use crate::session::cx::Cx;
use crate::tools::tool::{Tool, ToolFuture};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use windlass_core::outcome::{Outcome, Success, Value as Kept};
use windlass_core::tool::{Deferral, EffectClass, Flags, Hints, ToolSpec};

/// The name of the tool that finds others.
pub(super) const SEARCH: &str = "search_tools";
/// The name of the tool that calls others.
pub(super) const CALL: &str = "call_tool";

/// Both of them.
pub(crate) fn all() -> [Arc<dyn Tool>; 2] {
    [Arc::new(SearchTools), Arc::new(CallTool)]
}

struct SearchTools;

#[derive(Deserialize)]
struct ToolQuestion {
    query: String,
}

impl Tool for SearchTools {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: SEARCH.to_string(),
            title: "Find tools".to_string(),
            description: "Finds tools by what they do, and shows how to call the best ones. Use it when no tool that you see \
                          fits: say in a few words what is to be done."
                .to_string(),
            input_schema: Some(json!({
                "type": "object",
                "properties": {"query": {"type": "string", "minLength": 1, "maxLength": 1_000, "description": "What the tool should do, or its name."}},
                "required": ["query"],
                "additionalProperties": false,
            })),
            class: Some(EffectClass::Read),
            hints: Hints {
                read_only: Some(true),
                destructive: Some(false),
                reads_private: Some(false),
                ingests_untrusted: Some(false),
                sends_out: Some(false),
                ..Hints::default()
            },
            flags: Flags { cpu_bound: true, polls: true, ..Flags::default() },
            claims: Some(Vec::new()),
            deferral: Deferral::Never,
            ..ToolSpec::default()
        }
    }

    fn run<'a>(&'a self, args: Value, cx: &'a Cx) -> ToolFuture<'a> {
        Box::pin(async move {
            let ToolQuestion { query } = read(args)?;
            let hold = cx.hold.upgrade().ok_or(Misuse::Over)?;
            let (rt, lane) = (&hold.rt, cx.artifacts.lane());
            let max = rt.limits.revealed_tools_max;
            let listed = rt.registry.list_in(&cx.batch.head.place);
            let found = catalog::search(rt, &cx.batch.head.place, &listed, &query).await;
            let known = catalog::revealed(lane.store(), lane.session(), max).await;
            let known = known.map_err(|error| ToolError::internal(error.to_string()))?;
            // Written with the end of this call: what the model has seen, it goes on seeing.
            cx.book().carry(catalog::rows(&known, &found, max))?;
            if found.is_empty() {
                return Ok(json!({"tools": [], "hint": "No tool fits these words. Try others."}).into());
            }
            Ok(json!({ "tools": found }).into())
        })
    }
}

struct CallTool;

#[derive(Deserialize)]
struct ToolChoice {
    tool: String,
    #[serde(default)]
    args: Map<String, Value>,
}

impl Tool for CallTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: CALL.to_string(),
            title: "Call a tool".to_string(),
            description: "Calls a tool that search_tools has found, with arguments that fit its schema."
                .to_string(),
            input_schema: Some(json!({
                "type": "object",
                "properties": {
                    "tool": {"type": "string", "minLength": 1, "maxLength": 64, "description": "The tool's name."},
                    "args": {"type": "object", "description": "Its arguments."},
                },
                "required": ["tool"],
                "additionalProperties": false,
            })),
            class: Some(EffectClass::Stepped),
            flags: Flags { stays_direct: true, ..Flags::default() },
            claims: Some(Vec::new()),
            deferral: Deferral::Never,
            ..ToolSpec::default()
        }
    }

    fn run<'a>(&'a self, args: Value, cx: &'a Cx) -> ToolFuture<'a> {
        Box::pin(async move {
            let ToolChoice { tool, args } = read(args)?;
            let answer = cx.call("call", &tool, args).await?;
            passed_on(&answer)
        })
    }
}

/// The result of the called tool as one's own. A value that is kept as an artifact is told as its caller is told.
fn passed_on(answer: &CallAnswer) -> Result<Output, ToolError> {
    match answer.call().outcome() {
        Some(Outcome::Succeeded(Success { value: Kept::Kept { .. }, .. })) => {
            Ok(json!(answer.model_text()).into())
        }
        Some(Outcome::Succeeded(Success { value: Kept::Inline(_), parts, side }))
            if !answer.is_conflict() =>
        {
            let control = side.as_ref().and_then(|side| side.control.as_deref());
            let control = control.and_then(|control| serde_json::from_str(control).ok());
            Ok(Output { value: answer.value()?, parts: parts.clone(), control, ..Output::default() })
        }
        _ => answer.value::<Value>().map(Output::from),
    }
}

fn read<T: serde::de::DeserializeOwned>(args: Value) -> Result<T, ToolError> {
    serde_json::from_value(args)
        .map_err(|error| ToolError::new(format!("The arguments do not fit: {error}.")))
}
