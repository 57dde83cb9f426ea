//! The OpenAPI description, made from the router's table.

mod refine;

use crate::access::TokenScope;
use crate::problem::{Problem, ProblemCode};
use crate::router::{Route, surface};
use schemars::generate::SchemaSettings;
use schemars::{Schema, SchemaGenerator};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The description as OpenAPI 3.1.
pub fn document() -> Value {
    let settings = SchemaSettings::draft2020_12()
        .with(|settings| settings.definitions_path = "/components/schemas".into());
    let mut generator = settings.into_generator();
    let problem = generator.subschema_for::<Problem>();
    let mut paths: BTreeMap<String, Map<String, Value>> = BTreeMap::new();
    for route in surface() {
        let described = operation(&route, &mut generator, &problem);
        paths
            .entry(route.path.replace("{*", "{"))
            .or_default()
            .insert(route.method.as_str().to_lowercase(), described);
    }
    let scopes: Map<String, Value> = TokenScope::ALL
        .iter()
        .map(|scope| (scope.as_str().to_string(), json!(scope_description(*scope))))
        .collect();
    let mut document = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Windlass",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Runs tool calls durably. Problems are RFC 9457 with a `code`; docs/server.md explains each.",
        },
        "paths": paths,
        "components": {
            "schemas": generator.take_definitions(true),
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "description": "A token of `windlass token create`.", "x-scopes": scopes},
            },
        },
    });
    refine::refine(&mut document);
    document
}

/// The group of an operation: what it is about.
fn tag(path: &str) -> &str {
    let mut parts = path.split('/').filter(|part| !part.is_empty() && !part.starts_with('{'));
    match (parts.next(), parts.next(), parts.next()) {
        (Some("v1"), Some("sessions"), Some("cancel")) | (Some("v1"), Some("sessions"), None) => "sessions",
        (Some("v1"), Some("sessions"), Some("kv")) => "pairs",
        (Some("v1"), Some("sessions"), Some(part)) | (Some("v1"), Some(part), _) => part,
        (_, _, _) => "server",
    }
}

fn operation(route: &Route, generator: &mut SchemaGenerator, problem: &Schema) -> Value {
    let mut parameters: Vec<Value> = names(route.path)
        .map(|name| json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}}))
        .collect();
    if let Some(query) = route.query {
        parameters.extend(query_parameters(&query(generator), generator));
    }
    let mut responses = Map::new();
    let answer = route.answer.map(|answer| json!({route.media: {"schema": answer(generator)}}));
    let statuses: &[(&str, &str)] =
        if route.makes { &[("200", "It was there."), ("201", "It is new.")] } else { &[("200", "Done.")] };
    for (status, description) in statuses {
        responses.insert((*status).to_string(), json!({"description": description, "content": answer}));
    }
    if route.in_parts {
        let range = json!({"name": "range", "in": "header", "required": false, "schema": {"type": "string"}});
        parameters.push(range);
        responses.insert("206".to_string(), json!({"description": "The range.", "content": answer}));
    }
    for (status, codes) in problems(route) {
        let codes: Vec<String> = codes.iter().map(|code| format!("`{code}`")).collect();
        let content = json!({"application/problem+json": {"schema": problem}});
        responses.insert(status.to_string(), json!({"description": codes.join(", "), "content": content}));
    }
    let mut described = json!({
        "operationId": route.called,
        "tags": [tag(route.path)],
        "summary": route.says,
        "responses": responses,
    });
    if !parameters.is_empty() {
        described["parameters"] = parameters.into();
    }
    if let Some(body) = route.body {
        described["requestBody"] = json!({"content": {route.body_media: {"schema": body(generator)}}});
    }
    described["security"] = match route.needs {
        Some(scope) => json!([{"token": [scope.as_str()]}]),
        None => json!([]),
    };
    described
}

/// The parameters in a path.
fn names(path: &str) -> impl Iterator<Item = &str> {
    path.split('/')
        .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
        .map(|name| name.trim_start_matches('*'))
}

