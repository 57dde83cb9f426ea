//! A `read` through the MCP door to an MCP server in the same process, beside the same call made directly: `mcp [--seconds N] [--dir DIR]`;
//! `--only direct|memory|sqlite` makes nothing but these calls, for a profiler.
//! On the memory store it may take three times as long, on SQLite that and one and a half lone commits.
//!
//! The client has a thread and a runtime of its own, as it would have in another process: it shares no threads with what it asks.

use axum::Router;
use axum::body::Bytes;
use axum::routing::post;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use serde_json::{Value, json};
use std::error::Error;
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use windlass::store::Store;
use windlass::store::memory::MemoryStore;
use windlass::store::sqlite::{Options, SqliteStore};
use windlass::{Config, Runtime};
use windlass_bench::floor;
use windlass_bench::table::aligned;
use windlass_http::{HttpClient, HttpConfig, HttpRequest, Method};
use windlass_mcp::upstream::{McpPins, Upstreams};
use windlass_server::Api;
use windlass_server::access::{AccessRules, TokenScope};
use windlass_server::address::Address;
use windlass_server::wire::NewToken;
use windlass_tools::{Launcher, load};

/// Into how many turns a measurement is cut, so that a machine that is slow for a while is slow for all.
const TURNS: u32 = 5;
/// The tool, as both are asked for it.
const TOOL: &str = "look";
const VERSION: &str = "2026-07-28";

fn main() -> Result<(), Box<dyn Error>> {
    let (mut seconds, mut dir, mut only) = (5.0, PathBuf::from("."), None);
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let value = words.next().ok_or_else(|| format!("{word} needs a value"))?;
        match word.as_str() {
            "--seconds" => seconds = value.parse()?,
            "--dir" => dir = value.into(),
            "--only" => only = Some(value),
            other => {
                return Err(
                    format!("{other} is unknown: mcp [--seconds N] [--dir DIR] [--only WHICH]").into()
                );
            }
        }
    }
    let folder = tempfile::tempdir_in(&dir)?;
    let servers = tokio::runtime::Runtime::new()?;
    let client = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let upstream = servers.block_on(upstream())?;
    let direct = AskedServer::new(format!("http://{upstream}/mcp"), None)?;
    let memory =
        servers.block_on(MeasuredDoor::start(Arc::new(MemoryStore::new()?), upstream, folder.path()))?;
    let sqlite = SqliteStore::open(Options::new(folder.path().join("data")))?;
    let sqlite = servers.block_on(MeasuredDoor::start(Arc::new(sqlite), upstream, folder.path()))?;
    if let Some(only) = only {
        let asked = match only.as_str() {
            "direct" => &direct,
            "memory" => &memory.asked,
            "sqlite" => &sqlite.asked,
            other => return Err(format!("{other} is not direct, memory or sqlite").into()),
        };
        let median = client.block_on(asked.median(Duration::from_secs_f64(seconds)))?;
        writeln!(std::io::stdout().lock(), "half take less than {} µs", median.as_micros())?;
        return Ok(());
    }
    let turn = Duration::from_secs_f64(seconds) / TURNS / 4;
    let (mut times, mut commits) = ([const { Vec::new() }; 3], Vec::new());
    for _ in 0..TURNS {
        for (times, asked) in times.iter_mut().zip([&direct, &memory.asked, &sqlite.asked]) {
            times.push(client.block_on(asked.median(turn))?);
        }
        commits.push(floor::sqlite_rows(folder.path(), 1, turn)?.p50);
    }
    let [direct, memory_time, sqlite_time] = times.map(|times| median(times).as_secs_f64() * 1e6);
    let commit = median(commits).as_secs_f64() * 1e6;
    let added = (sqlite_time - memory_time) / commit;
    let us = |time: f64| format!("{time:.0} µs");
    let rows = [
        ["a read of the server itself, half take less", &us(direct), ""],
        [
            "through the door, memory store",
            &us(memory_time),
            &format!("{:.2} × the direct call, at most 3", memory_time / direct),
        ],
        ["a lone commit of 300 bytes", &us(commit), ""],
        [
            "through the door, SQLite",
            &us(sqlite_time),
            &format!("memory store + {added:.2} lone commits, at most 1.5"),
        ],
        ["durability adds", &us(sqlite_time - memory_time), ""],
    ];
    let rows: Vec<Vec<String>> = rows.iter().map(|row| row.map(str::to_owned).to_vec()).collect();
    write!(std::io::stdout().lock(), "{}", aligned(&rows))?;
    Ok(())
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// An MCP server with one tool, which answers at once.
async fn upstream() -> Result<SocketAddr, Box<dyn Error>> {
    let router = Router::new().route("/mcp", post(async |asked: Bytes| answered(&asked)));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let _ = stream.set_nodelay(true);
            let service = TowerToHyperService::new(router.clone());
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        }
    });
    Ok(address)
}

