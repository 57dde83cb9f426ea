//! `windlass doctor`: checks the folder and shows the settings in effect.

use crate::args::Doctor;
use crate::door::At;
use crate::folder::Configured;
use crate::{database, exit, folder, serve, show, tools};
use serde_json::json;
use std::process::ExitCode;
use std::sync::Arc;
use windlass::error::chain;
use windlass::limits::{Retention, RetentionOutlook};
use windlass::policy::PolicyVersion;
use windlass::store::memory::MemoryStore;
use windlass::store::sqlite::SqliteStore;
use windlass::store::{Durability, SessionRow, Store, StoreError};
use windlass::time::{Clock, SystemClock, wall_time};
use windlass_core::time::Timestamp;
use windlass_mcp::upstream::McpPins;
use windlass_tools::Declared;
use windlass_tools::Launcher;
use windlass_tools::declared::{McpPlace, McpServer};
use windlass_tools::sandbox::SandboxBackend;

/// The maximum number of sessions checked.
const SESSIONS_MAX: u64 = 100_000;
/// Journal rows are checked in pages of this size.
const ROWS_PAGE: u64 = 1_000;

/// The findings about one session.
struct SessionFinding {
    name: String,
    entries: u64,
    open: usize,
    damage: Option<String>,
}

pub async fn doctor(at: &At, args: Doctor) -> anyhow::Result<ExitCode> {
    serve::on_a_folder(at)?;
    let configured = folder::configured(at)?;
    let data = &at.data;
    let (store, taken) = opened(at, &configured.declared).await?;
    let mut checked = Vec::new();
    if let Some(store) = &store {
        for session in store.sessions(None, SESSIONS_MAX).await? {
            checked.push(check(store, &session).await?);
        }
    }
    let sound = checked.iter().all(|session| session.damage.is_none());
    let mut facts = vec![
        ("windlass", env!("CARGO_PKG_VERSION").to_string()),
        ("data folder", data.display().to_string()),
        (
            "configuration",
            configured.file.as_ref().map_or("none".to_string(), |file| file.display().to_string()),
        ),
        ("durability", durability(store.as_ref(), &configured.declared)),
        ("copy", store.as_ref().map_or("no store yet", |store| told_copy(store.is_copy())).to_string()),
        ("sessions", checked.len().to_string()),
        ("journal", if sound { "sound" } else { "damaged" }.to_string()),
        ("retention", told_retention(&configured.declared.retention)),
        ("sandbox", told_sandbox().await),
    ];
    let (told, is_denying) = policy(store.as_ref(), &configured.declared).await?;
    facts.push(("policy", told));
    facts.extend(told_alone(at)?.into_iter().chain(told_mcp(&configured)));
    if let Some(taken) = taken {
        facts.push(("backup", format!("taken at {}; not started since", wall_time(taken))));
    }
    if let Some(store) = store.as_ref().filter(|_| sound) {
        facts.extend(held(store, &configured.declared.retention).await?);
    }
    let limits = configured.declared.limits.table();
    if args.json {
        let sessions: Vec<_> = checked
            .iter()
            .map(|one| json!({"name": one.name, "entries": one.entries, "open_batches": one.open, "damage": one.damage}))
            .collect();
        let facts: serde_json::Map<_, _> =
            facts.into_iter().map(|(name, fact)| (name.to_string(), fact.into())).collect();
        let limits: serde_json::Map<_, _> =
            limits.into_iter().map(|limit| (limit.name.to_string(), limit.value.into())).collect();
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
            .map(|limit| vec![limit.name.to_string(), limit.value.to_string(), limit.reason.to_string()]);
        show::table(&["LIMIT", "VALUE", "WHY"], rows)?;
    }
    Ok(if sound && !is_denying { ExitCode::SUCCESS } else { exit::folder() })
}

