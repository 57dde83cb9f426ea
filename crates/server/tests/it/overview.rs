//! The overview, changes, batches with spans, lists over all sessions, and the check of a call.

use crate::tcp::{Answer, Served};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use windlass::policy::ApprovalRule;
use windlass::{Cx, EffectClass, RetryRule, ToolError, ToolSpec, tool_fn};
use windlass_server::access::TokenScope;

const SCOPES: [TokenScope; 2] = [TokenScope::Calls, TokenScope::Read];

/// A reader of `/v1/changes`.
struct Reader {
    stream: TcpStream,
    read: String,
}

impl Reader {
    async fn new(served: &Served, token: &str) -> Reader {
        let stream = served.send(&Served::request(Some(token), "GET", "/v1/changes", Value::Null)).await;
        let mut reader = Reader { stream, read: String::new() };
        reader.until("event: begun").await;
        reader
    }

    /// Reads until this was told; returns all that was read so far.
    async fn until(&mut self, wanted: &str) -> &str {
        let reading = async {
            while !self.read.contains(wanted) {
                let mut bytes = [0; 4096];
                let count = self.stream.read(&mut bytes).await.expect("it can be read");
                assert!(count > 0, "it ended without {wanted:?}: {}", self.read);
                self.read.push_str(&String::from_utf8_lossy(&bytes[..count]));
            }
        };
        tokio::time::timeout(Duration::from_secs(60), reading).await.expect("it is told in time");
        &self.read
    }
}

async fn submit(served: &Served, token: &str, session: &str, key: &str, calls: Value) -> Answer {
    let path = format!("/v1/sessions/{session}/batches");
    served.ask_as(Some(token), "POST", &path, json!({"key": key, "calls": calls, "wait": "none"})).await
}

#[tokio::test]
async fn changes_are_told_to_whom_they_concern_also_of_calls_that_are_not_recorded() {
    let served = Served::new().await;
    let (alice, bob) = (served.token_of("alice", &SCOPES).await, served.token_of("bob", &SCOPES).await);
    let (mut hers, mut his) = (Reader::new(&served, &alice).await, Reader::new(&served, &bob).await);
    let mut all = Reader::new(&served, &served.token).await;
    // A `read` call is recorded with its result, and this one does not end.
    submit(&served, &alice, "of-alice", "k", json!([{"id": "p", "tool": "peek"}])).await.expect(200);
    hers.until("of-alice").await;
    all.until("of-alice").await;
    let open = served.ask_as(Some(&alice), "GET", "/v1/calls?state=running", Value::Null).await.expect(200);
    assert_eq!(open["items"][0]["tool"], "peek", "{open}");
    submit(&served, &bob, "of-bob", "k", json!([{"id": "s", "tool": "say"}])).await.expect(200);
    assert!(!his.until("of-bob").await.contains("of-alice"), "{}", his.read);
    all.until("of-bob").await;
    assert!(!hers.read.contains("of-bob"), "{}", hers.read);
    // Each event tells the time of the server, and the first which page it has.
    for word in ["\"now\":\"20", "\"build\":\""] {
        assert!(hers.read.contains(word), "{}", hers.read);
    }
    assert_eq!(hers.read.matches("\"now\":").count(), hers.read.matches("event: ").count());
    served.go.add_permits(1);
}

#[tokio::test]
async fn what_a_running_call_does_is_listed_in_its_sessions_language() {
    let served = Served::new().await;
    served.post("/v1/sessions", json!({"id": "s", "locale": "de"})).await.expect(201);
    for session in ["s", "t"] {
        submit(&served, &served.token, session, "k", json!([{"id": "p", "tool": "peek"}])).await.expect(200);
    }
    for (session, told) in [("s", "peek läuft"), ("t", "Running peek")] {
        let page = served.get(&format!("/v1/sessions/{session}/calls?state=running")).await.expect(200);
        assert_eq!(page["items"][0]["narration"], told, "{page}");
        let call = page["items"][0]["call"].as_str().expect("a handle");
        assert_eq!(served.get(&format!("/v1/calls/{call}")).await.expect(200)["narration"], told);
    }
    // What is over does nothing any more.
    served.post("/v1/sessions/t/batches", json!({"calls": [{"id": "a", "tool": "say"}]})).await.expect(200);
    let over = served.get("/v1/sessions/t/calls?state=succeeded").await.expect(200);
    assert!(over["items"][0]["state"] == "succeeded" && over["items"][0]["narration"].is_null(), "{over}");
    served.go.add_permits(2);
}

