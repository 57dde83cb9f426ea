//! `windlass tools`: what can be called.

use crate::args::Tools;
use crate::exit::Usage;
use crate::{folder, show};
use serde_json::{Map, Value, json};
use std::path::Path;
use std::process::ExitCode;
use windlass::Registered;
use windlass::core::tool::nearest_name;

pub async fn tools(data: &Path, args: Tools) -> anyhow::Result<ExitCode> {
    let runtime = folder::tools_only(data)?;
    let tools: Vec<_> = runtime.tools().into_iter().filter_map(|listed| listed.tool).collect();
    match args.name {
        Some(name) => match tools.iter().find(|tool| tool.spec.name == name) {
            Some(tool) => show::json(&whole(tool))?,
            None => {
                let near = nearest_name(&name, tools.iter().map(|tool| tool.spec.name.as_str()));
                let hint = near.map(|near| format!("; did you mean {near}?")).unwrap_or_default();
                return Err(Usage(format!("there is no tool {name}{hint}")).into());
            }
        },
        None if args.json => show::json(&tools.iter().map(|tool| whole(tool)).collect::<Vec<_>>())?,
        None => {
            let rows = tools.iter().map(|tool| {
                let about = tool.spec.description.lines().next().unwrap_or_default();
                vec![tool.spec.name.clone(), tool.class.to_string(), flags(tool), about.to_string()]
            });
            show::table(&["TOOL", "CLASS", "FLAGS", "DESCRIPTION"], rows)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn flags(tool: &Registered) -> String {
    let set = tool.spec.flags.table().into_iter().filter(|(_, set)| *set).map(|(name, _)| name);
    set.collect::<Vec<_>>().join(" ")
}

fn whole(tool: &Registered) -> Value {
    let spec = &tool.spec;
    let hints: Map<String, Value> = spec
        .hints
        .table()
        .into_iter()
        .filter_map(|(name, hint)| Some((name.to_string(), Value::Bool(hint?))))
        .collect();
    let flags: Vec<&str> =
        spec.flags.table().into_iter().filter(|(_, set)| *set).map(|(name, _)| name).collect();
    json!({
        "name": spec.name, "id": spec.stable_id(), "title": spec.display_title(), "description": spec.description,
        "class": tool.class.as_str(), "hints": hints, "flags": flags, "version": spec.version,
        "input_schema": spec.input_schema, "output_schema": spec.output_schema,
        "contract": tool.contract.to_string(), "display": spec.display_digest().to_string(),
    })
}
