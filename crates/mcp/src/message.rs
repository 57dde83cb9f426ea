//! JSON-RPC messages and errors.

use serde_json::{Map, Value, json};
use windlass::BatchError;
use windlass::error::{AskError, Lost, SessionError};
use windlass::store::Refused;

/// The longest id of a request: it is repeated in answers and kept while the request lasts.
const ID_CHARS_MAX: usize = 256;

/// A message of a client.
#[derive(Debug)]
pub(crate) enum Message {
    Request(RpcRequest),
    Notification {
        method: String,
        params: Map<String, Value>,
    },
    /// The answer to a request of ours; without a result it is an error.
    Response {
        id: Value,
        result: Option<Value>,
    },
}

/// A request that wants an answer.
#[derive(Debug)]
pub(crate) struct RpcRequest {
    pub(crate) id: Value,
    pub(crate) method: String,
    pub(crate) params: Map<String, Value>,
}

impl RpcRequest {
    /// The field `_meta` of its parameters.
    pub(crate) fn meta(&self) -> Option<&Map<String, Value>> {
        self.params.get("_meta").and_then(Value::as_object)
    }

    /// The name behind which a list goes on.
    pub(crate) fn cursor(&self) -> Result<Option<&str>, RpcError> {
        match self.params.get("cursor") {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(after)) => Ok(Some(after.as_str())),
            Some(_) => Err(RpcError::params("`cursor` must be the nextCursor of the page before")),
        }
    }
}

/// A refused request: the JSON-RPC error and the HTTP status that goes with it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RpcError {
    pub(crate) code: i64,
    pub(crate) message: String,
    pub(crate) data: Option<Value>,
    pub(crate) status: u16,
}

pub(crate) const PARSE_ERROR: i64 = -32_700;
pub(crate) const INVALID_REQUEST: i64 = -32_600;
pub(crate) const METHOD_NOT_FOUND: i64 = -32_601;
pub(crate) const INVALID_PARAMS: i64 = -32_602;
pub(crate) const INTERNAL: i64 = -32_603;
pub(crate) const HEADER_MISMATCH: i64 = -32_020;
pub(crate) const MISSING_CAPABILITY: i64 = -32_021;
pub(crate) const UNSUPPORTED_VERSION: i64 = -32_022;

impl RpcError {
    pub(crate) fn new(code: i64, message: impl Into<String>) -> RpcError {
        let status = match code {
            PARSE_ERROR | INVALID_REQUEST | HEADER_MISMATCH | MISSING_CAPABILITY | UNSUPPORTED_VERSION => 400,
            METHOD_NOT_FOUND => 404,
            _ => 200,
        };
        RpcError { code, message: message.into(), data: None, status }
    }

    /// Parameters that do not fit.
    pub(crate) fn params(message: impl Into<String>) -> RpcError {
        RpcError::new(INVALID_PARAMS, message)
    }

    pub(crate) fn with_status(self, status: u16) -> RpcError {
        RpcError { status, ..self }
    }

    pub(crate) fn with_data(self, data: Value) -> RpcError {
        RpcError { data: Some(data), ..self }
    }

    /// A failure inside: the log has the cause, the client a sentence. One that comes of a session that has another owner says so.
    pub(crate) fn internal(error: &(dyn std::error::Error + 'static)) -> RpcError {
        let mut causes = std::iter::successors(Some(error), |cause| (*cause).source());
        if let Some(moved) = causes.find_map(OwnerChange::of) {
            return moved.error();
        }
        tracing::error!(error = %windlass::error::chain(error), "an MCP request failed inside");
        RpcError::new(
            INTERNAL,
            "an internal error occurred, which the server's log explains; try again later",
        )
    }

    /// A request that was refused with a code of the HTTP API.
    pub(crate) fn refused(code: &str, told: &str, retry_after_ms: u64) -> RpcError {
        RpcError::new(INTERNAL, told).with_data(json!({"code": code, "retry_after_ms": retry_after_ms}))
    }

    /// The answer to the request of this id.
    pub(crate) fn answer(&self, id: &Value) -> Value {
        let mut error = json!({"code": self.code, "message": self.message});
        if let Some(data) = &self.data {
            error["data"] = data.clone();
        }
        json!({"jsonrpc": "2.0", "id": id, "error": error})
    }
}

/// The fate of a request for a session that has another owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OwnerChange {
    /// Another worker owns the session, and nothing was done.
    Elsewhere,
    /// The session got another owner while the request was under way: it may have been carried out.
    Moved,
}