#[tokio::test]
async fn a_busy_session_is_told_seldom() {
    let served = Served::new().await;
    let mut reader = Reader::new(&served, &served.token).await;
    let began = std::time::Instant::now();
    for key in 0..200 {
        submit(&served, &served.token, "busy", &format!("k{key}"), json!([{"id": "s", "tool": "say"}])).await;
    }
    submit(&served, &served.token, "last", "k", json!([{"id": "s", "tool": "say"}])).await.expect(200);
    let told = reader.until("\"last\"").await.matches("event: changed").count();
    let most = 2 + began.elapsed().as_millis() / 250;
    assert!(told as u128 <= most, "{told} events in {:?}", began.elapsed());
}

#[tokio::test]
async fn the_overview_counts_what_the_caller_may_see() {
    let served = Served::new().await;
    let (alice, bob) = (served.token_of("alice", &SCOPES).await, served.token_of("bob", &SCOPES).await);
    let calls = json!([{"id": "a", "tool": "hold"}, {"id": "b", "tool": "key"}, {"id": "c", "tool": "say"}]);
    submit(&served, &alice, "hers", "k", calls).await.expect(200);
    let seen =
        async |token: &str| served.ask_as(Some(token), "GET", "/v1/overview", Value::Null).await.expect(200);
    let whole = loop {
        let seen = seen(&alice).await;
        if seen["open"] == json!({"awaiting_completion": 1, "running": 1}) {
            break seen;
        }
    };
    let batch = &whole["latest"][0];
    assert_eq!((&batch["session"], &batch["key"]), (&json!("hers"), &json!("k")));
    assert_eq!(batch["states"], json!({"awaiting_completion": 1, "running": 1, "succeeded": 1}));
    assert_eq!(batch["tools"], json!(["hold", "key", "say"]));
    assert_eq!((&whole["principal"], &whole["data"]), (&json!("alice"), &Value::Null));
    let his = seen(&bob).await;
    assert_eq!((&his["open"], &his["latest"]), (&json!({}), &json!([])));
    let root = seen(&served.token).await;
    assert_eq!(root["open"], whole["open"]);
    assert!(root["data"].is_string(), "admins see where the data is: {root}");
    served.go.add_permits(1);
}

#[tokio::test]
async fn batches_are_listed_page_by_page_without_those_that_calls_made() {
    let served = Served::new().await;
    register_nesting(&served);
    for key in ["one", "two", "three"] {
        let calls = json!([{"id": "outer", "tool": "outer"}, {"id": "s", "tool": "say"}]);
        let body = json!({"key": key, "calls": calls, "wait": "settled"});
        served.post("/v1/sessions/s/batches", body).await.expect(200);
    }
    let first = served.get("/v1/sessions/s/batches?limit=2").await.expect(200);
    let keys = |page: &Value| -> Vec<String> {
        let items = page["items"].as_array().expect("items").iter();
        items.map(|batch| batch["key"].as_str().expect("a key").to_string()).collect()
    };
    assert_eq!(keys(&first), ["three", "two"], "{first}");
    let next = first["next"].as_str().expect("there is more");
    let second = served.get(&format!("/v1/sessions/s/batches?limit=2&after={next}")).await.expect(200);
    assert_eq!((keys(&second), &second["next"]), (vec!["one".to_string()], &Value::Null), "{second}");
    assert_eq!(second["items"][0]["states"], json!({"succeeded": 2}));
}

/// A tool that calls another.
fn register_nesting(served: &Served) {
    let spec = ToolSpec {
        name: "outer".into(),
        class: Some(EffectClass::Stepped),
        claims: Some(Vec::new()),
        ..ToolSpec::default()
    };
    let outer = tool_fn(spec, |_, cx: &Cx| {
        let cx = cx.clone();
        async move {
            let inner = cx.call("inner", "say", json!({"said": 1})).await?;
            Ok(inner.value::<Value>()?.into())
        }
    });
    served.api.runtime().register(outer).expect("it is new");
}

