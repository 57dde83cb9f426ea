//! `windlass sessions`: lists sessions with their principals and open calls.

use crate::args::SessionsArgs;
use crate::door::{At, Door};
use crate::show;
use serde_json::json;
use std::process::ExitCode;

pub async fn sessions(at: &At, args: SessionsArgs) -> anyhow::Result<ExitCode> {
    let items = Door::look(at).await?.sessions().await?;
    if args.json {
        show::json(&json!({"items": items, "next": null}))?;
        return Ok(ExitCode::SUCCESS);
    }
    let rows = items.into_iter().map(|session| {
        let (entries, open) = (session.entries.to_string(), session.open_batches.to_string());
        let title = session.title.unwrap_or_default();
        let closed = if session.closed { " (closed)" } else { "" };
        let parent = session.parent.map(|parent| format!("{parent}{closed}")).unwrap_or_default();
        let principal = session.principal.unwrap_or_default();
        vec![session.id, principal, entries, open, parent, title]
    });
    show::table(&["SESSION", "PRINCIPAL", "ENTRIES", "OPEN BATCHES", "PARENT", "TITLE"], rows)?;
    Ok(ExitCode::SUCCESS)
}
