//! A connection to a server: which era it speaks, which tools it has, and its answers.

use super::JoinOnDrop;
use super::changes::ServerChanges;
use super::definition::RawTools;
use super::remote::{RemotePlace, RemoteServer};
use super::stdio::{ServerCommand, StdioServer};
use super::wire::{LostRequest, SentRequest, UNREADABLE};
use crate::message::UNSUPPORTED_VERSION;
use crate::peer::{Era, LEGACY, META_CAPABILITIES, META_VERSION, MODERN, TASKS};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use windlass::Limits;
use windlass::secrets::SecretValue;
use windlass_tools::Launcher;
use windlass_tools::command::Variable;
use windlass_tools::declared::{McpForwards, McpPlace, McpServer};

/// How long a server may take to say that it does not know the newer era: some say nothing.
const PROBE_WAIT: Duration = Duration::from_secs(3);
/// How long one request listens for changes.
const LISTENS_MAX: Duration = Duration::from_secs(24 * 3_600);
/// Pages of a list.
const PAGES_MAX: usize = 100;

/// A connection to a server.
pub(super) struct McpConnection {
    transport: McpTransport,
    pub(super) era: Era,
    pub(super) version: String,
    /// The name and version that the server gives itself.
    pub(super) server_info: Value,
    /// The features that the server says it has.
    capabilities: Value,
    /// The tools as they were last listed.
    tools: Mutex<Arc<RawTools>>,
    /// Takes what the server says has changed.
    pub(super) changes: Arc<ServerChanges>,
    pub(super) limits: McpConnectionLimits,
    /// Hears the messages that an older server behind a URL sends of its own.
    hears: Option<JoinOnDrop>,
}

enum McpTransport {
    Stdio(StdioServer),
    Remote(Arc<RemoteServer>),
}

/// Bounds of what a server may take and send.
#[derive(Clone, Copy, Debug)]
pub(super) struct McpConnectionLimits {
    pub(super) connect: Duration,
    pub(super) message_bytes_max: usize,
    pub(super) tools_max: usize,
    pub(super) definition_bytes_max: usize,
}

impl McpConnectionLimits {
    pub(super) fn of(limits: &Limits) -> McpConnectionLimits {
        let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        McpConnectionLimits {
            connect: Duration::from_millis(limits.mcp_connect_ms),
            message_bytes_max: size(limits.mcp_message_bytes_max),
            tools_max: size(limits.mcp_server_tools_max),
            definition_bytes_max: size(limits.mcp_definition_bytes_max),
        }
    }
}

/// Everything that connecting needs.
pub(super) struct McpConnector<'a> {
    pub(super) server: &'a McpServer,
    pub(super) launcher: &'a Launcher,
    /// By which processes of the server are found.
    pub(super) mark: String,
    pub(super) limits: McpConnectionLimits,
    /// The secrets that the entry names, with their values.
    pub(super) secrets: Vec<(String, SecretValue)>,
    /// Takes what the server says has changed.
    pub(super) changes: Arc<ServerChanges>,
}

impl McpConnector<'_> {
    /// Connects, finds the era, and lists the tools.
    pub(super) async fn connect(&self) -> Result<McpConnection, String> {
        let within = self.limits.connect;
        let connected = tokio::time::timeout(within, async {
            let transport = self.open().await?;
            let connection = handshake(transport, self.changes.clone(), self.limits).await?;
            connection.list().await?;
            Ok(connection)
        });
        connected.await.unwrap_or_else(|_| Err(format!("it did not answer within {} ms", within.as_millis())))
    }

    async fn open(&self) -> Result<McpTransport, String> {
        let secret = |name: &str| {
            let found = self.secrets.iter().find(|(known, _)| known == name);
            found.map(|(_, value)| value.expose().to_string())
        };
        match &self.server.place {
            McpPlace::Command { words, env, cwd } => {
                let mut filled = Vec::with_capacity(env.len());
                for (name, value) in env {
                    let value = match value {
                        Variable::Plain(value) => Some(value.clone()),
                        Variable::Secret(name) => secret(name).filter(|value| !value.contains('\0')),
                    };
                    let value =
                        value.ok_or_else(|| format!("the secret of the variable {name} is not at hand"))?;
                    filled.push((name.clone(), value));
                }
                let command = ServerCommand {
                    launcher: self.launcher.clone(),
                    mark: self.mark.clone(),
                    words: words.clone(),
                    env: filled,
                    cwd: cwd.clone(),
                    line_bytes_max: self.limits.message_bytes_max,
                };
                Ok(McpTransport::Stdio(StdioServer::start(command, self.changes.clone()).await?))
            }
            McpPlace::Url { request, client } => {
                let filled = request.fill(&json!({}), &secret).map_err(|error| error.to_string())?;
                let place = RemotePlace { client: client.clone(), url: filled.url, headers: filled.headers };
                Ok(McpTransport::Remote(Arc::new(RemoteServer::new(place, self.changes.clone()))))
            }
        }
    }
}

