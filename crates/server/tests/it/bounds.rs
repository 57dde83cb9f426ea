//! Whoever is slow, large, silent or many: refused or let go, and nobody else suffers.

use crate::tcp::{Served, read};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use windlass::Config;

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
    assert!(late.body.contains("did not come in time"), "{}", late.body);
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
    // There is room for one, and this one gets in because the other was let go.
    served.get("/healthz").await.expect(200);
    drop(stream);
}

#[tokio::test]
async fn more_than_there_is_room_for_wait_for_their_turn() {
    let served = Served::with(|config| {
        config.limits.connections_max = 4;
        config.limits.header_wait_ms = 60_000;
    })
    .await;
    let mut idle = Vec::new();
    for _ in 0..4 {
        idle.push(TcpStream::connect(served.at()).await.expect("let in"));
    }
    let asked = served.get("/healthz");
    tokio::pin!(asked);
    tokio::select! {
        biased;
        _ = &mut asked => panic!("there was no room"),
        () = std::future::ready(()) => {}
    }
    idle.pop();
    asked.await.expect(200);
}

#[tokio::test]
async fn strangers_do_not_take_the_room_of_those_with_a_token() {
    let served = Served::with(|config| {
        config.limits.body_wait_ms = 60_000;
        config.limits.bodies_bytes_max = 64 << 10;
        config.limits.batch_bytes_max = 32 << 10;
        config.limits.result_json_bytes_max = 16 << 10;
    })
    .await;
    // One stranger takes all that strangers have, and does not go on.
    let mut slow = TcpStream::connect(served.at()).await.expect("let in");
    let length = 16 << 10;
    let head =
        format!("POST /v1/completions/x HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n\r\n{{");
    slow.write_all(head.as_bytes()).await.expect("sent");
    still_serves(&served).await;
    let other = served.ask_as(None, "POST", ("/v1/completions/x", json!({"ok": 1})));
    let waits = tokio::time::timeout(Duration::from_millis(100), other).await;
    assert!(waits.is_err(), "there was no room for a second stranger");
    // Whoever has a token is answered all the same, and the room is given back with the connection.
    still_serves(&served).await;
    drop(slow);
    assert_eq!(served.ask_as(None, "POST", ("/v1/completions/x", json!({"ok": 1}))).await.status, 404);
}
