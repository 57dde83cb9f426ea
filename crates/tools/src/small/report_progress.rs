//! `report_progress`: tells people and programs how far the agent is, as a notice of the session.

use serde::Deserialize;
use serde_json::{Value, json};
use windlass::catalog::Deferral;
use windlass::tasks::{NewNotice, Urgency};
use windlass::tool::{Hints, ToolSource};
use windlass::{Cx, EffectClass, Tool, ToolFuture, ToolSpec};

/// A tool that reports progress.
pub(super) struct ReportProgress;

impl Tool for ReportProgress {
    fn spec(&self) -> ToolSpec {
        let fields = json!({
            "status": { "enum": ["progress", "blocked", "completed"], "description": "How it goes: progress, blocked by something, or completed." },
            "summary": { "type": "string", "minLength": 1, "maxLength": 500, "description": "One sentence for people." },
            "details": { "type": "string", "maxLength": 10_000, "description": "Details, if they help." },
        });
        ToolSpec {
            name: "report_progress".into(),
            title: "Report progress".into(),
            description: "Reports how far the work is: that it goes on, that it is blocked, or that it is completed. Use it after \
                each larger step of a long task; people read it."
                .into(),
            input_schema: Some(json!({
                "type": "object",
                "properties": fields,
                "required": ["status", "summary"],
                "additionalProperties": false,
            })),
            output_schema: Some(json!({
                "type": "object",
                "properties": {
                    "status": { "type": "string" }, "summary": { "type": "string" }, "details": { "type": "string" },
                },
                "required": ["status", "summary"],
            })),
            class: Some(EffectClass::Stepped),
            hints: Hints { read_only: Some(false), open_world: Some(false), ..Hints::default() },
            claims: Some(Vec::new()),
            deferral: Deferral::Auto,
            category: "todos".into(),
            source: ToolSource::BuiltIn,
            ..ToolSpec::default()
        }
    }

    fn run<'a>(&'a self, args: Value, cx: &'a Cx) -> ToolFuture<'a> {
        Box::pin(async move {
            let ProgressArgs { status, summary, details } = super::parse(args.clone())?;
            let text = match &details {
                Some(details) => format!("{summary}\n\n{details}"),
                None => summary.clone(),
            };
            // The agent that reports needs no reminder, but somebody has to look at a blocked one.
            let urgency = if status == "blocked" { Urgency::WhenIdle } else { Urgency::Silent };
            let notice =
                NewNotice { title: format!("{status}: {summary}"), text, urgency, priority: 0, key: None };
            cx.notify("notice", notice).await?;
            cx.status(&summary);
            Ok(args.into())
        })
    }
}

#[derive(Deserialize)]
struct ProgressArgs {
    status: String,
    summary: String,
    details: Option<String>,
}
