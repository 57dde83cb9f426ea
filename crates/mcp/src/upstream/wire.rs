//! Messages to and from servers of others.

use crate::message::METHOD_NOT_FOUND;
use serde_json::{Map, Value, json};
use tokio::sync::watch;
use windlass::tool::Progress;

/// Takes the last progress of a request: a server that floods is not heard more often than somebody looks.
pub(super) type ProgressSender = watch::Sender<Option<Progress>>;

/// A request to a server.
#[derive(Clone)]
pub(super) struct SentRequest {
    pub(super) method: &'static str,
    pub(super) params: Map<String, Value>,
    /// The name of the tool, where there is one.
    pub(super) name: Option<String>,
    /// The idempotency key of the call, where there is one.
    pub(super) key: Option<String>,
    pub(super) progress: Option<ProgressSender>,
}

/// A request without an answer.
#[derive(Debug)]
pub(super) struct LostRequest {
    /// Whether the server may have got it.
    pub(super) was_sent: bool,
    pub(super) why: String,
}

impl SentRequest {
    pub(super) fn new(method: &'static str, params: Map<String, Value>) -> SentRequest {
        SentRequest { method, params, name: None, key: None, progress: None }
    }

    /// The message, under this id. `None`: a notification.
    pub(super) fn message(&self, id: Option<u64>) -> Value {
        let mut params = self.params.clone();
        if let (Some(id), Some(_)) = (id, &self.progress) {
            let meta = params.entry("_meta").or_insert_with(|| json!({}));
            meta["progressToken"] = id.into();
        }
        let mut message = json!({"jsonrpc": "2.0", "method": self.method, "params": params});
        if let Some(id) = id {
            message["id"] = id.into();
        }
        message
    }
}

/// A message of a server.
pub(super) enum ServerMessage {
    Answer {
        id: u64,
        message: Value,
    },
    Progress {
        token: u64,
        progress: Progress,
    },
    ToolsChanged,
    Request {
        id: Value,
        method: String,
    },
    /// Nothing that we know.
    Other,
}

pub(super) fn heard(message: Value) -> ServerMessage {
    let Some(method) = message.get("method").and_then(Value::as_str) else {
        return match message["id"].as_u64() {
            Some(id) => ServerMessage::Answer { id, message },
            None => ServerMessage::Other,
        };
    };
    match (method, message.get("id")) {
        (method, Some(id)) => ServerMessage::Request { id: id.clone(), method: method.to_string() },
        ("notifications/tools/list_changed", None) => ServerMessage::ToolsChanged,
        ("notifications/progress", None) => {
            let params = &message["params"];
            let Some(token) = params["progressToken"].as_u64() else { return ServerMessage::Other };
            let label = params["message"].as_str().map(str::to_string);
            let progress = Progress {
                current: params["progress"].as_f64(),
                total: params["total"].as_f64(),
                unit: None,
                label,
            };
            ServerMessage::Progress { token, progress }
        }
        _ => ServerMessage::Other,
    }
}

/// The notification that nobody waits for a request any more.
pub(super) fn cancelled(id: u64) -> Value {
    let params = json!({"requestId": id, "reason": "the call was stopped"});
    json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})
}

/// The answer to a request of a server: nothing is offered to it.
pub(super) fn refusal(id: &Value, method: &str) -> Value {
    let error =
        json!({"code": METHOD_NOT_FOUND, "message": format!("{method:?} is not offered by this client")});
    json!({"jsonrpc": "2.0", "id": id, "error": error})
}
