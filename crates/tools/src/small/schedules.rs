//! `create_schedule`, `list_schedules`, `cancel_schedule`: calls at times, made by the model.

use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use windlass::schedules::{NewSchedule, Schedule};
use windlass::tool::{Hints, ToolSource};
use windlass::{Cx, EffectClass, Tool, ToolError, ToolFuture, ToolSpec};

/// The three tools.
pub(super) fn tools() -> Vec<Arc<dyn Tool>> {
    let tools = [ScheduleTool::Cancel, ScheduleTool::Create, ScheduleTool::List];
    tools.map(|tool| Arc::new(tool) as Arc<dyn Tool>).into()
}

/// A tool for schedules.
#[derive(Clone, Copy)]
enum ScheduleTool {
    Create,
    List,
    Cancel,
}

impl Tool for ScheduleTool {
    fn spec(&self) -> ToolSpec {
        let (name, title, about, properties, required) = match self {
            ScheduleTool::Create => (
                "create_schedule",
                "Create a schedule",
                "Calls a tool at a time, or again and again: give cron (minute hour day month weekday) or at, a single time. The \
                 tool must be one that may run in the background. You get a notice when a call ends.",
                json!({
                    "tool": { "type": "string", "minLength": 1, "description": "The tool to call." },
                    "args": { "type": "object", "description": "Its arguments." },
                    "cron": { "type": "string", "description": "Five fields, such as 0 9 * * 1 for Mondays at nine." },
                    "at": { "type": "string", "description": "One time instead, such as 2026-01-31T09:30:00." },
                    "timezone": { "type": "string", "description": "An IANA zone, such as Europe/Berlin; UTC by default." },
                    "title": { "type": "string", "maxLength": 200, "description": "A title for people." },
                }),
                json!(["tool"]),
            ),
            ScheduleTool::List => (
                "list_schedules",
                "List schedules",
                "Lists the session's schedules: what they call, when, and when next.",
                json!({}),
                json!([]),
            ),
            ScheduleTool::Cancel => (
                "cancel_schedule",
                "Cancel a schedule",
                "Removes a schedule of the session. Calls that it has started go on.",
                json!({ "id": { "type": "string", "minLength": 1, "description": "The id of the schedule." } }),
                json!(["id"]),
            ),
        };
        let reads = matches!(self, ScheduleTool::List);
        ToolSpec {
            name: name.into(),
            title: title.into(),
            description: about.into(),
            input_schema: Some(json!({
                "type": "object", "properties": properties, "required": required, "additionalProperties": false,
            })),
            class: Some(if reads { EffectClass::Read } else { EffectClass::Stepped }),
            hints: Hints { read_only: Some(reads), open_world: Some(false), ..Hints::default() },
            claims: Some(vec![if reads { "read schedules".into() } else { "write schedules".into() }]),
            category: "schedules".into(),
            source: ToolSource::BuiltIn,
            ..ToolSpec::default()
        }
    }

    fn run<'a>(&'a self, args: Value, cx: &'a Cx) -> ToolFuture<'a> {
        Box::pin(async move {
            let told = match self {
                ScheduleTool::Create => create(cx, super::parse(args)?).await?,
                ScheduleTool::List => {
                    let all = cx.schedules()?.list().await?;
                    json!({ "schedules": all.iter().map(shown).collect::<Vec<_>>() })
                }
                ScheduleTool::Cancel => {
                    let CancelScheduleArgs { id } = super::parse(args)?;
                    let cancelled = cx.remove_schedule("cancel", &id).await?;
                    json!({ "id": id, "exists": cancelled, "cancelled": cancelled })
                }
            };
            Ok(told.into())
        })
    }
}

async fn create(cx: &Cx, args: CreateScheduleArgs) -> Result<Value, ToolError> {
    let CreateScheduleArgs { tool, args, cron, at, timezone, title } = args;
    if cron.is_some() == at.is_some() {
        return Err(ToolError::new("give cron for many times, or at for one, and not both"));
    }
    let new = NewSchedule { tool, args, cron, at, zone: timezone, title, ..NewSchedule::default() };
    let id = cx.schedule("create", new).await?;
    Ok(match cx.schedules()?.get(&id).await {
        Ok(schedule) => shown(&schedule),
        // Its only time may be over by now.
        Err(_) => json!({ "id": id }),
    })
}

fn shown(schedule: &Schedule) -> Value {
    json!({
        "id": schedule.id,
        "tool": schedule.tool,
        "title": schedule.title,
        "cron": schedule.cron,
        "at": schedule.at,
        "zone": schedule.zone,
        "enabled": schedule.enabled,
        "next": schedule.next,
    })
}

#[derive(Deserialize)]
struct CreateScheduleArgs {
    tool: String,
    #[serde(default = "no_args")]
    args: Value,
    cron: Option<String>,
    at: Option<String>,
    timezone: Option<String>,
    title: Option<String>,
}

fn no_args() -> Value {
    json!({})
}

#[derive(Deserialize)]
struct CancelScheduleArgs {
    id: String,
}
