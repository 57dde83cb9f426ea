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
                let flags = tool["flags"].as_array().into_iter().flatten().filter_map(Value::as_str);
                let mut flags: Vec<&str> = flags.collect();
                if tool["paused"] == true {
                    flags.push("paused");
                }
                let about = text(tool, "description");
                let about = about.lines().next().unwrap_or_default().to_string();
                vec![text(tool, "name"), text(tool, "class"), flags.join(" "), about]
            });
            show::table(&["TOOL", "CLASS", "FLAGS", "DESCRIPTION"], rows)?;
        }
    }
    Ok(ExitCode::SUCCESS)
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
