//! Approvals and questions, asked through the client.

use crate::rig::{Mcp, Rig, call, tasks, text};
use serde_json::{Value, json};

/// A call of `risky`, repeated with answers.
fn risky(state: &Value, answers: Value) -> Mcp {
    let mut params = call("risky");
    if !state.is_null() {
        (params["requestState"], params["inputResponses"]) = (state.clone(), answers);
    }
    Mcp::modern("tools/call", &json!({"elicitation": {}}), params)
}

fn form(result: &Value) -> (String, Value) {
    let forms = result["inputRequests"].as_object().unwrap_or_else(|| panic!("no form: {result}"));
    let (key, form) = forms.iter().next().expect("a form");
    (key.clone(), form.clone())
}

#[tokio::test]
async fn a_person_decides_in_a_form() {
    let rig = Rig::patient();
    for (action, content, expected) in [
        ("accept", json!({"approve": true}), "effect 1"),
        ("accept", json!({"approve": false}), "did not allow"),
        ("decline", json!(null), "did not allow"),
    ] {
        let first = rig.result(&risky(&json!(null), json!(null))).await;
        assert_eq!(first["resultType"], "input_required");
        let (key, shown) = form(&first);
        assert_eq!(
            (&shown["method"], &shown["params"]["mode"]),
            (&json!("elicitation/create"), &json!("form"))
        );
        let closed =
            rig.result(&risky(&first["requestState"], json!({key.as_str(): {"action": "cancel"}}))).await;
        assert_eq!(form(&closed).0, key, "whoever closes the form has not decided");
        let answers =
            json!({key.as_str(): {"action": action, "content": content}, "unknown": {"action": "accept"}});
        let ended = text(&rig.result(&risky(&closed["requestState"], answers)).await);
        assert!(ended.contains(expected), "{action} {content}: {ended}");
    }
    assert_eq!(rig.effects(), 1);
}

#[tokio::test]
async fn a_form_is_shown_only_to_who_may_answer_it() {
    let mut rig = Rig::impatient();
    rig.visitor.may_approve = false;
    let told = rig.result(&risky(&json!(null), json!(null))).await;
    assert!(told.get("inputRequests").is_none(), "an agent must not approve its own calls: {told}");
    rig.visitor.may_answer = false;
    let asked = rig.result(&Mcp::modern("tools/call", &json!({"elicitation": {}}), call("ask"))).await;
    assert!(asked.get("inputRequests").is_none(), "{asked}");
    // Both wait in the list, sooner or later.
    while rig.runtime.waiting().await.expect("readable").len() < 2 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_task_asks_and_is_answered() {
    let rig = Rig::patient();
    for (tool, content, expected) in
        [("risky", json!({"approve": true}), "effect 1"), ("ask", json!({"answer": "red"}), "red")]
    {
        let created = rig.result(&Mcp::modern("tools/call", &tasks(), call(tool))).await;
        assert_eq!(
            (&created["resultType"], &created["status"]),
            (&json!("task"), &json!("input_required")),
            "{created}"
        );
        let id = created["taskId"].as_str().expect("an id").to_string();
        let waits = rig.result(&Mcp::modern("tasks/get", &tasks(), json!({"taskId": id}))).await;
        let (key, _) = form(&waits);
        let answers = json!({key: {"action": "accept", "content": content}});
        let update = Mcp::modern("tasks/update", &tasks(), json!({"taskId": id, "inputResponses": answers}));
        assert_eq!(rig.result(&update).await["resultType"], "complete");
        let ended = rig.ended_task(&id).await;
        assert!(text(&ended["result"]).contains(expected), "{ended}");
    }
}
