//! A server at an address, and a client that speaks plain HTTP to it.

use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use windlass::store::sqlite::{Options, SqliteStore};
use windlass::tool::{Stream, client_tool};
use windlass::{
    Config, Cx, EffectClass, Flags, Limits, Output, Runtime, Tool, ToolError, ToolFuture, ToolSpec, tool_fn,
};
use windlass_server::Api;
use windlass_server::access::{AccessRules, TokenScope};
use windlass_server::address::Address;
use windlass_server::wire::NewToken;
use windlass_testkit::clock::ManualClock;

/// A test that waits longer has failed.
const PATIENCE: Duration = Duration::from_secs(60);

pub struct Served {
    pub folder: TempDir,
    pub api: Api,
    pub address: Address,
    /// Other workers on the same store, each with the same tools and an address of its own: every request goes to one of all.
    pub others: Vec<(Api, Address)>,
    /// How many requests were sent.
    sent: AtomicU64,
    /// The token of the principal `local`, with all scopes.
    pub token: String,
    /// Lets calls of `hold`, `peek` and `build` return, one each.
    pub go: Arc<Semaphore>,
    /// The keys that calls of `key` gave out.
    pub keys: Keys,
}

type Keys = Arc<Mutex<Vec<String>>>;

/// An answer: its status, its headers in small letters, and its body.
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {} {}", self.status, self.body))
    }

    /// The status, and the code of a problem.
    pub fn told(&self) -> (u16, String) {
        let code = serde_json::from_str::<Value>(&self.body).ok();
        let code = code.and_then(|body| body["code"].as_str().map(str::to_string));
        (self.status, code.unwrap_or_default())
    }

    #[track_caller]
    pub fn expect(self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.body);
        self.json()
    }
}

impl Served {
    pub async fn new() -> Served {
        Served::with(|_| {}).await
    }

    pub async fn with(change: impl FnOnce(&mut Config)) -> Served {
        Served::of(1, change).await
    }

    /// Several workers on one store.
    pub async fn fleet(count: usize, change: impl FnOnce(&mut Config)) -> Served {
        Served::of(count, change).await
    }

    async fn of(count: usize, change: impl FnOnce(&mut Config)) -> Served {
        let folder = tempfile::tempdir().expect("a folder");
        let store = SqliteStore::open(Options::new(folder.path())).expect("a store");
        let mut config = Config { files: Some(folder.path().join("files")), ..Config::new(store) };
        change(&mut config);
        config.shared = count > 1;
        let (go, keys) = (Arc::new(Semaphore::new(0)), Keys::default());
        let mut others = Vec::new();
        for _ in 1..count {
            others.push(served_on(again(&config), &go, &keys, None).await);
        }
        let (api, address) = served_on(config, &go, &keys, Some(folder.path())).await;
        let file = api.tokens().first().await.expect("a token").expect("it is written");
        let token = std::fs::read_to_string(file).expect("a token").trim().to_string();
        Served { folder, api, address, others, sent: AtomicU64::new(0), token, go, keys }
    }

    /// All runtimes.
    pub fn runtimes(&self) -> impl Iterator<Item = &Runtime> {
        std::iter::once(&self.api).chain(self.others.iter().map(|(api, _)| api)).map(Api::runtime)
    }

    /// One whose clock stands still until it is moved.
    pub async fn with_clock(limits: Limits) -> (Served, ManualClock) {
        let clock = ManualClock::default();
        let served = Served::with(|config| {
            config.clock = Arc::new(clock.clone());
            config.limits = limits;
        });
        (served.await, clock)
    }

    pub fn at(&self) -> SocketAddr {
        self.address.address()
    }

    /// A token of this principal.
    pub async fn token_of(&self, principal: &str, scopes: &[TokenScope]) -> String {
        let wanted = NewToken {
            principal: principal.into(),
            scopes: scopes.to_vec(),
            title: None,
            expires_in_s: None,
            requests_per_minute: None,
            approves: Vec::new(),
        };
        self.api.tokens().make(wanted).await.expect("a token").token
    }

