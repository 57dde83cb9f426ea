//! Sessions: what is set for them, and removing them.

use crate::tcp::{Served, read_head};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::io::AsyncReadExt;
use windlass::store::StoreSpace;
use windlass_server::access::TokenScope;

const SESSION: &str = "/v1/sessions/s";

#[tokio::test]
async fn what_is_set_is_kept_and_shown_and_stands() {
    let served = Served::with(|config| config.limits.session_calls_running_max = 8).await;
    let wanted = json!({
        "id": "s", "title": "T", "labels": {"a": "b"}, "locale": "de", "limits": {"calls_running_max": 2},
    });
    let opened = served.post("/v1/sessions", wanted.clone()).await.expect(201);
    for field in ["id", "title", "labels", "locale", "limits"] {
        assert_eq!(opened[field], wanted[field], "{field}");
    }
    assert_eq!(served.post("/v1/sessions", wanted.clone()).await.expect(200), opened);
    assert_eq!(served.get(SESSION).await.expect(200), opened);
    for (field, value) in
        [("locale", json!("en")), ("limits", json!({"calls_running_max": 3})), ("limits", json!({}))]
    {
        let mut other = wanted.clone();
        other[field] = value;
        assert_eq!(served.post("/v1/sessions", other).await.told(), (409, "conflict".into()), "{field}");
    }
    let refused = async |more: Value| {
        let mut wanted = json!({"id": "other"});
        wanted.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        served.post("/v1/sessions", wanted).await.told()
    };
    for max in [0, 9] {
        let told = refused(json!({"limits": {"calls_running_max": max}})).await;
        assert_eq!(told, (422, "invalid_session".into()), "{max}");
    }
    let told = refused(json!({"locale": "x".repeat(65)})).await;
    assert_eq!(told, (422, "invalid_session".into()), "a locale is short");
    for locale in ["fr", "de-AT", "zh-Hant-TW", "tlh", ""] {
        let opened =
            served.post("/v1/sessions", json!({"id": format!("l{}", locale.len()), "locale": locale})).await;
        assert_eq!(opened.json()["locale"], locale, "every tag is taken");
    }
    // What is not there yet is not taken as if it were.
    for more in [
        json!({"directory": "/tmp"}),
        json!({"limits": {"tasks_max": 1}}),
        json!({"limits": {"calls_running_max": -1}}),
    ] {
        assert_eq!(refused(more.clone()).await, (400, "bad_body".into()), "{more}");
    }
    assert_eq!(served.get("/v1/sessions/other").await.status, 404);
}

#[tokio::test]
async fn of_a_bounded_session_so_many_calls_run() {
    let served = Served::new().await;
    for (session, bounds) in [("s", json!({"limits": {"calls_running_max": 1}})), ("free", json!({}))] {
        let mut wanted = json!({"id": session});
        wanted.as_object_mut().expect("an object").extend(bounds.as_object().expect("an object").clone());
        served.post("/v1/sessions", wanted).await.expect(201);
        let calls: Vec<Value> =
            (0..3).map(|n| json!({"id": format!("c{n}"), "tool": "hold", "args": {"n": n}})).collect();
        let path = format!("/v1/sessions/{session}/batches");
        let batch = served.post(&path, json!({"key": "k", "wait": "none", "calls": calls})).await.expect(200);
        assert_eq!(batch["calls"].as_array().map(Vec::len), Some(3));
    }
    let states = async |session: &str| {
        let path = format!("/v1/sessions/{session}/calls");
        let listed = served.get(&path).await.expect(200);
        let state = |state: &str| {
            let items = listed["items"].as_array().expect("items").clone();
            items.into_iter().filter(|call| call["state"] == state).collect::<Vec<_>>()
        };
        (state("running").len(), state("queued"))
    };
    let settle = async {
        while states("free").await.0 < 3 || states("s").await.0 < 1 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), settle).await.expect("those that may run do");
    let (running, queued) = states("s").await;
    assert_eq!((running, queued.len()), (1, 2));
    let told = queued[0]["waiting_for"].as_str().expect("it says why").to_string();
    assert!(told.contains("limit of the session: 1 running calls"), "{told}");
    served.go.add_permits(6);
    let batch =
        json!({"key": "k", "wait": "settled", "calls": [{"id": "c2", "tool": "hold", "args": {"n": 2}}]});
    let ended = served.post("/v1/sessions/s/batches", batch).await.expect(200);
    assert_eq!(ended["calls"][0]["state"], "succeeded");
}

