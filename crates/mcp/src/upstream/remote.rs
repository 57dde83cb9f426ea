//! A server behind a URL: each message is a request of its own, answered with JSON or with a stream of events.

use super::changes::ServerChanges;
use super::wire::{
    ELICIT, LostRequest, QuestionSender, SentRequest, ServerMessage, ServerQuestion, heard, parsed,
};
use crate::apart::{self, IN_PLACE_BYTES_MAX};
use crate::param_headers;
use crate::peer::MODERN;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, mpsc};
use tokio::task::spawn_blocking;
use windlass_http::{HttpClient, HttpRequest, HttpResponse, Method, WatchedPiece};

/// How long one request of an older server's own messages may last.
const HEARS_MAX: Duration = Duration::from_secs(24 * 3_600);
/// How long a server may take to open the stream of its own messages.
const HEARD_WAIT: Duration = Duration::from_secs(1);
/// The pause before an older server is asked for its own messages again.
const HEARS_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// A server behind a URL.
pub(super) struct RemoteServer {
    place: RemotePlace,
    next_id: AtomicU64,
    session: Mutex<RemoteSession>,
    /// Takes what the server says has changed.
    changes: Arc<ServerChanges>,
    /// The calls under way that take questions, by the ids of their requests.
    asking: Mutex<BTreeMap<u64, QuestionSender>>,
    /// Whether the server has a stream of its own messages.
    speaks_up: AtomicBool,
    /// It is known by now whether it has one.
    is_heard: Notify,
}

/// Where a server is, and what reaches it.
pub(super) struct RemotePlace {
    pub(super) client: HttpClient,
    pub(super) url: String,
    /// The declared headers, with their secrets.
    pub(super) headers: Vec<(String, String)>,
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
    pub(super) fn new(place: RemotePlace, changes: Arc<ServerChanges>) -> RemoteServer {
        RemoteServer {
            place,
            next_id: AtomicU64::new(1),
            session: Mutex::default(),
            changes,
            asking: Mutex::default(),
            speaks_up: AtomicBool::new(false),
            is_heard: Notify::new(),
        }
    }

    /// Hears the messages that a server of the older era sends of its own: changes of its tools, and questions in the middle of calls.
    /// Ends once the server has no such stream.
    pub(super) async fn hear(&self) {
        loop {
            let mut request =
                self.http_request(&SentRequest::new("", serde_json::Map::new()), &Value::Null, HEARS_MAX);
            (request.method, request.body) = (Method::GET, Vec::new());
            let mut events = EventReader::default();
            let mut watch = |head: &HttpResponse, piece: &[u8]| {
                let is_stream = head.status == 200 && is_stream(head);
                self.speaks_up.store(is_stream, Ordering::Relaxed);
                self.is_heard.notify_one();
                if !is_stream {
                    return WatchedPiece::Last;
                }
                // What belongs to no request is short; whatever is not is read by nobody here.
                let events = events.take(piece).into_iter().filter(|event| event.len() <= IN_PLACE_BYTES_MAX);
                events.filter_map(|event| parsed(&event)).for_each(|message| self.take_own(message));
                WatchedPiece::Taken
            };
            let heard = self.place.client.exchange_watched(request, &mut watch).await;
            if heard.is_ok_and(|response| response.status != 200 || !is_stream(&response)) {
                return;
            }
            self.is_heard.notify_one();
            tokio::time::sleep(HEARS_AGAIN_AFTER).await;
        }
    }

    /// Waits until it is known whether the server has a stream of its own messages: what it asks before that would be lost.
    pub(super) async fn is_heard(&self) {
        // A server that holds even the head of the stream back is not waited for.
        let _ = tokio::time::timeout(HEARD_WAIT, self.is_heard.notified()).await;
    }

    /// Whether the server has a stream of its own messages.
    pub(super) fn speaks_up(&self) -> bool {
        self.speaks_up.load(Ordering::Relaxed)
    }

