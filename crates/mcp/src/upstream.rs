//! Windlass as a client: tools of MCP servers of others, as tools of ours.
//!
//! A tool is offered once a person has accepted its definition (`pins`), and only while the server still gives the same one. Its
//! calls are ordinary calls: what they may do is decided by the entry of the server in `windlass.toml`, and an approval covers the
//! definition and the entry. Read `tool` first: it is one call, from the connection to the result.

mod changes;
mod connection;
mod definition;
mod forwarding;
mod offers;
mod output;
mod pins;
mod questions;
mod remote;
mod server;
mod stdio;
mod task;
mod template;
mod tool;
mod wire;

pub(crate) use changes::ResourceWatch;
pub use forwarding::Forwarding;
pub(crate) use forwarding::{ForwardError, ForwardedRequest, ForwardingServer, ListPatience};
pub(crate) use offers::OfferKind;
pub use pins::McpPins;
pub use server::ToolsDifference;

use connection::{McpConnection, McpConnectionLimits, McpConnector};
use serde_json::Value;
use server::ServerLink;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;
use windlass::{Limits, Runtime};
use windlass_tools::Launcher;
use windlass_tools::declared::{McpForwards, McpServer};

/// How often the file of accepted tools and the connection are looked at.
const LOOKS_EVERY: Duration = Duration::from_millis(500);
/// The pause before a server is asked again to tell of changes.
const LISTENS_AGAIN_AFTER: Duration = Duration::from_secs(5);
/// The pause between two lists of a server that tells of changes: one may tell of them without end.
const LISTS_AGAIN_AFTER: Duration = Duration::from_millis(300);
/// How often the tools of a server are listed that does not tell of changes.
const LISTS_EVERY: Duration = Duration::from_secs(60);

/// The MCP servers of others. Dropping it ends their processes.
pub struct Upstreams {
    links: Vec<Arc<ServerLink>>,
    pins: PathBuf,
    keepers: Vec<JoinHandle<()>>,
}

impl Upstreams {
    /// Registers the accepted tools of these servers. Nothing is connected to before a call needs it.
    pub fn register(
        runtime: &Runtime,
        servers: Vec<McpServer>,
        launcher: &Launcher,
        pins: &Path,
    ) -> Upstreams {
        let accepted = McpPins::read(pins).unwrap_or_else(|why| {
            tracing::warn!("{why}");
            McpPins::default()
        });
        let links: Vec<Arc<ServerLink>> =
            servers.into_iter().map(|server| ServerLink::new(server, runtime, launcher)).collect();
        for link in &links {
            link.offer(&accepted.of(&link.server.name), None);
        }
        Upstreams { links, pins: pins.to_path_buf(), keepers: Vec::new() }
    }

    /// The prompts and resources of these servers for clients of the door, as long as the servers are there.
    pub fn forwarding(&self) -> Forwarding {
        Forwarding::of(&self.links)
    }

    /// Connects to all servers and stays connected: changed tools vanish, accepted ones appear.
    pub fn keep(&mut self) {
        for link in &self.links {
            self.keepers.push(tokio::spawn(keep(link.clone(), self.pins.clone())));
        }
    }
}

impl Drop for Upstreams {
    fn drop(&mut self) {
        self.keepers.iter().for_each(JoinHandle::abort);
    }
}

