//! `windlass tasks` and `windlass logs`: calls that continue without their callers, and their output.

use crate::args::{Logs, MessagesArgs, SayArgs, TasksArgs, TasksCommand};
use crate::door::{At, Door};
use crate::exit::Usage;
use crate::show;
use serde_json::{Value, json};
use std::process::ExitCode;
use std::time::Duration;
use windlass_server::wire;

/// How often a followed log is polled.
const LOOKS_EVERY: Duration = Duration::from_millis(250);

pub async fn tasks(at: &At, args: TasksArgs) -> anyhow::Result<ExitCode> {
    match args.command {
        Some(TasksCommand::Messages(args)) => return messages(at, args).await,
        Some(TasksCommand::Say(args)) => return say(at, args).await,
        None => {}
    }
    let door = Door::look(at).await?;
    let sessions = match args.session {
        Some(session) => vec![session],
        None => door.sessions().await?.into_iter().map(|session| session.id).collect(),
    };
    let mut items = Vec::new();
    for session in sessions {
        for mut task in door.tasks(&session).await? {
            task["session"] = session.as_str().into();
            items.push(task);
        }
    }
    if args.json {
        show::json(&json!({"items": items, "next": null}))?;
        return Ok(ExitCode::SUCCESS);
    }
    let text = |task: &Value, field: &str| task[field].as_str().unwrap_or_default().to_string();
    let rows = items.iter().map(|task| {
        vec![
            show::short_handle(&text(task, "task")),
            text(task, "session"),
            text(task, "title"),
            text(task, "state"),
            text(task, "opened_at"),
            said(task),
        ]
    });
    show::table(&["TASK", "SESSION", "TITLE", "STATE", "SINCE", "SAYS"], rows)?;
    Ok(ExitCode::SUCCESS)
}

async fn messages(at: &At, args: MessagesArgs) -> anyhow::Result<ExitCode> {
    let door = Door::look(at).await?;
    let (session, task) = find(&door, &args.task).await?;
    let items = door.messages(&session, &task).await?;
    if args.json {
        show::json(&json!({"items": items}))?;
        return Ok(ExitCode::SUCCESS);
    }
    let text = |message: &Value, field: &str| message[field].as_str().unwrap_or_default().to_string();
    let rows = items.iter().map(|message| {
        let fields = ["id", "at", "direction", "in_reply_to", "text"];
        fields.map(|field| text(message, field)).to_vec()
    });
    show::table(&["ID", "AT", "DIRECTION", "REPLIES TO", "TEXT"], rows)?;
    Ok(ExitCode::SUCCESS)
}

async fn say(at: &At, args: SayArgs) -> anyhow::Result<ExitCode> {
    let door = Door::look(at).await?;
    let (session, task) = find(&door, &args.task).await?;
    let SayArgs { text, in_reply_to, key, .. } = args;
    let said = wire::SayBody { text, in_reply_to, key };
    let said = door.driver("its tasks take no messages")?.say(&session, &task, &said).await?;
    match args.json {
        true => show::json(&said)?,
        false => show::text("sent; the task receives it once, in order")?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The session of a task, and its id.
async fn find(door: &Door, task: &str) -> anyhow::Result<(String, String)> {
    let id = door.find(task).await?;
    let call = door.call(&id, false).await?;
    if !call["task"].is_string() {
        let told = format!(
            "{task} is not a task: only calls that continue without their callers have a log and messages"
        );
        return Err(Usage(told).into());
    }
    Ok((call["session"].as_str().unwrap_or_default().to_string(), id))
}

/// A task's progress and status.
fn said(task: &Value) -> String {
    let progress = serde_json::from_value::<windlass::tool::Progress>(task["progress"].clone()).ok();
    let progress = progress.map(|progress| progress.to_string());
    let status = task["status"].as_str().map(str::to_string);
    progress.into_iter().chain(status).collect::<Vec<_>>().join(", ")
}

pub async fn logs(at: &At, args: Logs) -> anyhow::Result<ExitCode> {
    let mut door = Door::look(at).await?;
    let (session, task) = find(&door, &args.task).await?;
    let mut after = None;
    loop {
        // Read before the log: everything that the task wrote until then is read below.
        let is_over = door.call(&task, false).await?.get("outcome").is_some();
        loop {
            let page = door.log(&session, &task, after).await?;
            let Some(last) = page.last().and_then(|piece| piece["no"].as_u64()) else { break };
            print(&page, after.unwrap_or(0), args.json)?;
            after = Some(last);
        }
        if is_over || !args.follow {
            break;
        }
        tokio::time::sleep(LOOKS_EVERY).await;
        // The owner may have changed.
        door = Door::look(at).await?;
    }
    if args.follow && !args.json {
        let ended = door.call(&task, false).await?;
        crate::logs::tell!("the task has ended: {}", ended["state"].as_str().unwrap_or_default());
    }
    Ok(ExitCode::SUCCESS)
}

fn print(page: &[Value], mut last: u64, as_json: bool) -> anyhow::Result<()> {
    for piece in page {
        let no = piece["no"].as_u64().unwrap_or(0);
        if as_json {
            show::print_live(&piece.to_string())?;
        } else {
            if no > last + 1 {
                show::print_live("windlass| … output not retained …")?;
            }
            let stream = piece["stream"].as_str().unwrap_or_default();
            for line in piece["text"].as_str().unwrap_or_default().lines() {
                show::print_live(&format!("{stream:>3}| {}", show::line(line)))?;
            }
        }
        last = no;
    }
    Ok(())
}
