//! Messages to and from servers of others.

use super::changes::ServerChange;
use crate::message::METHOD_NOT_FOUND;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use tokio::sync::{mpsc, watch};
use windlass::tool::Progress;

/// Takes the last progress of a request: a server that floods is not heard more often than somebody looks.
pub(super) type ProgressSender = watch::Sender<Option<Progress>>;

/// A request to a server.
#[derive(Clone)]
pub(super) struct SentRequest {
    pub(super) method: &'static str,
    pub(super) params: Map<String, Value>,
    /// The name of the tool or the task, where there is one.
    pub(super) name: Option<String>,
    /// The idempotency key of the call, where there is one.
    pub(super) key: Option<String>,
    pub(super) progress: Option<ProgressSender>,
    /// Takes what the server asks before it answers, in the older era.
    pub(super) questions: Option<QuestionSender>,
    /// Headers that repeat arguments.
    pub(super) headers: Vec<(String, String)>,
    /// The capabilities of the client behind it, in the newer era, where that is not Windlass itself.
    pub(super) capabilities: Option<Value>,
}

/// Takes questions of a server. A server that asks more of them than somebody answers is told that nobody does.
pub(super) type QuestionSender = mpsc::Sender<ServerQuestion>;
/// Questions of one call that wait.
pub(super) const QUESTIONS_WAITING_MAX: usize = 4;

/// A question of a server of the older era, in the middle of a call.
#[derive(Clone, Debug)]
pub(super) struct ServerQuestion {
    /// The server's id of the request.
    pub(super) id: Value,
    /// As in the newer era: its method and parameters.
    pub(super) request: Value,
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
        SentRequest {
            method,
            params,
            name: None,
            key: None,
            progress: None,
            questions: None,
            headers: Vec::new(),
            capabilities: None,
        }
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
    Changed(ServerChange),
    Request {
        id: Value,
        method: String,
        params: Value,
    },
    /// Nothing that we know.
    Other,
}

/// The field of a definition, or of an answer, that could not be read; its value says why.
pub(super) const UNREADABLE: &str = "io.windlass/unreadable";
const TOO_DEEP: &str = "it is nested deeper than 128 levels";

/// Reads a message. Of one that is nested too deep the rest is still read: a tool hides no other, and an answer is not awaited in vain.
pub(super) fn parsed(text: &[u8]) -> Option<Value> {
    serde_json::from_slice(text).ok().or_else(|| partly_read(text))
}

#[derive(Deserialize)]
struct DeepAnswer<'a> {
    id: u64,
    #[serde(borrow)]
    result: &'a RawValue,
}

/// The lists of servers.
const LISTS: [&str; 4] = ["tools", "prompts", "resources", "resourceTemplates"];

fn partly_read(text: &[u8]) -> Option<Value> {
    let answer: DeepAnswer<'_> = serde_json::from_slice(text).ok()?;
    let Some(page) = partly_read_page(answer.result) else {
        return Some(json!({"jsonrpc": "2.0", "id": answer.id, UNREADABLE: TOO_DEEP}));
    };
    Some(json!({"jsonrpc": "2.0", "id": answer.id, "result": page}))
}

/// A page of a list; `None` if the result is none.
fn partly_read_page(result: &RawValue) -> Option<Value> {
    let fields: BTreeMap<String, &RawValue> = serde_json::from_str(result.get()).ok()?;
    let (field, entries) = LISTS.into_iter().find_map(|field| Some((field, *fields.get(field)?)))?;
    let entries: Vec<&RawValue> = serde_json::from_str(entries.get()).ok()?;
    let entries: Vec<Value> = entries.into_iter().map(partly_read_entry).collect();
    let next = fields.get("nextCursor").and_then(|next| serde_json::from_str::<Value>(next.get()).ok());
    Some(json!({field: entries, "nextCursor": next}))
}

/// An entry, or the name of one that cannot be read.
fn partly_read_entry(entry: &RawValue) -> Value {
    serde_json::from_str(entry.get()).unwrap_or_else(|_| {
        let fields: BTreeMap<String, &RawValue> = serde_json::from_str(entry.get()).unwrap_or_default();
        let name = fields.get("name").and_then(|name| serde_json::from_str::<String>(name.get()).ok());
        json!({"name": name, UNREADABLE: TOO_DEEP})
    })
}

pub(super) fn heard(message: Value) -> ServerMessage {
    let Some(method) = message.get("method").and_then(Value::as_str) else {
        return match message["id"].as_u64() {
            Some(id) => ServerMessage::Answer { id, message },
            None => ServerMessage::Other,
        };
    };
    match (method, message.get("id")) {
        (method, Some(id)) => ServerMessage::Request {
            id: id.clone(),
            method: method.to_string(),
            params: message["params"].clone(),
        },
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
        (method, None) => match ServerChange::of(method, &message["params"]) {
            Some(change) => ServerMessage::Changed(change),
            None => ServerMessage::Other,
        },
    }
}

/// The notification that nobody waits for a request any more.
pub(super) fn cancelled(id: u64) -> Value {
    let params = json!({"requestId": id, "reason": "the call was stopped"});
    json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})
}

/// The answer of a person, or that nobody answers, to a question of a server.
pub(super) fn reply(id: &Value, result: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "result": result})
}

/// The answer to a question that nobody is asked.
pub(super) fn unasked(id: &Value) -> Value {
    reply(id, &json!({"action": "cancel"}))
}

/// The method by which servers of the older era ask.
pub(super) const ELICIT: &str = "elicitation/create";

/// The answer to a request of a server: nothing else is offered to it.
pub(super) fn refusal(id: &Value, method: &str) -> Value {
    let error =
        json!({"code": METHOD_NOT_FOUND, "message": format!("{method:?} is not offered by this client")});
    json!({"jsonrpc": "2.0", "id": id, "error": error})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_definition_that_is_nested_too_deep_hides_no_other() {
        let deep = format!("{}1{}", "[".repeat(5_000), "]".repeat(5_000));
        let page = format!(
            r#"{{"jsonrpc": "2.0", "id": 7, "result": {{"tools": [{{"name": "a", "inputSchema": {{}}}},
               {{"name": "deep", "inputSchema": {deep}}}], "nextCursor": "next"}}}}"#
        );
        let read = parsed(page.as_bytes()).expect("it is read");
        assert_eq!((&read["id"], &read["result"]["nextCursor"]), (&json!(7), &json!("next")));
        let tools = read["result"]["tools"].as_array().expect("tools");
        assert_eq!(tools[0], json!({"name": "a", "inputSchema": {}}));
        assert_eq!((&tools[1]["name"], &tools[1][UNREADABLE]), (&json!("deep"), &json!(TOO_DEEP)));
        let answer = format!(r#"{{"jsonrpc": "2.0", "id": 8, "result": {{"content": {deep}}}}}"#);
        assert_eq!(parsed(answer.as_bytes()).expect("it is read")[UNREADABLE], TOO_DEEP);
        assert_eq!(parsed(b"no message"), None);
    }
}
