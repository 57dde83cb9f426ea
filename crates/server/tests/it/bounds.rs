//! Slow, large, silent or many clients: refused or disconnected, and nobody else suffers.

use crate::tcp::{Served, read, read_head};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use windlass::Config;
use windlass_server::access::TokenScope;

const BATCHES: &str = "/v1/sessions/s/batches";

/// Waits that are short enough for a test.
fn impatient(config: &mut Config) {
    config.limits.header_wait_ms = 100;
    config.limits.body_wait_ms = 100;
    config.limits.answer_stall_ms = 100;
    config.limits.batch_bytes_max = 64 << 10;
}

fn head(served: &Served, length: usize) -> String {
    format!(
        "POST {BATCHES} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n",
        served.token
    )
}

async fn still_serves(served: &Served) {
    let fine = json!({"calls": [{"id": "a", "tool": "say"}]});
    assert_eq!(served.post(BATCHES, fine).await.expect(200)["calls"][0]["state"], "succeeded");
}

#[tokio::test]
async fn the_slow_and_the_silent_are_let_go() {
    let served = Served::with(impatient).await;
    // Nothing at all, and half a header.
    for begun in ["", "POST /v1/sessions/s/batches HTTP/1.1\r\nhost: local"] {
        let mut stream = TcpStream::connect(served.at()).await.expect("let in");
        stream.write_all(begun.as_bytes()).await.expect("sent");
        let answer = read(stream).await;
        assert!(answer.status == 0 || answer.status == 408, "{}", answer.status);
    }
    // One request, and then nothing.
    let mut stream = TcpStream::connect(served.at()).await.expect("let in");
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await.expect("sent");
    assert_eq!(read(stream).await.status, 200);
    // Half a body, and one that comes byte by byte.
    let mut stream = TcpStream::connect(served.at()).await.expect("let in");
    stream.write_all(format!("{}{{", head(&served, 100)).as_bytes()).await.expect("sent");
    let late = read(stream).await;
    assert_eq!(late.told(), (400, "bad_body".into()));
    assert!(late.body.contains("did not arrive in time"), "{}", late.body);
    still_serves(&served).await;
}

#[tokio::test]
async fn a_body_that_is_cut_is_not_taken() {
    let served = Served::with(impatient).await;
    let body = json!({"key": "k", "calls": [{"id": "a", "tool": "say"}]}).to_string();
    for cut in [0, 1, body.len() / 2, body.len() - 1] {
        let mut stream = TcpStream::connect(served.at()).await.expect("let in");
        stream
            .write_all(format!("{}{}", head(&served, body.len()), &body[..cut]).as_bytes())
            .await
            .expect("sent");
        stream.shutdown().await.expect("closed");
        let answer = read(stream).await;
        assert!(answer.status == 0 || answer.told() == (400, "bad_body".into()), "{} {}", cut, answer.body);
    }
    assert_eq!(served.get(&format!("{BATCHES}/k")).await.status, 404, "nothing of it was taken");
    still_serves(&served).await;
}

