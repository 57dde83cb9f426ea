//! No principal sees what is another's: every route of the description × every kind of object, asked by its owner, by
//! another principal, without the scope, and without a token.

use crate::tcp::{Answer, Served};
use serde_json::{Value, json};
use windlass_server::access::Scope;
use windlass_server::openapi;

/// What there is of each kind that a path can name, all of principal `alice`.
struct Objects {
    session: String,
    call: String,
    key: String,
    question: String,
    token: String,
    artifact: String,
}

async fn objects(served: &Served, alice: &str) -> Objects {
    let post =
        async |path: &str, body: Value| served.ask_as(Some(alice), "POST", (path, body)).await.expect(200);
    let push = json!({"calls": [{"id": "a", "tool": "say"}]});
    post("/v1/sessions/hers/batches/streamed/calls", push).await;
    let calls = json!([{"id": "q", "tool": "ask"}]);
    let batch = post("/v1/sessions/hers/batches", json!({"key": "k", "calls": calls})).await;
    let questions = served.ask_as(Some(alice), "GET", ("/v1/questions", Value::Null)).await.expect(200);
    let text = |value: &Value| value.as_str().expect("text").to_string();
    let tokens = served.get("/v1/tokens").await.expect(200);
    let put = ("/v1/sessions/hers/files/notes.txt", json!("hers"));
    served.ask_as(Some(alice), "PUT", put).await.expect(200);
    let calls = json!([{"id": "f", "tool": "file", "args": {"text": "her artifact"}}]);
    let kept = post("/v1/sessions/hers/batches", json!({"key": "kept", "calls": calls})).await;
    Objects {
        session: "hers".to_string(),
        call: text(&batch["calls"][0]["call"]),
        key: "k".to_string(),
        question: text(&questions["items"][0]["id"]),
        token: text(&tokens["items"][0]["id"]),
        artifact: text(&kept["calls"][0]["outcome"]["parts"][0]["artifact"]),
    }
}

impl Objects {
    /// The path with its names filled in; a kind of object that this does not know fails the test.
    fn fill(&self, path: &str) -> String {
        let parts = path.split('/').enumerate().map(|(place, part)| match part {
            "{session}" => self.session.clone(),
            "{call}" => self.call.clone(),
            "{key}" if path.contains("/completions/") => "forged".to_string(),
            "{key}" if path.ends_with("/calls") || path.ends_with("/close") => "streamed".to_string(),
            "{key}" => self.key.clone(),
            "{id}" if path.contains("/questions/") => self.question.clone(),
            "{id}" if path.contains("/tokens/") => self.token.clone(),
            "{id}" if path.contains("/artifacts/") => self.artifact.clone(),
            "{path}" => "notes.txt".to_string(),
            "{name}" => "say".to_string(),
            "{provider}" => "mail".to_string(),
            part if part.starts_with('{') => panic!("what is {part} of {path}? (part {place})"),
            part => part.to_string(),
        });
        parts.collect::<Vec<_>>().join("/")
    }
}

/// A body that is right for this route.
fn body(method: &str, path: &str) -> Value {
    match method {
        "post" => {}
        "put" => return json!({"value": 1}),
        _ => return Value::Null,
    }
    match path.rsplit('/').next().expect("a part") {
        "batches" | "calls" => json!({"calls": [{"id": "m", "tool": "say"}]}),
        "signal" => json!({"name": "go", "payload": 1}),
        "resolve" => json!({"did_not_happen": true}),
        "result" | "{key}" => json!({"ok": 1}),
        "{provider}" => json!({"connected": true}),
        "{id}" => json!({"answer": "red"}),
        "tokens" => json!({"principal": "p", "scopes": ["read"]}),
        _ => json!({}),
    }
}

/// Whether a path names an object of a session.
fn is_of_a_session(path: &str) -> bool {
    ["{session}", "{call}", "/questions/{id}", "/artifacts/{id}"].iter().any(|part| path.contains(part))
}

