//! Tasks, what they say, and the inbox of their session, as a client sees them.

use crate::tcp::Served;
use serde_json::json;

#[tokio::test]
async fn a_task_is_answered_followed_and_told_of() {
    let served = Served::new().await;
    let batch = json!({"key": "k", "wait": "settled", "calls": [{"id": "b", "tool": "build"}, {"id": "s", "tool": "say"}]});
    let answer = served.post("/v1/sessions/s/batches", batch.clone()).await.expect(200);
    let task = answer["calls"][0]["task"].as_str().expect("it goes on").to_string();
    assert_eq!(
        (&answer["calls"][0]["call"], &answer["calls"][0]["state"]),
        (&json!(task), &json!("running"))
    );
    let told = answer["calls"][0]["model"]["parts"][0]["text"].as_str().expect("a text");
    assert!(told.contains(&format!("as task {task}")), "{told}");
    assert_eq!((&answer["calls"][1]["state"], answer["calls"][1].get("task")), (&json!("succeeded"), None));
    let log = format!("/v1/sessions/s/tasks/{task}/log");
    let page = loop {
        let page = served.get(&log).await.expect(200);
        if page["items"].as_array().is_some_and(|items| !items.is_empty()) {
            break page;
        }
    };
    assert_eq!(
        (&page["items"][0]["stream"], &page["items"][0]["text"]),
        (&json!("err"), &json!("it holds\n"))
    );
    assert_eq!(served.get(&format!("{log}?after=1")).await.expect(200)["items"], json!([]));
    assert_eq!(served.get(&format!("{log}?after=x")).await.told(), (400, "bad_query".into()));
    let tasks = served.get("/v1/sessions/s/tasks").await.expect(200);
    assert_eq!((&tasks["items"][0]["task"], &tasks["items"][0]["state"]), (&json!(task), &json!("running")));
    assert_eq!(served.get("/v1/sessions/s/inbox").await.expect(200)["items"], json!([]));
    served.go.add_permits(1);
    let taken = loop {
        let taken = served.post("/v1/sessions/s/inbox/take", json!({"lease_ms": 60_000})).await.expect(200);
        if let Some(notice) = taken["items"].get(0) {
            break notice.clone();
        }
    };
    assert_eq!((&taken["task"], &taken["task_state"]), (&json!(task), &json!("succeeded")));
    assert!(taken["text"].as_str().is_some_and(|text| text.ends_with("held")), "{taken}");
    let id = taken["id"].as_str().expect("an id");
    assert_eq!(served.post("/v1/sessions/s/inbox/take", json!({})).await.expect(200)["items"], json!([]));
    served.post(&format!("/v1/sessions/s/inbox/{id}/requeue"), json!({})).await.expect(200);
    let again = served.post("/v1/sessions/s/inbox/take", json!({})).await.expect(200);
    assert_eq!((&again["items"][0]["id"], &again["items"][0]["deliveries"]), (&json!(id), &json!(2)));
    for _again in 0..2 {
        served.post(&format!("/v1/sessions/s/inbox/{id}/ack"), json!({})).await.expect(200);
    }
    assert_eq!(served.get("/v1/sessions/s/inbox").await.expect(200)["items"], json!([]));
    let whole = served.get(&format!("/v1/sessions/s/tasks/{task}")).await.expect(200);
    assert_eq!((&whole["state"], &whole["call"]["outcome"]["value"]), (&json!("succeeded"), &json!("held")));
    assert_eq!(
        served.post("/v1/sessions/s/batches", batch).await.expect(200)["calls"][0]["state"],
        "succeeded"
    );
    let plain = answer["calls"][1]["call"].as_str().expect("a call");
    assert_eq!(served.get(&format!("/v1/sessions/s/tasks/{plain}")).await.told(), (404, "not_found".into()));
    let lease = served.post("/v1/sessions/s/inbox/take", json!({"lease_ms": 0})).await;
    assert_eq!(lease.told(), (422, "invalid_args".into()));
}
