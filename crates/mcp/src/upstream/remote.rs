//! A server behind a URL: each message is a request of its own.

use super::wire::{LostRequest, SentRequest};
use crate::peer::MODERN;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use windlass_http::{HttpClient, HttpRequest, HttpResponse, Method};

/// A server behind a URL.
pub(super) struct RemoteServer {
    client: HttpClient,
    url: String,
    /// The declared headers, with their secrets.
    headers: Vec<(String, String)>,
    next_id: AtomicU64,
    session: Mutex<RemoteSession>,
}

/// The version and the session that later requests name.
#[derive(Clone, Default)]
struct RemoteSession {
    version: Option<String>,
    id: Option<String>,
    /// The server does not know the session any more.
    is_gone: bool,
}

impl RemoteServer {
    pub(super) fn new(client: HttpClient, url: String, headers: Vec<(String, String)>) -> RemoteServer {
        RemoteServer { client, url, headers, next_id: AtomicU64::new(1), session: Mutex::default() }
    }

    /// Later requests speak this version.
    pub(super) fn speaks(&self, version: &str) {
        self.session(|session| session.version = Some(version.to_string()));
    }

    /// Whether its session is gone, so that a new one is needed.
    pub(super) fn ended(&self) -> Option<String> {
        self.session(|session| session.is_gone).then(|| "the server has forgotten the session".to_string())
    }

    fn session<T>(&self, look: impl FnOnce(&mut RemoteSession) -> T) -> T {
        look(&mut self.session.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Sends a request and waits for its answer.
    pub(super) async fn request(
        &self,
        request: &SentRequest,
        within: Duration,
    ) -> Result<Value, LostRequest> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let response = self.post(request, Some(id), within).await?;
        let answer = answer(&response, id);
        match (response.status, answer) {
            (404, None) if self.session(|session| session.id.is_some()) => {
                self.session(|session| session.is_gone = true);
                Err(LostRequest { was_sent: false, why: "the server has forgotten the session".to_string() })
            }
            (_, Some(answer)) => Ok(answer),
            // Refused before it was read.
            (status @ 400..=499, None) => Err(LostRequest {
                was_sent: false,
                why: format!("the server refused the request (status {status})"),
            }),
            (status, None) => Err(LostRequest {
                was_sent: true,
                why: format!("the server gave no answer (status {status})"),
            }),
        }
    }

    /// Sends a notification.
    pub(super) async fn notify(&self, request: &SentRequest, within: Duration) {
        // It wants no answer.
        let _ = self.post(request, None, within).await;
    }

    async fn post(
        &self,
        request: &SentRequest,
        id: Option<u64>,
        within: Duration,
    ) -> Result<HttpResponse, LostRequest> {
        let mut headers = self.headers.clone();
        let mut add = |name: &str, value: &str| headers.push((name.to_string(), value.to_string()));
        add("content-type", "application/json");
        add("accept", "application/json, text/event-stream");
        let session = self.session(|session| session.clone());
        if let Some(version) = &session.version {
            add("mcp-protocol-version", version);
            if version == MODERN {
                add("mcp-method", request.method);
                if let Some(name) = &request.name {
                    add("mcp-name", &header_text(name));
                }
            }
        }
        if let Some(id) = &session.id {
            add("mcp-session-id", id);
        }
        if let Some(key) = &request.key {
            add("idempotency-key", key);
        }
        let request = HttpRequest {
            method: Method::POST,
            url: self.url.clone(),
            headers,
            body: request.message(id).to_string().into_bytes(),
            timeout: Some(within),
            // The message is for one server alone.
            same_origin: true,
        };
        let response = self.client.exchange(request).await.map_err(|failed| LostRequest {
            was_sent: failed.was_sent,
            why: windlass::error::chain(&failed.error),
        })?;
        if let Some(opened) = response.header("mcp-session-id") {
            self.session(|session| session.id = Some(opened.to_string()));
        }
        Ok(response)
    }
}

/// A header's value, encoded where it has other characters than headers may.
fn header_text(text: &str) -> String {
    use base64::Engine;
    if text.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
        return text.to_string();
    }
    format!("=?base64?{}?=", base64::engine::general_purpose::STANDARD.encode(text))
}

/// The answer in a response: JSON, or one of server-sent events.
fn answer(response: &HttpResponse, id: u64) -> Option<Value> {
    let is_answer = |message: &Value| message.get("method").is_none() && message["id"] == json!(id);
    let kind = response.header("content-type").unwrap_or_default();
    if !kind.starts_with("text/event-stream") {
        return serde_json::from_slice(&response.body).ok().filter(is_answer);
    }
    let text = String::from_utf8_lossy(&response.body);
    let mut data = String::new();
    for line in text.lines().chain([""]) {
        if let Some(piece) = line.strip_prefix("data:") {
            data.push_str(piece.strip_prefix(' ').unwrap_or(piece));
        } else if line.is_empty() {
            let message = serde_json::from_str(&data).ok().filter(is_answer);
            if message.is_some() {
                return message;
            }
            data.clear();
        }
    }
    None
}
