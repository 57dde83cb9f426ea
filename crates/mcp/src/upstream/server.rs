//! One server of others: connected when it is needed, again after its end, and less and less often while it fails.

use super::changes::ServerChanges;
use super::connection::{McpConnection, McpConnectionLimits, McpConnector};
use super::definition::{self, RawTools};
use super::forwarding::ListedOffers;
use super::tool::McpTool;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, watch};
use windlass::Runtime;
use windlass::secrets::SecretValue;
use windlass_tools::declared::McpServer;
use windlass_tools::{Launcher, kill_survivors};

/// The wait after the first failure; doubled by each further one.
const BACKOFF_BASE: Duration = Duration::from_millis(250);
const BACKOFF_MAX: Duration = Duration::from_secs(30);
/// A connection that lived for so long was good.
const GOOD_AFTER: Duration = Duration::from_secs(10);

/// A server, and the connection to it.
pub(super) struct ServerLink {
    pub(super) server: Arc<McpServer>,
    pub(super) runtime: Runtime,
    launcher: Launcher,
    state: tokio::sync::Mutex<LinkState>,
    /// The registered tools, by their names at the server: the name here, and the definition.
    offered: Mutex<BTreeMap<String, (String, Arc<Value>)>>,
    /// The tasks that this process has asked the server to cancel.
    cancelled: Mutex<BTreeSet<String>>,
    /// The last told difference between what is accepted and what the server has.
    told: Mutex<String>,
    /// Changes that the server tells of.
    pub(super) changes: Arc<ServerChanges>,
    /// Its prompts and resources, if clients of the door get them.
    pub(super) offers: watch::Sender<ListedOffers>,
    /// Room for requests of clients of the door.
    pub(super) forwards: Semaphore,
}

#[derive(Default)]
struct LinkState {
    connection: Option<(Arc<McpConnection>, Instant)>,
    failures: u32,
    /// Not tried again before, because of this.
    blocked: Option<(Instant, String)>,
    /// Whether processes of an earlier owner were looked for.
    is_clean: bool,
}

/// A server that cannot be reached now.
#[derive(Clone, Debug)]
pub(super) struct UnreachableServer {
    pub(super) why: String,
    pub(super) again_in: Duration,
}

impl ServerLink {
    pub(super) fn new(server: McpServer, runtime: &Runtime, launcher: &Launcher) -> Arc<ServerLink> {
        Arc::new(ServerLink {
            server: Arc::new(server),
            runtime: runtime.clone(),
            launcher: launcher.clone(),
            state: tokio::sync::Mutex::default(),
            offered: Mutex::default(),
            cancelled: Mutex::default(),
            told: Mutex::default(),
            changes: Arc::default(),
            offers: watch::Sender::default(),
            forwards: Semaphore::new(forwards_max(runtime)),
        })
    }

    /// The connection, made now if there is none. Concurrent callers wait for the same one.
    pub(super) async fn connection(&self) -> Result<Arc<McpConnection>, UnreachableServer> {
        let mut state = self.state.lock().await;
        if let Some((connection, since)) = &state.connection {
            let Some(why) = connection.ended() else { return Ok(connection.clone()) };
            tracing::warn!(server = self.server.name, why, "the MCP server has ended");
            let was_good = since.elapsed() > GOOD_AFTER;
            state.connection = None;
            if was_good {
                state.failures = 0;
            } else {
                state.failed(why);
            }
        }
        if let Some((until, why)) = &state.blocked
            && let Some(again_in) = until.checked_duration_since(Instant::now())
        {
            return Err(UnreachableServer { why: why.clone(), again_in });
        }
        match self.connect(&mut state).await {
            Ok(connection) => {
                let connection = Arc::new(connection);
                state.blocked = None;
                state.connection = Some((connection.clone(), Instant::now()));
                Ok(connection)
            }
            Err(why) => {
                tracing::warn!(server = self.server.name, why, "the MCP server cannot be used");
                state.failed(why.clone());
                let again_in =
                    state.blocked.as_ref().map(|(until, _)| until.saturating_duration_since(Instant::now()));
                Err(UnreachableServer { why, again_in: again_in.unwrap_or_default() })
            }
        }
    }

