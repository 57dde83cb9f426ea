//! The description of the API: what is committed is what is served, and what is answered is what is described.

use crate::tcp::Served;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use windlass_server::{ProblemCode, openapi};

const COMMITTED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json");

#[test]
fn the_committed_description_is_the_served_one() {
    let text = format!("{}\n", serde_json::to_string_pretty(&openapi::document()).expect("JSON"));
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(COMMITTED, &text).expect("written");
    }
    let committed = std::fs::read_to_string(COMMITTED).unwrap_or_default();
    assert!(committed == text, "docs/openapi.json is not what is served; UPDATE=1 writes it anew");
}

#[test]
fn every_reference_leads_somewhere_and_every_route_says_who_may_ask() {
    let document = openapi::document();
    let mut open = vec![&document];
    while let Some(value) = open.pop() {
        if let Some(Value::String(path)) = value.get("$ref") {
            let path = path.strip_prefix('#').expect("it is inside");
            assert!(document.pointer(path).is_some(), "{path} leads nowhere");
        }
        match value {
            Value::Array(items) => open.extend(items),
            Value::Object(fields) => open.extend(fields.values()),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    let mut named = BTreeSet::new();
    for (path, methods) in document["paths"].as_object().expect("paths") {
        for (method, described) in methods.as_object().expect("methods") {
            let name = described["operationId"].as_str().filter(|name| !name.is_empty());
            assert!(name.is_some_and(|name| named.insert(name)), "{method} {path} has no name of its own");
            assert!(described["tags"][0].is_string(), "{method} {path}");
            assert!(described["security"].is_array(), "{method} {path}");
            assert!(described["summary"].as_str().is_some_and(|says| says.ends_with('.')), "{method} {path}");
            let statuses = described["responses"].as_object().expect("responses");
            assert!(statuses.contains_key("200") && statuses.contains_key("403"), "{method} {path}");
            let needs = !described["security"].as_array().expect("a list").is_empty();
            let takes_credentials = needs || path == "/login";
            assert_eq!(statuses.contains_key("401"), takes_credentials, "{method} {path}");
        }
    }
    let told = document.to_string();
    for code in ProblemCode::ALL.iter().filter(|code| **code != ProblemCode::MethodNotAllowed) {
        assert!(told.contains(&format!("`{code}`")), "no route says that it may answer {code}");
    }
}

#[tokio::test]
async fn what_is_answered_is_what_is_described() {
    let served = Served::new().await;
    let document = openapi::document();
    let checked = |method: &str, path: &str, status: &str, answer: &Value| {
        let kind = if status.starts_with('2') { "application/json" } else { "application/problem+json" };
        let schema = &document["paths"][path][method]["responses"][status]["content"][kind]["schema"];
        assert!(!schema.is_null(), "{method} {path} {status} is not described");
        let whole = json!({"components": document["components"], "allOf": [schema]});
        let errors: Vec<String> = jsonschema::validator_for(&whole)
            .expect("a schema")
            .iter_errors(answer)
            .map(|error| format!("{error} at {}", error.instance_path()))
            .collect();
        assert!(errors.is_empty(), "{method} {path}: {errors:?} in {answer}");
    };
    let calls = json!([{"id": "a", "tool": "say", "args": {"n": 1}}, {"id": "f", "tool": "fail"}, {"id": "q", "tool": "ask"}]);
    let batch = served.post("/v1/sessions/s/batches", json!({"key": "k", "calls": calls})).await.expect(200);
    checked("post", "/v1/sessions/{session}/batches", "200", &batch);
    let call = batch["calls"][0]["call"].as_str().expect("a handle");
    let token = served.post("/v1/tokens", json!({"principal": "a", "scopes": ["read"]})).await.expect(201);
    checked("post", "/v1/tokens", "201", &token);
    let session = served.post("/v1/sessions", json!({"id": "n", "title": "N"})).await.expect(201);
    checked("post", "/v1/sessions", "201", &session);
    for (described, asked) in [
        ("/healthz", "/healthz".to_string()),
        ("/readyz", "/readyz".to_string()),
        ("/openapi.json", "/openapi.json".to_string()),
        ("/v1/tools", "/v1/tools".to_string()),
        ("/v1/tools/{name}", "/v1/tools/say".to_string()),
        ("/v1/sessions", "/v1/sessions".to_string()),
        ("/v1/sessions/{session}", "/v1/sessions/s".to_string()),
        ("/v1/sessions/{session}/tools", "/v1/sessions/s/tools".to_string()),
        ("/v1/sessions/{session}/calls", "/v1/sessions/s/calls".to_string()),
        ("/v1/sessions/{session}/batches/{key}", "/v1/sessions/s/batches/k".to_string()),
        ("/v1/calls", "/v1/calls".to_string()),
        ("/v1/calls/{call}", format!("/v1/calls/{call}?journal=true")),
        ("/v1/questions", "/v1/questions".to_string()),
        ("/v1/tokens", "/v1/tokens".to_string()),
    ] {
        let answer = served.get(&asked).await.expect(200);
        checked("get", described, "200", &answer);
    }
    let problem = served.get("/v1/calls/x").await;
    assert!(problem.head.contains("application/problem+json"), "{}", problem.head);
    checked("get", "/v1/calls/{call}", "404", &problem.json());
}