fn answered(asked: &[u8]) -> ([(&'static str, &'static str); 1], String) {
    let asked = serde_json::from_slice(asked).unwrap_or_default();
    ([("content-type", "application/json")], answer(&asked).to_string())
}

fn answer(asked: &Value) -> Value {
    let result = match asked["method"].as_str() {
        Some("server/discover") => json!({"supportedVersions": [VERSION], "capabilities": {"tools": {}}}),
        Some("tools/list") => json!({"tools": [definition()]}),
        _ => json!({"content": [{"type": "text", "text": asked["params"]["arguments"]["message"]}]}),
    };
    json!({"jsonrpc": "2.0", "id": asked["id"], "result": result})
}

fn definition() -> Value {
    let schema =
        json!({"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]});
    json!({"name": TOOL, "description": "Looks.", "inputSchema": schema})
}

/// A runtime behind its MCP door, with the server behind it.
struct MeasuredDoor {
    asked: AskedServer,
    _parts: (Address, Upstreams, Runtime),
}

impl MeasuredDoor {
    async fn start(
        store: Arc<dyn Store>,
        upstream: SocketAddr,
        folder: &Path,
    ) -> Result<MeasuredDoor, Box<dyn Error>> {
        let text = format!(
            "[mcp.up]\nurl = \"http://{upstream}/mcp\"\ninternal = true\nprefix = \"\"\nclass = \"read\"\napproval = \"never\"\n"
        );
        let declared = load(&text, &folder.join("windlass.toml"), Launcher::this_binary()?)?;
        let runtime = Runtime::new(Config { policy: declared.policy, ..Config::on(store) });
        let mut pins = McpPins::default();
        pins.servers.insert("up".to_string(), [(TOOL.to_string(), definition())].into());
        let file = folder.join("windlass.mcp.json");
        pins.write(&file)?;
        let upstreams = Upstreams::register(&runtime, declared.mcp, &Launcher::this_binary()?, &file);
        let api = Api::new(&runtime, None);
        let wanted = NewToken {
            principal: "bench".to_owned(),
            scopes: vec![TokenScope::Calls],
            title: None,
            expires_in_s: None,
            requests_per_minute: Some(u32::MAX),
            approves: Vec::new(),
        };
        let token = api.tokens().make(wanted).await.map_err(|problem| problem.to_string())?.token;
        let listening = Address::listen(SocketAddr::from(([127, 0, 0, 1], 0))).await?;
        let address = Address::serve(&api, listening, AccessRules::default())?;
        let asked = AskedServer::new(format!("http://{}/mcp", address.address()), Some(token))?;
        Ok(MeasuredDoor { asked, _parts: (address, upstreams, runtime) })
    }
}

/// A server that is called by the same client as all others, over a connection that stays open.
struct AskedServer {
    client: HttpClient,
    url: String,
    headers: Vec<(String, String)>,
}

impl AskedServer {
    fn new(url: String, token: Option<String>) -> Result<AskedServer, Box<dyn Error>> {
        let allowed = vec!["127.0.0.0/8".parse()?];
        let client = HttpClient::new(HttpConfig { allowed, plain_http: true, ..HttpConfig::default() })?;
        let mut headers = vec![
            ("content-type".to_string(), "application/json".to_string()),
            ("accept".to_string(), "application/json, text/event-stream".to_string()),
            ("mcp-protocol-version".to_string(), VERSION.to_string()),
            ("mcp-method".to_string(), "tools/call".to_string()),
            ("mcp-name".to_string(), TOOL.to_string()),
        ];
        headers.extend(token.map(|token| ("authorization".to_string(), format!("Bearer {token}"))));
        Ok(AskedServer { client, url, headers })
    }

    /// The median of calls, one after the other, for so long.
    async fn median(&self, span: Duration) -> Result<Duration, Box<dyn Error>> {
        let (began, mut times) = (Instant::now(), Vec::new());
        while times.len() < 3 || began.elapsed() < span {
            let message = format!("hello {}", times.len());
            let meta = json!({
                "io.modelcontextprotocol/protocolVersion": VERSION,
                "io.modelcontextprotocol/clientCapabilities": {},
            });
            let params = json!({"name": TOOL, "arguments": {"message": message}, "_meta": meta});
            let asked = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
            let request = HttpRequest {
                method: Method::POST,
                url: self.url.clone(),
                headers: self.headers.clone(),
                body: asked.to_string().into_bytes(),
                timeout: None,
                same_origin: true,
            };
            let started = Instant::now();
            let response = self.client.send(request).await?;
            times.push(started.elapsed());
            let told = String::from_utf8_lossy(&response.body);
            if !told.contains(&message) || told.contains("\"isError\":true") {
                return Err(format!("{} answered {told}", self.url).into());
            }
        }
        Ok(median(times))
    }
}
