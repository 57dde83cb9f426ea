//! Lists and single calls: what is recorded and what is not yet, in one shape.

use crate::rig::{Rig, ids};
use serde_json::{Value, json};
use windlass_server::view::{View, Whose};
use windlass_server::wire::{CallQuery, StateFilter};

#[tokio::test]
async fn what_is_not_recorded_yet_is_seen_too() {
    let mut rig = Rig::new();
    let _open = rig.submit("s", "k", &["look", "hold"]).await;
    rig.begun(1).await;
    let client = rig.client().await;
    let page = client.calls(None, &CallQuery::default()).await.expect("a page");
    let seen: Vec<Value> = page["items"]
        .as_array()
        .expect("items")
        .iter()
        .map(|call| json!([call["id"], call["state"], call["waiting_for"], call["session"], call["batch"]]))
        .collect();
    let look = json!(["k-0", "running", null, "s", "k"]);
    let waits = |seen: &Value| {
        let why = seen[2].as_str().unwrap_or_default();
        seen[0] == "k-1" && seen[1] == "queued" && why.starts_with("claim of ") && why.ends_with(" (look)")
    };
    assert!(seen.contains(&look) && seen.iter().any(waits) && seen.len() == 2, "{seen:?}");
    // The record alone knows nothing of it: a read is written with its result.
    let record = View::of_record(rig.runtime.store().clone());
    assert!(
        ids(&record.list(Whose::All, &CallQuery::default()).await.expect("a page").to_value()).is_empty()
    );

    let of = |id: &str| {
        let items = page["items"].as_array().expect("items");
        let call = items.iter().find(|call| call["id"] == id).expect("it is listed");
        call["call"].as_str().expect("a handle").to_string()
    };
    let shown = client.call(&of("k-0"), true).await.expect("the call");
    assert_eq!((&shown["state"], &shown["journal"]), (&json!("running"), &json!([])));
    assert_eq!(shown["model"]["parts"][0]["text"], "The call is running.");
    for (state, expected) in [(StateFilter::Running, "k-0"), (StateFilter::Queued, "k-1")] {
        let list = CallQuery { state: Some(state), ..CallQuery::default() };
        assert_eq!(ids(&client.calls(Some("s"), &list).await.expect("a page")), [expected]);
    }
    // Page by page, and on into the record.
    let first =
        client.calls(None, &CallQuery { limit: Some(1), ..CallQuery::default() }).await.expect("a page");
    let after = first["next"].as_str().map(str::to_string);
    let rest = client.calls(None, &CallQuery { after, ..CallQuery::default() }).await.expect("a page");
    assert_eq!((ids(&first).len(), ids(&rest).len(), &rest["next"]), (1, 1, &Value::Null));
    assert_ne!(ids(&first), ids(&rest));

    rig.go.add_permits(2);
    rig.runtime.idle().await;
    let shown = client.call(&of("k-1"), true).await.expect("the call");
    assert_eq!(shown["outcome"]["value"], "went");
    let kinds: Vec<&str> =
        shown["journal"].as_array().expect("lines").iter().filter_map(|line| line["kind"].as_str()).collect();
    assert_eq!(kinds, ["batch", "opened", "prepared", "started", "returned", "ended"]);
}

