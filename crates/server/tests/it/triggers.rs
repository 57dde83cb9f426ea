//! Triggers over HTTP: made, shown, used, removed, and refused.

use crate::tcp::Served;
use serde_json::{Value, json};

const ALL: &str = "/v1/sessions/s/triggers";

#[tokio::test]
async fn a_trigger_is_made_used_shown_and_removed() {
    let served = Served::new().await;
    let wanted = json!({"id": "doors", "event": "sold", "filter": {"/item": "door"}, "tool": "build", "args": {"n": 1},
        "event_as": "order", "title": "Build a door"});
    let made = served.post(ALL, wanted.clone()).await.expect(201);
    assert_eq!(
        (&made["count"], &made["wake"], &made["filter"]),
        (&json!(0), &json!("on_end"), &json!({"/item": "door"}))
    );
    assert!(made["owner"].is_string() && made.get("last").is_none(), "{made}");
    assert_eq!(served.post(ALL, wanted.clone()).await.expect(200), made, "the same again is fine");
    let mut other = wanted;
    other["event_as"] = json!("sale");
    assert_eq!(served.post(ALL, other).await.told(), (409, "conflict".into()));
    let calls = json!([{"id": "a", "tool": "sell", "args": {"item": "hinge"}}, {"id": "b", "tool": "sell", "args": {"item": "door"}}]);
    let batch = json!({"key": "k", "wait": "settled", "calls": calls});
    let answer = served.post("/v1/sessions/s/batches", batch).await.expect(200);
    assert!(answer["calls"][0].get("triggered").is_none(), "{answer}");
    let triggered = &answer["calls"][1]["triggered"];
    let task = triggered[0]["task"].as_str().expect("a task");
    assert_eq!(*triggered, json!([{"trigger": "doors", "task": task}]));
    let shown = served.get(&format!("/v1/sessions/s/tasks/{task}")).await.expect(200);
    assert_eq!(
        (&shown["by"], &shown["trigger"], &shown["title"]),
        (&json!("triggered"), &json!("doors"), &json!("Build a door"))
    );
    assert_eq!(
        (&shown["starter"], &shown["call"]["args"]),
        (&answer["calls"][1]["call"], &json!({"n": 1, "order": {"item": "door"}}))
    );
    let listed = served.get(ALL).await.expect(200);
    let only = &listed["items"][0];
    assert_eq!(
        (listed["items"].as_array().map(Vec::len), &only["count"], &only["last_task"]),
        (Some(1), &json!(1), &json!(task))
    );
    served.go.add_permits(1);
    for _again in 0..2 {
        served.ask("DELETE", &format!("{ALL}/doors"), Value::Null).await.expect(200);
    }
    assert_eq!(served.get(ALL).await.expect(200)["items"], json!([]));
}

#[tokio::test]
async fn pages_come_one_after_the_other_and_what_is_wrong_is_told() {
    let served = Served::new().await;
    for (wrong, says) in [
        (json!({"event": "solt", "tool": "build"}), "did you mean"),
        (json!({"event": "sold", "tool": "build", "filter": {"item": 1}}), "not a JSON pointer"),
        (json!({"event": "sold", "tool": "build", "args": {"a": 1}, "event_as": "a"}), "name another"),
    ] {
        let refused = served.post(ALL, wrong).await;
        assert_eq!(refused.told(), (422, "invalid_trigger".into()));
        assert!(refused.body.contains(says), "{says}: {}", refused.body);
    }
    let direct = served.post(ALL, json!({"event": "sold", "tool": "say"})).await;
    assert_eq!(direct.told(), (422, "not_background".into()));
    for no in 0..32 {
        let wanted = json!({"id": format!("t{no:02}"), "event": "sold", "tool": "build", "signal_on_completion": false});
        assert_eq!(served.post(ALL, wanted).await.expect(201)["wake"], "silent");
    }
    let more = served.post(ALL, json!({"event": "sold", "tool": "build"})).await;
    assert_eq!(more.told(), (422, "too_many_triggers".into()));
    let page = served.get(&format!("{ALL}?limit=30")).await.expect(200);
    assert_eq!(page["next"], "t29");
    let rest = served.get(&format!("{ALL}?limit=30&after=t29")).await.expect(200);
    assert_eq!(
        (rest["items"].as_array().map(Vec::len), rest.get("next").and_then(Value::as_str)),
        (Some(2), None)
    );
}
