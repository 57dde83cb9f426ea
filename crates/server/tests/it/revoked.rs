//! A token that is revoked or has expired is good for nothing within `token_known_ms`, also where a request is still being
//! answered: streams of events and of MCP clients, batches that are waited for, bodies that come slowly, bytes that are read slowly.

use crate::tcp::{Answer, Served, read};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use windlass::Limits;
use windlass_server::access::TokenScope;
use windlass_server::wire::NewToken;

/// A request that is not ended within this time never is.
const SOON: Duration = Duration::from_secs(20);
const BATCHES: &str = "/v1/sessions/s/batches";

fn limits() -> Limits {
    Limits { token_known_ms: 40, body_wait_ms: 600_000, ..Limits::default() }
}

async fn served() -> Served {
    Served::with(|config| config.limits = limits()).await
}

/// A token of the principal `local`, and its id.
async fn token(served: &Served, expires_in_s: Option<u64>) -> (String, String) {
    let wanted = NewToken {
        principal: "local".into(),
        scopes: TokenScope::ALL.to_vec(),
        title: None,
        expires_in_s,
        requests_per_minute: None,
        approves: Vec::new(),
    };
    let made = served.api.tokens().make(wanted).await.expect("a token");
    (made.token, made.shown.id)
}

async fn revoke(served: &Served, id: &str) {
    assert!(served.api.tokens().revoke(id).await.expect("it can be revoked"));
}

async fn soon(stream: TcpStream) -> Answer {
    tokio::time::timeout(SOON, read(stream)).await.expect("it is let go")
}

/// A stream of events, of which the beginning has come.
async fn following(served: &Served, token: &str) -> TcpStream {
    let ask = Served::request(Some(token), "GET", "/v1/sessions/s/events?after=0", Value::Null);
    let mut stream = served.send(&ask).await;
    let mut head = Vec::new();
    while !head.windows(6).any(|begin| begin == b"id: 0\n") {
        assert!(stream.read_buf(&mut head).await.expect("readable") > 0, "it goes on");
    }
    stream
}

async fn opened(served: &Served) {
    served.post("/v1/sessions", json!({"id": "s"})).await.expect(201);
}

#[tokio::test]
async fn a_stream_of_events_ends_when_its_token_is_revoked() {
    let served = served().await;
    opened(&served).await;
    let (gone, id) = token(&served, None).await;
    let (stream, mut other) = (following(&served, &gone).await, following(&served, &served.token).await);
    revoke(&served, &id).await;
    soon(stream).await;
    // Whoever has another token goes on.
    served.post(BATCHES, json!({"calls": [{"id": "a", "tool": "say"}]})).await.expect(200);
    let mut heard = Vec::new();
    while !heard.windows(12).any(|event| event == b"event: ended") {
        assert!(other.read_buf(&mut heard).await.expect("readable") > 0, "it goes on");
    }
}

#[tokio::test]
async fn a_stream_says_why_it_ends() {
    let served = served().await;
    opened(&served).await;
    let (gone, id) = token(&served, None).await;
    let mut stream = following(&served, &gone).await;
    revoke(&served, &id).await;
    let mut rest = String::new();
    let reading = tokio::time::timeout(SOON, stream.read_to_string(&mut rest));
    reading.await.expect("it ends").expect("text");
    assert!(rest.contains("event: problem\ndata: {") && rest.contains("\"wrong_token\""), "{rest}");
    assert!(rest.ends_with("0\r\n\r\n"), "it ends in good order: {rest:?}");
}

#[tokio::test]
async fn a_stream_of_events_ends_when_its_token_expires() {
    let (served, clock) = Served::with_clock(limits()).await;
    opened(&served).await;
    let (gone, _) = token(&served, Some(5)).await;
    let stream = following(&served, &gone).await;
    clock.advance(Duration::from_millis(5_001));
    soon(stream).await;
}

/// A message to the MCP door, or the request for the stream of an older client.
fn mcp(token: &str, method: &str, headers: &[(&str, &str)], message: Value) -> String {
    let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let whole = Served::request(Some(token), method, "/mcp/chat", message);
    whole.replacen("host: localhost\r\n", &format!("host: localhost\r\n{headers}"), 1)
}

/// Reads until this text has come, which is returned with what was before it.
async fn read_until(stream: &mut TcpStream, text: &str) -> String {
    let mut heard = Vec::new();
    while !heard.windows(text.len()).any(|piece| piece == text.as_bytes()) {
        let read = tokio::time::timeout(SOON, stream.read_buf(&mut heard)).await.expect("it comes soon");
        assert!(read.expect("readable") > 0, "it goes on: {}", String::from_utf8_lossy(&heard));
    }
    String::from_utf8(heard).expect("text")
}

