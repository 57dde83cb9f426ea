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

/// The state that a client keeps is of one principal, one session and one call, and answers in it are taken once.
#[tokio::test]
async fn a_state_is_good_for_its_own_caller_only_and_an_answer_once() {
    let mut rig = Rig::patient();
    let first = rig.result(&risky(&json!(null), json!(null))).await;
    let (key, _) = form(&first);
    let yes = json!({key.as_str(): {"action": "accept", "content": {"approve": true}}});
    let answered = risky(&first["requestState"], yes);
    let own = rig.visitor.clone();
    rig.visitor.principal = "eve".into();
    assert_eq!(rig.error(&answered).await, -32_602, "another's state");
    rig.visitor = own.clone();
    rig.visitor.session = "other".into();
    assert_eq!(rig.error(&answered).await, -32_602, "another session's state");
    rig.visitor = own;
    let mut other = answered.clone();
    other.message["params"]["arguments"] = json!({"to": "bob"});
    assert_eq!(rig.error(&other).await, -32_602, "another call's state");
    assert_eq!(rig.effects(), 0);
    assert_eq!(text(&rig.result(&answered).await), "effect 1");
    assert_eq!(text(&rig.result(&answered).await), "effect 1", "the same call is answered again");
    assert_eq!(rig.effects(), 1);
    // The next call asks anew, and the old answer says nothing about it.
    let mut replayed = answered.clone();
    replayed.message["params"].as_object_mut().expect("an object").remove("requestState");
    let asks = rig.result(&replayed).await;
    assert_ne!(form(&asks).0, key);
    assert_eq!(rig.effects(), 1);
}

/// Approvals that want another person than the caller wait for that person, whatever the client could show.
#[tokio::test]
async fn an_approval_by_another_person_is_never_asked_for_here() {
    let rig = Rig::impatient();
    let rule = json!({"name": "two", "ruling": "ask", "four_eyes": true, "when": {"tool": "risky"}});
    let policy = windlass::policy::NewPolicy { rules: vec![rule], by: "root".into(), version: None };
    rig.runtime.set_policy(policy).await.expect("a policy");
    for capabilities in [json!({"elicitation": {}}), tasks()] {
        let told = rig.result(&Mcp::modern("tools/call", &capabilities, call("risky"))).await;
        assert!(told.get("inputRequests").is_none() && told["status"] != "input_required", "{told}");
    }
    let waiting = rig.runtime.waiting().await.expect("readable");
    assert!(!waiting.is_empty() && waiting.iter().all(|(_, waits)| waits.four_eyes));
    assert_eq!(rig.effects(), 0);
}

/// Closing the form leaves the approval open; declining it denies the call.
#[tokio::test]
async fn a_task_whose_form_is_closed_still_waits() {
    let rig = Rig::patient();
    let created = rig.result(&Mcp::modern("tools/call", &tasks(), call("risky"))).await;
    let id = created["taskId"].as_str().expect("an id").to_string();
    let get = Mcp::modern("tasks/get", &tasks(), json!({"taskId": id}));
    let answer = |key: &str, action: &str| {
        let answers = json!({key: {"action": action}});
        Mcp::modern("tasks/update", &tasks(), json!({"taskId": id, "inputResponses": answers}))
    };
    let (key, _) = form(&rig.result(&get).await);
    rig.result(&answer(&key, "cancel")).await;
    assert_eq!(form(&rig.result(&get).await).0, key, "as headless clients answer everything");
    rig.result(&answer("unknown", "decline")).await;
    assert_eq!(form(&rig.result(&get).await).0, key);
    rig.result(&answer(&key, "decline")).await;
    let ended = loop {
        let task = rig.result(&get).await;
        if task["status"] == "completed" {
            break task;
        }
        tokio::task::yield_now().await;
    };
    assert_eq!((&ended["result"]["isError"], rig.effects()), (&json!(true), 0));
}
