//! Prompts, resources and completions of MCP servers, for clients of the door: asked for by a person's client, and no calls.
//!
//! They are there where the entry of a server forwards them. Artifacts of the session are resources too, and need no entry.

use crate::gateway::{Gateway, Visitor};
use crate::hello::{capability_of, with_cache_hints};
use crate::message::{
    HEADER_MISMATCH, INTERNAL, INVALID_REQUEST, METHOD_NOT_FOUND, PARSE_ERROR, RpcError, RpcRequest,
    UNSUPPORTED_VERSION,
};
use crate::peer::{Era, Peer};
use crate::resources;
use crate::upstream::{ForwardError, ForwardedRequest, ForwardingServer, ListPatience, OfferKind};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// The code of an unknown resource before 2026-07-28.
const RESOURCE_NOT_FOUND: i64 = -32_002;
/// The longest message and data of an error of a server.
const ERROR_BYTES_MAX: usize = 16 << 10;
/// The completions of one answer, as the protocol has them.
const COMPLETIONS_MAX: usize = 100;

/// Answers a request for prompts, resources or completions; `None`: it is for something else, or nothing like it is offered here.
pub(crate) async fn answer(
    gateway: &Gateway,
    visitor: &Visitor,
    peer: &Peer,
    request: &RpcRequest,
) -> Result<Option<Value>, RpcError> {
    let forwards = gateway.forwarding().forwards();
    let result = match request.method.as_str() {
        "resources/list" => list(gateway, peer, request, OfferKind::Resources).await?,
        "resources/templates/list" => list(gateway, peer, request, OfferKind::Templates).await?,
        "resources/read" => read(gateway, visitor, peer, request).await?,
        "prompts/list" if forwards.prompts => list(gateway, peer, request, OfferKind::Prompts).await?,
        "prompts/get" if forwards.prompts => prompt(gateway, peer, request).await?,
        "completion/complete" if forwards.any() => complete(gateway, peer, request).await?,
        _ => return Ok(None),
    };
    Ok(Some(result))
}

async fn list(
    gateway: &Gateway,
    peer: &Peer,
    request: &RpcRequest,
    kind: OfferKind,
) -> Result<Value, RpcError> {
    let after = request.cursor()?;
    let limit = usize::try_from(gateway.runtime().limits().mcp_tools_page).unwrap_or(usize::MAX).max(1);
    let mut entries = gateway.forwarding().list(kind, ListPatience::Asked).await;
    if kind == OfferKind::Templates {
        let own = resources::template();
        entries.insert(own[kind.key()].as_str().unwrap_or_default().to_string(), own);
    }
    let mut rest = entries.into_iter().filter(|(key, _)| after.is_none_or(|after| key.as_str() > after));
    let page: BTreeMap<String, Value> = rest.by_ref().take(limit).collect();
    let next = rest.next().and(page.keys().last().cloned());
    let mut listed = json!({kind.field(): page.into_values().collect::<Vec<_>>()});
    if let Some(next) = next {
        listed["nextCursor"] = next.into();
    }
    Ok(with_cache_hints(peer, listed))
}

async fn prompt(gateway: &Gateway, peer: &Peer, request: &RpcRequest) -> Result<Value, RpcError> {
    let shown = request.params.get("name").and_then(Value::as_str);
    let shown = shown.ok_or_else(|| RpcError::params("`name` must be the name of a prompt"))?;
    let Some((server, name)) = gateway.forwarding().prompt(shown).await else {
        return Err(unknown_prompt(gateway, shown).await);
    };
    let mut params = continued(request);
    params.insert("name".to_string(), name.clone().into());
    params.extend(request.params.get("arguments").map(|args| ("arguments".to_string(), args.clone())));
    let asked = passed_on("prompts/get", params, Some(name), request);
    asked_of(&server, peer, asked, "messages").await
}

async fn unknown_prompt(gateway: &Gateway, shown: &str) -> RpcError {
    let known = gateway.forwarding().list(OfferKind::Prompts, ListPatience::Looks).await;
    let near = windlass::tool::nearest_name(shown, known.keys().map(String::as_str));
    let hint = near.map(|near| format!("; did you mean {near:?}?")).unwrap_or_default();
    RpcError::params(format!("there is no prompt {shown:?}{hint}"))
}

async fn read(
    gateway: &Gateway,
    visitor: &Visitor,
    peer: &Peer,
    request: &RpcRequest,
) -> Result<Value, RpcError> {
    let uri = address(request)?;
    let server = match resources::is_own(uri) {
        true => None,
        false => gateway.forwarding().resource(uri).await,
    };
    let Some(server) = server else {
        return Ok(with_cache_hints(peer, resources::read(gateway.runtime(), visitor, uri).await?));
    };
    let mut params = continued(request);
    params.insert("uri".to_string(), uri.into());
    let asked = passed_on("resources/read", params, Some(uri.to_string()), request);
    let result = asked_of(&server, peer, asked, "contents").await.map_err(|error| match error.code {
        // Each era has its own code for this.
        RESOURCE_NOT_FOUND if peer.era == Era::Modern => resources::unknown(uri),
        _ => error,
    })?;
    match result["resultType"] == "input_required" {
        true => Ok(result),
        false => Ok(with_cache_hints(peer, result)),
    }
}

