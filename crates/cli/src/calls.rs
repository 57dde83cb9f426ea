//! `windlass calls`: lists open and recorded calls.

use crate::args::CallsArgs;
use crate::door::{At, Door};
use crate::{exit, show, tools};
use serde_json::{Value, json};
use std::process::ExitCode;
use windlass::tool::Progress;
use windlass_core::redact::{RedactedArgs, SecretNames};
use windlass_server::wire::{CallQuery, LIMIT_MAX, StateFilter};

pub async fn calls(at: &At, args: CallsArgs) -> anyhow::Result<ExitCode> {
    let door = Door::look(at).await?;
    let Some(call) = &args.call else { return list(&door, &args).await };
    let call = door.call(&door.find(call).await?, args.journal).await?;
    match (args.json, args.journal) {
        (true, _) => show::json(&call)?,
        (false, true) => show_story(&call)?,
        (false, false) => show_facts(&call, &secret_names(at, &call).await)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The arguments of a call that its tool declares as secret; arguments named like secrets always are.
async fn secret_names(at: &At, call: &Value) -> SecretNames {
    let tools = tools::all(at).await.unwrap_or_default();
    let tool = tools.iter().find(|tool| tool["name"] == call["tool"]);
    SecretNames::of(tool.and_then(|tool| tool.get("input_schema")))
}

async fn list(door: &Door, args: &CallsArgs) -> anyhow::Result<ExitCode> {
    let (mut items, mut unreadable) = (Vec::new(), Vec::new());
    let mut next = match &args.after {
        Some(after) => Some(door.find(after).await?),
        None => None,
    };
    loop {
        let limit = (args.limit - items.len() as u64).min(LIMIT_MAX);
        let state = args.state.as_deref().and_then(StateFilter::parse);
        let waiting = args.waiting.then_some(true);
        let (tool, turn) = (args.tool.clone(), args.turn.clone());
        let list = CallQuery { state, waiting, tool, turn, limit: Some(limit), after: next };
        let mut page = door.calls(args.session.as_deref(), &list).await?;
        items.extend(page["items"].as_array_mut().map(std::mem::take).unwrap_or_default());
        unreadable.extend(page["unreadable"].as_array_mut().map(std::mem::take).unwrap_or_default());
        next = page["next"].as_str().map(str::to_string);
        if next.is_none() || items.len() as u64 >= args.limit {
            break;
        }
    }
    // Newest request first: the store orders calls by their first write.
    items.sort_by(|a, b| b["opened_at"].as_str().cmp(&a["opened_at"].as_str()));
    unreadable.dedup();
    for session in &unreadable {
        let (name, what) = (text(&session["session"]), text(&session["what"]));
        crate::logs::tell!("the calls of session {name} are not shown: {what}");
    }
    if args.json {
        show::json(&json!({"items": items, "next": next}))?;
    } else {
        show_list(&items)?;
        if next.is_some() {
            crate::logs::tell!(
                "there are more calls; use --limit {} to see more",
                args.limit.saturating_mul(4)
            );
        }
    }
    Ok(if unreadable.is_empty() { ExitCode::SUCCESS } else { exit::folder() })
}

fn show_list(calls: &[Value]) -> anyhow::Result<()> {
    let waiting = calls.iter().any(|call| call["waiting_for"].is_string());
    let mut headings = vec!["CALL", "SESSION", "ID", "TOOL", "STATE", "ATTEMPTS", "RAN", "ASKED FOR"];
    if waiting {
        headings.insert(5, "WAITS FOR");
    }
    let rows = calls.iter().map(|call| {
        let mut row = vec![
            show::short_handle(text(&call["call"])),
            text(&call["session"]).to_string(),
            text(&call["id"]).to_string(),
            text(&call["tool"]).to_string(),
            text(&call["state"]).to_string(),
            call["attempts"].to_string(),
            ms(&call["ran_ms"]),
            text(&call["opened_at"]).to_string(),
        ];
        if waiting {
            row.insert(5, text(&call["waiting_for"]).to_string());
        }
        row
    });
    show::table(&headings, rows)
}

fn show_story(call: &Value) -> anyhow::Result<()> {
    let lines = call["journal"].as_array().map(Vec::as_slice).unwrap_or_default();
    if lines.is_empty() {
        return show::text("nothing is recorded yet: a call of class read is recorded with its result");
    }
    let mut headings = vec!["ENTRY", "TIME", "AFTER", "FACT", "STORY"];
    let nested = lines.iter().any(|line| line["depth"].is_number());
    if nested {
        headings.insert(3, "CALL");
    }
    let rows = lines.iter().map(|line| {
        let mut row = vec![
            line["entry"].to_string(),
            text(&line["at"]).to_string(),
            format!("+{}", text(&line["after"])),
            text(&line["kind"]).to_string(),
            text(&line["text"]).to_string(),
        ];
        if nested {
            // Nested entries are indented below the entry that made them.
            let depth = line["depth"].as_u64().unwrap_or(0);
            let whose = line["call"].as_str().or(call["call"].as_str()).unwrap_or_default();
            let indent = "  ".repeat(usize::try_from(depth).unwrap_or_default());
            row.insert(3, format!("{indent}{}", show::short_handle(whose)));
        }
        row
    });
    show::table(&headings, rows)
}

/// Shows one call in full: the request, its course, the model's view, and the details only operators see.
fn show_facts(call: &Value, names: &SecretNames) -> anyhow::Result<()> {
    let mut facts = Vec::new();
    for (name, field) in
        [("call", "call"), ("session", "session"), ("batch", "batch"), ("id", "id"), ("tool", "tool")]
    {
        facts.push((name, text(&call[field]).to_string()));
    }
    if let Some(args) = call.get("args") {
        let shown = match args.as_str() {
            Some(text) => RedactedArgs::of_text(text, names),
            None => RedactedArgs::of(args.clone(), names),
        };
        let as_given = args.as_str().filter(|_| !shown.is_masked()).map(str::to_string);
        let shown = as_given
            .or_else(|| shown.value().as_str().map(str::to_string))
            .unwrap_or_else(|| shown.value().to_string());
        facts.push(("arguments", shown));
    }
    facts.push(("asked for", text(&call["opened_at"]).to_string()));
    facts.push(("state", text(&call["state"]).to_string()));
    facts.extend(call["waiting_for"].as_str().map(|waiting| ("waits for", waiting.to_string())));
    let progress = serde_json::from_value::<Progress>(call["progress"].clone()).ok();
    facts.extend(progress.map(|progress| ("progress", progress.to_string())));
    facts.extend(call["status"].as_str().map(|status| ("status", status.to_string())));
    facts.push(("attempts", call["attempts"].to_string()));
    facts.extend(call["parent"].as_str().map(|parent| ("inside", parent.to_string())));
    facts.extend(call["same_as"].as_str().map(|first| ("same as", first.to_string())));
    for (name, spent) in [("queued", "queued_ms"), ("waited", "waited_ms"), ("ran", "ran_ms")] {
        facts.extend(call[spent].is_number().then(|| (name, ms(&call[spent]))));
    }
    let detail = call["outcome"]["failure"]["detail"].as_str();
    facts.extend(detail.map(|detail| ("failed inside", detail.to_string())));
    show::table(&["WHAT", "RECORDED"], facts.into_iter().map(|(name, fact)| vec![name.to_string(), fact]))?;
    show::blank()?;
    show::answer_text(&show::model_text(call))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn ms(value: &Value) -> String {
    value.as_u64().map_or_else(String::new, |ms| format!("{ms} ms"))
}
