//! `windlass calls`: what is recorded.

use crate::args::Calls;
use crate::exit::Usage;
use crate::{exit, folder, show};
use serde_json::json;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use windlass::core::handle::Handle;
use windlass::inspect::{self, Line, Recorded};
use windlass::store::{SessionRow, Store};
use windlass::{BatchError, wall_time};

/// How many of a session's latest calls a shortened handle is looked for among.
const PREFIX_SEARCH_MAX: usize = 10_000;
/// How many sessions are looked at.
const SESSIONS_MAX: u64 = 1_000;

pub async fn calls(data: &Path, args: Calls) -> anyhow::Result<ExitCode> {
    let store = folder::reader(data)?;
    match &args.call {
        Some(call) => {
            let handle = find(&store, call).await?;
            let found = inspect::call(&store, handle).await?;
            let (call, lines) =
                found.ok_or_else(|| Usage(format!("there is no call {handle} in {}", data.display())))?;
            show_one(&call, &lines, &args)?;
        }
        None => {
            let sessions = sessions(&store, args.session.as_deref()).await?;
            let (mut found, damaged) = readable(&store, &sessions, args.limit).await?;
            found.sort_by_key(|call| std::cmp::Reverse(call.opened_at));
            found.truncate(args.limit);
            show_list(&found, args.json)?;
            return Ok(if damaged { exit::folder() } else { ExitCode::SUCCESS });
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The calls of all sessions that can be read; says which cannot, and whether there were any.
async fn readable(
    store: &Arc<dyn Store>,
    sessions: &[SessionRow],
    limit: usize,
) -> anyhow::Result<(Vec<Recorded>, bool)> {
    let (mut found, mut damaged) = (Vec::new(), false);
    for session in sessions {
        match inspect::calls(store, session, limit).await {
            Ok(calls) => found.extend(calls),
            Err(BatchError::Unreadable { what }) => {
                eprintln!("windlass: the calls of session {} are not shown: {what}", session.name);
                damaged = true;
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok((found, damaged))
}

async fn sessions(store: &Arc<dyn Store>, name: Option<&str>) -> anyhow::Result<Vec<SessionRow>> {
    match name {
        None => Ok(store.sessions(None, SESSIONS_MAX).await?),
        Some(name) => match store.session(name).await? {
            Some(session) => Ok(vec![session]),
            None => Err(Usage(format!("there is no session {name}; leave --session out to see all")).into()),
        },
    }
}

/// The call of a handle, or the only one that begins with this.
async fn find(store: &Arc<dyn Store>, text: &str) -> anyhow::Result<Handle> {
    if let Some(handle) = Handle::parse(text) {
        return Ok(handle);
    }
    let prefix = text.to_lowercase();
    let (calls, _) = readable(store, &sessions(store, None).await?, PREFIX_SEARCH_MAX).await?;
    let handles = calls.into_iter().map(|call| call.answer.handle());
    let found: Vec<Handle> = handles.filter(|handle| handle.to_string().starts_with(&prefix)).collect();
    match found.as_slice() {
        [one] => Ok(*one),
        [] => Err(Usage(format!("no call begins with {text}; `windlass calls` lists them")).into()),
        many => Err(Usage(format!("{} calls begin with {text}; write more of it", many.len())).into()),
    }
}

fn show_list(calls: &[Recorded], as_json: bool) -> anyhow::Result<()> {
    if as_json {
        return show::json(&json!({"items": calls.iter().map(whole).collect::<Vec<_>>(), "next": null}));
    }
    let rows = calls.iter().map(|call| {
        let answer = &call.answer;
        let ran = answer.call().end().map_or(String::new(), |end| format!("{} ms", end.spent.ran_us / 1_000));
        vec![
            show::short_handle(answer),
            call.session.clone(),
            answer.id().to_string(),
            answer.tool().to_string(),
            answer.state().to_string(),
            answer.call().attempts.to_string(),
            ran,
            wall_time(call.opened_at),
        ]
    });
    show::table(&["CALL", "SESSION", "ID", "TOOL", "STATE", "ATTEMPTS", "RAN", "ASKED FOR"], rows)
}

fn show_one(call: &Recorded, lines: &[Line], args: &Calls) -> anyhow::Result<()> {
    if args.json {
        let mut shown = whole(call);
        if args.journal {
            shown["journal"] = serde_json::to_value(lines)?;
        }
        return show::json(&shown);
    }
    if !args.journal {
        return show_facts(call);
    }
    let from = lines.first().map(|line| line.at).unwrap_or_default();
    let rows = lines.iter().map(|line| {
        let after = inspect::elapsed(from, line.at);
        vec![
            line.entry.to_string(),
            wall_time(line.at),
            format!("+{after}"),
            line.kind.to_string(),
            line.text.clone(),
        ]
    });
    show::table(&["ENTRY", "TIME", "AFTER", "FACT", "STORY"], rows)
}

/// One call whole: what was asked, how it went, what the model was told, and what only operators are.
fn show_facts(call: &Recorded) -> anyhow::Result<()> {
    let answer = &call.answer;
    let mut facts = vec![
        ("call", answer.handle().to_string()),
        ("session", call.session.clone()),
        ("batch", call.batch_key.clone()),
        ("id", answer.id().to_string()),
        ("tool", answer.tool().to_string()),
        ("arguments", answer.call().opened.args.text.to_string()),
        ("asked for", wall_time(call.opened_at)),
        ("state", answer.state().to_string()),
        ("attempts", answer.call().attempts.to_string()),
    ];
    if let Some(end) = answer.call().end() {
        facts.push(("queued", format!("{} ms", end.spent.queued_us / 1_000)));
        facts.push(("ran", format!("{} ms", end.spent.ran_us / 1_000)));
    }
    if let Some(detail) = answer.failure().and_then(|failure| failure.detail.clone()) {
        facts.push(("failed inside", detail));
    }
    show::table(&["WHAT", "RECORDED"], facts.into_iter().map(|(name, fact)| vec![name.to_string(), fact]))?;
    show::blank()?;
    show::model(answer)
}

fn whole(call: &Recorded) -> serde_json::Value {
    let mut shown = serde_json::to_value(&call.answer).unwrap_or_default();
    shown["session"] = call.session.as_str().into();
    shown["batch"] = call.batch_key.as_str().into();
    shown["opened_at"] = wall_time(call.opened_at).into();
    shown
}
