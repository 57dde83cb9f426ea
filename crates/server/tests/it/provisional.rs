//! Answers that are given before the calls have ended, and the notices that follow them, as a client sees them.

use crate::tcp::Served;
use serde_json::{Value, json};

async fn inbox(served: &Served) -> Vec<Value> {
    let page = served.get("/v1/sessions/s/inbox").await.expect(200);
    page["items"].as_array().cloned().expect("a list")
}

/// A batch of a call that its client runs, answered as this says, and its handle.
async fn provisional(served: &Served, key: &str, how: Value) -> (Value, String) {
    let mut batch = json!({"key": key, "calls": [{"id": "y", "tool": "yours"}]});
    for (name, value) in how.as_object().expect("an object") {
        batch[name] = value.clone();
    }
    let answer = served.post("/v1/sessions/s/batches", batch.clone()).await.expect(200);
    assert_eq!(answer["calls"][0].get("outcome"), None, "{answer}");
    (batch, answer["calls"][0]["call"].as_str().expect("a handle").to_string())
}

#[tokio::test]
async fn however_it_waits_a_provisional_answer_is_followed_by_one_notice() {
    let served = Served::new().await;
    let hows = [
        json!({"wait": "inline"}),
        json!({"wait": "none"}),
        json!({"wait": "settled", "timeout_ms": 1}),
        json!({"wait": "inline", "wake": "on_activity"}),
    ];
    for (number, how) in hows.into_iter().enumerate() {
        let (batch, call) = provisional(&served, &format!("k{number}"), how.clone()).await;
        // One that nobody waited for may not have come so far.
        while served.get(&format!("/v1/calls/{call}")).await.expect(200)["state"] != "awaiting_client" {}
        served.post(&format!("/v1/calls/{call}/result"), json!({"ok": 7})).await.expect(200);
        let told = loop {
            let told = inbox(&served).await;
            if !told.is_empty() {
                break told;
            }
        };
        assert_eq!(
            (told.len(), &told[0]["kind"], &told[0]["call"]),
            (1, &json!("call_ended"), &json!(call)),
            "{how}"
        );
        assert_eq!((told[0].get("task"), &told[0]["call_state"]), (None, &json!("succeeded")), "{how}");
        // Whoever sends it again is told the end, and nobody twice.
        let mut again = batch;
        again["wait"] = json!("settled");
        again["timeout_ms"] = json!(30_000);
        let ended = served.post("/v1/sessions/s/batches", again).await.expect(200);
        assert_eq!(ended["calls"][0]["outcome"]["value"], json!(7), "{how}");
        let id = told[0]["id"].as_str().expect("an id");
        served.post(&format!("/v1/sessions/s/inbox/{id}/ack"), json!({})).await.expect(200);
        assert_eq!(inbox(&served).await, [Value::Null; 0], "{how}");
    }
}

#[tokio::test]
async fn a_silent_batch_and_the_receipt_of_a_push_are_told_of_nowhere() {
    let served = Served::new().await;
    let (_, call) = provisional(&served, "silent", json!({"wait": "inline", "wake": "silent"})).await;
    served.post(&format!("/v1/calls/{call}/result"), json!({"ok": 7})).await.expect(200);
    let pushed = json!({"calls": [{"id": "y", "tool": "yours"}]});
    let receipt = served.post("/v1/sessions/s/batches/pushed/calls", pushed).await.expect(200);
    let call = receipt["calls"][0]["call"].as_str().expect("a handle").to_string();
    while served.get(&format!("/v1/calls/{call}")).await.expect(200)["state"] != "awaiting_client" {}
    served.post(&format!("/v1/calls/{call}/result"), json!({"ok": 8})).await.expect(200);
    let closed =
        served.post("/v1/sessions/s/batches/pushed/close", json!({"wait": "settled"})).await.expect(200);
    assert_eq!(closed["calls"][0]["outcome"]["value"], json!(8));
    assert_eq!(inbox(&served).await, [Value::Null; 0]);
}
