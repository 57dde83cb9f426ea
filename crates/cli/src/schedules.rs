//! `windlass schedules`: manages calls started at set times.

use crate::args::{
    AddSchedule, ListSchedules, OneSchedule, PreviewScheduleArgs, SchedulesArgs, SchedulesCommand,
};
use crate::door::{self, At, Door};
use crate::exit::Usage;
use crate::show;
use crate::standing::{self, Printed, text};
use serde_json::json;
use std::process::ExitCode;
use windlass::Limits;
use windlass::time::{Clock, SystemClock};
use windlass_server::view;
use windlass_server::wire::schedules::{EditSchedule, PreviewQuery, ScheduleBody};

/// The consequence of a folder without an owner, for the error message.
const UNCHANGED: &str = "its schedules cannot be changed";

pub async fn schedules(at: &At, args: SchedulesArgs) -> anyhow::Result<ExitCode> {
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
    let rule = |text: &str| json!(text);
    let wanted = ScheduleBody {
        id: args.id,
        cron: args.times.cron,
        at: args.times.at,
        zone: args.times.zone,
        tool: args.tool,
        args: standing::given(args.args.as_deref())?,
        title: args.title,
        catch_up: serde_json::from_value(rule(&args.catch_up))?,
        overlap: serde_json::from_value(rule(&args.overlap))?,
        ..ScheduleBody::default()
    };
    let door = Door::look(at).await?;
    let made = door.driver(UNCHANGED)?.make_schedule(&args.session, &wanted).await?;
    printed(args.json).one(&made)
}

async fn list(at: &At, args: ListSchedules) -> anyhow::Result<ExitCode> {
    let items = Door::look(at).await?.schedules(&args.session).await?;
    printed(args.json).list(&items)
}

fn preview(args: PreviewScheduleArgs) -> anyhow::Result<ExitCode> {
    let wanted = PreviewQuery {
        cron: args.times.cron,
        at: args.times.at,
        zone: args.times.zone,
        limit: Some(args.limit),
    };
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
    let edited = door.driver(UNCHANGED)?.edit_schedule(&args.session, &id, &edit).await?;
    printed(args.json).one(&edited)
}

async fn remove(at: &At, args: OneSchedule) -> anyhow::Result<ExitCode> {
    let door = Door::look(at).await?;
    let id = find(&door, &args).await?;
    let told = door.driver(UNCHANGED)?.remove_schedule(&args.session, &id).await?;
    standing::removed(&told, args.json)
}

/// Finds the schedule's id.
async fn find(door: &Door, args: &OneSchedule) -> anyhow::Result<String> {
    let items = door.schedules(&args.session).await?;
    let ids = items.iter().filter_map(|item| item["id"].as_str());
    Ok(door::the_one("schedule", "windlass schedules list", &args.schedule, ids)?)
}

fn printed(as_json: bool) -> Printed<10> {
    Printed {
        as_json,
        headings: ["ID", "ENABLED", "WHEN", "ZONE", "TOOL", "NEXT", "LAST", "RUNS", "SKIPPED", "OWNER"],
        row: |item| {
            [
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
        },
    }
}