/// Finds the era: the newer one is asked first, and a server that does not know it is opened as the older one wants.
async fn handshake(
    transport: McpTransport,
    changes: Arc<ServerChanges>,
    limits: McpConnectionLimits,
) -> Result<McpConnection, String> {
    let mut connection = McpConnection {
        transport,
        era: Era::Modern,
        version: MODERN.to_string(),
        server_info: Value::Null,
        capabilities: Value::Null,
        tools: Mutex::default(),
        changes,
        limits,
        hears: None,
    };
    connection.transport.speaks(MODERN);
    let opened = match connection.era_of_server().await? {
        ServerEra::Modern(found) => {
            connection.transport.speaks(MODERN);
            connection.server_info = found["_meta"]["io.modelcontextprotocol/serverInfo"].clone();
            connection.capabilities = found["capabilities"].clone();
            return Ok(connection);
        }
        ServerEra::Legacy(opened) => opened,
    };
    let version =
        opened["protocolVersion"].as_str().ok_or("it did not say which protocol version it speaks")?;
    connection.era = Era::Legacy;
    connection.version = version.to_string();
    connection.server_info = opened["serverInfo"].clone();
    connection.capabilities = opened["capabilities"].clone();
    connection.transport.speaks(version);
    connection
        .transport
        .notify(SentRequest::new("notifications/initialized", Map::new()), limits.connect)
        .await;
    if let McpTransport::Remote(remote) = &connection.transport {
        let remote = remote.clone();
        let hearing = remote.clone();
        connection.hears = Some(JoinOnDrop(tokio::spawn(async move { hearing.hear().await })));
        remote.is_heard().await;
    }
    Ok(connection)
}

/// A server's description of itself, in the way of its era.
enum ServerEra {
    Modern(Value),
    Legacy(Value),
}

impl McpConnection {
    /// Asks in the newer way first. A server that says nothing may be older, or may still be starting: then both ways are tried.
    async fn era_of_server(&self) -> Result<ServerEra, String> {
        let mut discovering = Box::pin(self.discover());
        let mut found = match tokio::time::timeout(PROBE_WAIT, &mut discovering).await {
            Ok(found) => found,
            Err(_) => {
                let opening = self.open_legacy();
                tokio::pin!(opening);
                tokio::select! {
                    biased;
                    found = &mut discovering => match found {
                        Ok(found) if offers_modern(&found) => return Ok(ServerEra::Modern(found)),
                        Ok(_) | Err(_) => return opening.await.map_err(|error| error.to_string()),
                    },
                    opened = &mut opening => match opened {
                        Err(McpRequestError::Refused(_)) => (&mut discovering).await,
                        opened => return opened.map_err(|error| error.to_string()),
                    },
                }
            }
        };
        // A server may name the versions it speaks when it is first asked.
        if matches!(&found, Err(McpRequestError::Refused(told)) if told["code"] == UNSUPPORTED_VERSION && names_modern(&told["data"]["supported"]))
        {
            found = self.discover().await;
        }
        match found {
            Ok(found) if offers_modern(&found) => return Ok(ServerEra::Modern(found)),
            Ok(_) | Err(McpRequestError::Refused(_)) => {}
            Err(McpRequestError::Lost(lost)) => match self.transport {
                // It refused a request of the newer era in its own way.
                McpTransport::Remote(_) if !lost.was_sent => {}
                McpTransport::Remote(_) | McpTransport::Stdio(_) => return Err(lost.why),
            },
        }
        self.open_legacy().await.map_err(|error| error.to_string())
    }

    async fn discover(&self) -> Result<Value, McpRequestError> {
        self.request(SentRequest::new("server/discover", Map::new()), self.limits.connect).await
    }

    async fn open_legacy(&self) -> Result<ServerEra, McpRequestError> {
        self.transport.speaks(LEGACY[0]);
        let hello = json!({
            "protocolVersion": LEGACY[0],
            // An empty one says that forms are shown.
            "capabilities": {"elicitation": {}},
            "clientInfo": {"name": "windlass", "version": env!("CARGO_PKG_VERSION")},
        });
        let hello = SentRequest::new("initialize", object(hello));
        self.request_as(Era::Legacy, hello, self.limits.connect).await.map(ServerEra::Legacy)
    }
}

