//! `windlass toolboxes`: lists the tools that other processes run, and those processes.

use crate::args::{ToolboxesArgs, ToolboxesCommand};
use crate::door::{At, DoorReach, driver_or};
use crate::folder::{self, Owned};
use crate::show;
use crate::standing::{Printed, text};
use serde_json::{Value, json};
use std::process::ExitCode;
use windlass::Runtime;
use windlass::error::ToolboxError;
use windlass_server::Problem;
use windlass_server::client::Client;
use windlass_server::wire::{LIMIT_MAX, Paging};

/// The place where toolboxes are kept: the owner of the folder, or the folder itself.
enum ToolboxKeeper {
    Driver(Client),
    Folder(Runtime),
}

pub async fn toolboxes(at: &At, owned: &mut Owned, args: ToolboxesArgs) -> anyhow::Result<ExitCode> {
    let keeper = match driver_or(at, async || folder::keep(at)).await? {
        DoorReach::Driver(driver) => ToolboxKeeper::Driver(driver),
        DoorReach::Own(runtime) => {
            *owned = Some(runtime.store().clone());
            ToolboxKeeper::Folder(runtime)
        }
    };
    match args.command {
        ToolboxesCommand::Ls { json } => printed(json).list(&keeper.list().await?),
        ToolboxesCommand::Rm { name, json } => keeper.remove(&name, json).await,
    }
}

impl ToolboxKeeper {
    async fn list(&self) -> anyhow::Result<Vec<Value>> {
        let driver = match self {
            ToolboxKeeper::Driver(driver) => driver,
            ToolboxKeeper::Folder(runtime) => {
                let all = runtime.toolboxes().list().await.map_err(Problem::from)?;
                return Ok(all.iter().map(serde_json::to_value).collect::<Result<_, _>>()?);
            }
        };
        let (mut items, mut after) = (Vec::new(), None);
        loop {
            let page = driver.toolboxes(&Paging { limit: Some(LIMIT_MAX), after }).await?;
            items.extend(page["items"].as_array().cloned().unwrap_or_default());
            after = page["next"].as_str().map(str::to_string);
            if after.is_none() {
                return Ok(items);
            }
        }
    }

    async fn remove(&self, name: &str, as_json: bool) -> anyhow::Result<ExitCode> {
        match self {
            ToolboxKeeper::Driver(driver) => drop(driver.remove_toolbox(name).await?),
            ToolboxKeeper::Folder(runtime) => {
                let all = runtime.toolboxes().list().await.map_err(Problem::from)?;
                let missing = || Problem::from(ToolboxError::NotFound { name: name.to_string() });
                let found = all.iter().find(|toolbox| toolbox.name == name).ok_or_else(missing)?;
                runtime.toolboxes().remove(name, &found.principal).await.map_err(Problem::from)?;
            }
        }
        match as_json {
            true => show::json(&json!({ "deleted": true }))?,
            false => show::text("removed; calls of its tools wait until they are offered again")?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn printed(as_json: bool) -> Printed<7> {
    Printed {
        as_json,
        headings: ["NAME", "PRINCIPAL", "SERVED", "PROCESSES", "RUNNING", "WAITING", "TOOLS"],
        row: |item| {
            let tools = item["tools"].as_array().cloned().unwrap_or_default();
            let tools: Vec<&str> = tools.iter().filter_map(Value::as_str).collect();
            let served = if item["served"] == true { "yes" } else { "no" };
            [
                show::line(&text(item, "name")),
                show::line(&text(item, "principal")),
                served.to_string(),
                item["workers"].as_array().map_or(0, Vec::len).to_string(),
                item["running"].to_string(),
                item["waiting"].to_string(),
                show::line(&tools.join(" ")),
            ]
        },
    }
}
