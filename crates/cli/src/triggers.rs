//! `windlass triggers`: manages calls started by events.

use crate::args::{AddTrigger, ListTriggers, OneTrigger, TriggersArgs, TriggersCommand};
use crate::door::{self, At, Door};
use crate::exit::Usage;
use crate::standing::{self, Printed, text};
use serde_json::Value;
use std::collections::BTreeMap;
use std::process::ExitCode;
use windlass_server::wire::triggers::TriggerBody;

/// The consequence of a folder without an owner, for the error message.
const UNCHANGED: &str = "its triggers cannot be changed";

pub async fn triggers(at: &At, args: TriggersArgs) -> anyhow::Result<ExitCode> {
    match args.command {
        TriggersCommand::Add(args) => add(at, args).await,
        TriggersCommand::List(args) => list(at, args).await,
        TriggersCommand::Remove(args) => remove(at, args).await,
    }
}

async fn add(at: &At, args: AddTrigger) -> anyhow::Result<ExitCode> {
    let filter = args.filters.iter().map(|text| condition(text)).collect::<Result<_, _>>()?;
    let wanted = TriggerBody {
        id: args.id,
        event: args.event,
        filter,
        tool: args.tool,
        args: standing::given(args.args.as_deref())?,
        event_as: args.event_as,
        title: args.title,
        signal_on_completion: None,
    };
    let door = Door::look(at).await?;
    let made = door.driver(UNCHANGED)?.make_trigger(&args.session, &wanted).await?;
    printed(args.json).one(&made)
}

/// Parses a condition of a filter: a JSON pointer and the value expected there.
fn condition(text: &str) -> Result<(String, Value), Usage> {
    let Some((place, wanted)) = text.split_once('=') else {
        return Err(Usage(format!("a filter is written as /place=value; {text:?} has no `=`")));
    };
    let wanted = serde_json::from_str(wanted).unwrap_or_else(|_| wanted.into());
    Ok((place.to_string(), wanted))
}

async fn list(at: &At, args: ListTriggers) -> anyhow::Result<ExitCode> {
    let items = Door::look(at).await?.triggers(&args.session).await?;
    printed(args.json).list(&items)
}

async fn remove(at: &At, args: OneTrigger) -> anyhow::Result<ExitCode> {
    let door = Door::look(at).await?;
    let items = door.triggers(&args.session).await?;
    let ids = items.iter().filter_map(|item| item["id"].as_str());
    let id = door::the_one("trigger", "windlass triggers list", &args.trigger, ids)?;
    let told = door.driver(UNCHANGED)?.remove_trigger(&args.session, &id).await?;
    standing::removed(&told, args.json)
}

fn printed(as_json: bool) -> Printed<8> {
    Printed {
        as_json,
        headings: ["ID", "EVENT", "FILTER", "TOOL", "EVENT AS", "LAST", "RUNS", "OWNER"],
        row: |item| {
            let filter: BTreeMap<String, Value> =
                serde_json::from_value(item["filter"].clone()).unwrap_or_default();
            let filter: Vec<String> =
                filter.iter().map(|(place, wanted)| format!("{place}={wanted}")).collect();
            [
                text(item, "id"),
                text(item, "event"),
                filter.join(" "),
                text(item, "tool"),
                text(item, "event_as"),
                text(item, "last"),
                item["count"].to_string(),
                text(item, "owner"),
            ]
        },
    }
}