/// The store, if there is one yet, and when the backup was taken that it was restored from.
async fn opened(at: &At, declared: &Declared) -> anyhow::Result<(Option<Arc<dyn Store>>, Option<Timestamp>)> {
    if let Some(options) = database::options(at, declared)? {
        return Ok((Some(database::open(options).await?), None));
    }
    match SqliteStore::open_reader(&at.data) {
        Ok(store) => {
            let taken = store.backup_taken();
            Ok((Some(Arc::new(store)), taken))
        }
        Err(StoreError::Open { .. }) if !at.data.join("windlass.db").exists() => Ok((None, None)),
        Err(error) => Err(error.into()),
    }
}

/// The durability of an acknowledged commit: of a database its server says it.
fn durability(store: Option<&Arc<dyn Store>>, declared: &Declared) -> String {
    match store.map(|store| store.durability()) {
        Some(found @ (Durability::Replicated | Durability::Relaxed)) => found.to_string(),
        Some(Durability::Full | Durability::Memory) | None => declared.durability.to_string(),
    }
}

/// The policy that the next start puts into force, and whether it denies everything.
async fn policy(store: Option<&Arc<dyn Store>>, declared: &Declared) -> anyhow::Result<(String, bool)> {
    let empty: Arc<dyn Store> = Arc::new(MemoryStore::new()?);
    let store = store.unwrap_or(&empty);
    let policy = PolicyVersion::recorded(&**store, declared.policy.as_ref(), &declared.limits).await?;
    Ok((told_policy(&policy), policy.broken.is_some()))
}

fn told_policy(policy: &PolicyVersion) -> String {
    let (declared, set) = (policy.declared.len(), policy.rules.len());
    match &policy.broken {
        Some(reason) => format!("broken, so every call is denied: {reason}"),
        None if declared + set == 0 => "none: tools of MCP servers ask, all others run".to_string(),
        None => format!("version {}: {declared} rules of windlass.toml, {set} set", policy.version),
    }
}

/// The warning about tools that nothing runs beside.
fn told_alone(at: &At) -> anyhow::Result<Option<(&'static str, String)>> {
    let alone = tools::alone(at)?;
    let told = "tools without `claims` write the whole session, so nothing runs beside them";
    Ok((!alone.is_empty()).then(|| ("warning", format!("{told}: {}", alone.join(", ")))))
}

/// The MCP servers of others, and what is risky about them. Nothing is connected to.
fn told_mcp(configured: &Configured) -> Vec<(&'static str, String)> {
    let pins = configured.file.as_ref().map(|file| McpPins::read(&McpPins::beside(file)));
    let pins = match pins.unwrap_or_else(|| Ok(McpPins::default())) {
        Ok(pins) => pins,
        Err(why) => return vec![("warning", why)],
    };
    let told = |server: &McpServer| {
        let (name, count) = (&server.name, pins.of(&server.name).len());
        let more = match count {
            0 => format!("; `windlass mcp accept {name}` shows what it has"),
            _ => String::new(),
        };
        let risk = match &server.place {
            McpPlace::Command { words, .. } if is_unfixed(words) => {
                "; warning: the version of its package is not fixed, so another program may run tomorrow"
            }
            McpPlace::Command { .. } | McpPlace::Url { .. } => "",
        };
        let forwards = match (server.forwards.prompts, server.forwards.resources) {
            (true, true) => "; forwards prompts and resources",
            (true, false) => "; forwards prompts",
            (false, true) => "; forwards resources",
            (false, false) => "",
        };
        ("mcp server", format!("{name}: {count} accepted tools{forwards}{more}{risk}"))
    };
    configured.declared.mcp.iter().map(told).collect()
}