/// The lengths of the spans of these kinds.
fn lengths(call: &Value, kinds: &[&str]) -> i64 {
    let spans = call["spans"].as_array().expect("spans").iter();
    let of = spans.filter(|span| kinds.contains(&span["kind"].as_str().expect("a kind")));
    of.map(|span| span["to_us"].as_i64().expect("an end") - span["from_us"].as_i64().expect("a begin")).sum()
}

#[tokio::test]
async fn spans_agree_with_the_times_of_a_call_and_have_the_calls_that_it_made() {
    let served = Served::new().await;
    register_nesting(&served);
    let flaky = ToolSpec {
        name: "flaky".into(),
        class: Some(EffectClass::Read),
        claims: Some(Vec::new()),
        retry: RetryRule { base_ms: Some(30), ..RetryRule::default() },
        ..ToolSpec::default()
    };
    let tries = std::sync::Arc::new(std::sync::atomic::AtomicU32::new(0));
    let flaky = tool_fn(flaky, move |_, _| {
        let first = tries.fetch_add(1, std::sync::atomic::Ordering::SeqCst) == 0;
        async move { if first { Err(ToolError::new("not yet").safe_to_retry()) } else { Ok(json!(1).into()) } }
    });
    served.api.runtime().register(flaky).expect("it is new");
    let calls = json!([{"id": "outer", "tool": "outer"}, {"id": "flaky", "tool": "flaky"}]);
    let body = json!({"key": "k", "calls": calls, "wait": "settled"});
    served.post("/v1/sessions/s/batches", body).await.expect(200);
    let batch = served.get("/v1/sessions/s/batches/k?spans=true").await.expect(200);
    let plain = served.get("/v1/sessions/s/batches/k").await.expect(200);
    assert_eq!(plain["calls"][0]["spans"], Value::Null);
    let [outer, flaky] = [&batch["calls"][0], &batch["calls"][1]];
    let kinds = |call: &Value| -> Vec<String> {
        let spans = call["spans"].as_array().expect("spans").iter();
        let named = spans.map(|span| {
            let word = |name: &str| span[name].as_str().map(|word| format!(" {word}")).unwrap_or_default();
            format!("{}{}{}", span["kind"].as_str().expect("a kind"), word("end"), word("name"))
        });
        named.collect()
    };
    assert_eq!(kinds(flaky), ["queue", "attempt failed", "retry", "attempt ok"]);
    assert_eq!(kinds(outer), ["queue", "attempt ok", "inside inner"]);
    assert_eq!(flaky["nested"], Value::Null);
    let nested = outer["nested"].as_array().expect("a list");
    assert_eq!((nested.len(), &nested[0]["tool"]), (1, &json!("say")), "{nested:?}");
    assert_eq!(nested[0]["parent"], outer["call"]);
    assert_eq!(kinds(&nested[0]), ["queue", "attempt ok"]);
    for call in [outer, flaky, &nested[0]] {
        for (name, kinds) in
            [("queued_ms", &["queue"][..]), ("waited_ms", &["retry", "wait"]), ("ran_ms", &["attempt"])]
        {
            let recorded = call[name].as_i64().expect("a number");
            assert_eq!(lengths(call, kinds) / 1_000, recorded, "{name} of {call}");
        }
    }
    let path = format!("/v1/calls/{}?spans=true", outer["call"].as_str().expect("a handle"));
    let one = served.get(&path).await.expect(200);
    assert_eq!((&one["spans"], &one["nested"]), (&outer["spans"], &outer["nested"]));
}

#[tokio::test]
async fn a_running_call_that_is_not_recorded_has_spans() {
    let served = Served::new().await;
    let answer =
        submit(&served, &served.token, "s", "k", json!([{"id": "p", "tool": "peek"}])).await.expect(200);
    let call = answer["calls"][0]["call"].as_str().expect("a handle").to_string();
    let shown = loop {
        let shown = served.get(&format!("/v1/calls/{call}?spans=true")).await.expect(200);
        if shown["state"] == "running" {
            break shown;
        }
    };
    let spans = shown["spans"].as_array().expect("spans");
    assert_eq!(
        (spans.len(), &spans[1]["kind"], &spans[1]["to_us"]),
        (2, &json!("attempt"), &Value::Null),
        "{shown}"
    );
    assert_eq!(spans[0]["to_us"], spans[1]["from_us"]);
    served.go.add_permits(1);
}