#[tokio::test]
async fn a_recorded_call_is_shown_as_it_stands_now() {
    let mut rig = Rig::new();
    let _open = rig.submit("s", "k", &["hold", "hold"]).await;
    rig.begun(1).await;
    let page = rig.client().await.calls(Some("s"), &CallQuery::default()).await.expect("a page");
    assert_eq!(ids(&page), ["k-0", "k-1"]);
    let [first, second] = [&page["items"][0], &page["items"][1]];
    assert_eq!((&first["state"], &first["waiting_for"]), (&json!("running"), &Value::Null));
    let why = format!("claim of {} (hold)", first["call"].as_str().expect("a handle"));
    let told = "The call waits until earlier calls that it must not overtake are over.";
    assert_eq!(second["model"]["parts"][0]["text"], told);
    for (waiting, id) in [(true, "k-1"), (false, "k-0")] {
        let list = CallQuery { waiting: Some(waiting), ..CallQuery::default() };
        assert_eq!(ids(&rig.client().await.calls(Some("s"), &list).await.expect("a page")), [id]);
    }
    assert_eq!((&second["state"], &second["waiting_for"]), (&json!("queued"), &json!(why)));
    // Without its owner the record says what the last one knew, and that nobody goes on with it.
    let record = View::of_record(rig.runtime.store().clone());
    let page = record.list(Whose::One("s"), &CallQuery::default()).await.expect("a page").to_value();
    assert_eq!(
        (&page["items"][0]["state"], &page["items"][0]["waiting_for"]),
        (&json!("running"), &json!("owner (nobody drives it)"))
    );
}

#[tokio::test]
async fn pages_show_every_call_once_newest_batch_first() {
    let mut rig = Rig::new();
    rig.unknown("odd").await;
    rig.go.add_permits(1_000);
    for round in 0..7 {
        for session in ["a", "b", "c"] {
            let key = format!("{session}{round}");
            let calls = rig.submit(session, &key, &["look", "look", "hold"]).await;
            calls.settled().await.expect("answered");
        }
    }
    let client = rig.client().await;
    let walk = async |session: Option<&str>, list: CallQuery| {
        let (mut seen, mut list) = (Vec::new(), list);
        loop {
            let page = client.calls(session, &list).await.expect("a page");
            seen.extend(ids(&page));
            list.after = page["next"].as_str().map(str::to_string);
            if list.after.is_none() {
                return seen;
            }
        }
    };
    let whole = walk(None, CallQuery { limit: Some(200), ..CallQuery::default() }).await;
    assert_eq!(whole.len(), 64);
    assert_eq!(whole[..4], ["c6-0", "c6-1", "c6-2", "b6-0"]);
    assert_eq!(whole[62..], ["a0-2", "odd-0"]);
    for limit in [1, 2, 5, 63, 64] {
        assert_eq!(
            walk(None, CallQuery { limit: Some(limit), ..CallQuery::default() }).await,
            whole,
            "limit {limit}"
        );
    }
    let of_b: Vec<String> = whole.iter().filter(|id| id.starts_with('b')).cloned().collect();
    assert_eq!(walk(Some("b"), CallQuery { limit: Some(4), ..CallQuery::default() }).await, of_b);
    let holds = CallQuery { tool: Some("hold".into()), limit: Some(2), ..CallQuery::default() };
    assert_eq!(walk(None, holds).await.len(), 22);
    let cancelled = CallQuery { state: Some(StateFilter::Cancelled), limit: Some(2), ..CallQuery::default() };
    assert_eq!(walk(None, cancelled).await, ["odd-0"]);
    let open = CallQuery { state: Some(StateFilter::Open), ..CallQuery::default() };
    assert_eq!(walk(None, open).await, [""; 0]);
}

#[tokio::test]
async fn open_calls_are_found_page_by_page_too() {
    let mut rig = Rig::new();
    let mut open = Vec::new();
    for session in ["a", "b"] {
        open.push(rig.submit(session, session, &["hold", "hold", "hold"]).await);
    }
    rig.begun(2).await;
    let client = rig.client().await;
    let (mut seen, mut list) =
        (Vec::new(), CallQuery { state: Some(StateFilter::Open), limit: Some(2), ..CallQuery::default() });
    loop {
        let page = client.calls(None, &list).await.expect("a page");
        seen.extend(ids(&page));
        list.after = page["next"].as_str().map(str::to_string);
        if list.after.is_none() {
            break;
        }
    }
    seen.sort();
    assert_eq!(seen, ["a-0", "a-1", "a-2", "b-0", "b-1", "b-2"]);
}
