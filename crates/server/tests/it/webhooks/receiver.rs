//! A receiver of webhooks: a real HTTP server on loopback that answers as it is told.

use serde_json::Value;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// The answer to one delivery.
#[derive(Clone, Copy)]
pub enum Reply {
    Status(u16),
    /// Reads the request, and says nothing until its sender is gone.
    Silence,
    HangUp,
    /// To another path, with the same method and body.
    Redirect,
}

/// A delivery as it came.
pub struct Delivery {
    head: String,
    pub body: Vec<u8>,
}

impl Delivery {
    pub fn header(&self, name: &str) -> String {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        let found = lines.find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.unwrap_or_else(|| panic!("no {name} in {}", self.head)).1.to_string()
    }

    /// The method and the path.
    pub fn line(&self) -> &str {
        self.head.split(" HTTP").next().unwrap_or_default()
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("JSON")
    }
}

pub struct Receiver {
    port: u16,
    replies: Arc<Mutex<VecDeque<Reply>>>,
    asked: Arc<AtomicU64>,
    got: mpsc::UnboundedReceiver<Delivery>,
    serving: JoinHandle<()>,
}

impl Receiver {
    pub async fn new() -> Receiver {
        Receiver::at(0).await
    }

    pub async fn at(port: u16) -> Receiver {
        let listener = TcpListener::bind(("127.0.0.1", port)).await.expect("the port is free");
        let port = listener.local_addr().expect("an address").port();
        let (tell, got) = mpsc::unbounded_channel();
        let (replies, asked) = (Arc::<Mutex<VecDeque<Reply>>>::default(), Arc::<AtomicU64>::default());
        let serving = tokio::spawn({
            let (replies, asked) = (replies.clone(), asked.clone());
            async move {
                let mut serving = tokio::task::JoinSet::new();
                while let Ok((stream, _)) = listener.accept().await {
                    serving.spawn(serve(stream, replies.clone(), asked.clone(), tell.clone()));
                }
            }
        });
        Receiver { port, replies, asked, got, serving }
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/hook", self.port)
    }

    /// The answer after those that were given before; then 200.
    pub fn then(&self, reply: Reply) {
        self.replies.lock().expect("no panic").push_back(reply);
    }

    pub async fn next(&mut self) -> Delivery {
        let next = tokio::time::timeout(std::time::Duration::from_secs(60), self.got.recv());
        next.await.expect("it comes in time").expect("it is served")
    }

    /// How many deliveries came.
    pub fn asked(&self) -> u64 {
        self.asked.load(Ordering::SeqCst)
    }

    /// Nobody listens any more. Returns the port.
    pub async fn close(self) -> u16 {
        self.serving.abort();
        let _aborted = self.serving.await;
        self.port
    }
}

async fn serve(
    mut stream: TcpStream,
    replies: Arc<Mutex<VecDeque<Reply>>>,
    asked: Arc<AtomicU64>,
    tell: mpsc::UnboundedSender<Delivery>,
) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => return,
        }
    }
    let mut delivery = Delivery { head: String::from_utf8(head).expect("text"), body: Vec::new() };
    delivery.body = vec![0; delivery.header("content-length").parse().expect("a number")];
    stream.read_exact(&mut delivery.body).await.expect("the whole body");
    asked.fetch_add(1, Ordering::SeqCst);
    let reply = replies.lock().expect("no panic").pop_front().unwrap_or(Reply::Status(200));
    // The test may be over.
    let _ = tell.send(delivery);
    let answer = match reply {
        Reply::Status(status) => {
            format!("HTTP/1.1 {status} Told\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
        }
        Reply::Redirect => {
            "HTTP/1.1 307 Elsewhere\r\nconnection: close\r\nlocation: /elsewhere\r\ncontent-length: 0\r\n\r\n"
                .to_string()
        }
        Reply::Silence => {
            let _ = stream.read_u8().await;
            return;
        }
        Reply::HangUp => return,
    };
    let _ = stream.write_all(answer.as_bytes()).await;
}
