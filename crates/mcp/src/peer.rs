//! The client behind a request: its era, and what it says that it can do.

use crate::gateway::Headers;
use crate::message::{
    HEADER_MISMATCH, INVALID_PARAMS, MISSING_CAPABILITY, RpcError, RpcRequest, UNSUPPORTED_VERSION,
};
use crate::param_headers::{PREFIX, ParamHeader, decoded};
use crate::seal::{self, Purpose};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use windlass::store::Store;

/// The revision whose requests each say everything about themselves.
pub(crate) const MODERN: &str = "2026-07-28";
/// The revisions that begin with `initialize`, newest first.
pub(crate) const LEGACY: [&str; 3] = ["2025-11-25", "2025-06-18", "2025-03-26"];
/// The extension by which a server answers with a task.
pub(crate) const TASKS: &str = "io.modelcontextprotocol/tasks";

pub(crate) const META_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
pub(crate) const META_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";

/// The two generations of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Era {
    Legacy,
    Modern,
}

/// A client, as one of its requests shows it.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    pub(crate) era: Era,
    /// It takes a task as an answer.
    pub(crate) takes_tasks: bool,
    /// It shows forms to a person.
    pub(crate) shows_forms: bool,
    /// Where it wants to hear of progress.
    pub(crate) progress: Option<Value>,
}

/// The part of a legacy session that later requests need, in its id: so it outlives this process, and costs no memory.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct LegacySession {
    pub(crate) principal: String,
    pub(crate) version: String,
    /// Whether the client shows forms to a person.
    #[serde(default)]
    pub(crate) shows_forms: bool,
    /// Tells two sessions of one client apart.
    pub(crate) nonce: String,
}

impl Peer {
    /// A client of the older era.
    pub(crate) fn legacy(progress: Option<Value>) -> Peer {
        Peer { era: Era::Legacy, takes_tasks: false, shows_forms: false, progress }
    }

    /// The client of a request, if the request is what its era asks for.
    pub(crate) fn of(request: &RpcRequest, headers: &Headers) -> Result<Peer, RpcError> {
        let meta = request.meta();
        let token = meta.and_then(|meta| meta.get("progressToken")).cloned();
        let progress = token.filter(|token| token.is_string() || token.is_i64() || token.is_u64());
        let version = meta.and_then(|meta| meta.get(META_VERSION));
        let header = headers.version.as_deref();
        if version.is_none() && header != Some(MODERN) && !is_modern_only(&request.method) {
            if let Some(unknown) = header.filter(|header| !LEGACY.contains(header)) {
                return Err(unsupported(unknown));
            }
            return Ok(Peer::legacy(progress));
        }
        let missing = |what: &str| {
            RpcError::new(INVALID_PARAMS, format!("params._meta must have {what:?}")).with_status(400)
        };
        let version = version.and_then(Value::as_str).ok_or_else(|| missing(META_VERSION))?;
        if headers.are_required && header.is_some_and(|header| header != version) {
            return Err(mismatch("MCP-Protocol-Version", version));
        }
        if version != MODERN {
            return Err(unsupported(version));
        }
        let capabilities = meta.and_then(|meta| meta.get(META_CAPABILITIES)).and_then(Value::as_object);
        let capabilities = capabilities.ok_or_else(|| missing(META_CAPABILITIES))?;
        headers.check(request, version)?;
        let has = |value: Option<&Value>| value.is_some_and(Value::is_object);
        let extensions = capabilities.get("extensions").and_then(Value::as_object);
        Ok(Peer {
            era: Era::Modern,
            takes_tasks: has(extensions.and_then(|extensions| extensions.get(TASKS))),
            shows_forms: shows_forms(capabilities),
            progress,
        })
    }

    /// Refuses what only clients with tasks may ask for.
    pub(crate) fn must_take_tasks(&self) -> Result<(), RpcError> {
        if self.takes_tasks {
            return Ok(());
        }
        let required = json!({"requiredCapabilities": {"extensions": {TASKS: {}}}});
        let told =
            format!("this needs a client that declares the extension {TASKS} in the request's `_meta`");
        Err(RpcError::new(MISSING_CAPABILITY, told).with_data(required))
    }

