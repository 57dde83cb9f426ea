//! An MCP server of others in this process: over HTTP, in the newer era, and as it is told.

use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use windlass::Runtime;
use windlass::policy::NewPolicy;
use windlass_mcp::upstream::{McpPins, Upstreams};
use windlass_tools::{Launcher, load};

/// The way in which the server answers one request.
pub enum Reply {
    /// One message.
    Message(Value),
    /// Events as they come; the connection closes behind the last.
    Stream(mpsc::Receiver<Value>),
    /// Nothing, and the connection stays open.
    Nothing,
}

/// A request as the server got it: its headers in small letters, and its message.
#[derive(Clone, Debug)]
pub struct GotRequest {
    pub head: String,
    pub message: Value,
}

/// A server that runs until this is dropped.
pub struct Server {
    pub address: SocketAddr,
    got: watch::Receiver<Vec<GotRequest>>,
    serving: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Server {
    /// One with these tools, whose other requests are answered by this.
    pub async fn start(tools: Value, answers: impl Fn(&Value) -> Reply + Send + Sync + 'static) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (noted, got) = watch::channel(Vec::new());
        let answers = Arc::new(answers);
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (noted, answers, tools) = (noted.clone(), answers.clone(), tools.clone());
                tokio::spawn(async move {
                    let _ = serve(stream, &noted, &tools, &*answers).await;
                });
            }
        });
        Server { address, got, serving }
    }

    /// The requests of a method.
    pub fn got(&self, method: &str) -> Vec<GotRequest> {
        let got = self.got.borrow();
        got.iter().filter(|request| request.message["method"] == method).cloned().collect()
    }

    /// Waits until it has got so many requests of a method.
    pub async fn until_got(&self, method: &str, count: usize) {
        let is_enough = |got: &Vec<GotRequest>| {
            got.iter().filter(|request| request.message["method"] == method).count() >= count
        };
        self.got.clone().wait_for(is_enough).await.expect("it serves");
    }
}

/// Answers one request, and closes.
async fn serve(
    mut stream: TcpStream,
    noted: &watch::Sender<Vec<GotRequest>>,
    tools: &Value,
    answers: &(dyn Fn(&Value) -> Reply + Send + Sync),
) -> std::io::Result<()> {
    let request = read(&mut stream).await?;
    let message = request.message.clone();
    noted.send_modify(|got| got.push(request));
    let answer = |result: Value| json!({"jsonrpc": "2.0", "id": message["id"], "result": result});
    let reply = match message["method"].as_str() {
        // One without tools is mute.
        _ if tools == &json!([]) => answers(&message),
        Some("server/discover") => {
            let found = json!({"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}});
            Reply::Message(answer(found))
        }
        Some("tools/list") => Reply::Message(answer(json!({"tools": tools}))),
        _ => answers(&message),
    };
    match reply {
        Reply::Message(message) => {
            let body = message.to_string();
            let head = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
                body.len()
            );
            stream.write_all(head.as_bytes()).await?;
            stream.write_all(body.as_bytes()).await
        }
        Reply::Stream(mut events) => {
            let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
            stream.write_all(head.as_bytes()).await?;
            while let Some(event) = events.recv().await {
                stream.write_all(format!("data: {event}\n\n").as_bytes()).await?;
            }
            Ok(())
        }
        Reply::Nothing => std::future::pending().await,
    }
}

async fn read(stream: &mut TcpStream) -> std::io::Result<GotRequest> {
    let mut bytes = Vec::new();
    loop {
        if let Some(end) = bytes.windows(4).position(|end| end == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            let length: usize = length.and_then(|length| length.trim().parse().ok()).unwrap_or(0);
            if bytes.len() >= end + 4 + length {
                let message = serde_json::from_slice(&bytes[end + 4..end + 4 + length]).unwrap_or_default();
                return Ok(GotRequest { head, message });
            }
        }
        if stream.read_buf(&mut bytes).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
    }
}

/// The definition of a tool.
pub fn tool(name: &str) -> Value {
    json!({"name": name, "description": "Does it.", "inputSchema": {"type": "object"}})
}

/// The servers of others of a runtime, by their names, with their tools accepted and allowed.
pub struct Others {
    _folder: TempDir,
    pub upstreams: Upstreams,
}

/// Puts these servers behind a runtime.
pub async fn behind(runtime: &Runtime, servers: &[(&str, &Server, Value)]) -> Others {
    let (mut text, mut pins, mut rules) = (String::new(), McpPins::default(), Vec::new());
    for (name, server, tools) in servers {
        text += &entry(name, server, "prefix = \"\"");
        rules.push(json!({"name": name, "ruling": "allow", "when": {"server": name}}));
        let tools = tools.as_array().expect("tools").iter();
        let accepted = tools.map(|tool| (tool["name"].as_str().expect("a name").to_string(), tool.clone()));
        pins.servers.insert((*name).to_string(), accepted.collect());
    }
    let policy = NewPolicy { rules, by: "test".into(), version: None };
    runtime.set_policy(policy).await.expect("a policy");
    register(runtime, &text, &pins)
}

/// The entry of a server, with these lines more.
pub fn entry(name: &str, server: &Server, more: &str) -> String {
    format!("[mcp.{name}]\nurl = \"http://{}/mcp\"\ninternal = true\n{more}\n", server.address)
}

/// Puts the servers of these entries behind a runtime, with these tools accepted.
pub fn register(runtime: &Runtime, entries: &str, pins: &McpPins) -> Others {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("windlass.mcp.json");
    pins.write(&file).expect("it can be written");
    let launcher = || Launcher::this_binary().expect("this test is a program");
    let declared = load(entries, Path::new("/tmp/windlass.toml"), launcher()).expect("it can be used");
    let upstreams = Upstreams::register(runtime, declared.mcp, &launcher(), &file);
    Others { _folder: folder, upstreams }
}