/// Clients of MCP listen for hours: in the newer era by a request, before on a stream of their own.
#[tokio::test]
async fn mcp_clients_that_listen_are_let_go_when_their_token_is_revoked() {
    const VERSION: &str = "2026-07-28";
    let served = served().await;
    let (gone, id) = token(&served, None).await;
    let meta = json!({"io.modelcontextprotocol/protocolVersion": VERSION, "io.modelcontextprotocol/clientCapabilities": {}});
    let listen = json!({"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen",
        "params": {"notifications": {"toolsListChanged": true}, "_meta": meta}});
    let headers = [("MCP-Protocol-Version", VERSION), ("Mcp-Method", "subscriptions/listen")];
    let mut modern = served.send(&mcp(&gone, "POST", &headers, listen)).await;
    read_until(&mut modern, "notifications/subscriptions/acknowledged").await;
    let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize",
        "params": {"protocolVersion": "2025-11-25", "capabilities": {}}});
    let mut opened = served.send(&mcp(&gone, "POST", &[], hello)).await;
    let opened = read_until(&mut opened, "\r\n\r\n").await;
    let session = opened.lines().find_map(|line| line.strip_prefix("mcp-session-id: ")).expect("a session");
    let headers = [("MCP-Protocol-Version", "2025-11-25"), ("Mcp-Session-Id", session)];
    let mut legacy = served.send(&mcp(&gone, "GET", &headers, Value::Null)).await;
    assert!(read_until(&mut legacy, "\r\n\r\n").await.starts_with("HTTP/1.1 200"));
    revoke(&served, &id).await;
    for (era, mut stream) in [("modern", modern), ("legacy", legacy)] {
        let mut rest = String::new();
        let reading = tokio::time::timeout(SOON, stream.read_to_string(&mut rest));
        reading.await.expect("it ends").expect("text");
        assert!(
            rest.contains("event: problem\ndata: {") && rest.contains("\"wrong_token\""),
            "{era}: {rest}"
        );
    }
    let is_quiet = async {
        while served.api.mcp_quiet_for().is_none() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(SOON, is_quiet).await.expect("nobody listens any more");
}

/// The call of an MCP client whose token is revoked goes on, and its repetition under a good token joins it.
#[tokio::test]
async fn an_mcp_call_is_let_go_when_its_token_is_revoked_and_has_one_effect() {
    let served = served().await;
    let (gone, id) = token(&served, None).await;
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {"name": "hold", "arguments": {}, "_meta": {"progressToken": 1}}});
    let stream = served.send(&mcp(&gone, "POST", &[], call.clone())).await;
    while served.api.runtime().counts().running[0] < 1 {
        tokio::task::yield_now().await;
    }
    revoke(&served, &id).await;
    let told = soon(stream).await;
    assert!(told.body.contains("wrong_token") && !told.body.contains("\"result\""), "{}", told.body);
    served.go.add_permits(1);
    let again = served.raw(&mcp(&served.token, "POST", &[], call)).await;
    assert!(again.body.contains("identical call"), "it joins: {}", again.body);
}

#[tokio::test]
async fn a_waiting_batch_is_let_go_when_its_token_is_revoked_and_its_calls_go_on() {
    let served = served().await;
    let (gone, id) = token(&served, None).await;
    let batch =
        json!({"key": "k", "calls": [{"id": "a", "tool": "hold"}], "wait": "settled", "timeout_ms": 600_000});
    let stream = served.send(&Served::request(Some(&gone), "POST", BATCHES, batch)).await;
    while served.api.runtime().counts().running[0] < 1 {
        tokio::task::yield_now().await;
    }
    revoke(&served, &id).await;
    assert_eq!(soon(stream).await.told(), (401, "wrong_token".into()));
    served.go.add_permits(1);
    let again = json!({"key": "k", "calls": [{"id": "a", "tool": "hold"}], "wait": "settled"});
    let answer = served.post(BATCHES, again).await.expect(200);
    assert_eq!(answer["calls"][0]["state"], "succeeded", "it was not cancelled");
}

#[tokio::test]
async fn a_body_that_comes_slowly_is_not_taken_when_its_token_is_revoked() {
    let served = served().await;
    let (gone, id) = token(&served, None).await;
    let whole = Served::request(
        Some(&gone),
        "POST",
        BATCHES,
        json!({"key": "k", "calls": [{"id": "a", "tool": "say"}]}),
    );
    let (begin, rest) = whole.split_at(whole.len() - 5);
    let mut stream = served.send(begin).await;
    revoke(&served, &id).await;
    let mut status = [0; 12];
    let answered = tokio::time::timeout(SOON, stream.read_exact(&mut status)).await;
    answered.expect("it is let go").expect("it is answered");
    assert_eq!(&status, b"HTTP/1.1 401");
    // It may be closed by now.
    let _ = stream.write_all(rest.as_bytes()).await;
    assert_eq!(served.get(&format!("{BATCHES}/k")).await.status, 404);
}

#[tokio::test]
async fn bytes_that_are_read_slowly_break_off_when_their_token_is_revoked() {
    let served = served().await;
    let (gone, id) = token(&served, None).await;
    let size = 48 << 20;
    let head = format!(
        "PUT /v1/sessions/s/files/big HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nauthorization: Bearer {}\r\n\
         content-length: {size}\r\n\r\n{}",
        served.token,
        "x".repeat(size)
    );
    served.raw(&head).await.expect(200);
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_recv_buffer_size(8 << 10).expect("set");
    let mut stream = socket.connect(served.at()).await.expect("let in");
    let ask = Served::request(Some(&gone), "GET", "/v1/sessions/s/files/big", Value::Null);
    stream.write_all(ask.as_bytes()).await.expect("sent");
    let mut begin = [0; 1024];
    stream.read_exact(&mut begin).await.expect("it begins");
    revoke(&served, &id).await;
    let (mut piece, mut rest) = (vec![0; 4 << 10], 0);
    loop {
        match tokio::time::timeout(SOON, stream.read(&mut piece)).await.expect("it is let go") {
            Ok(0) | Err(_) => break,
            Ok(bytes) => rest += bytes,
        }
    }
    assert!(rest < size / 2, "{rest} bytes came after the token was revoked");
}
