//! The door for MCP clients, over TCP: both eras, the ladder of answers, and what a lost answer, a cancel and a person do.

use crate::tcp::{Answer, Served};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, watch};
use windlass::policy::ApprovalRule;
use windlass::{EffectClass, Flags, Limits, ToolSpec, tool_fn};
use windlass_server::access::TokenScope;

const VERSION: &str = "2026-07-28";

/// A server with tools of which it is counted how often they took effect.
struct Door {
    served: Served,
    effects: Arc<AtomicU64>,
    /// Lets effects of `pay` and `look` happen, one each.
    go: Arc<Semaphore>,
    begun: watch::Receiver<u64>,
}

impl Door {
    async fn new() -> Door {
        Door::within(|_| {}).await
    }

    async fn within(change: impl FnOnce(&mut Limits)) -> Door {
        let served = Served::with(|config| change(&mut config.limits)).await;
        let (effects, go) = (Arc::new(AtomicU64::new(0)), Arc::new(Semaphore::new(0)));
        let (begins, begun) = watch::channel(0);
        for (name, class) in [("pay", EffectClass::Once), ("look", EffectClass::Read)] {
            let spec = ToolSpec {
                name: name.into(),
                class: Some(class),
                claims: Some(vec![]),
                // The same call twenty times is no loop here.
                flags: Flags { polls: true, ..Flags::default() },
                ..ToolSpec::default()
            };
            let (effects, go, begins) = (effects.clone(), go.clone(), begins.clone());
            let tool = tool_fn(spec, move |_, _| {
                begins.send_modify(|begun| *begun += 1);
                let (effects, go) = (effects.clone(), go.clone());
                async move {
                    go.acquire().await.expect("it stays open").forget();
                    Ok(json!(format!("effect {}", effects.fetch_add(1, Ordering::SeqCst) + 1)).into())
                }
            });
            served.api.runtime().register(tool).expect("it fits");
        }
        let risky = ToolSpec {
            name: "risky".into(),
            approval: ApprovalRule::Ask,
            claims: Some(vec![]),
            ..ToolSpec::default()
        };
        let effects_of_risky = effects.clone();
        let risky = tool_fn(risky, move |_, _| {
            let effects = effects_of_risky.clone();
            async move { Ok(json!(format!("effect {}", effects.fetch_add(1, Ordering::SeqCst) + 1)).into()) }
        });
        served.api.runtime().register(risky).expect("it fits");
        Door { served, effects, go, begun }
    }

    async fn begun(&mut self, count: u64) {
        self.begun.wait_for(|begun| *begun >= count).await.expect("tools are there");
    }

    fn effects(&self) -> u64 {
        self.effects.load(Ordering::SeqCst)
    }

    async fn ask(&self, request: &Mcp) -> Vec<Value> {
        messages(&self.answer(request).await)
    }

    /// The result of a request.
    async fn result(&self, request: &Mcp) -> Value {
        let told = self.ask(request).await;
        let last = told.last().expect("an answer").clone();
        assert!(last.get("result").is_some(), "{last}");
        last["result"].clone()
    }

    /// The code and the status of an error.
    async fn error(&self, request: &Mcp) -> (u16, i64) {
        let answer = self.answer(request).await;
        let told = messages(&answer);
        (answer.status, told.last().and_then(|told| told["error"]["code"].as_i64()).unwrap_or_default())
    }

    async fn answer(&self, request: &Mcp) -> Answer {
        self.served.raw(&self.written(request)).await
    }

    async fn send(&self, request: &Mcp) -> TcpStream {
        self.served.send(&self.written(request)).await
    }

    fn written(&self, request: &Mcp) -> String {
        let token = request.token.as_ref().unwrap_or(&self.served.token);
        let whole = Served::request(Some(token), "POST", request.path, request.message.clone());
        let headers: String =
            request.headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        whole.replacen("host: localhost\r\n", &format!("host: localhost\r\n{headers}"), 1)
    }
}

/// A message of a client.
#[derive(Clone)]
struct Mcp {
    path: &'static str,
    message: Value,
    headers: Vec<(&'static str, String)>,
    token: Option<String>,
}

impl Mcp {
    fn legacy(method: &str, params: Value) -> Mcp {
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        Mcp { path: "/mcp/chat", message, headers: Vec::new(), token: None }
    }