    /// Takes a message that belongs to no request. A question is put to the only call that it can belong to.
    fn take_own(&self, message: Value) {
        match heard(message) {
            ServerMessage::Changed(change) => self.changes.take(change),
            ServerMessage::Request { id, method, params } if method == ELICIT => {
                let asking = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
                let mut senders = asking.values();
                if let (Some(only), None) = (senders.next(), senders.next()) {
                    let request = json!({"method": ELICIT, "params": params});
                    // One that asks faster than people answer is not heard.
                    let _ = only.try_send(ServerQuestion { id, request });
                }
            }
            ServerMessage::Request { .. }
            | ServerMessage::Answer { .. }
            | ServerMessage::Progress { .. }
            | ServerMessage::Other => {}
        }
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
        let (large, mut read_apart) = mpsc::unbounded_channel();
        let mut listener = AnswerListener::new(id, request, &self.changes, large);
        let _asking = request.questions.as_ref().map(|questions| {
            self.asking.lock().unwrap_or_else(PoisonError::into_inner).insert(id, questions.clone());
            AskingCall { server: self, id }
        });
        let mut response = {
            let exchange = self.post(request, Some(id), within, &mut listener);
            tokio::pin!(exchange);
            loop {
                tokio::select! {
                    biased;
                    response = &mut exchange => break response?,
                    // The stream may stay open behind its answer.
                    Some(message) = read_apart.recv() => {
                        if let ServerMessage::Answer { id: of, message } = heard(message) && of == id {
                            return Ok(message);
                        }
                    }
                }
            }
        };
        let answer = match listener.finish() {
            Some(answer) => Some(answer),
            None => match answer_apart(id, &mut read_apart).await {
                Some(answer) => Some(answer),
                None => whole_answer(&mut response, id).await,
            },
        };
        match (response.status, answer) {
            (_, Some(answer)) => Ok(answer),
            (404, None) if self.session(|session| session.id.is_some()) => {
                self.session(|session| session.is_gone = true);
                Err(LostRequest { was_sent: false, why: "the server has forgotten the session".to_string() })
            }
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
        let (large, _) = mpsc::unbounded_channel();
        let mut listener = AnswerListener::new(0, request, &self.changes, large);
        // It wants no answer.
        let _ = self.post(request, None, within, &mut listener).await;
    }

    /// Answers a question of the server.
    pub(super) async fn reply(&self, message: &Value, within: Duration) {
        let request = SentRequest::new("", serde_json::Map::new());
        let request = self.http_request(&request, message, within);
        // Not taken: the server asks for nothing more than that.
        let _ = self.place.client.exchange_watched(request, &mut |_, _| WatchedPiece::Taken).await;
    }

    fn http_request(&self, request: &SentRequest, message: &Value, within: Duration) -> HttpRequest {
        HttpRequest {
            method: Method::POST,
            url: self.place.url.clone(),
            headers: self.headers(request),
            body: message.to_string().into_bytes(),
            timeout: Some(within),
            // The message is for one server alone.
            same_origin: true,
        }
    }

    async fn post(
        &self,
        request: &SentRequest,
        id: Option<u64>,
        within: Duration,
        listener: &mut AnswerListener<'_>,
    ) -> Result<HttpResponse, LostRequest> {
        let request = self.http_request(request, &request.message(id), within);
        let mut watch = |head: &HttpResponse, piece: &[u8]| listener.take(head, piece);
        let sent = self.place.client.exchange_watched(request, &mut watch).await;
        let response = sent.map_err(|failed| LostRequest {
            was_sent: failed.was_sent,
            why: windlass::error::chain(&failed.error),
        })?;
        if let Some(opened) = response.header("mcp-session-id") {
            self.session(|session| session.id = Some(opened.to_string()));
        }
        Ok(response)
    }

    fn headers(&self, request: &SentRequest) -> Vec<(String, String)> {
        let mut headers = self.place.headers.clone();
        let mut add = |name: &str, value: &str| headers.push((name.to_string(), value.to_string()));
        add("content-type", "application/json");
        add("accept", "application/json, text/event-stream");
        let session = self.session(|session| session.clone());
        if let Some(version) = &session.version {
            add("mcp-protocol-version", version);
            if version == MODERN {
                add("mcp-method", request.method);
                if let Some(name) = &request.name {
                    add("mcp-name", &param_headers::encoded(name));
                }
                for (name, value) in &request.headers {
                    add(&format!("{}{name}", param_headers::PREFIX), &param_headers::encoded(value));
                }
            }
        }
        if let Some(id) = &session.id {
            add("mcp-session-id", id);
        }
        if let Some(key) = &request.key {
            add("idempotency-key", key);
        }
        headers
    }
}

/// A call under way that takes questions.
struct AskingCall<'a> {
    server: &'a RemoteServer,
    id: u64,
}

impl Drop for AskingCall<'_> {
    fn drop(&mut self) {
        self.server.asking.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.id);
    }
}

fn is_stream(head: &HttpResponse) -> bool {
    head.header("content-type").unwrap_or_default().starts_with("text/event-stream")
}

