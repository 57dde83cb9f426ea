//! Events, named events and notices of one's own, and lists with filters, over HTTP.

use crate::tcp::Served;
use serde_json::json;

#[tokio::test]
async fn a_notice_of_ones_own_is_posted_waited_for_and_listed_once_acknowledged() {
    let served = Served::new().await;
    let inbox = "/v1/sessions/s/inbox";
    let notice = json!({"title": "Deployment", "text": "It has begun.", "urgency": "interrupt", "key": "d1"});
    let posted = served.post(inbox, notice.clone()).await.expect(200);
    assert_eq!(served.post(inbox, notice).await.expect(200), posted, "the same key is the same notice");
    let take = format!("{inbox}/take");
    let taken = served.post(&take, json!({"wait_ms": 1_000})).await.expect(200);
    let notice = &taken["items"][0];
    assert_eq!((&notice["id"], &notice["urgency"]), (&posted["id"], &json!("interrupt")));
    assert_eq!((&notice["kind"], notice.get("call")), (&json!("posted"), None));
    let id = posted["id"].as_str().expect("an id");
    served.post(&format!("{inbox}/{id}/ack"), json!({})).await.expect(200);
    assert_eq!(served.get(inbox).await.expect(200)["items"], json!([]));
    let kept = served.get(&format!("{inbox}?acknowledged=true")).await.expect(200);
    assert_eq!((&kept["items"][0]["id"], &kept["items"][0]["state"]), (&json!(id), &json!("acknowledged")));
    assert_eq!(served.post(&take, json!({"wait_ms": 60_001})).await.told(), (422, "invalid_args".into()));
    let blank = json!({"title": "x", "text": " "});
    assert_eq!(served.post(inbox, blank).await.told(), (422, "invalid_args".into()));
}

#[tokio::test]
async fn an_event_that_no_tool_declares_is_refused_and_a_named_event_is_fulfilled_once() {
    let served = Served::new().await;
    served.post("/v1/sessions", json!({"id": "s"})).await.expect(201);
    let event = json!({"kind": "nonsense", "payload": {}});
    assert_eq!(served.post("/v1/sessions/s/events", event).await.told(), (422, "invalid_args".into()));
    let batch = json!({"key": "k", "wait": "settled", "calls": [{"id": "s", "tool": "say"}]});
    served.post("/v1/sessions/s/batches", batch).await.expect(200);
    let window = "/v1/sessions/s/awaited/window";
    served.post(window, json!({"ok": 1})).await.expect(200);
    served.post(window, json!({"ok": 1})).await.expect(200);
    assert_eq!(served.post(window, json!({"ok": 2})).await.told().0, 409);
    assert_eq!(served.post("/v1/sessions/other/awaited/window", json!({"ok": 2})).await.told().0, 404);
}

#[tokio::test]
async fn tasks_are_filtered_and_messages_paged() {
    let served = Served::new().await;
    let batch = json!({"key": "k", "wait": "settled", "calls": [{"id": "b", "tool": "build"}]});
    let answer = served.post("/v1/sessions/s/batches", batch).await.expect(200);
    let task = answer["calls"][0]["task"].as_str().expect("it goes on").to_string();
    for (query, count) in [("state=running", 1), ("state=failed", 0), ("kind=tool", 1), ("kind=monitor", 0)] {
        let page = served.get(&format!("/v1/sessions/s/tasks?{query}")).await.expect(200);
        assert_eq!(page["items"].as_array().map(Vec::len), Some(count), "{query}");
    }
    let messages = format!("/v1/sessions/s/tasks/{task}/messages");
    assert_eq!(served.get(&messages).await.expect(200)["items"], json!([]));
    assert_eq!(served.get(&format!("{messages}?after=in.9")).await.told(), (400, "bad_query".into()));
    served.go.add_permits(1);
}
