//! `windlass tools`: lists the tools.

use crate::args::ToolsArgs;
use crate::door::At;
use crate::exit::Usage;
use crate::{folder, show};
use serde_json::Value;
use std::process::ExitCode;
use windlass_args::names::nearest_name;
use windlass_server::view;
use windlass_server::wire::{LIMIT_MAX, Paging};

pub async fn tools(at: &At, args: ToolsArgs) -> anyhow::Result<ExitCode> {
    let tools = all(at).await?;
    let text = |tool: &Value, field: &str| tool[field].as_str().unwrap_or_default().to_string();
    match args.name {
        Some(name) => match tools.iter().find(|tool| tool["name"] == name.as_str()) {
            Some(tool) => show::json(tool)?,
            None => {
                let near = nearest_name(&name, tools.iter().filter_map(|tool| tool["name"].as_str()));
                let hint = near.map(|near| format!("; did you mean {near}?")).unwrap_or_default();
                return Err(Usage(format!("there is no tool {name}{hint}")).into());
            }
        },
        None if args.json => show::json(&tools)?,
        None => {
            let rows = tools.iter().map(|tool| {
                let about = text(tool, "description");
                let about = first_sentence(&about);
                let paused = if tool["paused"] == true { "(paused) " } else { "" };
                vec![
                    text(tool, "name"),
                    text(tool, "class"),
                    runs(tool),
                    background(tool).to_string(),
                    approval(tool).to_string(),
                    text(tool, "source"),
                    format!("{paused}{about}"),
                ]
            });
            let titles = ["TOOL", "CLASS", "RUNS", "BACKGROUND", "APPROVAL", "SOURCE", "DESCRIPTION"];
            show::table(&titles, rows)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The first sentence of a description: the rest is for models.
fn first_sentence(about: &str) -> &str {
    let line = about.lines().next().unwrap_or_default();
    line.find(". ").map_or(line, |end| &line[..=end])
}

/// Whether a person is asked before a call of the tool runs.
fn approval(tool: &Value) -> &'static str {
    match tool["approval"].as_str() {
        Some("ask") => "ask",
        Some("by_args") => "by arguments",
        _ => "-",
    }
}

/// The calls that a call of the tool runs beside, or the claims that decide it.
fn runs(tool: &Value) -> String {
    match tool["claims"].as_array() {
        Some(claims) if claims.is_empty() => "beside all".to_string(),
        Some(claims) => claims.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", "),
        None if tool["class"] == "read" => "beside reads".to_string(),
        None if tool["class"].is_string() => "alone".to_string(),
        // Its provider has not loaded it.
        None => "-".to_string(),
    }
}

fn background(tool: &Value) -> &'static str {
    let has = |flag: &str| tool["flags"].as_array().is_some_and(|flags| flags.iter().any(|set| set == flag));
    match (has("background_only"), has("background")) {
        (true, _) => "only",
        (false, true) => "yes",
        (false, false) => "-",
    }
}

/// The names of tools that write the whole session because they declare no claims: nothing runs beside them.
pub fn alone(at: &At) -> anyhow::Result<Vec<String>> {
    let tools = folder::tools_only(at)?.tools();
    let shown = tools.iter().map(view::tool).map(serde_json::to_value).collect::<Result<Vec<_>, _>>()?;
    let alone = shown.iter().filter(|tool| runs(tool) == "alone");
    Ok(alone.filter_map(|tool| tool["name"].as_str().map(str::to_string)).collect())
}

/// The tools of the driver; without one, the tools that this command would load.
pub async fn all(at: &At) -> anyhow::Result<Vec<Value>> {
    let Some(driver) = at.driver().await? else {
        let tools = folder::tools_only(at)?.tools();
        return Ok(tools.iter().map(view::tool).map(serde_json::to_value).collect::<Result<_, _>>()?);
    };
    let (mut tools, mut after) = (Vec::new(), None);
    loop {
        let page = driver.tools(&Paging { limit: Some(LIMIT_MAX), after }).await?;
        tools.extend(page.items);
        after = page.next;
        if after.is_none() {
            return Ok(tools);
        }
    }
}
