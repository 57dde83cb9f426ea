//! Grants over HTTP: issued with a token that is shown once, used by a call, narrowed, listed without secrets, revoked.

use crate::tcp::Served;
use serde_json::{Value, json};
use windlass_server::access::TokenScope;

async fn call(served: &Served, token: &str, session: &str, key: &str, grant: &Value, text: &str) -> Value {
    let calls = json!([{"id": "c", "tool": "say", "args": {"text": text}, "grant": grant}]);
    let path = format!("/v1/sessions/{session}/batches");
    let body = json!({"key": key, "calls": calls, "wait": "settled"});
    served.ask_as(Some(token), "POST", &path, body).await.expect(200)["calls"][0].take()
}

#[tokio::test]
async fn a_grant_is_issued_used_narrowed_and_revoked() {
    let served = Served::new().await;
    let alice = served.token_of("alice", &[TokenScope::Calls, TokenScope::Read]).await;
    let open =
        async |body: Value| served.ask_as(Some(&alice), "POST", "/v1/sessions", body).await.expect(201);
    open(json!({"id": "hers"})).await;
    // A child without tools: what it calls, it calls by grant.
    open(json!({"id": "hers.agent", "parent": "hers", "tools": []})).await;
    let args = json!([{"pointer": "/text", "prefix": "a"}]);
    let wanted = json!({"session": "hers", "tool": "say", "args": args, "uses": 3, "binding": "a canary",
        "expires_in_s": 60, "retry": {"attempts": 1}});
    let issued = served.post("/v1/grants", wanted).await.expect(201);
    let (id, token) = (issued["id"].as_str().expect("an id"), issued["token"].clone());
    assert_eq!(
        (&issued["state"], &issued["principal"], &issued["bound"]),
        (&json!("active"), &json!("alice"), &json!(true))
    );
    let answered = call(&served, &alice, "hers", "1", &token, "abc").await;
    assert_eq!((&answered["state"], &answered["grant"]), (&json!("succeeded"), &json!(id)));
    let denied = call(&served, &alice, "hers", "2", &token, "xyz").await;
    assert_eq!(denied["state"], "denied", "{denied}");
    // The grant names the tool, so the call need not.
    let unnamed = json!({"calls": [{"id": "c", "args": {"text": "xyz"}, "grant": token}], "wait": "settled"});
    let denied = served.ask_as(Some(&alice), "POST", "/v1/sessions/hers/batches", unnamed).await.expect(200);
    let denied = &denied["calls"][0];
    assert_eq!((&denied["tool"], &denied["state"]), (&json!("say"), &json!("denied")), "{denied}");
    let path = format!("/v1/grants/{id}/attenuate");
    let wider = served.post(&path, json!({"session": "hers.agent", "uses": 3})).await;
    assert_eq!(wider.told(), (422, "invalid_grant".into()), "{}", wider.body);
    let copy = json!({"session": "hers.agent", "uses": 1, "args": [{"pointer": "/text", "glob": "*z"}]});
    let copy = served.post(&path, copy).await.expect(201);
    assert_eq!((&copy["parent"], &copy["args"][0]), (&json!(id), &args[0]));
    assert_eq!(call(&served, &alice, "hers.agent", "1", &copy["token"], "ab").await["state"], "denied");
    assert_eq!(call(&served, &alice, "hers.agent", "2", &copy["token"], "az").await["state"], "succeeded");
    let listed = served.get("/v1/grants?session=hers").await.expect(200);
    let shown = &listed["items"][0];
    assert_eq!(
        (&shown["used"], &shown["shared"], &shown["copies"]),
        (&json!(1), &json!(1), &json!([copy["id"]]))
    );
    let page = served.get("/v1/grants?limit=1").await.expect(200);
    let rest =
        served.get(&format!("/v1/grants?after={}", page["next"].as_str().expect("more"))).await.expect(200);
    assert_eq!((rest["items"].as_array().map(Vec::len), &rest["next"]), (Some(1), &Value::Null));
    for listed in [&listed, &page, &rest] {
        let text = listed.to_string();
        assert!(!text.contains("canary") && !text.contains("grant_"), "{text}");
    }
    served.ask("DELETE", &format!("/v1/grants/{id}"), Value::Null).await.expect(200);
    for (session, grant) in [("hers", &token), ("hers.agent", &copy["token"])] {
        let denied = call(&served, &alice, session, "3", grant, "az").await;
        assert!(denied["outcome"]["reason"].as_str().expect("why").contains("revoked"), "{denied}");
    }
    let over = served.post(&path, json!({"uses": 1})).await;
    assert_eq!(over.told(), (410, "over".into()));
    assert_eq!(served.get("/v1/grants?session=hers").await.expect(200)["items"][0]["state"], "revoked");
}

#[tokio::test]
async fn mistakes_are_told() {
    let served = Served::new().await;
    let issue = async |body: Value| served.post("/v1/grants", body).await;
    assert_eq!(issue(json!({"session": "nowhere", "tool": "say"})).await.told(), (404, "not_found".into()));
    served.post("/v1/sessions", json!({"id": "s"})).await.expect(201);
    let wrong = issue(json!({"session": "s", "tool": "say", "args": [{"pointer": "x", "equals": 1}]})).await;
    assert_eq!(wrong.told(), (422, "invalid_grant".into()));
    assert!(wrong.body.contains("args[0].pointer"), "{}", wrong.body);
    assert_eq!(
        issue(json!({"session": "s", "tool": "say", "use": 1})).await.told(),
        (400, "bad_body".into())
    );
    let nothing = served.ask("DELETE", "/v1/grants/0123", Value::Null).await;
    assert_eq!(nothing.told(), (404, "not_found".into()));
}
