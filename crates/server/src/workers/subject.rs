//! Which session a request is about: by its path, by a handle in its path, or by a field of its body.

use crate::access::Caller;
use crate::api::Api;
use crate::problem::Problem;
use crate::routes::mcp;
use axum::body::Bytes;
use axum::extract::{FromRequestParts, RawPathParams};
use hyper::Method;
use hyper::http::request::Parts;
use serde_json::Value;
use windlass_core::handle::{Handle, HandleKind, open_approval_id, open_completion_key, open_question_id};
use windlass_core::ids::CallId;

/// The session of a request.
#[derive(Clone)]
pub(super) enum RequestSubject {
    Session(String),
    /// The body names it.
    InBody(SubjectField),
}

/// How a body names a session.
#[derive(Clone, Copy)]
pub(super) enum SubjectField {
    /// A new session: its parent, else itself.
    NewSession,
    /// A message of an MCP client that names no session.
    McpMessage,
}

impl RequestSubject {
    /// The session of a request, by the template of its path; `None`: it is about no session, or names none that exists, so
    /// every worker answers alike.
    pub(super) async fn of_path(path: &'static str, parts: &mut Parts, api: &Api) -> Option<RequestSubject> {
        match (path, &parts.method) {
            ("/v1/sessions", &Method::POST) => return Some(RequestSubject::InBody(SubjectField::NewSession)),
            ("/mcp", _) => return Some(RequestSubject::InBody(SubjectField::McpMessage)),
            _ => {}
        }
        let params = RawPathParams::from_request_parts(parts, &()).await.ok()?;
        let param =
            |name: &str| params.iter().find(|(known, _)| *known == name).map(|(_, value)| value.to_string());
        if let Some(session) = param("session") {
            return Some(RequestSubject::Session(session));
        }
        let session = if let Some(token) = param("attempt") {
            of_attempt(api, &token).await
        } else if let Some(handle) = param("call") {
            session_of(api, opened(api, &handle, HandleKind::Call)?).await
        } else if path.starts_with("/v1/completions/{key}") {
            session_of(api, open_completion_key(api.secret(), &param("key")?)?.0).await
        } else if path.starts_with("/v1/questions/{id}") {
            session_of(api, open_question_id(api.secret(), &param("id")?)?.0).await
        } else if path.starts_with("/v1/approvals/{id}") {
            session_of(api, open_approval_id(api.secret(), &param("id")?)?.0).await
        } else if path.starts_with("/v1/artifacts/{id}") {
            let info = api.runtime().artifact(Handle::parse(&param("id")?)?).await;
            info.ok().flatten().map(|info| info.session.to_string())
        } else {
            None
        };
        session.map(RequestSubject::Session)
    }
}

/// The session of an attempt of a toolbox, whose token begins with the handle of its call.
pub(super) async fn of_attempt(api: &Api, token: &str) -> Option<String> {
    let (handle, _) = token.split_once('.')?;
    session_of(api, opened(api, handle, HandleKind::Call)?).await
}

fn opened(api: &Api, handle: &str, kind: HandleKind) -> Option<CallId> {
    Handle::parse(handle)?.open(api.secret(), kind).map(CallId::unpacked)
}

/// The session of a call. What cannot be read is reported by whoever handles the request.
async fn session_of(api: &Api, call: CallId) -> Option<String> {
    api.runtime().session_of(call).await.ok().flatten()
}

impl SubjectField {
    /// The session that a body names; `None`: none, or the body is not understood, which whoever handles the request says.
    pub(super) async fn session(
        self,
        api: &Api,
        caller: Option<&Caller>,
        body: &Bytes,
    ) -> Result<Option<String>, Problem> {
        let message = serde_json::from_slice::<Value>(body).unwrap_or(Value::Null);
        let text = |field: &str| message[field].as_str().map(str::to_string);
        match (self, caller) {
            (SubjectField::NewSession, _) => Ok(text("parent").or_else(|| text("id"))),
            (SubjectField::McpMessage, Some(caller)) => {
                Ok(Some(mcp::own_session(api, caller, &message).await?))
            }
            (SubjectField::McpMessage, None) => Ok(None),
        }
    }
}
