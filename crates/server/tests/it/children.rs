//! Child sessions over the API: what they have, whose they are, and with what they go.

use crate::tcp::Served;
use serde_json::{Value, json};
use windlass::batch::NestedBatch;
use windlass::sessions::ChildSpec;
use windlass::{Args, CallRequest, Cx, EffectClass, Flags, Tool, ToolFuture, ToolSpec};
use windlass_server::access::TokenScope;

/// Has `say` called in a child of its own, and says which that is.
struct Delegates;

impl Tool for Delegates {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "delegate".into(),
            class: Some(EffectClass::Stepped),
            claims: Some(Vec::new()),
            flags: Flags { background: true, ..Flags::default() },
            ..ToolSpec::default()
        }
    }

    fn run<'a>(&'a self, args: Value, cx: &'a Cx) -> ToolFuture<'a> {
        Box::pin(async move {
            let spec = ChildSpec { tools: Some(vec!["say".into()]), ..ChildSpec::default() };
            let agent = cx.child("agent", spec).await?;
            let say = CallRequest { tool: "say".into(), args: Args::Json(args), ..CallRequest::default() };
            agent.batch("turn 1", NestedBatch { calls: vec![say], ..NestedBatch::default() }).await?;
            Ok(json!(agent.session()).into())
        })
    }
}

fn names(page: &Value, field: &str) -> Vec<String> {
    let items = page["items"].as_array().expect("items");
    items.iter().map(|item| item[field].as_str().expect("a name").to_string()).collect()
}

#[tokio::test]
async fn a_child_has_the_tools_that_it_names_and_goes_with_its_parent() {
    let served = Served::new().await;
    served.post("/v1/sessions", json!({"id": "s"})).await.expect(201);
    let wanted = json!({"id": "child", "parent": "s", "tools": ["say", "fail"], "title": "T"});
    let opened = served.post("/v1/sessions", wanted.clone()).await.expect(201);
    assert_eq!((&opened["parent"], &opened["tools"]), (&json!("s"), &json!(["fail", "say"])));
    assert_eq!((opened.get("closed"), opened.get("opener")), (None, None));
    assert_eq!(served.post("/v1/sessions", wanted.clone()).await.expect(200), opened);
    assert_eq!(served.get("/v1/sessions/child").await.expect(200), opened);
    for (field, value) in
        [("tools", json!(["say"])), ("tools", Value::Null), ("parent", Value::Null), ("title", json!("U"))]
    {
        let mut other = wanted.clone();
        other[field] = value;
        if field == "parent" {
            other["tools"] = Value::Null;
        }
        assert_eq!(served.post("/v1/sessions", other).await.told(), (409, "conflict".into()), "{field}");
    }
    let tools = served.get("/v1/sessions/child/tools").await.expect(200);
    assert_eq!(names(&tools, "name"), ["fail", "say"]);
    let batch = json!({"key": "k", "calls": [{"id": "a", "tool": "say"}, {"id": "b", "tool": "hold"}]});
    let answer = served.post("/v1/sessions/child/batches", batch).await.expect(200);
    assert_eq!(answer["calls"][0]["state"], "succeeded");
    assert_eq!(answer["calls"][1]["outcome"]["failure"]["code"], "no_such_tool");
    let refused = async |wanted: Value| {
        let answer = served.post("/v1/sessions", wanted).await;
        (answer.told(), answer.json()["detail"].as_str().unwrap_or_default().to_string())
    };
    let (told, detail) = refused(json!({"id": "x", "parent": "s", "tools": ["sya"]})).await;
    assert_eq!(told, (422, "invalid_session".into()));
    assert!(detail.contains("did you mean \"say\"?"), "{detail}");
    assert_eq!(refused(json!({"id": "x", "tools": ["say"]})).await.0, (422, "invalid_session".into()));
    assert_eq!(refused(json!({"id": "x", "parent": "nobody"})).await.0, (404, "not_found".into()));
    assert_eq!(served.get("/v1/sessions/x").await.status, 404, "what was refused is not there");
    served.ask("DELETE", "/v1/sessions/s", Value::Null).await.expect(200);
    assert_eq!(
        served.get("/v1/sessions/child").await.told(),
        (410, "gone".into()),
        "it went with its parent"
    );
    assert_eq!(served.get("/v1/sessions").await.expect(200)["items"], json!([]));
}