#[tokio::test]
async fn a_session_is_told_of_in_its_language() {
    let served = Served::new().await;
    served.post("/v1/sessions", json!({"id": "s", "locale": "de"})).await.expect(201);
    served.post("/v1/sessions/s/batches", json!({"calls": [{"id": "a", "tool": "say"}]})).await.expect(200);
    let told = async |query: &str| {
        let path = format!("/v1/sessions/s/events?after=0{query}");
        let mut stream = served.send(&Served::request(Some(&served.token), "GET", &path, Value::Null)).await;
        let mut told = Vec::new();
        let read = async {
            while !String::from_utf8_lossy(&told).contains("event: ended") {
                assert_ne!(stream.read_buf(&mut told).await.expect("it goes on"), 0);
            }
        };
        tokio::time::timeout(Duration::from_secs(60), read).await.expect("it is told");
        String::from_utf8_lossy(&told).into_owned()
    };
    let (german, english) = (told("").await, told("&locale=en").await);
    let narrations = |told: &str| {
        let lines: Vec<String> =
            told.lines().filter(|line| line.contains("narration")).map(str::to_string).collect();
        lines
    };
    assert!(!narrations(&english).is_empty());
    assert_ne!(narrations(&german), narrations(&english));
    assert_eq!(narrations(&german), narrations(&told("&locale=de").await));
}

#[tokio::test]
async fn a_removed_session_is_gone_and_its_name_is_not_used_again() {
    let served = Served::new().await;
    let scopes = [TokenScope::Calls, TokenScope::Read];
    let (alice, bob) = (served.token_of("alice", &scopes).await, served.token_of("bob", &scopes).await);
    let ask = async |token: &str, method: &str, path: &str, body: Value| {
        served.ask_as(Some(token), method, path, body).await
    };
    let wanted = json!({"id": "s", "title": "Hers", "limits": {"calls_running_max": 1}, "locale": "de"});
    ask(&alice, "POST", "/v1/sessions", wanted).await.expect(201);
    let calls = json!([{"id": "a", "tool": "say"}, {"id": "h", "tool": "peek"}, {"id": "k", "tool": "key"}]);
    let batch = json!({"key": "k", "wait": "none", "calls": calls});
    let batch = ask(&alice, "POST", "/v1/sessions/s/batches", batch).await.expect(200);
    let call = format!("/v1/calls/{}", batch["calls"][0]["call"].as_str().expect("a handle"));
    ask(&alice, "PUT", "/v1/sessions/s/kv/k", json!({"value": 1})).await.expect(200);
    let events = Served::request(Some(&alice), "GET", "/v1/sessions/s/events?after=0", Value::Null);
    let mut events = served.send(&events).await;

    assert_eq!(ask(&bob, "DELETE", SESSION, Value::Null).await.told(), (404, "not_found".into()));
    assert_eq!(ask(&alice, "DELETE", SESSION, Value::Null).await.expect(200), json!({"deleted": true}));
    let mut told = Vec::new();
    let ends = tokio::time::timeout(Duration::from_secs(60), events.read_to_end(&mut told)).await;
    ends.expect("whoever followed it has seen its end").expect("it was read");
    for path in [SESSION, "/v1/sessions/s/batches/k", "/v1/sessions/s/kv/k", "/v1/sessions/s/calls"] {
        assert_eq!(ask(&alice, "GET", path, Value::Null).await.told(), (410, "gone".into()), "{path}");
    }
    assert_eq!(ask(&alice, "GET", &call, Value::Null).await.told(), (404, "not_found".into()));
    assert_eq!(ask(&alice, "DELETE", SESSION, Value::Null).await.told(), (410, "gone".into()));
    let key = served.keys.lock().expect("no panic").pop();
    if let Some(key) = key {
        let path = format!("/v1/completions/{key}");
        assert_eq!(served.post(&path, json!({"ok": 1})).await.told(), (404, "not_found".into()));
    }
    let listed = ask(&alice, "GET", "/v1/sessions", Value::Null).await.expect(200);
    assert_eq!(listed["items"], json!([]));
    // Nobody has the name again: the same batch under the same key must not run a second time.
    let again = json!({"key": "k", "calls": [{"id": "a", "tool": "say"}]});
    for (token, told) in [(&alice, (410, "gone")), (&served.token, (410, "gone")), (&bob, (404, "not_found"))]
    {
        let opened = ask(token, "POST", "/v1/sessions", json!({"id": "s"})).await;
        let submitted = ask(token, "POST", "/v1/sessions/s/batches", again.clone()).await;
        for answer in [opened, submitted] {
            assert_eq!(answer.told(), (told.0, told.1.to_string()), "{}", answer.body);
        }
    }
    // A restart knows it too, and nothing of the session is left in the file but hashes.
    let store = served.api.runtime().store();
    assert_eq!(store.gone("s").await.expect("read").map(|kept| kept.len()), Some(32));
    assert_eq!(store.count_records(StoreSpace::Setting.shelf()).await.expect("counted"), 0);
    let head = read_head(served.send(&Served::request(Some(&alice), "GET", &call, Value::Null)).await).await;
    assert_eq!(head.status, 404);
}