    /// Whether it repeats a call by itself when it is told to.
    pub(crate) fn repeats(&self) -> bool {
        self.era == Era::Modern && (self.shows_forms || self.progress.is_some())
    }
}

/// Methods that only the modern era has: asked without its `_meta` they are mistakes, not another era.
fn is_modern_only(method: &str) -> bool {
    method == "server/discover" || method.starts_with("tasks/") || method.starts_with("subscriptions/")
}

/// Whether the capability `elicitation` covers forms: an empty one does.
pub(crate) fn shows_forms(capabilities: &Map<String, Value>) -> bool {
    match capabilities.get("elicitation") {
        Some(Value::Object(modes)) => modes.is_empty() || modes.contains_key("form"),
        Some(_) | None => false,
    }
}

fn unsupported(requested: &str) -> RpcError {
    let data = json!({"supported": [MODERN], "requested": requested});
    let told = format!(
        "the protocol version {requested:?} is not spoken here; {MODERN} is, and `initialize` opens older ones"
    );
    RpcError::new(UNSUPPORTED_VERSION, told).with_data(data)
}

fn mismatch(header: &str, expected: &str) -> RpcError {
    RpcError::new(HEADER_MISMATCH, format!("the header {header} must be {expected:?}, as in the body"))
}

impl Headers {
    /// Checks that the headers say the same as the body: proxies go by the headers.
    fn check(&self, request: &RpcRequest, version: &str) -> Result<(), RpcError> {
        if !self.are_required {
            return Ok(());
        }
        let name = match request.method.as_str() {
            "tools/call" | "prompts/get" => Some("name"),
            "resources/read" => Some("uri"),
            "tasks/get" | "tasks/update" | "tasks/cancel" => Some("taskId"),
            // Of a method that there is not, that is all there is to say.
            _ => None,
        };
        let name = name.map(|field| request.params.get(field).and_then(Value::as_str).unwrap_or_default());
        let expected = [
            ("MCP-Protocol-Version", &self.version, Some(version)),
            ("Mcp-Method", &self.method, Some(request.method.as_str())),
            ("Mcp-Name", &self.name, name),
        ];
        for (header, given, expected) in expected {
            let Some(expected) = expected else { continue };
            let given = given.as_deref().map(decoded);
            if given.as_ref().and_then(|given| given.as_deref()) != Some(expected) {
                return Err(mismatch(header, expected));
            }
        }
        Ok(())
    }

    /// Checks that the headers of annotated arguments say the same as the arguments.
    pub(crate) fn check_params(&self, schema: Option<&Value>, args: &Value) -> Result<(), RpcError> {
        if !self.are_required {
            return Ok(());
        }
        // A schema whose annotations cannot be used asks for no headers.
        let params = schema.and_then(|schema| ParamHeader::of_schema(schema).ok()).unwrap_or_default();
        for param in params {
            let given = self.params.iter().find(|(name, _)| *name == param.header);
            if !param.agrees(given.map(|(_, value)| value.as_str()), args) {
                let told = format!("the header {PREFIX}{} must say what the argument says", param.header);
                return Err(RpcError::new(HEADER_MISMATCH, told));
            }
        }
        Ok(())
    }

