//! The policy over HTTP: shown, replaced, listed by version, and asked about a call.

use crate::tcp::Served;
use serde_json::{Value, json};

const POLICY: &str = "/v1/policy";

fn deny(prefix: &str) -> Value {
    json!({"name": "no such text", "ruling": "deny", "reason": "not this one",
        "when": {"tool": "say", "args": [{"pointer": "/text", "prefix": prefix}]}})
}

#[tokio::test]
async fn the_policy_is_shown_replaced_and_explained() {
    let served = Served::new().await;
    let none = served.get(POLICY).await.expect(200);
    assert_eq!((&none["version"], &none["rules"], &none["declared"]), (&json!(0), &json!([]), &json!([])));
    let first = served.ask("PUT", POLICY, json!({"rules": [deny("a")], "version": 0})).await.expect(200);
    assert_eq!((&first["version"], &first["rules"]), (&json!(1), &json!([deny("a")])));
    assert!(first["by"].is_string() && first["at"].is_string(), "{first}");
    let stale = served.ask("PUT", POLICY, json!({"rules": [], "version": 0})).await;
    assert_eq!(stale.told(), (409, "conflict".into()));
    served.ask("PUT", POLICY, json!({"rules": [deny("b")]})).await.expect(200);
    assert_eq!(served.get(POLICY).await.expect(200)["version"], 2);

    let page = served.get("/v1/policy/versions?limit=1").await.expect(200);
    assert_eq!((&page["items"][0]["version"], &page["next"]), (&json!(2), &json!("2")));
    let page = served.get("/v1/policy/versions?limit=1&after=2").await.expect(200);
    assert_eq!((&page["items"][0]["rules"], &page["next"]), (&json!([deny("a")]), &Value::Null));

    let check = async |args: Value| {
        served.post("/v1/policy/check", json!({"tool": "say", "args": args, "as": "eve"})).await.expect(200)
    };
    let denied = check(json!({"text": "bad"})).await;
    assert_eq!(
        (&denied["ruling"], &denied["by"], &denied["reason"]),
        (&json!("deny"), &json!(["no such text"]), &json!("not this one"))
    );
    let condition = &denied["rules"][0]["conditions"][1];
    assert_eq!(
        (&condition["place"], &condition["finding"], &condition["holds"]),
        (&json!("when.args[0]"), &json!("matches"), &json!(true))
    );
    assert_eq!(check(json!({"text": "good"})).await["ruling"], "allow");
    assert_eq!(check(json!({})).await["ruling"], "deny", "an absent value matches a deny");
}

#[tokio::test]
async fn mistakes_are_told_with_their_place() {
    let served = Served::new().await;
    let set = async |body: Value| served.ask("PUT", POLICY, body).await;
    let wrong = set(json!({"rules": [{"name": "x", "ruling": "deny", "when": {"args": [{"pointer": "x", "equals": 1}]}}]})).await;
    assert_eq!(wrong.told(), (422, "invalid_policy".into()));
    assert!(wrong.body.contains("rules[0].when.args[0].pointer"), "{}", wrong.body);
    assert_eq!(set(json!({"rule": []})).await.told(), (400, "bad_body".into()));
    assert_eq!(served.get(POLICY).await.expect(200)["version"], 0, "nothing was changed");
    let unknown = served.post("/v1/policy/check", json!({"tool": "sya"})).await;
    assert_eq!(unknown.told(), (422, "no_such_tool".into()));
    assert_eq!(served.get("/v1/policy/versions?after=x").await.told(), (400, "bad_query".into()));
}