/// One parameter for each field of a query.
fn query_parameters(query: &Schema, generator: &SchemaGenerator) -> Vec<Value> {
    let named = query.get("$ref").and_then(Value::as_str).and_then(|path| path.rsplit('/').next());
    let whole = match named {
        Some(name) => generator.definitions().get(name).cloned().unwrap_or_default(),
        None => query.as_value().clone(),
    };
    let fields = whole["properties"].as_object().cloned().unwrap_or_default();
    let parameter = |(name, schema): (String, Value)| {
        let description = schema["description"].clone();
        json!({"name": name, "in": "query", "required": false, "description": description, "schema": schema})
    };
    fields.into_iter().map(parameter).collect()
}

/// The problem codes of a route, by status.
fn problems(route: &Route) -> BTreeMap<u16, BTreeSet<&'static str>> {
    let mut codes = vec![ProblemCode::HostNotAllowed, ProblemCode::OriginNotAllowed];
    codes.extend(route.problems);
    if route.needs.is_some() {
        codes.extend([
            ProblemCode::NoToken,
            ProblemCode::WrongToken,
            ProblemCode::MissingScope,
            ProblemCode::TooManyRequests,
            ProblemCode::Internal,
            ProblemCode::Unreadable,
        ]);
    }
    // A database that several workers share can be away for readers, too.
    if !route.method.is_safe() || route.needs.is_some() {
        codes.push(ProblemCode::StoreUnavailable);
    }
    let of_a_session = [
        "{session}",
        "{call}",
        "{attempt}",
        "/completions/",
        "/questions/",
        "/approvals/",
        "/artifacts/",
        "/mcp",
    ];
    let opens = route.path == "/v1/sessions" && !route.method.is_safe();
    if opens || of_a_session.iter().any(|part| route.path.contains(part)) {
        codes.extend([ProblemCode::SessionElsewhere, ProblemCode::SessionMoved]);
    }
    if names(route.path).next().is_some() {
        codes.extend([ProblemCode::BadPath, ProblemCode::NotFound]);
    }
    // A handle of a removed session answers `not_found`; during the removal, `gone`.
    if ["{session}", "{call}", "/completions/", "/questions/"].iter().any(|part| route.path.contains(part)) {
        codes.push(ProblemCode::Gone);
    }
    if ["{call}", "{key}", "{task}", "/completions/", "/questions/"]
        .iter()
        .any(|part| route.path.contains(part))
    {
        codes.push(ProblemCode::Expired);
    }
    if route.query.is_some() {
        codes.push(ProblemCode::BadQuery);
    }
    if route.body.is_some() && route.body_media == "application/json" {
        codes.extend([
            ProblemCode::InvalidJson,
            ProblemCode::DuplicateKey,
            ProblemCode::TooDeep,
            ProblemCode::InexactNumber,
        ]);
    }
    if route.body.is_some() {
        codes.push(ProblemCode::BadBody);
        codes.extend([ProblemCode::TooLarge, ProblemCode::Overloaded]);
    }
    let mut by_status: BTreeMap<u16, BTreeSet<&'static str>> = BTreeMap::new();
    for code in codes {
        by_status.entry(code.status()).or_default().insert(code.as_str());
    }
    by_status
}

fn scope_description(scope: TokenScope) -> &'static str {
    match scope {
        TokenScope::Calls => {
            "Open sessions, submit and cancel calls, post results of tools that the caller runs."
        }
        TokenScope::Read => "Look.",
        TokenScope::Complete => {
            "Answer what calls wait for: questions, connections, unknown calls, changed tools."
        }
        TokenScope::Approve => "Approve or deny calls that wait for that. Not for agents.",
        TokenScope::Tools => "Offer tools as a toolbox, take their attempts, and report about them.",
        TokenScope::Admin => {
            "Manage tokens and tools, and reach the sessions of all principals with its other scopes."
        }
    }
}
