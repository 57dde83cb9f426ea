//! Clients of several workers: sessions that have another owner.

use crate::rig::{Mcp, Rig, call, text};
use serde_json::{Value, json};
use windlass::store::memory::MemoryStore;
use windlass::store::{RecordChange, Store, StoreSpace};
use windlass_mcp::Gateway;

#[tokio::test]
async fn a_call_whose_session_has_another_owner_says_so_and_its_repetition_joins_it() {
    for send in Mcp::calls(&call("send")) {
        let store = MemoryStore::new().expect("a store");
        let (mut first, mut second) = (Rig::worker(&store), Rig::worker(&store));
        let mut lost = first.begin(&send).await;
        first.begun(1).await;

        let told = second.ask(&send).await;
        assert_refused(&told, "session_elsewhere", "nothing was done");
        assert_eq!(second.attempts(), 0);

        // Somebody takes the owner for dead.
        let owner = first.runtime.worker().expect("it has a lease");
        let dead = RecordChange::remove(StoreSpace::Worker, owner.as_str());
        store.commit(vec![dead.into()]).await.expect("a store")[0].expect("it is there");
        let told = lost.next().await.expect("an answer");
        assert_refused(&[told], "session_moved", "it joins the call that was recorded");
        // The client has had this answer, and it was not that of its call.
        assert_eq!(lost.next().await, None);

        second.go.add_permits(1);
        let told = text(&second.result(&send).await);
        assert!(told.starts_with("effect 1"), "it joins the call that was taken over: {told}");
        second.begun(1).await;
        second.go.add_permits(1);
        assert_eq!(text(&second.result(&send).await), "effect 2", "one delivery ends it");
        assert_eq!((second.effects(), second.attempts()), (2, 2));
    }
}

fn assert_refused(told: &[Value], code: &str, text: &str) {
    let [answer] = told else { panic!("one answer, and not {told:?}") };
    assert_eq!(Gateway::refusal(answer), Some(code), "{answer}");
    assert_eq!(answer["error"]["data"]["retry_after_ms"], json!(1_000), "{answer}");
    let told = answer["error"]["message"].as_str().unwrap_or_default();
    assert!(told.contains(text) && told.contains("send the request again"), "{answer}");
}

#[test]
fn what_was_refused_before_it_came_to_the_gateway_is_answered_as_its_request() {
    let ask = json!({"jsonrpc": "2.0", "id": "7", "method": "tools/call", "params": {}});
    let answer = Gateway::refused(&ask, "session_moved", "told", 1_000).expect("it wants an answer");
    assert_eq!((&answer["id"], Gateway::refusal(&answer)), (&json!("7"), Some("session_moved")));
    for silent in [
        json!({"jsonrpc": "2.0", "method": "x"}),
        json!({"jsonrpc": "2.0", "id": 1, "result": {}}),
        json!(null),
    ] {
        assert_eq!(Gateway::refused(&silent, "session_moved", "told", 1_000), None, "{silent}");
    }
}