/// Whether a command runs a package in whatever version is the newest.
fn is_unfixed(words: &[String]) -> bool {
    let Some((program, words)) = words.split_first() else { return false };
    let runs_packages =
        ["npx", "uvx", "bunx", "pnpx"].contains(&program.rsplit('/').next().unwrap_or_default());
    let package = words.iter().find(|word| !word.starts_with('-'));
    let has_version = |package: &String| {
        let version =
            package.rsplit_once('@').filter(|(name, _)| !name.is_empty()).map(|(_, version)| version);
        version.is_some_and(|version| version.starts_with(|c: char| c.is_ascii_digit()))
            || package.contains("==")
    };
    runs_packages && !package.is_some_and(has_version)
}

/// The rules of retention in effect.
fn told_retention(rules: &Retention) -> String {
    let age = rules.age_ms.map(|age_ms| format!("after {age_ms} ms"));
    let session = rules.session_bytes.map(|bytes| format!("above {bytes} bytes of a session"));
    let all = rules.store_bytes.map(|bytes| format!("above {bytes} bytes of the store"));
    let told: Vec<String> = [age, session, all].into_iter().flatten().collect();
    match told.is_empty() {
        true => "off: nothing expires, unless a session has rules of its own".to_string(),
        false => format!("on: calls that are over expire {}", told.join(", ")),
    }
}

/// The findings about what the store holds, and what would expire now.
async fn held(store: &Arc<dyn Store>, rules: &Retention) -> anyhow::Result<Vec<(&'static str, String)>> {
    let usage = store.usage().await?;
    let outlook = RetentionOutlook::of(&**store, rules, SystemClock::default().now()).await?;
    let oldest = outlook.oldest.map_or("none".to_string(), wall_time);
    Ok(vec![
        ("journal bytes", usage.journal_bytes.to_string()),
        ("artifact bytes", usage.blob_bytes.to_string()),
        ("record bytes", usage.record_bytes.to_string()),
        ("message bytes", usage.message_bytes.to_string()),
        ("file bytes", format!("{}, of which {} are free", usage.file_bytes, usage.free_bytes)),
        ("batches", format!("{}, of which {} are expired", usage.batches, usage.expired_batches)),
        ("oldest kept entry", oldest),
        ("would expire now", format!("{} batches, {} bytes", outlook.batches, outlook.bytes)),
    ])
}

/// The sandbox for commands that works on this machine.
async fn told_sandbox() -> String {
    let found = tokio::task::spawn_blocking(|| {
        let launcher = Launcher::this_binary().map_err(|error| error.to_string())?;
        SandboxBackend::find(&launcher).map_err(|error| error.to_string())
    });
    match found.await {
        Ok(Ok(SandboxBackend::Bubblewrap)) => "bubblewrap".to_string(),
        Ok(Ok(SandboxBackend::Landlock)) => {
            "Landlock; install bubblewrap for one in which commands can change modes of files and list processes".to_string()
        }
        Ok(Err(why)) => format!("commands with a sandbox are refused: {why}"),
        Err(error) => format!("unknown: {error}"),
    }
}

/// The finding about whether the folder is a copy.
fn told_copy(is_copy: bool) -> &'static str {
    if is_copy {
        "yes: the first start ends what was under way as unknown; if the original is gone, `windlass confirm --original-gone`"
    } else {
        "no"
    }
}

/// Walks a session's journal from its head, which verifies every row against the hash chain.
async fn check(store: &Arc<dyn Store>, session: &SessionRow) -> Result<SessionFinding, StoreError> {
    let open = store.open_batches(Some(session.no)).await?.len();
    let mut checked =
        SessionFinding { name: session.name.clone(), entries: session.head.0, open, damage: None };
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_without_a_version_are_seen() {
        let unfixed = |line: &str| is_unfixed(&line.split(' ').map(str::to_string).collect::<Vec<_>>());
        for line in
            ["npx -y @scope/server", "uvx server", "/usr/bin/npx server@latest", "npx @scope/server@next"]
        {
            assert!(unfixed(line), "{line}");
        }
        for line in ["npx -y @scope/server@1.2.3", "uvx server==1.0", "npx server@2", "python3 server.py"] {
            assert!(!unfixed(line), "{line}");
        }
    }
}