#[tokio::test]
async fn a_child_that_a_call_opened_is_whose_its_session_is() {
    let served = Served::new().await;
    served.api.runtime().register(Delegates).expect("it fits");
    let scopes = [TokenScope::Calls, TokenScope::Read];
    let (alice, bob) = (served.token_of("alice", &scopes).await, served.token_of("bob", &scopes).await);
    let ask = async |token: &str, method: &str, path: &str, body: Value| {
        served.ask_as(Some(token), method, path, body).await
    };
    ask(&alice, "POST", "/v1/sessions", json!({"id": "s", "locale": "de"})).await.expect(201);
    let stolen = json!({"id": "mine", "parent": "s"});
    assert_eq!(ask(&bob, "POST", "/v1/sessions", stolen).await.told(), (404, "not_found".into()));
    // It may take its time: nobody wants a task of it here.
    let calls = json!([{"id": "d", "tool": "delegate", "args": {"n": 1}, "inline_ms": 600_000}]);
    let batch = json!({"key": "k", "wait": "settled", "calls": calls});
    let answer = ask(&alice, "POST", "/v1/sessions/s/batches", batch).await.expect(200);
    let child = answer["calls"][0]["outcome"]["value"].as_str().expect("a session").to_string();
    let path = format!("/v1/sessions/{child}");
    let shown = ask(&alice, "GET", &path, Value::Null).await.expect(200);
    let expected = json!({
        "id": child, "principal": "alice", "parent": "s", "opener": answer["calls"][0]["call"], "tools": ["say"],
        "closed": true, "locale": "de",
    });
    for (field, value) in expected.as_object().expect("an object") {
        assert_eq!(&shown[field], value, "{field}");
    }
    assert_eq!(
        names(&ask(&alice, "GET", "/v1/sessions", Value::Null).await.expect(200), "id"),
        [&*child, "s"]
    );
    assert_eq!(ask(&bob, "GET", &path, Value::Null).await.told(), (404, "not_found".into()));
    let same = json!({"id": child, "parent": "s"});
    assert_eq!(ask(&bob, "POST", "/v1/sessions", same).await.told(), (404, "not_found".into()));
    let batches = format!("{path}/batches");
    let turn = |key: &str| json!({"key": key, "calls": [{"id": "call-1", "tool": "say", "args": {"n": 1}}]});
    let again = ask(&alice, "POST", &batches, turn("turn 1")).await.expect(200);
    assert_eq!(again["calls"][0]["state"], "succeeded", "what is recorded is told");
    let told = ask(&alice, "POST", &batches, turn("turn 2")).await.told();
    assert_eq!(told, (409, "session_closed".into()));
    let below = json!({"id": "below", "parent": child});
    assert_eq!(ask(&alice, "POST", "/v1/sessions", below).await.told(), (409, "session_closed".into()));
}

#[tokio::test]
async fn a_task_leads_to_the_children_that_it_opened() {
    let served = Served::new().await;
    served.api.runtime().register(Delegates).expect("it fits");
    let calls = json!([{"id": "d", "tool": "spawn_background", "args": {"tool": "delegate", "args": {}}}]);
    let batch = json!({"key": "k", "wait": "settled", "calls": calls});
    let answer = served.post("/v1/sessions/s/batches", batch).await.expect(200);
    let task = answer["calls"][0]["outcome"]["value"]["task"].as_str().expect("a task").to_string();
    let task = format!("/v1/sessions/s/tasks/{task}");
    let shown = loop {
        let shown = served.get(&task).await.expect(200);
        if shown["state"] == "succeeded" {
            break shown;
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(shown["children"], json!([shown["call"]["outcome"]["value"]]));
}
