//! `windlass webhooks`, and `kill -9` between a notice and its delivery: the next process delivers it under the same id.

use crate::rig::{Rig, kill, text, until};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};

/// A receiver in the test's own process, which outlives every server: answers with one status after the other until it is told another.
struct Chat {
    port: u16,
    status: Arc<AtomicU16>,
    got: Arc<Mutex<Vec<ChatMessage>>>,
}

#[derive(Clone)]
struct ChatMessage {
    id: String,
    status: u16,
    body: Value,
}

impl Chat {
    fn new(status: u16) -> Chat {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let chat = Chat { port, status: Arc::new(AtomicU16::new(status)), got: Arc::default() };
        let (status, got) = (chat.status.clone(), chat.got.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // A sender that is killed in the middle is no message.
                if let Some(message) = receive(stream, status.load(Ordering::SeqCst)) {
                    got.lock().expect("no panic").push(message);
                }
            }
        });
        chat
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}/", self.port)
    }

    fn got(&self) -> Vec<ChatMessage> {
        self.got.lock().expect("no panic").clone()
    }
}

fn receive(mut stream: TcpStream, status: u16) -> Option<ChatMessage> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).ok()?;
        head.extend(byte);
    }
    let head = String::from_utf8(head).ok()?;
    let header = |name: &str| {
        head.lines().find_map(|line| line.strip_prefix(&format!("{name}: "))).map(str::to_string)
    };
    let mut body = vec![0; header("content-length")?.parse().ok()?];
    stream.read_exact(&mut body).ok()?;
    write!(stream, "HTTP/1.1 {status} Told\r\nconnection: close\r\ncontent-length: 0\r\n\r\n").ok()?;
    Some(ChatMessage { id: header("windlass-id")?, status, body: serde_json::from_slice(&body).ok()? })
}

/// Delivers at once again, so that no test waits.
const LIMITS: &str = "[limits]\nwebhook_retry_ms = 5\nwebhook_retry_ms_max = 20\n";

/// A server that owns this folder. Nobody asks before it does: a command would take the folder itself.
fn serve(rig: &Rig, data: &str) -> std::process::Child {
    let socket = rig.path(data).join("control.sock");
    // The last server may have left it.
    let _ = std::fs::remove_file(&socket);
    let server = rig.start(&["--data", data, "serve", "--listen", "127.0.0.1:0"]);
    until("the server is there", || socket.exists());
    server
}

#[test]
fn a_kill_between_a_notice_and_its_delivery_loses_nothing() {
    let (rig, chat) = (Rig::with(LIMITS), Chat::new(503));
    // Without a server the folder itself is changed.
    rig.run(&["webhooks", "add", &chat.url(), "--internal"]).expect(0);
    for round in 0..3 {
        let server = serve(&rig, ".windlass");
        let text = format!("round {round}");
        rig.run(&["notice", "News", &text]).expect(0);
        until("its delivery failed", || chat.got().iter().any(|got| got.body["notice"]["text"] == *text));
        kill(server);
    }
    chat.status.store(200, Ordering::SeqCst);
    let before = chat.got();
    let server = serve(&rig, ".windlass");
    until("all are delivered", || chat.got().iter().filter(|got| got.status == 200).count() >= 3);
    until("nothing waits", || {
        rig.run(&["webhooks", "ls", "--json"]).expect(0).json()["items"][0]["queued"] == 0
    });
    kill(server);
    let delivered: Vec<ChatMessage> = chat.got().into_iter().filter(|got| got.status == 200).collect();
    for round in 0..3 {
        let is_it = |got: &&ChatMessage| got.body["notice"]["text"] == format!("round {round}");
        let id = &before.iter().find(is_it).expect("it was tried").id;
        assert!(delivered.iter().any(|got| got.id == *id), "round {round} under {id}");
    }
}

#[test]
fn webhooks_are_managed_with_and_without_a_server() {
    let (rig, chat) = (Rig::with(LIMITS), Chat::new(204));
    let refused = rig.run(&["webhooks", "add", &chat.url()]).expect(4);
    assert!(refused.stderr.contains("internal"), "{refused}");
    let add = ["webhooks", "add", &chat.url(), "--internal", "--kind", "question", "--json"];
    let made = rig.run(&add).expect(0).json();
    assert!(text(&made["secret"]).starts_with("whsec_"), "{made}");
    let server = serve(&rig, ".windlass");
    assert_eq!(
        rig.run(&["webhooks", "add", &chat.url()]).expect(4).stderr,
        refused.stderr,
        "the same answer"
    );
    let id = text(&made["id"]);
    let listed = rig.run(&["webhooks", "ls", "--json"]).expect(0);
    assert!(!listed.stdout.contains(&text(&made["secret"])), "{listed}");
    assert_eq!(listed.json()["items"][0]["kinds"], serde_json::json!(["question"]));
    let tried = rig.run(&["webhooks", "test", &id[..4]]).expect(0);
    assert_eq!(tried.stdout, "delivered: the receiver answered with 204\n");
    assert_eq!(chat.got()[0].body["kind"], "test");
    chat.status.store(404, Ordering::SeqCst);
    assert!(rig.run(&["webhooks", "test", &id]).expect(1).stdout.contains("404"));
    rig.run(&["notice", "News", "not a question"]).expect(0);
    rig.run(&["webhooks", "disable", &id]).expect(0);
    assert!(rig.run(&["webhooks", "ls"]).expect(0).stdout.contains("disabled"));
    rig.run(&["webhooks", "rm", &id]).expect(0);
    rig.run(&["webhooks", "rm", &id]).expect(2);
    assert_eq!(chat.got().len(), 2, "only the tests");
    kill(server);
}

#[test]
fn webhooks_of_a_copy_are_held_until_they_are_enabled() {
    let (rig, chat) = (Rig::with(LIMITS), Chat::new(503));
    rig.run(&["webhooks", "add", &chat.url(), "--internal"]).expect(0);
    let server = serve(&rig, ".windlass");
    rig.run(&["notice", "News", "from the original"]).expect(0);
    until("it was tried", || !chat.got().is_empty());
    kill(server);
    let copied = std::process::Command::new("cp")
        .arg("-a")
        .arg(rig.path(".windlass"))
        .arg(rig.path("copied"))
        .status();
    assert!(copied.expect("cp runs").success());
    chat.status.store(200, Ordering::SeqCst);
    let first = rig.run(&["--data", "copied", "call", "add", r#"{"a": 1, "b": 2}"#]).expect(0);
    assert!(first.stderr.contains("1 webhooks are held"), "{first}");
    let listed = rig.run(&["--data", "copied", "webhooks", "ls", "--json"]).expect(0).json();
    assert_eq!(
        (&listed["items"][0]["state"], &listed["items"][0]["queued"]),
        (&"held".into(), &1.into()),
        "{listed}"
    );
    assert!(chat.got().iter().all(|got| got.status == 503), "nothing left the copy");
    let server = serve(&rig, "copied");
    let id = text(&listed["items"][0]["id"]);
    rig.run(&["--data", "copied", "webhooks", "enable", &id]).expect(0);
    until("it is delivered", || chat.got().iter().any(|got| got.status == 200));
    let ids: std::collections::BTreeSet<String> = chat.got().into_iter().map(|got| got.id).collect();
    assert_eq!(ids.len(), 1, "the original would have sent it under this id");
    kill(server);
}