#[tokio::test]
async fn a_list_says_that_it_leaves_sessions_out() {
    let served = Served::new().await;
    let batch = |n: u64| json!({"key": "k", "calls": [{"id": "a", "tool": "say", "args": {"n": n}}]});
    let alice = served.token_of("alice", &[TokenScope::Calls, TokenScope::Read]).await;
    for n in 0..1_001 {
        let path = format!("/v1/sessions/s{n}/batches");
        served.ask_as(Some(&alice), "POST", &path, batch(n)).await.expect(200);
        if n == 999 {
            let listed = served.get("/v1/calls").await.expect(200);
            assert_eq!(listed.get("left_out"), None);
        }
    }
    for token in [&alice, &served.token] {
        let listed = served.ask_as(Some(token), "GET", "/v1/calls", Value::Null).await.expect(200);
        assert!(listed["left_out"].as_str().is_some_and(|told| told.contains("1000 sessions")), "{listed}");
    }
}

#[tokio::test]
async fn a_session_that_only_has_files_goes_with_them() {
    let served = Served::new().await;
    let scopes = [TokenScope::Calls, TokenScope::Read];
    let (alice, bob) = (served.token_of("alice", &scopes).await, served.token_of("bob", &scopes).await);
    let file = "/v1/sessions/s/files/notes.txt";
    served.ask_as(Some(&alice), "PUT", file, json!("hers")).await.expect(200);
    let folder = served.folder.path().join("files/s");
    assert!(folder.join("notes.txt").is_file());
    served.ask_as(Some(&alice), "DELETE", SESSION, Value::Null).await.expect(200);
    assert!(!folder.exists());
    for (method, body) in [("GET", Value::Null), ("PUT", json!("his"))] {
        let asked = served.ask_as(Some(&bob), method, file, body.clone()).await;
        assert_eq!(asked.told(), (404, "not_found".into()), "{}", asked.body);
        let asked = served.ask_as(Some(&alice), method, file, body).await;
        assert_eq!(asked.told(), (410, "gone".into()), "{}", asked.body);
    }
    assert!(!folder.exists());
}

/// How much of an answer the model sees is said by the call, else by its tool, else by its session.
#[tokio::test]
async fn answers_keep_to_their_budget() {
    let served = Served::new().await;
    served.post("/v1/sessions", json!({"id": "s", "limits": {"answer_bytes_max": 2_000}})).await.expect(201);
    assert_eq!(served.get(SESSION).await.expect(200)["limits"], json!({"answer_bytes_max": 2_000}));
    let shown = async |session: &str, key: &str, more: Value| {
        let mut call = json!({"id": "c", "tool": "say", "args": {"text": "x".repeat(30_000)}});
        call.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        let path = format!("/v1/sessions/{session}/batches");
        let batch = served.post(&path, json!({"key": key, "calls": [call]})).await.expect(200);
        batch["calls"][0]["model"]["parts"][0]["text"].as_str().map_or(0, str::len)
    };
    assert_eq!(shown("free", "k", json!({})).await, r#"{"text":""}"#.len() + 30_000);
    assert!((1_000..=2_000).contains(&shown("s", "k1", json!({})).await));
    assert!((300..=600).contains(&shown("s", "k2", json!({"answer_bytes_max": 600})).await));
    assert_eq!(shown("s", "k3", json!({"answer_bytes_max": 40_000})).await, r#"{"text":""}"#.len() + 30_000);
    let call = json!({"id": "c", "tool": "say", "args": {}, "answer_lines_max": 7});
    let refused = served.post("/v1/sessions/s/batches", json!({"key": "k4", "calls": [call]})).await;
    let told = "calls[0]: answer_lines_max is 7; give 8 to 50000, or leave it out for the default";
    assert!(
        refused.json()["detail"].as_str().is_some_and(|detail| detail.contains(told)),
        "{}",
        refused.json()
    );
    let wanted = json!({"id": "other", "limits": {"answer_bytes_max": 1}});
    assert_eq!(served.post("/v1/sessions", wanted).await.told(), (422, "invalid_session".into()));
}