#[tokio::test]
async fn the_large_are_refused() {
    let served = Served::with(impatient).await;
    for header in [
        format!("GET /healthz HTTP/1.1\r\nhost: localhost\r\nx: {}\r\n\r\n", "y".repeat(64 << 10)),
        format!("GET /healthz HTTP/1.1\r\nhost: localhost\r\n{}\r\n", "x: y\r\n".repeat(200)),
        format!("GET /{} HTTP/1.1\r\nhost: localhost\r\n\r\n", "y".repeat(64 << 10)),
    ] {
        let answer = served.raw(&header).await;
        assert!((400..=431).contains(&answer.status) || answer.status == 0, "{}", answer.status);
    }
    let large = json!({"calls": [{"id": "a", "tool": "say", "args": {"x": "y".repeat(64 << 10)}}]});
    assert_eq!(served.post(BATCHES, large).await.told(), (413, "too_large".into()));
    assert_eq!(served.raw(&head(&served, 1 << 40)).await.told(), (413, "too_large".into()));
    // Nested as deep as it fits: what is wrong with it is that call's failure.
    let deep = format!("{}{}", "[".repeat(20_000), "]".repeat(20_000));
    let body = format!(r#"{{"calls": [{{"id": "a", "tool": "say", "args": {deep}}}]}}"#);
    let answer = served.raw(&format!("{}{body}", head(&served, body.len()))).await.expect(200);
    assert_eq!(answer["calls"][0]["outcome"]["failure"]["code"], "too_deep");
    still_serves(&served).await;
}

#[tokio::test]
async fn who_does_not_take_the_answer_is_let_go() {
    let served = Served::with(|config| {
        impatient(config);
        config.limits.connections_max = 1;
        config.limits.batch_bytes_max = 32 << 20;
        config.limits.body_wait_ms = 30_000;
    })
    .await;
    // Each is answered as value and as what the model is told.
    let text = "y".repeat(45 << 10);
    let call = |n: u32| json!({"id": n.to_string(), "tool": "say", "args": {"x": text}});
    let calls: Vec<Value> = (0..64).map(call).collect();
    served.post(BATCHES, json!({"key": "large", "calls": calls})).await.expect(200);
    // With little room on this side the answer does not fit into what the system keeps for it.
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_recv_buffer_size(8 << 10).expect("set");
    let mut stream = socket.connect(served.at()).await.expect("let in");
    let ask = format!(
        "GET {BATCHES}/large HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {}\r\n\r\n",
        served.token
    );
    stream.write_all(ask.as_bytes()).await.expect("sent");
    let mut first = [0; 64];
    stream.read_exact(&mut first).await.expect("it begins");
    // There is room for one with a token, and this one gets it because the other was let go.
    served.get("/v1/tools").await.expect(200);
    drop(stream);
}

/// A request with calls that says it is this long, and of which this much is sent.
async fn begun(served: &Served, token: &str, length: usize, sent: usize) -> TcpStream {
    let head = format!(
        "POST {BATCHES}-{token} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\nconnection: close\r\n\
         content-length: {length}\r\n\r\n{{\"key\": \"{}",
        "k".repeat(sent)
    );
    served.send(&head).await
}

#[tokio::test]
async fn connections_that_show_nothing_keep_nobody_out() {
    let served = Served::with(|config| {
        config.limits.connections_max = 4;
        config.limits.header_wait_ms = 600_000;
        config.limits.body_wait_ms = 600_000;
    })
    .await;
    let mut idle = Vec::new();
    for begun in ["", "GET /healthz HTTP/1.1\r\nhost: local", "POST /v1/completions/x HTTP/1.1\r\n"] {
        for _ in 0..8 {
            idle.push(served.send(begun).await);
        }
    }
    served.ask_as(None, "GET", "/healthz", Value::Null).await.expect(200);
    still_serves(&served).await;
    let mut first = idle.remove(0);
    let mut nothing = [0; 8];
    let closed = tokio::time::timeout(Duration::from_secs(60), first.read(&mut nothing)).await;
    assert!(matches!(closed, Ok(Ok(0) | Err(_))), "the oldest was closed");
    // Whoever has shown a token stays, whoever comes.
    let mut known = served.send("").await;
    let ask = |path: &str| {
        format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {}\r\n\r\n", served.token)
    };
    known.write_all(ask("/v1/tools").as_bytes()).await.expect("sent");
    let mut answer = [0; 12];
    known.read_exact(&mut answer).await.expect("answered");
    for _ in 0..8 {
        idle.push(served.send("").await);
    }
    served.ask_as(None, "GET", "/healthz", Value::Null).await.expect(200);
    let last = ask("/v1/tools").replace("\r\n\r\n", "\r\nconnection: close\r\n\r\n");
    known.write_all(last.as_bytes()).await.expect("sent");
    assert!(read(known).await.body.contains("\"items\""), "it is still answered");
}

#[tokio::test]
async fn who_has_shown_a_completion_key_stays_whoever_comes() {
    let served = Served::with(|config| {
        config.limits.connections_max = 4;
        config.limits.header_wait_ms = 600_000;
        config.limits.body_wait_ms = 600_000;
    })
    .await;
    served.post(BATCHES, json!({"calls": [{"id": "a", "tool": "key"}]})).await.expect(200);
    let key = served.keys.lock().expect("no panic")[0].clone();
    let body = json!({"ok": "late"}).to_string();
    let head = format!(
        "POST /v1/completions/{key} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let mut slow = served.send(&head).await;
    let mut idle = Vec::new();
    for _ in 0..12 {
        idle.push(served.send("").await);
    }
    // Let in once the oldest that have shown nothing were closed.
    served.ask_as(None, "GET", "/healthz", Value::Null).await.expect(200);
    slow.write_all(body.as_bytes()).await.expect("sent");
    assert_eq!(read(slow).await.status, 200);
}

#[tokio::test]
async fn one_principal_leaves_places_for_others() {
    let served = Served::with(|config| {
        config.limits.connections_max = 4;
        config.limits.connection_wait_ms = 20;
    })
    .await;
    let other = served.token_of("other", &[TokenScope::Calls, TokenScope::Read]).await;
    let mut waiting = Vec::new();
    for n in 0..3 {
        let body = json!({"key": n.to_string(), "calls": [{"id": "a", "tool": "hold"}], "wait": "settled"});
        waiting.push(served.send(&Served::request(Some(&served.token), "POST", BATCHES, body)).await);
    }
    // Each of them has its place once its call runs.
    while served.api.runtime().counts().running[0] < 3 {
        tokio::task::yield_now().await;
    }
    let refused = served.get("/v1/tools").await;
    assert!(refused.head.contains("retry-after: 1"), "{}", refused.head);
    assert_eq!(refused.told(), (503, "overloaded".into()));
    served.ask_as(Some(&other), "GET", "/v1/tools", Value::Null).await.expect(200);
    served.ask_as(None, "GET", "/healthz", Value::Null).await.expect(200);
    served.go.add_permits(3);
    for stream in waiting {
        assert_eq!(read(stream).await.status, 200);
    }
    served.get("/v1/tools").await.expect(200);
}

#[tokio::test]
async fn slow_bodies_keep_nobody_waiting_but_other_large_ones_of_their_sender() {
    let served = Served::with(|config| config.limits.body_wait_ms = 600_000).await;
    let other = served.token_of("other", &[TokenScope::Calls, TokenScope::Read]).await;
    let large = 32 << 20;
    let mut slow = Vec::new();
    for n in 0..24 {
        slow.push(begun(&served, &served.token, large - n, 5).await);
        slow.push(begun(&served, &served.token, 1 << 20, 5).await);
    }
    // Another request of the same sender, one of its own size by somebody else, and one that needs no token.
    still_serves(&served).await;
    let text = "x".repeat(3 << 20);
    let body = json!({"calls": [{"id": "a", "tool": "say", "args": text}]});
    let theirs = served.ask_as(Some(&other), "POST", "/v1/sessions/theirs/batches", body).await.expect(200);
    assert_eq!(theirs["calls"][0]["outcome"]["failure"]["code"], "too_large");
    served.ask_as(None, "GET", "/healthz", Value::Null).await.expect(200);
}

#[tokio::test]
async fn a_body_is_not_read_for_who_has_no_key() {
    let served = Served::with(|config| config.limits.body_wait_ms = 600_000).await;
    for key in ["x", &"0".repeat(52)] {
        let head = format!(
            "POST /v1/completions/{key} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n{{",
            8 << 20
        );
        assert_eq!(read_head(served.send(&head).await).await.told(), (404, "not_found".into()), "{key}");
    }
}

#[tokio::test]
async fn slow_answers_under_one_key_do_not_keep_other_keys_waiting() {
    let served = Served::with(|config| config.limits.body_wait_ms = 600_000).await;
    for n in 0..2 {
        let body = json!({"key": n.to_string(), "calls": [{"id": "a", "tool": "key"}]});
        served.post(BATCHES, body).await.expect(200);
    }
    let keys = served.keys.lock().expect("no panic").clone();
    let mut slow = Vec::new();
    for n in 0..16 {
        let length = (8 << 20) - n;
        let head = format!(
            "POST /v1/completions/{} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n\r\n{{",
            keys[0]
        );
        slow.push(served.send(&head).await);
    }
    let large = json!({"ok": "x".repeat(2 << 20)});
    let path = format!("/v1/completions/{}", keys[1]);
    served.ask_as(None, "POST", &path, large).await.expect(200);
    // Under the same key a small one is taken, too.
    let path = format!("/v1/completions/{}", keys[0]);
    served.ask_as(None, "POST", &path, json!({"ok": 1})).await.expect(200);
}

#[tokio::test]
async fn more_calls_than_a_batch_may_have_stop_the_reader() {
    let served = Served::new().await;
    let call = r#"{"tool": "say"}"#;
    for path in [BATCHES.to_string(), format!("{BATCHES}/k/calls")] {
        // What comes behind the first that is too many is not even JSON.
        let body = format!(r#"{{"calls": [{}, nonsense"#, [call; 257].join(","));
        let head = head(&served, body.len()).replace(BATCHES, &path);
        let answer = served.raw(&format!("{head}{body}")).await;
        assert_eq!(answer.told(), (400, "bad_batch".into()), "{}", answer.body);
        assert!(answer.body.contains("more than 256 calls"), "{}", answer.body);
    }
    let calls: Vec<Value> = (0..256).map(|n| json!({"id": n.to_string(), "tool": "say"})).collect();
    served.post(BATCHES, json!({"calls": calls})).await.expect(200);
}

#[tokio::test]
async fn a_body_with_more_values_than_memory_is_refused() {
    let served = Served::new().await;
    let many = format!("[{}0]", r#"{"":0},"#.repeat(100_000));
    let body = format!(r#"{{"calls": [{{"id": "a", "tool": "say", "args": {{"x": {many}}}}}]}}"#);
    let answer = served.raw(&format!("{}{body}", head(&served, body.len()))).await;
    assert_eq!(answer.told(), (413, "too_large".into()), "{}", answer.body);
    still_serves(&served).await;
}