    /// Asks with the first token.
    pub async fn ask(&self, method: &str, path: &str, body: Value) -> Answer {
        self.ask_as(Some(&self.token), method, path, body).await
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, Value::Null).await
    }

    pub async fn post(&self, path: &str, body: Value) -> Answer {
        self.ask("POST", path, body).await
    }

    pub async fn ask_as(&self, token: Option<&str>, method: &str, path: &str, body: Value) -> Answer {
        self.raw(&Served::request(token, method, path, body)).await
    }

    /// A request as it is written.
    pub fn request(token: Option<&str>, method: &str, path: &str, body: Value) -> String {
        let token = token.map(|token| format!("authorization: Bearer {token}\r\n")).unwrap_or_default();
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let length = body.len();
        format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{token}content-length: {length}\r\n\r\n{body}"
        )
    }

    /// Sends a request as it is written.
    pub async fn raw(&self, request: &str) -> Answer {
        read(self.send(request).await).await
    }

    /// Sends a request, and leaves the answer to the caller.
    pub async fn send(&self, request: &str) -> TcpStream {
        let sent = self.sent.fetch_add(1, Ordering::Relaxed);
        // A fixed mix of all of them: a failure comes again.
        let turn = usize::try_from(sent.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33).expect("small")
            % (self.others.len() + 1);
        let at = self.others.get(turn).map_or(self.at(), |(_, address)| address.address());
        let mut stream = TcpStream::connect(at).await.expect("it is served");
        // Whoever is refused in the middle may not be able to send the rest.
        let _ = stream.write_all(request.as_bytes()).await;
        stream
    }
}

/// A runtime with the tools, served.
async fn served_on(
    config: Config,
    go: &Arc<Semaphore>,
    keys: &Keys,
    folder: Option<&Path>,
) -> (Api, Address) {
    let listening = Address::listen("127.0.0.1:0".parse().expect("an address")).await.expect("a free port");
    let address = listening.address().expect("an address");
    let runtime = Runtime::new(Config { address: Some(format!("http://{address}")), ..config });
    tools(&runtime, go, keys);
    while runtime.is_shared() && runtime.worker().is_none() {
        tokio::task::yield_now().await;
    }
    let api = Api::new(&runtime, folder);
    let rules =
        AccessRules { hosts: vec!["tools.example".into()], origins: vec!["https://ui.example".into()] };
    let address = Address::serve(&api, listening, rules).expect("it is served");
    (api, address)
}

/// A configuration for another worker, equal to this one.
fn again(config: &Config) -> Config {
    Config {
        clock: config.clock.clone(),
        limits: config.limits.clone(),
        hooks: config.hooks.clone(),
        secret_key: config.secret_key.clone(),
        webhooks: config.webhooks.clone(),
        files: config.files.clone(),
        policy: config.policy.clone(),
        toolbox_secrets: config.toolbox_secrets.clone(),
        folders: config.folders.clone(),
        shared: true,
        ..Config::on(config.store.clone())
    }
}

/// An answer as far as it says whether it was one; that of a problem is read whole.
pub async fn read_head(mut stream: TcpStream) -> Answer {
    let mut answer = Vec::new();
    let head = async {
        while !answer.windows(4).any(|end| end == b"\r\n\r\n") {
            if stream.read_buf(&mut answer).await.unwrap_or(0) == 0 {
                break;
            }
        }
        if answer.get(9) != Some(&b'2') {
            let _ = stream.read_to_end(&mut answer).await;
        }
    };
    tokio::time::timeout(PATIENCE, head).await.expect("it is answered in time");
    parsed(answer)
}

/// Whatever is answered until the connection is closed.
pub async fn read(mut stream: TcpStream) -> Answer {
    let mut answer = Vec::new();
    let read = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer));
    let _ = read.await.expect("it is answered in time");
    parsed(answer)
}

fn parsed(answer: Vec<u8>) -> Answer {
    let answer = String::from_utf8(answer).expect("text");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    Answer { status, head: head.to_lowercase(), body: unchunked(head, body) }
}

/// A body that came in pieces, in one.
fn unchunked(head: &str, body: &str) -> String {
    if !head.to_lowercase().contains("transfer-encoding: chunked") {
        return body.to_string();
    }
    let (mut rest, mut whole) = (body, String::new());
    while let Some((size, behind)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap_or(0);
        if size == 0 {
            break;
        }
        // Of the last piece there may be less so far.
        whole.push_str(behind.get(..size).unwrap_or(behind));
        rest = behind.get(size + 2..).unwrap_or_default();
    }
    whole
}