fn offers_modern(result: &Value) -> bool {
    names_modern(&result["supportedVersions"])
}

fn names_modern(versions: &Value) -> bool {
    versions.as_array().is_some_and(|versions| versions.iter().any(|version| version == MODERN))
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(fields) => fields,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => Map::new(),
    }
}

impl McpTransport {
    fn speaks(&self, version: &str) {
        if let McpTransport::Remote(remote) = self {
            remote.speaks(version);
        }
    }

    async fn notify(&self, request: SentRequest, within: Duration) {
        match self {
            McpTransport::Stdio(server) => server.notify(&request.message(None)),
            McpTransport::Remote(remote) => remote.notify(&request, within).await,
        }
    }
}

/// A request without a result.
#[derive(Debug, thiserror::Error)]
pub(super) enum McpRequestError {
    /// The server answered with an error.
    #[error("{}", .0["message"].as_str().unwrap_or("the server gave an error without a message"))]
    Refused(Value),
    /// There was no answer.
    #[error("{}", .0.why)]
    Lost(LostRequest),
}

impl McpConnection {
    /// Why it cannot be used any more, if it cannot.
    pub(super) fn ended(&self) -> Option<String> {
        match &self.transport {
            McpTransport::Stdio(server) => server.ended(),
            McpTransport::Remote(remote) => remote.ended(),
        }
    }

    /// Ends it: a process is killed, and whoever waits learns that the connection was lost.
    pub(super) fn end(&self) {
        if let McpTransport::Stdio(server) = &self.transport {
            server.end();
        }
    }

    /// Whether the server tells of changes: on pipes it does, in the modern era to whoever listens, and before on a stream of its own.
    pub(super) fn tells_changes(&self) -> bool {
        match &self.transport {
            McpTransport::Stdio(_) => true,
            McpTransport::Remote(remote) => self.era == Era::Modern || remote.speaks_up(),
        }
    }

    /// Listens for changes of the tools, and of what else is forwarded, as the era wants it; returns when the server does not tell of
    /// them any more.
    pub(super) async fn listen(&self, forwards: McpForwards) {
        if self.era == Era::Legacy {
            return self.subscribe().await;
        }
        loop {
            let mut wanted = json!({"toolsListChanged": true});
            if forwards.prompts && self.has("prompts") {
                wanted["promptsListChanged"] = true.into();
            }
            if forwards.resources && self.has("resources") {
                wanted["resourcesListChanged"] = true.into();
            }
            let watched = self.changes.watched_uris();
            if !watched.is_empty() {
                wanted["resourceSubscriptions"] = watched.into();
            }
            let wanted = object(json!({"notifications": wanted}));
            let listening = self.request(SentRequest::new("subscriptions/listen", wanted), LISTENS_MAX);
            tokio::select! {
                // A server that cannot tell says so, or ends the request.
                _ = listening => return,
                () = self.changes.rewatched.notified() => {}
            }
        }
    }

    /// Subscribes to the resources that are watched, one by one, as the older era wants it.
    async fn subscribe(&self) {
        let mut subscribed = BTreeSet::new();
        loop {
            let watched: BTreeSet<String> = match self.capabilities["resources"]["subscribe"] == true {
                true => self.changes.watched_uris().into_iter().collect(),
                false => BTreeSet::new(),
            };
            let ended = subscribed.difference(&watched).map(|uri| ("resources/unsubscribe", uri));
            let begun = watched.difference(&subscribed).map(|uri| ("resources/subscribe", uri));
            for (method, uri) in ended.chain(begun) {
                let params = object(json!({"uri": uri}));
                // One that is refused changes without being told of.
                let asked = self.request(SentRequest::new(method, params), self.limits.connect);
                let _ = tokio::time::timeout(self.limits.connect, asked).await;
            }
            subscribed = watched;
            self.changes.rewatched.notified().await;
        }
    }

    /// Sends a request and waits for its result.
    pub(super) async fn request(
        &self,
        request: SentRequest,
        within: Duration,
    ) -> Result<Value, McpRequestError> {
        self.request_as(self.era, request, within).await
    }

