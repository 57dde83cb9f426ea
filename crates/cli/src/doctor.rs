//! `windlass doctor`: is the folder sound, and what is in force.

use crate::args::Doctor;
use crate::door::At;
use crate::{exit, folder, show};
use serde_json::json;
use std::process::ExitCode;
use std::sync::Arc;
use windlass::chain;
use windlass::store::{SessionRow, Store, StoreError};

/// How many sessions are checked.
const SESSIONS_MAX: u64 = 100_000;
/// Journal rows are checked in pages of this size.
const ROWS_PAGE: u64 = 1_000;

/// What was found in one session.
struct Checked {
    name: String,
    entries: u64,
    open: usize,
    damage: Option<String>,
}

pub async fn doctor(at: &At, args: Doctor) -> anyhow::Result<ExitCode> {
    let configured = folder::configured(at)?;
    let data = &at.data;
    let store = match folder::reader(data) {
        Ok(store) => Some(store),
        Err(StoreError::Open { .. }) if !data.join("windlass.db").exists() => None,
        Err(error) => return Err(error.into()),
    };
    let mut checked = Vec::new();
    if let Some(store) = &store {
        for session in store.sessions(None, SESSIONS_MAX).await? {
            checked.push(check(store, &session).await?);
        }
    }
    let sound = checked.iter().all(|session| session.damage.is_none());
    let facts = vec![
        ("windlass", env!("CARGO_PKG_VERSION").to_string()),
        ("data folder", data.display().to_string()),
        (
            "configuration",
            configured.file.as_ref().map_or("none".to_string(), |file| file.display().to_string()),
        ),
        ("durability", configured.declared.durability.to_string()),
        ("sessions", checked.len().to_string()),
        ("journal", if sound { "sound" } else { "damaged" }.to_string()),
    ];
    let limits = configured.declared.limits.table();
    if args.json {
        let sessions: Vec<_> = checked
            .iter()
            .map(|one| json!({"name": one.name, "entries": one.entries, "open_batches": one.open, "damage": one.damage}))
            .collect();
        let facts: serde_json::Map<_, _> =
            facts.into_iter().map(|(name, fact)| (name.to_string(), fact.into())).collect();
        let limits: serde_json::Map<_, _> =
            limits.into_iter().map(|(name, value, _)| (name.to_string(), value.into())).collect();
        show::json(&json!({"facts": facts, "sessions": sessions, "limits": limits}))?;
    } else {
        show::table(&["WHAT", "FOUND"], facts.into_iter().map(|(name, fact)| vec![name.to_string(), fact]))?;
        if !checked.is_empty() {
            let rows = checked.iter().map(|one| {
                let state = one.damage.clone().unwrap_or_else(|| "sound".to_string());
                vec![one.name.clone(), one.entries.to_string(), one.open.to_string(), state]
            });
            show::blank()?;
            show::table(&["SESSION", "ENTRIES", "OPEN BATCHES", "JOURNAL"], rows)?;
        }
        show::blank()?;
        let rows = limits
            .into_iter()
            .map(|(name, value, why)| vec![name.to_string(), value.to_string(), why.to_string()]);
        show::table(&["LIMIT", "VALUE", "WHY"], rows)?;
    }
    Ok(if sound { ExitCode::SUCCESS } else { exit::folder() })
}

/// Walks a session's journal from its head, which checks every row against the chain.
async fn check(store: &Arc<dyn Store>, session: &SessionRow) -> Result<Checked, StoreError> {
    let open = store.open_batches(Some(session.no)).await?.len();
    let mut checked = Checked { name: session.name.clone(), entries: session.head.0, open, damage: None };
    let mut before = None;
    loop {
        match store.history(session.no, before, ROWS_PAGE).await {
            Ok(rows) => match rows.last() {
                Some(last) => before = Some(last.first),
                None => return Ok(checked),
            },
            Err(error @ StoreError::Damaged { .. }) => {
                checked.damage = Some(chain(&error));
                return Ok(checked);
            }
            Err(error) => return Err(error),
        }
    }
}