/// The answer in a response that is one message.
async fn whole_answer(response: &mut HttpResponse, id: u64) -> Option<Value> {
    if is_stream(response) {
        return None;
    }
    let body = std::mem::take(&mut response.body);
    let message = apart::on_text(body.len(), move || parsed(&body)).await?;
    let is_answer = message.get("method").is_none() && message["id"] == json!(id);
    is_answer.then_some(message)
}

/// The answer among the large events of a stream that has ended.
async fn answer_apart(id: u64, large: &mut mpsc::UnboundedReceiver<Value>) -> Option<Value> {
    while let Some(message) = large.recv().await {
        if let ServerMessage::Answer { id: of, message } = heard(message)
            && of == id
        {
            return Some(message);
        }
    }
    None
}

/// Hears the events of a response until the answer is among them.
struct AnswerListener<'a> {
    id: u64,
    request: &'a SentRequest,
    changes: &'a ServerChanges,
    events: EventReader,
    answer: Option<Value>,
    /// Takes the events that are parsed apart. The size of a body bounds them.
    large: mpsc::UnboundedSender<Value>,
}

impl<'a> AnswerListener<'a> {
    fn new(
        id: u64,
        request: &'a SentRequest,
        changes: &'a ServerChanges,
        large: mpsc::UnboundedSender<Value>,
    ) -> AnswerListener<'a> {
        AnswerListener { id, request, changes, events: EventReader::default(), answer: None, large }
    }

    /// The answer, if it has come. Nothing is listened to any more.
    fn finish(self) -> Option<Value> {
        self.answer
    }

    fn take(&mut self, head: &HttpResponse, piece: &[u8]) -> WatchedPiece {
        if !is_stream(head) {
            return WatchedPiece::Kept;
        }
        for event in self.events.take(piece) {
            if event.len() > IN_PLACE_BYTES_MAX {
                let large = self.large.clone();
                // Whoever waits for it may be gone.
                spawn_blocking(move || parsed(&event).map(|message| large.send(message)));
                continue;
            }
            let Some(message) = parsed(&event) else { continue };
            match heard(message) {
                ServerMessage::Answer { id, message } if id == self.id => {
                    self.answer = Some(message);
                    return WatchedPiece::Last;
                }
                ServerMessage::Progress { token, progress } if token == self.id => {
                    if let Some(sender) = &self.request.progress {
                        sender.send_replace(Some(progress));
                    }
                }
                ServerMessage::Changed(change) => self.changes.take(change),
                ServerMessage::Request { id, method, params } if method == ELICIT => {
                    let request = json!({"method": ELICIT, "params": params});
                    if let Some(questions) = &self.request.questions {
                        // One that asks faster than people answer is not heard.
                        let _ = questions.try_send(ServerQuestion { id, request });
                    }
                }
                // It was told that nothing else is offered to it.
                ServerMessage::Request { .. } => {}
                ServerMessage::Answer { .. } | ServerMessage::Progress { .. } | ServerMessage::Other => {}
            }
        }
        WatchedPiece::Taken
    }
}

/// Server-sent events, as their pieces arrive. The size of a body is bounded, and so is what waits here.
#[derive(Default)]
struct EventReader {
    /// The beginning of a line.
    line: Vec<u8>,
    /// The data of the event so far.
    data: Vec<u8>,
}

impl EventReader {
    /// The data of the events that end in this piece.
    fn take(&mut self, mut piece: &[u8]) -> Vec<Vec<u8>> {
        let mut events = Vec::new();
        while let Some(at) = piece.iter().position(|byte| *byte == b'\n') {
            self.line.extend_from_slice(&piece[..at]);
            piece = &piece[at + 1..];
            let line = std::mem::take(&mut self.line);
            let line = line.strip_suffix(b"\r").unwrap_or(&line);
            if line.is_empty() {
                let data = std::mem::take(&mut self.data);
                events.extend(Some(data).filter(|data| !data.is_empty()));
            } else if let Some(data) = line.strip_prefix(b"data:") {
                self.data.extend_from_slice(data.strip_prefix(b" ").unwrap_or(data));
                self.data.push(b'\n');
            }
        }
        self.line.extend_from_slice(piece);
        events
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_read_however_they_are_cut() {
        let text = "event: message\r\ndata: {\"a\":\r\ndata:  1}\r\n\r\n:\n\ndata: no message\n\ndata:{\"b\":2}\n\ndata: {\"c\"";
        for size in 1..text.len() {
            let mut events = EventReader::default();
            let read: Vec<Value> = text
                .as_bytes()
                .chunks(size)
                .flat_map(|piece| events.take(piece))
                .filter_map(|event| parsed(&event))
                .collect();
            assert_eq!(read, [json!({"a": 1}), json!({"b": 2})], "{size}");
        }
    }
}