    async fn request_as(
        &self,
        era: Era,
        mut request: SentRequest,
        within: Duration,
    ) -> Result<Value, McpRequestError> {
        if era == Era::Modern {
            let meta = request.params.entry("_meta").or_insert_with(|| json!({}));
            meta[META_VERSION] = MODERN.into();
            let ours = || json!({"elicitation": {"form": {}}, "extensions": {TASKS: {}}});
            meta[META_CAPABILITIES] = request.capabilities.take().unwrap_or_else(ours);
            meta["io.modelcontextprotocol/clientInfo"] =
                json!({"name": "windlass", "version": env!("CARGO_PKG_VERSION")});
        }
        let answer = match &self.transport {
            McpTransport::Stdio(server) => server.request(request).await,
            McpTransport::Remote(remote) => remote.request(&request, within).await,
        };
        let mut answer = answer.map_err(McpRequestError::Lost)?;
        if let Some(why) = answer.get(UNREADABLE) {
            let why = format!("its answer cannot be read: {}", why.as_str().unwrap_or_default());
            return Err(McpRequestError::Lost(LostRequest { was_sent: true, why }));
        }
        match answer.get_mut("result").map(Value::take) {
            Some(result) => Ok(result),
            None => Err(McpRequestError::Refused(answer["error"].take())),
        }
    }

    /// Answers a question of a server of the older era.
    pub(super) async fn reply(&self, id: &Value, result: &Value) {
        let message = super::wire::reply(id, result);
        match &self.transport {
            McpTransport::Stdio(server) => server.notify(&message),
            McpTransport::Remote(remote) => remote.reply(&message, self.limits.connect).await,
        }
    }

    /// Lists the tools in the time that connecting may take, and keeps the list.
    pub(super) async fn list(&self) -> Result<Arc<RawTools>, String> {
        let within = self.limits.connect;
        let listed = tokio::time::timeout(within, self.all_pages()).await;
        let tools = Arc::new(listed.unwrap_or_else(|_| {
            Err(format!("it did not list its tools within {} ms", within.as_millis()))
        })?);
        *self.tools.lock().unwrap_or_else(PoisonError::into_inner) = tools.clone();
        Ok(tools)
    }

    async fn all_pages(&self) -> Result<RawTools, String> {
        let mut tools = RawTools::default();
        let limits = self.limits;
        let take = |definition: Value| {
            let has_room = tools.len() < limits.tools_max;
            match has_room {
                true => tools.add(definition, limits.definition_bytes_max),
                false => tools.left_out += 1,
            }
            has_room
        };
        self.each_entry("tools/list", "tools", take).await?;
        Ok(tools)
    }

    /// Has every entry of a list taken, page by page, until there is no room for one.
    pub(super) async fn each_entry(
        &self,
        method: &'static str,
        field: &str,
        mut take: impl FnMut(Value) -> bool,
    ) -> Result<(), String> {
        let mut cursor = None;
        for _ in 0..PAGES_MAX {
            let mut params = Map::new();
            params.extend(cursor.take().map(|cursor| ("cursor".to_string(), cursor)));
            let page = self.request(SentRequest::new(method, params), self.limits.connect).await;
            let mut page = page.map_err(|error| format!("its {field} could not be listed: {error}"))?;
            let Some(listed) = page.get_mut(field).and_then(Value::as_array_mut) else {
                return Err(format!("its list of {field} is no list"));
            };
            let mut has_room = true;
            for entry in listed {
                has_room &= take(entry.take());
            }
            match page.get_mut("nextCursor").map(Value::take) {
                Some(next @ Value::String(_)) if has_room => cursor = Some(next),
                _ => break,
            }
        }
        Ok(())
    }

    /// Whether the server says that it has this feature.
    pub(super) fn has(&self, capability: &str) -> bool {
        self.capabilities[capability].is_object()
    }

    /// Whether the server says that it tells when its list of this feature changes.
    pub(super) fn tells_changes_of(&self, capability: &str) -> bool {
        self.tells_changes() && self.capabilities[capability]["listChanged"] == true
    }

    /// The tools as they were last listed.
    pub(super) fn tools(&self) -> Arc<RawTools> {
        self.tools.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether the server still answers.
    pub(super) async fn answers(&self) -> bool {
        let (method, within) = match self.era {
            Era::Legacy => ("ping", self.limits.connect),
            Era::Modern => ("server/discover", self.limits.connect),
        };
        let asked = self.request(SentRequest::new(method, Map::new()), within);
        matches!(tokio::time::timeout(within, asked).await, Ok(Ok(_) | Err(McpRequestError::Refused(_))))
    }
}
