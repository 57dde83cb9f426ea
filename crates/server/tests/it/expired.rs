//! Expired calls over HTTP: 410 by their names, `failed` when they are submitted again, and a gap in the events.

use crate::tcp::Served;
use serde_json::json;

#[tokio::test]
async fn an_expired_call_is_over_and_known() {
    // The session's own rule: everything that is over expires at the next look.
    let served = Served::with(|config| config.limits.retention_every_ms = 10).await;
    let limits = json!({"retention_bytes": 1});
    let made = served.post("/v1/sessions", json!({"id": "s", "limits": limits})).await.expect(201);
    assert_eq!(made["limits"], limits);
    let batch = json!({"key": "k", "calls": [{"id": "f", "tool": "file", "args": {"text": "x"}}]});
    let answer = served.post("/v1/sessions/s/batches", batch.clone()).await.expect(200);
    let call = answer["calls"][0]["call"].as_str().expect("a handle").to_string();
    let expired = (410, "expired".to_string());
    while served.get(&format!("/v1/calls/{call}")).await.told() != expired {
        // Until then it is what it was.
        served.get("/healthz").await;
    }
    assert_eq!(served.get("/v1/sessions/s/batches/k").await.told(), expired);
    assert_eq!(served.post(&format!("/v1/calls/{call}/cancel"), json!({})).await.told(), expired);
    let resolved = served.post(&format!("/v1/calls/{call}/resolve"), json!({"did_not_happen": true})).await;
    assert_eq!(resolved.told(), expired);
    let again = served.post("/v1/sessions/s/batches", batch).await.expect(200);
    let call = &again["calls"][0];
    assert_eq!((&call["state"], &call["outcome"]["failure"]["code"]), (&json!("failed"), &json!("expired")));
    assert_eq!(call["attempts"], 0);
    let forged = served.get("/v1/calls/00000000000000000000000000").await.told();
    assert_eq!(forged, (404, "not_found".to_string()), "what never was is not expired");
}
