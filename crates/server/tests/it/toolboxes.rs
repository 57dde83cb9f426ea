//! Toolboxes over TCP: operations that are too large for a report, and what others get with the token of an attempt.

use crate::tcp::{Answer, Served};
use serde_json::{Value, json};
use windlass_server::access::TokenScope;

const REPORTS: &str = "/v1/toolboxes/shop/reports";
/// Longer than anything here takes.
const LONG_MS: u64 = 600_000;

/// Alice's toolbox `shop`, and an attempt of its tool `import` that her process has.
struct Shop {
    served: Served,
    alice: String,
    bob: String,
    attempt: String,
}

impl Shop {
    async fn new() -> Shop {
        // Large bodies take a busy machine long; the process is not taken for silent meanwhile.
        let served = Served::with(|config| config.limits.toolbox_silence_ms = LONG_MS).await;
        let scopes = [TokenScope::Tools, TokenScope::Calls, TokenScope::Read];
        let (alice, bob) = (served.token_of("alice", &scopes).await, served.token_of("bob", &scopes).await);
        let mut shop = Shop { served, alice, bob, attempt: String::new() };
        let deadlines = json!({"attempt_ms": LONG_MS, "total_ms": LONG_MS});
        let import = json!({"name": "import", "class": "stepped", "claims": [], "deadlines": deadlines});
        let tools = json!({"tools": [import]});
        let put = shop.alice("PUT", "/v1/toolboxes/shop", tools).await.expect(200);
        let calls = json!({"key": "k", "wait": "none", "calls": [{"id": "c", "tool": "import"}]});
        let take = json!({"worker": "w", "manifest": put["manifest"], "max": 1, "wait_ms": 5_000});
        shop.alice("POST", "/v1/sessions/hers/batches", calls).await.expect(200);
        shop.attempt = loop {
            let taken = shop.alice("POST", "/v1/toolboxes/shop/take", take.clone()).await.expect(200);
            if let Some(attempt) = taken["attempts"][0]["attempt"].as_str() {
                break attempt.to_string();
            }
        };
        shop
    }

    async fn alice(&self, method: &str, path: &str, body: Value) -> Answer {
        self.served.ask_as(Some(&self.alice), method, path, body).await
    }

    async fn bob(&self, method: &str, path: &str, body: Value) -> Answer {
        self.served.ask_as(Some(&self.bob), method, path, body).await
    }

    fn report(&self, operation: &Value) -> Value {
        json!({"worker": "w", "reports": [{"attempt": self.attempt, "operations": [operation]}]})
    }

    fn at(&self, toolbox: &str, what: &str) -> String {
        format!("/v1/toolboxes/{toolbox}/attempts/{}/{what}", self.attempt)
    }

    /// The answer to an operation in a request of its own.
    async fn does(&self, n: u64, what: Value) -> Value {
        let body = json!({"worker": "w", "n": n, "do": what});
        let news = self.alice("POST", &self.at("shop", "operations"), body).await.expect(200);
        assert_eq!((&news["state"], &news["answers"][0]["n"]), (&json!("running"), &json!(n)), "{news}");
        news["answers"][0]["answer"].clone()
    }
}

#[tokio::test]
async fn a_step_that_fits_into_no_report_has_a_request_of_its_own() {
    let shop = Shop::new().await;
    let large = |mib: usize| json!({"type": "step_end", "name": "dump", "value": "x".repeat(mib << 20)});
    let begun = shop.does(1, json!({"type": "step", "name": "dump"})).await;
    assert_eq!(begun, json!({"type": "run"}));
    for mib in [9, 64] {
        let report = shop.report(&json!({"n": 2, "do": large(mib)}));
        assert_eq!(shop.alice("POST", REPORTS, report).await.told(), (413, "too_large".into()), "{mib}");
    }
    let body = json!({"worker": "w", "n": 2, "do": large(33)});
    let refused = shop.alice("POST", &shop.at("shop", "operations"), body).await;
    assert_eq!(refused.told(), (413, "too_large".into()));
    assert_eq!(shop.does(2, large(20)).await, json!({"type": "value", "value": null}));
    // Sent again, it has the same answer; as another operation, it is a second end.
    assert_eq!(shop.does(2, large(1)).await, json!({"type": "value", "value": null}));
    assert_eq!(shop.does(3, large(1)).await["code"], "misused");
    let end = json!({"attempt": shop.attempt, "end": {"type": "value", "value": "done"}});
    let news = shop.alice("POST", REPORTS, json!({"worker": "w", "reports": [end]})).await.expect(200);
    assert_eq!(news["attempts"][0]["state"], "over");
}

#[tokio::test]
async fn the_token_of_an_attempt_is_worth_nothing_to_another_principal() {
    let shop = Shop::new().await;
    shop.bob("PUT", "/v1/toolboxes/bobs", json!({"tools": []})).await.expect(200);
    let step = json!({"worker": "w", "n": 1, "do": {"type": "step", "name": "stolen"}});
    let end = json!({"attempt": shop.attempt, "end": {"type": "value", "value": "stolen"}});
    let reports = json!({"worker": "w", "reports": [end]});
    for (toolbox, arguments, upload) in [("shop", 404, 404), ("bobs", 410, 410)] {
        let read = shop.bob("GET", &shop.at(toolbox, "arguments"), Value::Null).await;
        assert_eq!(read.status, arguments, "{toolbox}: {}", read.body);
        let uploaded = shop.bob("POST", &shop.at(toolbox, "artifacts"), json!("stolen")).await;
        assert_eq!(uploaded.status, upload, "{toolbox}: {}", uploaded.body);
    }
    let done = shop.bob("POST", &shop.at("shop", "operations"), step.clone()).await;
    assert_eq!(done.told(), (404, "not_found".into()));
    let done = shop.bob("POST", &shop.at("bobs", "operations"), step).await.expect(200);
    assert_eq!((&done["state"], &done["answers"]), (&json!("over"), &json!([])));
    assert_eq!(shop.bob("POST", REPORTS, reports.clone()).await.status, 404);
    let told = shop.bob("POST", "/v1/toolboxes/bobs/reports", reports).await.expect(200);
    assert_eq!(told["attempts"][0]["state"], "over");
    // Nothing of it happened.
    let beat = json!({"worker": "w", "reports": [{"attempt": shop.attempt}]});
    let news = shop.alice("POST", REPORTS, beat).await.expect(200);
    assert_eq!(news["attempts"][0]["state"], "running");
}