    fn modern(method: &str, capabilities: Value, mut params: Value) -> Mcp {
        let name = params.get("name").or(params.get("taskId")).and_then(Value::as_str).map(str::to_string);
        params["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!(VERSION);
        params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = capabilities;
        let mut headers =
            vec![("MCP-Protocol-Version", VERSION.to_string()), ("Mcp-Method", method.to_string())];
        headers.extend(name.map(|name| ("Mcp-Name", name)));
        Mcp { headers, ..Mcp::legacy(method, params) }
    }

    fn with(self, header: &'static str, value: &str) -> Mcp {
        let mut headers = self.headers;
        headers.retain(|(name, _)| *name != header);
        headers.push((header, value.to_string()));
        Mcp { headers, ..self }
    }

    fn of(self, token: &str) -> Mcp {
        Mcp { token: Some(token.to_string()), ..self }
    }
}

fn call(tool: &str) -> Value {
    json!({"name": tool, "arguments": {"to": "ann"}})
}

fn tasks() -> Value {
    json!({"extensions": {"io.modelcontextprotocol/tasks": {}}, "elicitation": {}})
}

fn text(result: &Value) -> String {
    let blocks = result["content"].as_array().into_iter().flatten();
    blocks.filter_map(|block| block["text"].as_str()).collect::<Vec<_>>().join("\n")
}

/// The messages of an answer, whether it is JSON or a stream.
fn messages(answer: &Answer) -> Vec<Value> {
    let is_stream = answer.head.contains("text/event-stream");
    let lines = answer.body.lines().filter_map(|line| line.strip_prefix("data: "));
    let lines: Vec<&str> = if is_stream { lines.collect() } else { vec![answer.body.as_str()] };
    let message = |line: &&str| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    lines.iter().filter(|line| !line.is_empty()).map(message).collect()
}

#[tokio::test]
async fn both_eras_are_spoken_at_one_door() {
    let door = Door::new().await;
    let opening = Mcp::legacy("initialize", json!({"protocolVersion": "2025-06-18", "capabilities": {}}));
    let opened = door.answer(&opening).await;
    assert_eq!(messages(&opened)[0]["result"]["protocolVersion"], "2025-06-18");
    let id = opened.head.lines().find_map(|line| line.strip_prefix("mcp-session-id: ")).map(str::to_string);
    // Headers of the answer are read in small letters, and the id is not.
    let id = id.expect("an id").len();
    assert!(id > 64, "it carries its session");
    let unknown = Mcp::legacy("initialize", json!({"protocolVersion": "1999-01-01"}));
    assert_eq!(door.result(&unknown).await["protocolVersion"], "2025-11-25");
    assert_eq!(door.result(&Mcp::legacy("ping", json!({}))).await, json!({}));
    let initialized =
        Mcp { message: json!({"jsonrpc": "2.0", "method": "notifications/initialized"}), ..opening.clone() };
    assert_eq!(door.answer(&initialized).await.status, 202);
    let found = door.result(&Mcp::modern("server/discover", json!({}), json!({}))).await;
    assert_eq!((&found["supportedVersions"], &found["resultType"]), (&json!([VERSION]), &json!("complete")));
    assert!(found["capabilities"]["extensions"]["io.modelcontextprotocol/tasks"].is_object(), "{found}");
    let (old, new) = (
        door.result(&Mcp::legacy("tools/list", json!({}))).await,
        door.result(&Mcp::modern("tools/list", json!({}), json!({}))).await,
    );
    assert_eq!(old["tools"], new["tools"]);
    assert_eq!((old.get("ttlMs"), new["cacheScope"].as_str()), (None, Some("private")));
    let names: Vec<&str> =
        new["tools"].as_array().expect("tools").iter().filter_map(|tool| tool["name"].as_str()).collect();
    assert!(
        names.is_sorted()
            && ["cancel_task", "pay", "risky", "wait_task"].iter().all(|name| names.contains(name)),
        "{names:?}"
    );
}

#[tokio::test]
async fn mistakes_have_the_codes_of_the_protocol() {
    let door = Door::new().await;
    let list = || Mcp::modern("tools/list", json!({}), json!({}));
    let call = || Mcp::modern("tools/call", json!({}), json!({"name": "nothing", "arguments": {}}));
    let garbled = Mcp { message: json!("x"), ..list() };
    let nowhere = Mcp::legacy("tools/list", json!({})).with("Mcp-Session-Id", "forged");
    let old = Mcp {
        message: json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": {"io.modelcontextprotocol/protocolVersion": "2020-01-01"}}}),
        ..list()
    };
    for (what, request, expected) in [
        ("a header that says otherwise", list().with("Mcp-Method", "tools/call"), (400, -32020)),
        ("a name that says otherwise", call().with("Mcp-Name", "say"), (400, -32020)),
        ("a version nobody speaks", old.clone().with("MCP-Protocol-Version", "2020-01-01"), (400, -32022)),
        ("a version that the header does not have", old, (400, -32020)),
        ("a method nobody has", Mcp::modern("prompts/list", json!({}), json!({})), (404, -32601)),
        ("the same, earlier", Mcp::legacy("prompts/list", json!({})), (200, -32601)),
        ("a tool nobody has", call(), (200, -32602)),
        ("a task without tasks", Mcp::modern("tasks/get", json!({}), json!({"taskId": "x"})), (400, -32021)),
        ("a task nobody has", Mcp::modern("tasks/get", tasks(), json!({"taskId": "x"})), (200, -32602)),
        ("no object", garbled, (400, -32700)),
        ("a session nobody has", nowhere, (404, -32600)),
    ] {
        assert_eq!(door.error(&request).await, expected, "{what}");
    }
    let no_stream = door.served.ask("GET", "/mcp", Value::Null).await;
    assert_eq!(no_stream.told(), (405, "method_not_allowed".into()), "it is for clients of the older era");
    assert_eq!(
        door.served.ask_as(None, "POST", "/mcp", list().message).await.told(),
        (401, "no_token".into())
    );
    let foreign = list().with("Origin", "https://evil.example");
    assert_eq!(door.answer(&foreign).await.told(), (403, "origin_not_allowed".into()));
    let bob = door.served.token_of("bob", &[TokenScope::Calls]).await;
    door.served.go.add_permits(1);
    door.result(&Mcp::modern("tools/call", json!({}), json!({"name": "say", "arguments": {}}))).await;
    assert_eq!(
        door.answer(&list().of(&bob)).await.told(),
        (404, "not_found".into()),
        "the session is another's"
    );
}

/// R25: the answer is lost after the effect or before it, the model repeats the call under a new id.
#[tokio::test]
async fn a_call_whose_answer_was_lost_has_one_effect() {
    for era in ["legacy", "modern"] {
        for effect_first in [false, true] {
            let mut door = Door::new().await;
            let pay = || match era {
                "legacy" => Mcp::legacy("tools/call", call("pay")),
                _ => Mcp::modern("tools/call", json!({}), call("pay")),
            };
            let mut lost = Some(door.send(&pay()).await);
            door.begun(1).await;
            if effect_first {
                lost = None;
                door.go.add_permits(1);
            }
            let repeated = async {
                if !effect_first {
                    door.go.add_permits(1);
                }
                door.result(&pay()).await
            };
            let again = if effect_first {
                repeated.await
            } else {
                // The connection breaks while the repetition is on its way.
                let (again, ()) = tokio::join!(repeated, async { drop(lost) });
                again
            };
            let told = text(&again);
            assert!(told.starts_with("effect 1"), "{era}: {told}");
            if effect_first {
                assert!(told.contains("identical call"), "{era}: it says so: {told}");
            }
            door.go.add_permits(1);
            assert_eq!(text(&door.result(&pay()).await), "effect 2", "{era}: one delivery ends it");
            assert_eq!(door.effects(), 2, "{era}");
        }
    }
}

/// An answer in one piece is out of the door's hands before it is written, so only a short one is.
#[tokio::test]
async fn a_short_answer_is_json_and_a_long_one_a_stream() {
    let door = Door::within(|limits| limits.answer_bytes_max = 1 << 20).await;
    let spec = ToolSpec {
        name: "print".into(),
        class: Some(EffectClass::Read),
        claims: Some(vec![]),
        ..ToolSpec::default()
    };
    let print = tool_fn(spec, |args, _| async move {
        let length = args["length"].as_u64().expect("a number") as usize;
        Ok(json!("x".repeat(length)).into())
    });
    door.served.api.runtime().register(print).expect("it fits");
    for (length, kind) in [(100, "application/json"), (100_000, "text/event-stream")] {
        let asked = json!({"name": "print", "arguments": {"length": length}});
        let answer = door.answer(&Mcp::modern("tools/call", json!({}), asked)).await;
        assert!(answer.head.contains(&format!("content-type: {kind}")), "{length}: {}", answer.head);
        assert_eq!(text(&messages(&answer)[0]["result"]).len(), length);
    }
}

#[tokio::test]
async fn a_cancel_followed_at_once_by_a_repetition_runs_once() {
    let mut door = Door::new().await;
    let pay = |id: u64| {
        let mut pay = Mcp::legacy("tools/call", call("pay"));
        pay.message["id"] = json!(id);
        pay
    };
    for round in 1..=20 {
        let first = door.send(&pay(1)).await;
        door.begun(round).await;
        let cancel =
            json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}});
        assert_eq!(door.answer(&Mcp { message: cancel, ..pay(1) }).await.status, 202);
        let second = door.send(&pay(2)).await;
        door.go.add_permits(1);
        let answer = crate::tcp::read(second).await;
        let told = text(&messages(&answer)[0]["result"]);
        assert!(told.starts_with(&format!("effect {round}")) && told.contains("identical call"), "{told}");
        let cancelled = messages(&crate::tcp::read(first).await);
        assert!(cancelled.is_empty(), "a cancelled request has no answer: {cancelled:?}");
        assert_eq!((door.effects(), *door.begun.borrow()), (round, round));
    }
}

