//! Tools that a session brings when it is opened over the API.

use crate::tcp::Served;
use serde_json::{Value, json};

fn wanted() -> Value {
    json!({"id": "s", "overlay": {
        "hide": ["hold", "fail"],
        "add": [{"name": "open_tab", "description": "Opens a tab.", "client_ms": 60_000,
            "input": {"type": "object", "properties": {"url": {"type": "string"}}, "required": ["url"]}}],
    }})
}

fn names(tools: &Value) -> Vec<&str> {
    tools.as_array().into_iter().flatten().filter_map(|tool| tool["name"].as_str()).collect()
}

#[tokio::test]
async fn a_session_is_opened_with_tools_of_its_own_and_without_others() {
    let served = Served::with(|config| config.limits.catalog_tools_max = 100).await;
    let opened = served.post("/v1/sessions", wanted()).await.expect(201);
    assert_eq!(opened["overlay"]["hide"], json!(["fail", "hold"]));
    assert_eq!(opened["overlay"]["add"][0]["name"], "open_tab");
    assert_eq!(served.post("/v1/sessions", wanted()).await.expect(200), opened, "again, in any order");
    let mut other = wanted();
    other["overlay"]["hide"] = json!(["fail"]);
    assert_eq!(served.post("/v1/sessions", other).await.told(), (409, "conflict".into()));

    let listed = served.get("/v1/sessions/s/tools?limit=200").await.expect(200);
    let tool =
        listed["items"].as_array().and_then(|items| items.iter().find(|tool| tool["name"] == "open_tab"));
    assert_eq!(tool.map(|tool| &tool["source"]), Some(&json!("client")), "{listed}");
    let seen = names(&listed["items"]);
    assert!(!seen.contains(&"hold") && !seen.contains(&"fail") && seen.contains(&"say"), "{seen:?}");
    let offered = served.get("/v1/sessions/s/tools?wire=anthropic").await.expect(200);
    let offered = names(&offered["tools"]);
    assert!(offered.contains(&"open_tab") && !offered.contains(&"hold"), "{offered:?}");
    let everywhere = served.get("/v1/tools?limit=200").await.expect(200);
    assert!(!names(&everywhere["items"]).contains(&"open_tab"), "it is the session's alone");
}

#[tokio::test]
async fn a_model_calls_a_brought_tool_and_its_caller_runs_it() {
    let served = Served::new().await;
    served.post("/v1/sessions", wanted()).await.expect(201);
    let response = json!({"id": "msg_1", "type": "message", "role": "assistant", "stop_reason": "tool_use", "content": [
        {"type": "tool_use", "id": "t1", "name": "open_tab", "input": {"url": "https://a.example"}},
        {"type": "tool_use", "id": "t2", "name": "hold", "input": {}},
    ]});
    let path = "/v1/sessions/s/batches?wire=anthropic&turn=1";
    let turn = served.post(path, response.clone()).await.expect(200);
    assert_eq!(turn["calls"][0]["state"], "awaiting_client", "{turn}");
    assert_eq!(turn["calls"][1]["code"], "no_such_tool", "{turn}");
    let call = turn["calls"][0]["call"].as_str().expect("a handle");
    served.post(&format!("/v1/calls/{call}/result"), json!({"ok": "opened"})).await.expect(200);
    let turn = served.post(path, response).await.expect(200);
    assert_eq!(turn["calls"][0]["state"], "succeeded", "{turn}");
}

#[tokio::test]
async fn an_overlay_with_a_mistake_is_refused_and_says_which() {
    let served = Served::new().await;
    served.post("/v1/sessions", json!({"id": "parent"})).await.expect(201);
    let cases = [
        (json!({"add": [{"name": "no spaces"}]}), Value::Null, (422, "invalid_session"), "no spaces"),
        (json!({"add": [{"name": "x", "command": ["sh"]}]}), Value::Null, (400, "bad_body"), "command"),
        (json!({"hide": ["say"]}), json!("parent"), (422, "invalid_session"), "`tools`"),
    ];
    for (overlay, parent, told, says) in cases {
        let body = json!({"id": "x", "overlay": overlay, "parent": parent});
        let answer = served.post("/v1/sessions", body).await;
        assert_eq!(answer.told(), (told.0, told.1.to_string()), "{overlay}");
        assert!(answer.body.contains(says), "{says}: {}", answer.body);
    }
    assert_eq!(served.get("/v1/sessions/x").await.status, 404, "nothing was opened");
}