impl OwnerChange {
    fn of(error: &(dyn std::error::Error + 'static)) -> Option<OwnerChange> {
        let session = match (error.downcast_ref::<AskError>(), error.downcast_ref::<BatchError>()) {
            (Some(AskError::Session(error)), _) | (_, Some(BatchError::Session(error))) => Some(error),
            _ => error.downcast_ref::<SessionError>(),
        };
        let lost = match session {
            Some(SessionError::Owned { .. }) => return Some(OwnerChange::Elsewhere),
            Some(SessionError::Lost(lost)) => lost,
            _ => error.downcast_ref::<Lost>()?,
        };
        match lost {
            Lost::Refused(Refused::Exists) => Some(OwnerChange::Elsewhere),
            Lost::Refused(Refused::Fenced { .. }) | Lost::Lease => Some(OwnerChange::Moved),
            Lost::Store(_) | Lost::Refused(_) | Lost::Removed | Lost::Broken(_) | _ => None,
        }
    }

    fn error(self) -> RpcError {
        let (code, told) = match self {
            OwnerChange::Elsewhere => (
                ELSEWHERE,
                "another worker has the session, and nothing was done; send the request again, as it is: a worker that is gone is \
                 replaced when its lease runs out",
            ),
            OwnerChange::Moved => (
                MOVED,
                "another worker took the session over while the request was under way, and goes on with what was recorded; send the \
                 request again, as it is: it joins the call that was recorded",
            ),
        };
        RpcError::refused(code, told, OWNER_CHANGE_MS)
    }
}

/// The codes that the HTTP API has for the same.
const ELSEWHERE: &str = "session_elsewhere";
const MOVED: &str = "session_moved";
/// When to come back.
const OWNER_CHANGE_MS: u64 = 1_000;

/// The answer to a request.
pub(crate) fn answer(id: &Value, result: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "result": result})
}

/// A notification of ours.
pub(crate) fn notification(method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "method": method, "params": params})
}

impl Message {
    /// Reads a message. The second part of an error is the id to answer with.
    pub(crate) fn read(message: Value) -> Result<Message, (RpcError, Value)> {
        let invalid = |what: &str, id: &Value| (RpcError::new(INVALID_REQUEST, what), id.clone());
        let Value::Object(mut fields) = message else {
            return Err(invalid("a message is one JSON object; batches are not taken", &Value::Null));
        };
        let id = fields.remove("id");
        let shown_id = id.clone().filter(is_id).unwrap_or_default();
        if fields.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
            return Err(invalid("`jsonrpc` must be \"2.0\"", &shown_id));
        }
        let params = match fields.remove("params") {
            None => Map::new(),
            Some(Value::Object(params)) => params,
            Some(_) => return Err(invalid("`params` must be an object", &shown_id)),
        };
        let method = match fields.remove("method") {
            Some(Value::String(method)) => method,
            None if fields.contains_key("result") || fields.contains_key("error") => {
                return Ok(Message::Response { id: shown_id, result: fields.remove("result") });
            }
            Some(_) | None => return Err(invalid("`method` must be a text", &shown_id)),
        };
        match id {
            None => Ok(Message::Notification { method, params }),
            Some(id) if is_id(&id) => Ok(Message::Request(RpcRequest { id, method, params })),
            Some(_) => {
                Err(invalid("`id` must be an integer or a text of at most 256 characters", &Value::Null))
            }
        }
    }
}

fn is_id(id: &Value) -> bool {
    match id {
        Value::String(text) => text.chars().count() <= ID_CHARS_MAX,
        Value::Number(number) => number.is_i64() || number.is_u64(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_told_apart() {
        let kind = |message: Value| match Message::read(message) {
            Ok(Message::Request(request)) => format!("request {} {}", request.id, request.method),
            Ok(Message::Notification { method, .. }) => format!("notification {method}"),
            Ok(Message::Response { id, result }) => format!("response {id} {}", result.is_some()),
            Err((error, id)) => format!("{} {id}", error.code),
        };
        assert_eq!(kind(json!({"jsonrpc": "2.0", "id": 1, "method": "ping"})), "request 1 ping");
        assert_eq!(
            kind(json!({"jsonrpc": "2.0", "id": "a", "method": "ping", "params": {}})),
            "request \"a\" ping"
        );
        assert_eq!(kind(json!({"jsonrpc": "2.0", "method": "n"})), "notification n");
        assert_eq!(kind(json!({"jsonrpc": "2.0", "id": 1, "result": {}})), "response 1 true");
        assert_eq!(kind(json!({"jsonrpc": "2.0", "id": "f", "error": {}})), "response \"f\" false");
        assert_eq!(kind(json!([])), "-32600 null");
        assert_eq!(kind(json!({"id": 7, "method": "ping"})), "-32600 7");
        assert_eq!(kind(json!({"jsonrpc": "2.0", "id": null, "method": "ping"})), "-32600 null");
        assert_eq!(kind(json!({"jsonrpc": "2.0", "id": 1.5, "method": "ping"})), "-32600 null");
        assert_eq!(kind(json!({"jsonrpc": "2.0", "id": 1, "method": "ping", "params": []})), "-32600 1");
        assert_eq!(kind(json!({"jsonrpc": "2.0", "id": "x".repeat(257), "method": "ping"})), "-32600 null");
    }
}
