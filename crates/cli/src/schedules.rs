//! `windlass schedules`: calls that are started at their times.

use crate::args::{AddSchedule, ListSchedules, OneSchedule, PreviewSchedule, Schedules, SchedulesCommand};
use crate::door::{self, At, Door};
use crate::exit::Usage;
use crate::show;
use serde_json::{Value, json};
use std::process::ExitCode;
use windlass::core::limits::Limits;
use windlass::{Clock, SystemClock};
use windlass_server::view;
use windlass_server::wire::schedules::{EditSchedule, NewSchedule, PreviewSchedule as Wanted};

/// What is told where nobody owns the folder.
const UNCHANGED: &str = "its schedules cannot be changed";

pub async fn schedules(at: &At, args: Schedules) -> anyhow::Result<ExitCode> {
    match args.command {
        SchedulesCommand::Add(args) => add(at, args).await,
        SchedulesCommand::List(args) => list(at, args).await,
        SchedulesCommand::Preview(args) => preview(args),
        SchedulesCommand::Enable(args) => set_enabled(at, args, true).await,
        SchedulesCommand::Disable(args) => set_enabled(at, args, false).await,
        SchedulesCommand::Remove(args) => remove(at, args).await,
    }
}

async fn add(at: &At, args: AddSchedule) -> anyhow::Result<ExitCode> {
    let given = match &args.args {
        Some(text) => serde_json::from_str(text)
            .map_err(|error| Usage(format!("the arguments are not JSON: {error}")))?,
        None => Value::Null,
    };
    let rule = |text: &str| json!(text);
    let wanted = NewSchedule {
        id: args.id,
        cron: args.times.cron,
        at: args.times.at,
        zone: args.times.zone,
        tool: args.tool,
        args: given,
        title: args.title,
        catch_up: serde_json::from_value(rule(&args.catch_up))?,
        overlap: serde_json::from_value(rule(&args.overlap))?,
        ..NewSchedule::default()
    };
    let door = Door::look(at).await?;
    let made = door.driver(UNCHANGED)?.make_schedule(&args.session, &wanted).await?;
    print(&[made], args.json, true)
}

async fn list(at: &At, args: ListSchedules) -> anyhow::Result<ExitCode> {
    let items = Door::look(at).await?.schedules(&args.session).await?;
    print(&items, args.json, false)
}

fn preview(args: PreviewSchedule) -> anyhow::Result<ExitCode> {
    let wanted =
        Wanted { cron: args.times.cron, at: args.times.at, zone: args.times.zone, limit: Some(args.limit) };
    let fires = view::fires(&wanted, SystemClock::default().now(), &Limits::default())
        .map_err(|error| Usage(error.to_string()))?;
    if args.json {
        show::json(&fires)?;
    } else {
        show::table(&["AT", "THERE"], fires.items.into_iter().map(|fire| vec![fire.at, fire.local]))?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn set_enabled(at: &At, args: OneSchedule, enabled: bool) -> anyhow::Result<ExitCode> {
    let door = Door::look(at).await?;
    let id = find(&door, &args).await?;
    let edit = EditSchedule { enabled: Some(enabled), ..EditSchedule::default() };
    let edited = door.driver(UNCHANGED)?.edit_schedule((&args.session, &id), &edit).await?;
    print(&[edited], args.json, true)
}

async fn remove(at: &At, args: OneSchedule) -> anyhow::Result<ExitCode> {
    let door = Door::look(at).await?;
    let id = find(&door, &args).await?;
    let removed = door.driver(UNCHANGED)?.remove_schedule((&args.session, &id)).await?;
    if args.json {
        show::json(&removed)?;
    } else {
        show::text("removed: it starts nothing any more")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The id that is meant.
async fn find(door: &Door, args: &OneSchedule) -> anyhow::Result<String> {
    let items = door.schedules(&args.session).await?;
    let ids = items.iter().filter_map(|item| item["id"].as_str());
    Ok(door::the_one(("schedule", "windlass schedules list"), &args.schedule, ids)?)
}

fn print(items: &[Value], as_json: bool, is_one: bool) -> anyhow::Result<ExitCode> {
    if as_json {
        match items {
            [one] if is_one => show::json(one)?,
            _ => show::json(&json!({"items": items, "next": null}))?,
        }
        return Ok(ExitCode::SUCCESS);
    }
    let text = |item: &Value, field: &str| item[field].as_str().unwrap_or_default().to_string();
    let rows = items.iter().map(|item| {
        vec![
            text(item, "id"),
            if item["enabled"] == true { "yes" } else { "no" }.to_string(),
            format!("{}{}", text(item, "cron"), text(item, "at")),
            text(item, "zone"),
            text(item, "tool"),
            text(item, "next"),
            text(item, "last"),
            item["count"].to_string(),
            item["skipped"].to_string(),
            text(item, "owner"),
        ]
    });
    let headings = ["ID", "ENABLED", "WHEN", "ZONE", "TOOL", "NEXT", "LAST", "RUNS", "SKIPPED", "OWNER"];
    show::table(&headings, rows)?;
    Ok(ExitCode::SUCCESS)
}