/// Keeps one server connected, and its tools as accepted.
async fn keep(link: Arc<ServerLink>, pins: PathBuf) {
    let mut seen = None;
    loop {
        let connection = match link.connection().await {
            Ok(connection) => connection,
            Err(unreachable) => {
                let written = pins::written_at(&pins);
                if seen != Some(written) {
                    seen = Some(written);
                    offer(&link, &pins, None);
                }
                tokio::time::sleep(unreachable.again_in.max(LOOKS_EVERY)).await;
                continue;
            }
        };
        let mut listed_at = Instant::now();
        seen = None;
        let listens = JoinOnDrop(tokio::spawn(listen(connection.clone(), link.server.forwards)));
        while connection.ended().is_none() {
            let written = pins::written_at(&pins);
            if seen != Some(written) {
                seen = Some(written);
                offer(&link, &pins, Some(&connection));
            }
            let is_told =
                tokio::time::timeout(LOOKS_EVERY, connection.changes.tools.notified()).await.is_ok();
            let is_due = !connection.tells_changes() && listed_at.elapsed() > LISTS_EVERY;
            if is_told || is_due {
                tokio::time::sleep(LISTS_AGAIN_AFTER.saturating_sub(listed_at.elapsed())).await;
                listed_at = Instant::now();
                match connection.list().await {
                    Ok(_) => seen = None,
                    Err(why) => {
                        let server = &link.server.name;
                        tracing::warn!(server, why, "the MCP server gave no list of its tools");
                        // One that answers nothing is ended, and started again.
                        link.look_after(&connection).await;
                    }
                }
            }
        }
        drop(listens);
    }
}

/// Listens for changes of a server, as long as its connection lasts.
async fn listen(connection: Arc<McpConnection>, forwards: McpForwards) {
    while connection.ended().is_none() {
        connection.listen(forwards).await;
        tokio::time::sleep(LISTENS_AGAIN_AFTER).await;
    }
}

/// A task that ends with its owner.
struct JoinOnDrop(JoinHandle<()>);

impl Drop for JoinOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Offers the accepted tools of a server. Those of a trusted one are accepted as they come.
fn offer(link: &Arc<ServerLink>, file: &Path, connection: Option<&McpConnection>) {
    let mut accepted = match McpPins::read(file) {
        Ok(accepted) => accepted,
        Err(why) => {
            tracing::warn!("{why}");
            McpPins::default()
        }
    };
    let name = &link.server.name;
    let listed = connection.map(McpConnection::tools);
    if let Some(listed) =
        listed.as_deref().filter(|listed| link.server.is_trusted && listed.tools != accepted.of(name))
    {
        accepted.servers.insert(name.clone(), listed.tools.clone());
        if let Err(error) = accepted.write(file) {
            tracing::warn!(server = name, %error, "the tools of the MCP server could not be written down");
        }
    }
    link.offer(&accepted.of(name), listed.as_deref());
}

/// A look at a server: what it is, and which tools it has.
pub struct McpLook {
    /// The name and version that it gives itself.
    pub server: Value,
    /// The revision of the protocol that it speaks.
    pub version: String,
    /// The definitions of its tools, by their names there.
    pub tools: BTreeMap<String, Value>,
    /// The tools that cannot be offered, with the reason.
    pub bad: Vec<(String, String)>,
    /// How many tools there were too many.
    pub left_out: usize,
}

impl McpLook {
    /// Connects to a server and lists its tools; an error says why that is not possible. The secrets of the entry are the runtime's.
    pub async fn at(server: &McpServer, runtime: &Runtime, launcher: &Launcher) -> Result<McpLook, String> {
        let secrets = server::secrets(runtime, server).await?;
        let limits = McpConnectionLimits::of(runtime.limits());
        let mark = format!("mcp-look-{}-{}", std::process::id(), server.name);
        let changes = Arc::default();
        let connector = McpConnector { server, launcher, mark, limits, secrets, changes };
        let connection = connector.connect().await?;
        let listed = connection.tools();
        connection.end();
        Ok(McpLook {
            server: connection.server_info.clone(),
            version: connection.version.clone(),
            tools: listed.tools.clone(),
            bad: listed.bad.clone(),
            left_out: listed.left_out,
        })
    }

    /// The difference to the accepted tools.
    pub fn difference(&self, accepted: &BTreeMap<String, Value>) -> ToolsDifference {
        let listed = definition::RawTools {
            tools: self.tools.clone(),
            bad: self.bad.clone(),
            left_out: self.left_out,
        };
        ToolsDifference::between(accepted, &listed)
    }
}

/// The declaration under which a tool of a server is offered.
pub fn offered(server: &McpServer, tool: &str, definition: &Value, limits: &Limits) -> windlass::ToolSpec {
    definition::spec(server, tool, definition, limits)
}