    /// The legacy session that the client names, if it names one. One that is not the caller's does not exist for it.
    pub(crate) fn legacy_session(
        &self,
        store: &dyn Store,
        principal: &str,
    ) -> Result<Option<LegacySession>, RpcError> {
        let Some(id) = &self.session_id else { return Ok(None) };
        let session = seal::open::<LegacySession>(store, Purpose::Session, id);
        match session.filter(|session| session.principal == principal) {
            Some(session) => Ok(Some(session)),
            None => {
                let told = "there is no such MCP session; send `initialize` without Mcp-Session-Id";
                Err(RpcError::new(crate::message::INVALID_REQUEST, told).with_status(404))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;

    fn request(method: &str, params: Value) -> RpcRequest {
        let Value::Object(params) = params else { panic!("an object") };
        RpcRequest { id: json!(1), method: method.to_string(), params }
    }

    fn meta(capabilities: Value) -> Value {
        json!({META_VERSION: MODERN, META_CAPABILITIES: capabilities, "progressToken": 7})
    }

    #[test]
    fn the_era_and_the_capabilities_are_read_from_each_request() {
        let bare = Headers::default();
        let legacy = Peer::of(&request("tools/list", json!({})), &bare).expect("legacy");
        assert_eq!((legacy.era, legacy.takes_tasks, legacy.repeats()), (Era::Legacy, false, false));
        let params = json!({"_meta": meta(json!({"elicitation": {}, "extensions": {TASKS: {}}}))});
        let modern = Peer::of(&request("tools/list", params), &bare).expect("modern");
        assert_eq!((modern.era, modern.takes_tasks, modern.shows_forms), (Era::Modern, true, true));
        assert_eq!(modern.progress, Some(json!(7)));
        let params = json!({"_meta": meta(json!({"elicitation": {"url": {}}}))});
        let modern = Peer::of(&request("tools/list", params), &bare).expect("modern");
        assert_eq!((modern.takes_tasks, modern.shows_forms, modern.repeats()), (false, false, true));
        assert_eq!(modern.must_take_tasks().expect_err("it declares none").code, MISSING_CAPABILITY);
    }

    #[test]
    fn mistakes_have_the_codes_of_the_specification() {
        let code = |method: &str, params: Value, headers: &Headers| {
            Peer::of(&request(method, params), headers).map(|_| 0).map_err(|error| (error.code, error.status))
        };
        let modern = Headers { version: Some(MODERN.into()), ..Headers::default() };
        let bare = Headers::default();
        assert_eq!(code("tools/list", json!({}), &modern), Err((INVALID_PARAMS, 400)));
        let odd = Headers { version: Some("1999-01-01".into()), ..Headers::default() };
        assert_eq!(code("tools/list", json!({}), &odd), Err((UNSUPPORTED_VERSION, 400)));
        assert_eq!(code("server/discover", json!({}), &bare), Err((INVALID_PARAMS, 400)));
        assert_eq!(
            code("tools/list", json!({"_meta": {META_VERSION: MODERN}}), &bare),
            Err((INVALID_PARAMS, 400))
        );
        let old = json!({"_meta": {META_VERSION: "2027-01-01", META_CAPABILITIES: {}}});
        assert_eq!(code("tools/list", old, &bare), Err((UNSUPPORTED_VERSION, 400)));
        let call = || json!({"name": "grüß", "_meta": meta(json!({}))});
        let told = |method: Option<&str>, name: Option<&str>| Headers {
            version: Some(MODERN.into()),
            method: method.map(str::to_string),
            name: name.map(str::to_string),
            are_required: true,
            ..Headers::default()
        };
        let newer = json!({"_meta": {META_VERSION: "2027-01-01", META_CAPABILITIES: {}}});
        let other = Headers { are_required: true, ..modern.clone() };
        assert_eq!(code("tools/list", newer, &other), Err((HEADER_MISMATCH, 400)));
        let list = json!({"_meta": meta(json!({}))});
        let odd = Headers { method: Some("tasks/list".into()), ..other };
        assert_eq!(code("tasks/list", list, &odd), Ok(0), "a method that is not there needs no name");
        let encoded = format!("=?base64?{}?=", STANDARD.encode("grüß"));
        assert_eq!(code("tools/call", call(), &told(Some("tools/call"), Some(&encoded))), Ok(0));
        for (method, name) in [
            (None, Some(encoded.as_str())),
            (Some("tools/list"), Some(encoded.as_str())),
            (Some("tools/call"), None),
            (Some("tools/call"), Some("other")),
            (Some("tools/call"), Some("=?base64?!?=")),
        ] {
            assert_eq!(
                code("tools/call", call(), &told(method, name)),
                Err((HEADER_MISMATCH, 400)),
                "{method:?} {name:?}"
            );
        }
    }
}