fn tools(runtime: &Runtime, go: &Arc<Semaphore>, keys: &Keys) {
    let spec = |name: &str, class| ToolSpec { name: name.into(), class: Some(class), ..ToolSpec::default() };
    let free = |name: &str, class| ToolSpec { claims: Some(Vec::new()), ..spec(name, class) };
    let say = tool_fn(free("say", EffectClass::Read), |args, _| async move { Ok(args.into()) });
    runtime.register(say).expect("it fits");
    let fail =
        tool_fn(free("fail", EffectClass::Read), |_, _| async { Err(ToolError::new("it never works")) });
    runtime.register(fail).expect("it fits");
    let flags = Flags { background: true, ..Flags::default() };
    let build = ToolSpec { flags, inline_ms: Some(0), ..free("build", EffectClass::Keyed) };
    for spec in [free("hold", EffectClass::Once), free("peek", EffectClass::Read), build] {
        let go = go.clone();
        let hold = tool_fn(spec, move |_, cx: &Cx| {
            let (go, cx) = (go.clone(), cx.clone());
            async move {
                cx.output(Stream::Err, b"it holds\n");
                go.acquire().await.expect("it stays open").forget();
                Ok(json!("held").into())
            }
        });
        runtime.register(hold).expect("it fits");
    }
    runtime.register(Asks(spec("ask", EffectClass::Stepped))).expect("it fits");
    let after = tool_fn(spec("after", EffectClass::Once), |_, _| async { Ok(json!("after").into()) });
    runtime.register(after).expect("it fits");
    runtime.register(client_tool(free("yours", EffectClass::Once))).expect("it fits");
    runtime.register(Waits(free("key", EffectClass::Once), keys.clone())).expect("it fits");
    let mail = tool_fn(free("mail", EffectClass::Once), |_, _| async {
        Err(ToolError::needs_connection("mail", None))
    });
    runtime.register(mail).expect("it fits");
    runtime.register(Attaches(free("file", EffectClass::Once))).expect("it fits");
    let emits = [("sold".to_string(), json!({"type": "object"}))].into();
    let sell = tool_fn(ToolSpec { emits, ..free("sell", EffectClass::Keyed) }, |args, cx: &Cx| {
        let cx = cx.clone();
        async move {
            cx.emit("sold", "sold", &args).await?;
            Ok(args.into())
        }
    });
    runtime.register(sell).expect("it fits");
}

/// It attaches a text.
struct Attaches(ToolSpec);

impl Tool for Attaches {
    fn spec(&self) -> ToolSpec {
        self.0.clone()
    }

    fn run<'a>(&'a self, args: Value, cx: &'a Cx) -> ToolFuture<'a> {
        Box::pin(async move {
            let text = args["text"].as_str().unwrap_or_default();
            let file = cx.attach("file", text.as_bytes(), "text/csv").await?;
            Ok(Output { parts: vec![file.into_part("file.csv")], ..Output::default() })
        })
    }
}

/// It waits for a person, and what comes behind it in its session waits too.
struct Asks(ToolSpec);

impl Tool for Asks {
    fn spec(&self) -> ToolSpec {
        self.0.clone()
    }

    fn run<'a>(&'a self, _: Value, cx: &'a Cx) -> ToolFuture<'a> {
        Box::pin(async move {
            let answer = cx.ask("colour", "Which colour?", Some(json!({"type": "string"}))).await?;
            Ok(json!({ "chosen": answer }).into())
        })
    }
}

/// It gives out a key, and ends by what is answered to it.
struct Waits(ToolSpec, Keys);

impl Tool for Waits {
    fn spec(&self) -> ToolSpec {
        self.0.clone()
    }

    fn run<'a>(&'a self, _: Value, cx: &'a Cx) -> ToolFuture<'a> {
        Box::pin(async move {
            let key = cx.completion("answer").await?;
            self.1.lock().expect("no panic").push(key.to_string());
            Ok(Output::pending(key))
        })
    }
}