#[tokio::test]
async fn who_leaves_cancels_what_only_reads_and_leaves_the_rest() {
    let mut door = Door::new().await;
    let modern = |tool: &str| Mcp::modern("tools/call", json!({}), call(tool));
    let (look, pay) = (door.send(&modern("look")).await, door.send(&modern("pay")).await);
    door.begun(2).await;
    drop((look, pay));
    let mut events = door.served.api.runtime().events("chat", None).await.expect("events");
    loop {
        let page = door.served.get("/v1/sessions/chat/calls").await.expect(200);
        let state = |tool: &str| {
            let calls = page["items"].as_array().expect("calls").iter();
            calls.filter(|call| call["tool"] == tool).map(|call| call["state"].clone()).next()
        };
        if state("look") == Some(json!("cancelled")) {
            assert_eq!(state("pay"), Some(json!("running")));
            break;
        }
        let _ = events.next().await;
    }
}

#[tokio::test]
async fn a_form_approves_only_with_the_scope() {
    let door = Door::within(|limits| limits.mcp_hold_ms = 40).await;
    let risky =
        || Mcp { path: "/mcp", ..Mcp::modern("tools/call", json!({"elicitation": {}}), call("risky")) };
    let agent = door.served.token_of("agent", &[TokenScope::Calls, TokenScope::Complete]).await;
    let told = door.result(&risky().of(&agent)).await;
    assert!(told.get("inputRequests").is_none(), "an agent must not approve its own calls: {told}");
    let door = Door::within(|limits| limits.mcp_hold_ms = 60_000).await;
    let person = door.served.token_of("ann", &[TokenScope::Calls, TokenScope::Approve]).await;
    let told = door.result(&risky().of(&person)).await;
    assert!(told["inputRequests"].is_object(), "{told}");
    let page = door.served.get("/v1/sessions").await.expect(200);
    let names: Vec<&str> = page["items"]
        .as_array()
        .expect("items")
        .iter()
        .filter_map(|session| session["id"].as_str())
        .collect();
    assert_eq!(names, ["mcp-ann"], "the caller has a session of its own");
}