    async fn connect(&self, state: &mut LinkState) -> Result<McpConnection, String> {
        let mark = self.mark();
        if !state.is_clean {
            let mark = mark.clone();
            let killed = tokio::task::spawn_blocking(move || kill_survivors(|call| call == mark)).await;
            killed.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
            state.is_clean = true;
        }
        let secrets = secrets(&self.runtime, &self.server).await?;
        let limits = McpConnectionLimits::of(self.runtime.limits());
        let changes = self.changes.clone();
        let (server, launcher) = (&*self.server, &self.launcher);
        McpConnector { server, launcher, mark, limits, secrets, changes }.connect().await
    }

    /// By which the processes of this server are found, and not those of another folder.
    fn mark(&self) -> String {
        let folder = blake3::Hasher::new_keyed(&self.runtime.store().secret().0).finalize().to_hex();
        format!("mcp-{}-{}", &folder[..16], self.server.name)
    }

    /// Ends a connection that does not answer: what waits for it learns that it was lost.
    pub(super) async fn look_after(&self, connection: &McpConnection) {
        if connection.ended().is_none() && !connection.answers().await {
            tracing::warn!(server = self.server.name, "the MCP server does not answer and is ended");
            connection.end();
        }
    }

    /// Offers the tools that are accepted and, if the server was asked, still are what was accepted.
    pub(super) fn offer(self: &Arc<Self>, accepted: &BTreeMap<String, Value>, listed: Option<&RawTools>) {
        let stands = |tool: &str, definition: &Value| match listed {
            Some(listed) => listed.tools.get(tool) == Some(definition),
            None => true,
        };
        let is_shown = |tool: &str| self.server.rules_of(tool).is_hidden != Some(true);
        let mut offered = self.offered();
        offered.retain(|tool, (name, definition)| {
            let keeps =
                is_shown(tool) && accepted.get(tool) == Some(&**definition) && stands(tool, definition);
            if !keeps {
                self.runtime.unregister(name);
            }
            keeps
        });
        for (tool, definition) in accepted {
            if offered.contains_key(tool) || !is_shown(tool) || !stands(tool, definition) {
                continue;
            }
            let spec = definition::spec(&self.server, tool, definition, self.runtime.limits());
            let (name, definition) = (spec.name.clone(), Arc::new(definition.clone()));
            let own = McpTool {
                link: Arc::downgrade(self),
                server: self.server.clone(),
                name: tool.clone(),
                definition: definition.clone(),
                spec,
            };
            match self.runtime.register_shared(Arc::new(own)) {
                Ok(()) => drop(offered.insert(tool.clone(), (name, definition))),
                Err(error) => {
                    let why = windlass::error::chain(&error);
                    tracing::warn!(server = self.server.name, tool, why, "the MCP tool is left out");
                }
            }
        }
        drop(offered);
        if let Some(listed) = listed {
            self.tell(accepted, listed);
        }
    }

    /// Says once what a person should look at.
    fn tell(&self, accepted: &BTreeMap<String, Value>, listed: &RawTools) {
        let difference = ToolsDifference::between(accepted, listed);
        let summary = difference.to_string();
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if *told != summary {
            if !summary.is_empty() {
                let (server, accept) =
                    (&self.server.name, format!("windlass mcp accept {}", self.server.name));
                tracing::warn!(server, "{summary}; these tools are not offered: `{accept}` shows them");
            }
            *told = summary;
        }
    }

    /// Notes that a task was asked to stop: from then on it is not waited for as long as it likes.
    pub(super) fn note_cancelled(&self, task: &str) {
        self.cancelled.lock().unwrap_or_else(PoisonError::into_inner).insert(task.to_string());
    }

    /// Whether a task was asked to stop; it is forgotten.
    pub(super) fn take_cancelled(&self, task: &str) -> bool {
        self.cancelled.lock().unwrap_or_else(PoisonError::into_inner).remove(task)
    }

