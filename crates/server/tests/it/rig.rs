//! A runtime that owns a folder and serves its socket, with tools that wait until they are told.

use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::Arc;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::{Semaphore, watch};
use windlass::ask::Target;
use windlass::{Args, BatchRequest, CallRequest, Config, EffectClass, Runtime, Submitted, ToolSpec, tool_fn};
use windlass_server::Api;
use windlass_server::client::Client;
use windlass_server::control::Control;
use windlass_testkit::sqlite_in;

pub struct Rig {
    pub folder: TempDir,
    pub runtime: Runtime,
    pub control: Option<Control>,
    /// Lets waiting tools return, one each.
    pub go: Arc<Semaphore>,
    /// How many attempts have begun.
    pub begun: watch::Receiver<u64>,
}

impl Rig {
    pub fn new() -> Rig {
        let folder = tempfile::tempdir().expect("a folder");
        let runtime = Runtime::new(Config::new(sqlite_in(folder.path())));
        let go = Arc::new(Semaphore::new(0));
        let (begins, begun) = watch::channel(0);
        for (name, class) in [("look", EffectClass::Read), ("hold", EffectClass::Once)] {
            let (go, begins) = (go.clone(), begins.clone());
            let spec = ToolSpec { name: name.into(), class: Some(class), ..ToolSpec::default() };
            let tool = tool_fn(spec, move |_, _| {
                begins.send_modify(|begun| *begun += 1);
                let go = go.clone();
                async move {
                    go.acquire().await.expect("it stays open").forget();
                    Ok(json!("went").into())
                }
            });
            runtime.register(tool).expect("it fits");
        }
        let control =
            Some(Control::serve(&Api::new(&runtime, None), folder.path()).expect("the socket is served"));
        Rig { folder, runtime, control, go, begun }
    }

    pub fn path(&self) -> PathBuf {
        self.folder.path().to_path_buf()
    }

    pub async fn client(&self) -> Client {
        Client::find(self.folder.path()).await.expect("it can be asked").expect("somebody serves")
    }

    /// Submits calls of these tools, with ids `key-0`, `key-1`, …
    pub async fn submit(&self, session: &str, key: &str, tools: &[&str]) -> Submitted {
        let call = |(place, tool): (usize, &&str)| CallRequest {
            id: Some(format!("{key}-{place}")),
            tool: tool.to_string(),
            args: Args::Text("{}".into()),
            ..CallRequest::default()
        };
        let calls = tools.iter().enumerate().map(call).collect();
        let batch = BatchRequest { key: Some(key.into()), calls, ..BatchRequest::default() };
        self.runtime.submit(session, batch).await.expect("it is taken")
    }

    /// Waits until so many attempts have begun.
    pub async fn begun(&mut self, count: u64) {
        self.begun.wait_for(|begun| *begun >= count).await.expect("tools are there");
    }

    /// A call that was stopped in the middle, so that nobody knows whether it took effect.
    pub async fn unknown(&mut self, key: &str) -> String {
        let begun = *self.begun.borrow();
        let submitted = self.submit("s", key, &["hold"]).await;
        self.begun(begun + 1).await;
        self.runtime.cancel(Target::Batch { session: "s", key }, None).await.expect("it is asked");
        let answer = submitted.settled().await.expect("it is answered");
        assert!(
            answer.calls[0].call().end().is_some_and(|end| end.is_unknown()),
            "{}",
            answer.calls[0].state()
        );
        answer.calls[0].handle().to_string()
    }

    /// Sends a request as it is written, and returns status and body.
    pub async fn raw(&self, request: &[u8]) -> (u16, Value) {
        let (status, head, body) = self.exchange(request).await;
        assert!(head.contains("application/json") || head.contains("application/problem+json"), "{head}");
        (status, serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error}: {body}")))
    }

    pub async fn exchange(&self, request: &[u8]) -> (u16, String, String) {
        let mut stream = UnixStream::connect(self.folder.path().join("control.sock")).await.expect("served");
        // Whoever is refused in the middle may not be able to send the rest.
        let _ = stream.write_all(request).await;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        let answer = String::from_utf8(answer).expect("text");
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        (status, head.to_string(), body.to_string())
    }

    pub async fn get(&self, path: &str) -> (u16, Value) {
        self.raw(format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").as_bytes()).await
    }

    pub async fn post(&self, path: &str, body: &[u8]) -> (u16, Value) {
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        self.raw(&[head.as_bytes(), body].concat()).await
    }
}

/// The ids of a page, in its order.
pub fn ids(page: &Value) -> Vec<String> {
    let items = page["items"].as_array().expect("items");
    items.iter().map(|call| call["id"].as_str().expect("an id").to_string()).collect()
}
