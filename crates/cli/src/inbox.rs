//! `windlass inbox`: lists, takes and acknowledges the notices for a session's agent.

use crate::args::InboxArgs;
use crate::door::{At, Door, DoorRoute};
use crate::exit::Usage;
use crate::show;
use serde_json::{Value, json};
use std::process::ExitCode;
use windlass_server::client::Client;
use windlass_server::wire::Take;

pub async fn inbox(at: &At, args: InboxArgs) -> anyhow::Result<ExitCode> {
    let door = Door::look(at).await?;
    if let Some(id) = &args.ack {
        driver(&door)?.acknowledge(&args.session, id).await?;
        show::text("acknowledged: the notice is delivered no more")?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(id) = &args.requeue {
        driver(&door)?.requeue(&args.session, id).await?;
        show::text("requeued: the next reader gets it")?;
        return Ok(ExitCode::SUCCESS);
    }
    let items = match args.take {
        Some(most) => {
            let taken = Take { limit: Some(most), lease_ms: args.lease_ms, wait_ms: args.wait_ms };
            let mut taken = driver(&door)?.take(&args.session, &taken).await?;
            taken["items"].as_array_mut().map(std::mem::take).unwrap_or_default()
        }
        None => door.inbox(&args.session).await?,
    };
    if args.json {
        show::json(&json!({"items": items, "next": null}))?;
        return Ok(ExitCode::SUCCESS);
    }
    let text = |notice: &Value, field: &str| notice[field].as_str().unwrap_or_default().to_string();
    let rows = items.iter().map(|notice| {
        vec![
            text(notice, "id"),
            text(notice, "state"),
            text(notice, "title"),
            show::short_handle(&text(notice, "call")),
            text(notice, "call_state"),
            text(notice, "text").lines().skip(2).collect::<Vec<_>>().join(" "),
        ]
    });
    show::table(&["ID", "STATE", "TITLE", "CALL", "ENDED", "TELLS"], rows)?;
    Ok(ExitCode::SUCCESS)
}

/// Only the owner of the session changes its inbox.
fn driver(door: &Door) -> anyhow::Result<&Client> {
    match &door.way {
        DoorRoute::Driver(driver) => Ok(driver),
        DoorRoute::Folder(_) => {
            let told = "this folder has no owner, so its inboxes cannot change; start `windlass serve` first";
            Err(Usage(told.to_string()).into())
        }
    }
}
