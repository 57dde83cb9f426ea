//! `windlass questions`: lists open questions.

use crate::args::QuestionsArgs;
use crate::door::{At, Door};
use crate::show;
use serde_json::{Value, json};
use std::process::ExitCode;

pub async fn questions(at: &At, args: QuestionsArgs) -> anyhow::Result<ExitCode> {
    let door = Door::look(at).await?;
    let items = door.questions(args.session.as_deref()).await?;
    if args.json {
        show::json(&json!({"items": items, "next": null}))?;
        return Ok(ExitCode::SUCCESS);
    }
    let text = |question: &Value, field: &str| question[field].as_str().unwrap_or_default().to_string();
    let rows = items.iter().map(|question| {
        vec![
            show::short_handle(&text(question, "id")),
            text(question, "session"),
            text(question, "tool"),
            show::short_handle(&text(question, "call")),
            text(question, "until"),
            text(question, "question"),
        ]
    });
    show::table(&["ID", "SESSION", "TOOL", "CALL", "UNTIL", "QUESTION"], rows)?;
    Ok(ExitCode::SUCCESS)
}