#[tokio::test]
async fn tasks_and_schedules_of_all_sessions_are_listed() {
    let served = Served::new().await;
    let (alice, bob) = (served.token_of("alice", &SCOPES).await, served.token_of("bob", &SCOPES).await);
    for (place, (token, session)) in
        [(&alice, "a1"), (&alice, "a2"), (&bob, "b1"), (&alice, "a1")].iter().enumerate()
    {
        let calls = json!([{"id": "b", "tool": "build"}]);
        let path = format!("/v1/sessions/{session}/batches");
        let body = json!({"key": format!("k{place}"), "calls": calls, "wait": "settled"});
        served.ask_as(Some(token), "POST", &path, body).await.expect(200);
    }
    let nightly = json!({"cron": "0 0 * * *", "tool": "build"});
    for session in ["a2", "a1"] {
        let path = format!("/v1/sessions/{session}/schedules");
        served.ask_as(Some(&alice), "POST", &path, nightly.clone()).await.expect(201);
    }
    let sessions = |page: &Value| -> Vec<String> {
        let items = page["items"].as_array().expect("items").iter();
        items.map(|item| item["session"].as_str().expect("a session").to_string()).collect()
    };
    let list = async |token: &str, path: &str| {
        served.ask_as(Some(token), "GET", path, Value::Null).await.expect(200)
    };
    assert_eq!(sessions(&list(&alice, "/v1/tasks").await), ["a1", "a2", "a1"], "newest first");
    assert_eq!(sessions(&list(&bob, "/v1/tasks").await), ["b1"]);
    assert_eq!(sessions(&list(&served.token, "/v1/tasks").await), ["a1", "b1", "a2", "a1"]);
    let first = list(&alice, "/v1/tasks?limit=2").await;
    let next = first["next"].as_str().expect("there is more");
    let second = list(&alice, &format!("/v1/tasks?limit=2&after={next}")).await;
    assert_eq!((sessions(&second), &second["next"]), (vec!["a1".to_string()], &Value::Null));
    assert_eq!(sessions(&list(&alice, "/v1/tasks?state=succeeded").await), [""; 0]);
    assert_eq!(sessions(&list(&alice, "/v1/schedules").await), ["a1", "a2"]);
    assert_eq!(sessions(&list(&alice, "/v1/schedules?limit=1&after=a1/").await), ["a1"]);
    assert_eq!(sessions(&list(&bob, "/v1/schedules").await), [""; 0]);
    let workers = list(&bob, "/v1/workers").await;
    assert_eq!((&workers["items"][0]["id"], &workers["items"][0]["this"]), (&json!("local"), &json!(true)));
    served.go.add_permits(4);
}

#[tokio::test]
async fn a_call_is_checked_without_being_made() {
    let served = Served::new().await;
    let spec = ToolSpec {
        name: "pay".into(),
        approval: ApprovalRule::Ask,
        input_schema: Some(
            json!({"type": "object", "properties": {"amount": {"type": "integer"}}, "required": ["amount"]}),
        ),
        ..ToolSpec::default()
    };
    let pay = tool_fn(spec, |_, _| async { Err(ToolError::new("it is not called")) });
    served.api.runtime().register(pay).expect("it is new");
    let check =
        async |args: Value| served.post("/v1/tools/pay/check", json!({"args": args})).await.expect(200);
    let right = check(json!({"amount": 5})).await;
    assert_eq!((&right["valid"], &right["policy"]["ruling"]), (&json!(true), &json!("ask")), "{right}");
    let repaired = check(json!({"amount": "5"})).await;
    assert_eq!(
        (&repaired["args"], repaired["repairs"].as_array().map(Vec::len)),
        (&json!({"amount": 5}), Some(1))
    );
    let wrong = check(json!({"amount": "much"})).await;
    assert_eq!((&wrong["valid"], &wrong["policy"]), (&json!(false), &Value::Null), "{wrong}");
    assert!(wrong["problem"].as_str().expect("a text").contains("amount"), "{wrong}");
    let none = served.post("/v1/tools/pai/check", json!({})).await;
    assert_eq!(none.told(), (422, "no_such_tool".into()));
    let foreign = json!({"session": "nowhere"});
    assert_eq!(served.post("/v1/tools/pay/check", foreign).await.told(), (404, "not_found".into()));
    assert_eq!(served.get("/v1/calls").await.expect(200)["items"], json!([]));
}
