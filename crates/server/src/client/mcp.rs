//! Messages of MCP clients, carried to the owner of a folder.

use super::{ANSWER_BYTES_MAX, ANSWER_WAIT, Client, ClientError, ask, encoded};
use crate::routes::mcp::{APPROVE_HEADER, BRIDGE_HEADER};
use crate::wire::McpList;
use axum::body::Bytes;
use http_body_util::{BodyExt, Limited};
use hyper::Method;
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use std::collections::VecDeque;
use windlass_wire::SseReader;

/// Where a message goes, and for whom.
#[derive(Clone, Debug, Default)]
pub struct McpPost {
    /// The session; `None` for the caller's own.
    pub session: Option<String>,
    /// The name of the bridge, another one for each process.
    pub bridge: String,
    /// The id that `initialize` was answered with.
    pub session_id: Option<String>,
    /// Whether forms in the client may approve calls.
    pub may_approve: bool,
    /// The tools that are listed; `None` for what the configuration says.
    pub list: Option<McpList>,
}

/// The answer to a message, as it comes.
pub struct McpReply {
    session_id: Option<String>,
    messages: McpMessages,
}

enum McpMessages {
    /// All that is left.
    Whole(Option<String>),
    Stream {
        body: Incoming,
        reader: SseReader,
        ready: VecDeque<String>,
    },
}

impl Client {
    /// Sends a message of an MCP client.
    pub async fn mcp(&self, to: &McpPost, message: &str) -> Result<McpReply, ClientError> {
        self.mcp_request(Method::POST, to, Bytes::from(message.to_owned())).await
    }

    /// Opens the stream of messages that belong to no request, for a client of the older era.
    pub async fn mcp_stream(&self, to: &McpPost) -> Result<McpReply, ClientError> {
        self.mcp_request(Method::GET, to, Bytes::new()).await
    }

    async fn mcp_request(&self, method: Method, to: &McpPost, body: Bytes) -> Result<McpReply, ClientError> {
        let mut path = match &to.session {
            Some(session) => format!("/mcp/{}", encoded(session)),
            None => "/mcp".to_string(),
        };
        path += match to.list {
            Some(McpList::All) => "?list=all",
            Some(McpList::Search) => "?list=search",
            None => "",
        };
        let request = self.request(method, path, body);
        let mut request = request.map_err(|error| self.garbled(error.to_string()))?;
        add(request.headers_mut(), BRIDGE_HEADER, &to.bridge);
        if to.may_approve {
            add(request.headers_mut(), APPROVE_HEADER, "1");
        }
        if let Some(id) = &to.session_id {
            add(request.headers_mut(), "mcp-session-id", id);
        }
        let stream = self.connect_to().await.map_err(|error| self.unreachable(error))?;
        let response = tokio::time::timeout(ANSWER_WAIT, ask(stream, request)).await;
        let response = response.map_err(|late| self.unreachable(late))?;
        let response = response.map_err(|source| self.unreachable(source))?;
        let kind =
            response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let (is_stream, is_problem) = (kind == "text/event-stream", kind == "application/problem+json");
        let id = response.headers().get("mcp-session-id").and_then(|id| id.to_str().ok());
        let (session_id, status) = (id.map(str::to_string), response.status());
        if is_stream {
            let (body, reader) = (response.into_body(), SseReader::new(ANSWER_BYTES_MAX));
            let messages = McpMessages::Stream { body, reader, ready: VecDeque::new() };
            return Ok(McpReply { session_id, messages });
        }
        let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
        let body = body.map_err(|source| self.unreachable(source))?.to_bytes();
        if is_problem {
            return Err(self.refused(status, &body));
        }
        let text = String::from_utf8(body.into()).map_err(|error| self.garbled(error.to_string()))?;
        let whole = Some(text).filter(|text| !text.trim().is_empty());
        Ok(McpReply { session_id, messages: McpMessages::Whole(whole) })
    }
}

fn add(headers: &mut HeaderMap, name: &'static str, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(HeaderName::from_static(name), value);
    }
}

impl McpReply {
    /// The id of the session that `initialize` has opened.
    pub fn session_id(&self) -> Option<&str> {
        self.session_id.as_deref()
    }

    /// The next message, as JSON on one line; `None` at the end, however it came.
    pub async fn next(&mut self) -> Option<String> {
        let (body, reader, ready) = match &mut self.messages {
            McpMessages::Whole(message) => return message.take(),
            McpMessages::Stream { body, reader, ready } => (body, reader, ready),
        };
        loop {
            if let Some(message) = ready.pop_front() {
                return Some(message);
            }
            let frame = body.frame().await?.ok()?;
            let Some(bytes) = frame.data_ref() else { continue };
            ready.extend(reader.push(bytes).ok()?);
        }
    }
}