/// Before 2026-07-28 a client opens a stream by GET and hears of changed tools there; the tools it lists are chosen in its URL.
#[tokio::test]
async fn an_older_client_hears_of_changed_tools_on_a_stream_of_its_own() {
    let door = Door::new().await;
    let hello = json!({"protocolVersion": "2025-11-25", "capabilities": {}});
    let mut opened = String::new();
    let mut stream = door.send(&Mcp::legacy("initialize", hello)).await;
    stream.read_to_string(&mut opened).await.expect("it is answered");
    let session = opened.lines().find_map(|line| line.strip_prefix("mcp-session-id: "));
    let session = session.expect("a session").to_string();
    let asked = |path: &str, token: &str| {
        let whole = Served::request(Some(token), "GET", path, Value::Null);
        whole.replacen("host: localhost\r\n", &format!("host: localhost\r\nmcp-session-id: {session}\r\n"), 1)
    };
    let mut stream = door.served.send(&asked("/mcp/chat", &door.served.token)).await;
    let mut told = String::new();
    while !told.contains("list_changed") {
        let mut piece = [0; 1024];
        let count = stream.read(&mut piece).await.expect("it is open");
        assert!(count > 0, "it ended: {told}");
        told += &String::from_utf8_lossy(&piece[..count]);
        if told.contains("\r\n\r\n") && door.served.api.runtime().unregister("look").is_some() {
            assert!(told.contains("200 OK") && told.contains("text/event-stream"), "{told}");
        }
    }
    let bob = door.served.token_of("bob", &[TokenScope::Calls]).await;
    assert_eq!(door.served.raw(&asked("/mcp", &bob)).await.status, 405, "the MCP session is another's");
    let names = |listed: &Value| listed["tools"].as_array().map_or(0, Vec::len);
    let list = |path| Mcp { path, ..Mcp::legacy("tools/list", json!({})) };
    assert_eq!(names(&door.result(&list("/mcp?list=search")).await), 4);
    assert!(names(&door.result(&list("/mcp?list=all")).await) > 4);
    assert_eq!(door.answer(&list("/mcp?list=some")).await.told(), (400, "bad_query".into()));
}
