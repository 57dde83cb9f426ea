//! `windlass emit`, `fulfil` and `notice`: tell a session that something happened.

use crate::args::{EmitArgs, FulfilArgs, NoticeArgs};
use crate::door::{At, Door};
use crate::{folder, input, show};
use std::process::ExitCode;
use windlass_server::wire::background::{EventBody, NoticeBody};
use windlass_server::wire::{CompleteError, CompletionBody};

pub async fn emit(at: &At, args: EmitArgs) -> anyhow::Result<ExitCode> {
    let payload = input::value("the payload", &args.payload, &folder::limits(at)?)?;
    let event = EventBody { kind: args.kind, payload, once_by: args.once_by };
    let door = Door::look(at).await?;
    let emitted = door.driver("nothing can start on its events")?.emit(&args.session, &event).await?;
    if args.json {
        show::json(&emitted)?;
        return Ok(ExitCode::SUCCESS);
    }
    if !emitted.is_new {
        show::text(&format!("emitted before, as event {}; nothing was started", emitted.number))?;
        return Ok(ExitCode::SUCCESS);
    }
    show::text(&format!("emitted as event {}", emitted.number))?;
    for task in &emitted.tasks {
        show::text(&format!("started task {}", show::short_handle(task)))?;
    }
    Ok(ExitCode::SUCCESS)
}

pub async fn fulfil(at: &At, args: FulfilArgs) -> anyhow::Result<ExitCode> {
    let ok = args.ok.as_deref().map(|text| input::value("--ok", text, &folder::limits(at)?)).transpose()?;
    let error = args.error.zip(args.message);
    let error = error.map(|(code, message)| CompleteError { code, message, ..CompleteError::default() });
    let answer = CompletionBody { ok, error, ..CompletionBody::default() };
    let door = Door::look(at).await?;
    let driver = door.driver("nobody wakes the calls that wait for its events")?;
    let fulfilled = driver.fulfil(&args.session, &args.event, &answer).await?;
    match args.json {
        true => show::json(&fulfilled)?,
        false => show::text("fulfilled; calls that wait for it continue")?,
    }
    Ok(ExitCode::SUCCESS)
}

pub async fn notice(at: &At, args: NoticeArgs) -> anyhow::Result<ExitCode> {
    let NoticeArgs { title, text, urgency, priority, key, .. } = args;
    let notice = NoticeBody { title, text, urgency: urgency.into(), priority, key };
    let door = Door::look(at).await?;
    let posted = door.driver("its inboxes cannot change")?.post_notice(&args.session, &notice).await?;
    match args.json {
        true => show::json(&posted)?,
        false => show::text(&format!("posted as {}", posted.id))?,
    }
    Ok(ExitCode::SUCCESS)
}