/// The address that a request is about.
pub(crate) fn address(request: &RpcRequest) -> Result<&str, RpcError> {
    let uri = request.params.get("uri").and_then(Value::as_str);
    uri.ok_or_else(|| RpcError::params("`uri` must be the URI of a resource"))
}

async fn complete(gateway: &Gateway, peer: &Peer, request: &RpcRequest) -> Result<Value, RpcError> {
    let wrong = || RpcError::params("`ref` must be a ref/prompt with a name, or a ref/resource with a uri");
    let mut reference = request.params.get("ref").cloned().ok_or_else(wrong)?;
    let server = match (reference["type"].as_str(), reference["name"].as_str(), reference["uri"].as_str()) {
        (Some("ref/prompt"), Some(shown), _) => {
            let shown = shown.to_string();
            let found = gateway.forwarding().prompt(&shown).await;
            let Some((server, name)) = found else { return Err(unknown_prompt(gateway, &shown).await) };
            reference["name"] = name.into();
            server
        }
        (Some("ref/resource"), _, Some(uri)) if !resources::is_own(uri) => {
            gateway.forwarding().resource(uri).await.ok_or_else(|| resources::unknown(uri))?
        }
        (Some("ref/resource"), _, Some(_)) => return Ok(json!({"completion": {"values": []}})),
        _ => return Err(wrong()),
    };
    // The door says that it completes because some server does.
    if !server.completes().await {
        return Ok(json!({"completion": {"values": []}}));
    }
    let mut params = Map::from_iter([("ref".to_string(), reference)]);
    for field in ["argument", "context"] {
        params.extend(request.params.get(field).map(|value| (field.to_string(), value.clone())));
    }
    let asked = passed_on("completion/complete", params, None, request);
    let mut result = asked_of(&server, peer, asked, "completion").await?;
    if let Some(values) = result["completion"].get_mut("values").and_then(Value::as_array_mut)
        && values.len() > COMPLETIONS_MAX
    {
        values.truncate(COMPLETIONS_MAX);
        result["completion"]["hasMore"] = true.into();
    }
    Ok(result)
}

/// The fields by which a client goes on with a request that a server has answered with questions. They are between these two.
fn continued(request: &RpcRequest) -> Map<String, Value> {
    let fields = ["inputResponses", "requestState"].into_iter();
    fields.filter_map(|field| Some((field.to_string(), request.params.get(field)?.clone()))).collect()
}

fn passed_on(
    method: &'static str,
    params: Map<String, Value>,
    name: Option<String>,
    request: &RpcRequest,
) -> ForwardedRequest {
    // The server may ask what the client can answer, since the answers go back to it as they are.
    let mut capabilities = json!({});
    for name in ["elicitation", "sampling", "roots"] {
        if let Some(capability) = capability_of(request, name) {
            capabilities[name] = capability.clone();
        }
    }
    ForwardedRequest { method, params, name, capabilities }
}

/// The result of a request that is passed on, which has this field.
async fn asked_of(
    server: &ForwardingServer,
    peer: &Peer,
    request: ForwardedRequest,
    field: &str,
) -> Result<Value, RpcError> {
    let result = server.ask(request).await.map_err(|error| refused(&error, peer.era))?;
    let unreadable = |told: &str| Err(RpcError::new(INTERNAL, told));
    match result.get("resultType").and_then(Value::as_str) {
        None | Some("complete")
            if result.get(field).is_some_and(|value| value.is_array() || value.is_object()) =>
        {
            Ok(result)
        }
        Some("input_required") if peer.era == Era::Modern => Ok(result),
        Some("input_required") => {
            unreadable("the MCP server asks for more, which only clients of 2026-07-28 can answer")
        }
        _ => unreadable("the MCP server gave an answer that is none"),
    }
}

/// The error of a server, for its client: what it says of the request stands, what it says of our messages is not for others.
fn refused(error: &ForwardError, era: Era) -> RpcError {
    let ForwardError::Refused { server, error: told } = error else {
        return RpcError::new(INTERNAL, error.to_string());
    };
    let code = told["code"].as_i64().unwrap_or(INTERNAL);
    let is_ours = [PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, HEADER_MISMATCH, UNSUPPORTED_VERSION]
        .contains(&code);
    let message = told["message"].as_str().unwrap_or("it did not say why");
    let message = &message[..message.floor_char_boundary(ERROR_BYTES_MAX)];
    if is_ours {
        return RpcError::new(INTERNAL, format!("the MCP server {server} refused the request: {message}"));
    }
    let refused = RpcError::new(code, message);
    let refused = if era == Era::Legacy { refused.with_status(200) } else { refused };
    match told.get("data").filter(|data| !data.is_null() && data.to_string().len() <= ERROR_BYTES_MAX) {
        Some(data) => refused.with_data(data.clone()),
        None => refused,
    }
}