#[tokio::test]
async fn every_route_and_object_and_principal() {
    let served = Served::new().await;
    let all = [Scope::Calls, Scope::Read, Scope::Complete];
    let (alice, bob) = (served.token_of("alice", &all).await, served.token_of("bob", &all).await);
    let objects = objects(&served, &alice).await;
    let document = openapi::document();
    let (mut cells, mut foreign) = (0, 0);
    for (path, methods) in document["paths"].as_object().expect("paths") {
        for (method, described) in methods.as_object().expect("methods") {
            let (asked, upper) = (objects.fill(path), method.to_uppercase());
            let ask = async |token: Option<&str>| -> Answer {
                served.ask_as(token, &upper, (&asked, body(method, path))).await
            };
            let place = format!("{upper} {path}");
            let security = described["security"].as_array().expect("a list");
            let Some(scope) = security.first().map(|needs| needs["token"][0].as_str().expect("a scope"))
            else {
                assert_ne!(ask(None).await.status, 401, "{place}: it says that no token is needed");
                cells += 1;
                continue;
            };
            // Without a token, and without the scope, whatever there is.
            assert_eq!(ask(None).await.status, 401, "{place}");
            let others: Vec<Scope> = Scope::ALL.into_iter().filter(|other| other.as_str() != scope).collect();
            let scopeless = served.token_of("alice", &others).await;
            assert_eq!(ask(Some(&scopeless)).await.told(), (403, "missing_scope".into()), "{place}");
            cells += 2;
            if scope == "admin" {
                assert_eq!(ask(Some(&bob)).await.status, 403, "{place}");
                cells += 1;
                continue;
            }
            let answer = ask(Some(&bob)).await;
            cells += 1;
            foreign += u64::from(is_of_a_session(path));
            if is_of_a_session(path) {
                assert_eq!(answer.told(), (404, "not_found".into()), "{place}: {}", answer.body);
                // It is told like one that is not there.
                let nothing =
                    path.replace("{call}", "x").replace("{session}", "nowhere").replace("{id}", "x");
                let opens = path.ends_with("/batches") || path.ends_with("{key}/calls") || method == "put";
                if !opens {
                    let nothing = objects.fill(&nothing);
                    let nothing = served.ask_as(Some(&bob), &upper, (&nothing, body(method, path))).await;
                    assert_eq!(nothing.told(), (404, "not_found".into()), "{place}: {}", nothing.body);
                }
            } else {
                // A list shows nothing of it.
                for hers in [&objects.session, &objects.call, &objects.question] {
                    assert!(
                        !answer.body.contains(&format!("\"{hers}\"")),
                        "{place} shows {hers}: {}",
                        answer.body
                    );
                }
            }
        }
    }
    assert!(cells > 80 && foreign > 12, "{cells} cells, {foreign} of them foreign");
    // Nothing of all that has changed what is hers, and she still reaches it.
    let mine =
        served.ask_as(Some(&alice), "GET", (&format!("/v1/calls/{}", objects.call), Value::Null)).await;
    assert_eq!(mine.expect(200)["state"], "awaiting_input");
    let answer = format!("/v1/questions/{}", objects.question);
    served.ask_as(Some(&alice), "POST", (&answer, json!({"answer": "red"}))).await.expect(200);
}

#[tokio::test]
async fn a_session_is_its_first_users_and_an_admin_reaches_all() {
    let served = Served::new().await;
    let scopes = [Scope::Calls, Scope::Read];
    let (alice, bob) = (served.token_of("alice", &scopes).await, served.token_of("bob", &scopes).await);
    let batch =
        || ("/v1/sessions/shared/batches", json!({"key": "k", "calls": [{"id": "a", "tool": "say"}]}));
    // Both want it at once: one gets it.
    let (first, second) = tokio::join!(
        served.ask_as(Some(&alice), "POST", batch()),
        served.ask_as(Some(&bob), "POST", batch())
    );
    let mut statuses = [first.status, second.status];
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 404]);
    let (owner, other) = if first.status == 200 { (&alice, &bob) } else { (&bob, &alice) };
    let list = |token: &str| {
        let token = token.to_string();
        let served = &served;
        async move {
            let page = served.ask_as(Some(&token), "GET", ("/v1/sessions", Value::Null)).await.expect(200);
            page["items"].as_array().expect("items").len()
        }
    };
    assert_eq!((list(owner).await, list(other).await, list(&served.token).await), (1, 0, 1));
    let opened = served.ask_as(Some(other), "POST", ("/v1/sessions", json!({"id": "shared"}))).await;
    assert_eq!(opened.told(), (404, "not_found".into()), "nor is it told to who wants to open it");
    assert_eq!(
        served.get("/v1/sessions/shared/calls").await.expect(200)["items"].as_array().map(Vec::len),
        Some(1)
    );
    // What was made in the folder is the local principal's.
    let request = windlass::BatchRequest {
        calls: vec![windlass::CallRequest { tool: "say".into(), ..Default::default() }],
        ..Default::default()
    };
    served.api.runtime().submit("inside", request).await.expect("taken").settled().await.expect("answered");
    let hidden = served.ask_as(Some(&alice), "GET", ("/v1/sessions/inside", Value::Null)).await;
    assert_eq!(hidden.told(), (404, "not_found".into()));
    served.api.sessions().adopt().await.expect("adopted");
    assert_eq!(served.get("/v1/sessions/inside").await.expect(200)["principal"], "local");
    assert_eq!(list(&served.token).await, 2);
}