    fn offered(&self) -> MutexGuard<'_, BTreeMap<String, (String, Arc<Value>)>> {
        self.offered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn forwards_max(runtime: &Runtime) -> usize {
    let max = usize::try_from(runtime.limits().mcp_forwards_max).unwrap_or(usize::MAX);
    max.min(Semaphore::MAX_PERMITS)
}

impl LinkState {
    fn failed(&mut self, why: String) {
        let wait = BACKOFF_BASE.saturating_mul(1 << self.failures.min(10)).min(BACKOFF_MAX);
        self.failures = self.failures.saturating_add(1);
        self.blocked = Some((Instant::now() + wait, why));
    }
}

/// The values of the secrets that reaching a server needs: those of the folder, since all sessions share the connection.
pub(super) async fn secrets(
    runtime: &Runtime,
    server: &McpServer,
) -> Result<Vec<(String, SecretValue)>, String> {
    let mut secrets = Vec::new();
    for name in server.secrets() {
        let value =
            runtime.folder_secrets().value(&name).await.map_err(|error| windlass::error::chain(&error))?;
        secrets.push((name, value));
    }
    Ok(secrets)
}

/// The difference between the accepted tools of a server and those it has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolsDifference {
    /// Those that were not accepted.
    pub new: Vec<String>,
    /// Those whose definition is another one.
    pub changed: Vec<String>,
    /// Accepted ones that the server does not have.
    pub gone: Vec<String>,
    /// Those that cannot be offered, with the reason.
    pub bad: Vec<(String, String)>,
    /// How many there were too many.
    pub left_out: usize,
}

impl ToolsDifference {
    pub(super) fn between(accepted: &BTreeMap<String, Value>, listed: &RawTools) -> ToolsDifference {
        let names = |fits: &dyn Fn(&str, &Value) -> bool, of: &BTreeMap<String, Value>| -> Vec<String> {
            of.iter()
                .filter(|(name, definition)| fits(name, definition))
                .map(|(name, _)| name.clone())
                .collect()
        };
        ToolsDifference {
            new: names(&|name, _| !accepted.contains_key(name), &listed.tools),
            changed: names(&|name, now| accepted.get(name).is_some_and(|then| then != now), &listed.tools),
            gone: names(&|name, _| !listed.tools.contains_key(name), accepted),
            bad: listed.bad.clone(),
            left_out: listed.left_out,
        }
    }
}

impl std::fmt::Display for ToolsDifference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let bad: Vec<String> = self.bad.iter().map(|(name, why)| format!("{name} ({why})")).collect();
        let lists =
            [("new", &self.new), ("changed", &self.changed), ("gone", &self.gone), ("unusable", &bad)];
        let mut told: Vec<String> = lists
            .into_iter()
            .filter(|(_, names)| !names.is_empty())
            .map(|(what, names)| format!("{what}: {}", few(names)))
            .collect();
        if self.left_out > 0 {
            told.push(format!("{} too many", self.left_out));
        }
        f.write_str(&told.join("; "))
    }
}

/// The first of these names.
fn few(names: &[String]) -> String {
    const SHOWN: usize = 10;
    match names.len().checked_sub(SHOWN) {
        None | Some(0) => names.join(", "),
        Some(more) => format!("{} and {more} more", names[..SHOWN].join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_fails_is_left_alone_longer_and_longer() {
        let mut state = LinkState::default();
        let mut waits = Vec::new();
        for _ in 0..12 {
            let now = Instant::now();
            state.failed("it is not there".to_string());
            let (until, why) = state.blocked.clone().expect("it is left alone");
            assert_eq!(why, "it is not there");
            waits.push(until.saturating_duration_since(now).as_millis() / 250 * 250);
        }
        assert_eq!(waits[..8], [250, 500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000]);
        assert!(waits[8..].iter().all(|wait| *wait == 30_000), "{waits:?}");
    }
}
