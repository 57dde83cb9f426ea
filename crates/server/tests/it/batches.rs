//! Batches over TCP: what is waited for, what is answered, and that sending one again runs nothing twice.

use crate::tcp::{Answer, Served};
use serde_json::{Value, json};
use std::time::Duration;

const BATCHES: &str = "/v1/sessions/s/batches";

fn states(batch: &Value) -> Vec<String> {
    let calls = batch["calls"].as_array().expect("calls");
    calls
        .iter()
        .map(|call| {
            format!("{} {}", call["id"].as_str().expect("id"), call["state"].as_str().expect("state"))
        })
        .collect()
}

fn call(id: &str, tool: &str) -> Value {
    json!({"id": id, "tool": tool})
}

#[tokio::test]
async fn a_batch_is_answered_in_order_and_again_from_the_record() {
    let served = Served::new().await;
    let body = json!({"turn": "t1", "calls": [
        {"id": "a", "tool": "say", "args": {"n": 1}, "provider": {"signature": "x"}, "priority": -1},
        {"id": "b", "tool": "fail", "deadlines": {"total_ms": 5000}},
        {"id": "c", "tool": "say", "args": "{\"n\": 2}"},
        {"id": "d", "tool": "nope"},
        {"id": "e", "tool": "say", "args": "{\"n\": 1e999}"},
    ]});
    let first = served.post(BATCHES, body.clone()).await.expect(200);
    assert_eq!(states(&first), ["a succeeded", "b failed", "c succeeded", "d failed", "e failed"]);
    assert_eq!(first["calls"][0]["outcome"], json!({"value": {"n": 1}, "parts": []}));
    assert_eq!(first["calls"][0]["provider"], json!({"signature": "x"}));
    assert_eq!(first["calls"][2]["outcome"]["value"], json!({"n": 2}));
    assert_eq!(first["calls"][3]["outcome"]["failure"]["code"], "no_such_tool");
    assert_eq!(first["calls"][4]["outcome"]["failure"]["code"], "inexact_number");
    assert_eq!(first["calls"][1]["model"]["is_error"], true);
    assert!(first.get("recorded").is_none(), "{first}");

    let mut again = served.post(BATCHES, body).await.expect(200);
    assert_eq!(again["recorded"], 5);
    again.as_object_mut().expect("an object").remove("recorded");
    assert_eq!(again, first);
    let key = first["key"].as_str().expect("a key");
    assert_eq!(served.get(&format!("{BATCHES}/{key}")).await.expect(200), first);

    let other = json!({"key": key, "calls": [{"id": "a", "tool": "say", "args": {"n": 9}}]});
    let conflict = served.post(BATCHES, other).await.expect(200);
    assert_eq!(conflict["calls"][0]["outcome"]["failure"]["code"], "conflict");
    let handle = first["calls"][0]["call"].as_str().expect("a handle");
    let shown = served.get(&format!("/v1/calls/{handle}?journal=true")).await.expect(200);
    assert_eq!((&shown["session"], &shown["args"]), (&json!("s"), &json!({"n": 1})));
    assert!(shown["journal"].as_array().is_some_and(|lines| !lines.is_empty()));
}

#[tokio::test]
async fn what_is_waited_for_is_what_was_asked() {
    let served = Served::new().await;
    // Nothing: the calls are recorded and open.
    let none = json!({"key": "none", "wait": "none", "calls": [call("h", "hold")]});
    let none = served.post(BATCHES, none).await.expect(200);
    assert!(["h queued", "h running"].contains(&states(&none)[0].as_str()), "{none}");
    assert!(none["calls"][0].get("outcome").is_none());
    // Not longer than this.
    let late = json!({"key": "none", "wait": "settled", "timeout_ms": 20, "calls": [call("h", "hold")]});
    let late = served.post(BATCHES, late).await.expect(200);
    assert_eq!(states(&late), ["h running"]);
    assert_eq!(late["calls"][0]["model"]["parts"][0]["text"], "The call is running.");
    served.go.add_permits(1);
    let settled = json!({"key": "none", "wait": "settled", "calls": [call("h", "hold")]});
    assert_eq!(states(&served.post(BATCHES, settled).await.expect(200)), ["h succeeded"]);

    // Until all that is left waits for somebody, or behind such a call; then it goes on by the answer.
    let inline = json!({"key": "inline", "calls": [call("q", "ask"), call("x", "after"), call("s", "say")]});
    let waits = served.post(BATCHES, inline.clone()).await.expect(200);
    let told = states(&waits);
    assert_eq!((told[0].as_str(), told[2].as_str()), ("q awaiting_input", "s succeeded"));
    // The one behind it is answered as open, and goes on now that its caller has an answer.
    assert!(waits["calls"][1].get("outcome").is_none(), "{waits}");
    while served.get(&format!("{BATCHES}/inline")).await.expect(200)["calls"][1]["state"] != "succeeded" {}
    let questions = served.get("/v1/questions?session=s").await.expect(200);
    let question = questions["items"][0]["id"].as_str().expect("a question").to_string();
    served.post(&format!("/v1/questions/{question}"), json!({"answer": 5})).await.expect(422);
    served.post(&format!("/v1/questions/{question}"), json!({"answer": "red"})).await.expect(200);
    let over = served.post(BATCHES, inline).await.expect(200);
    assert_eq!(states(&over), ["q succeeded", "x succeeded", "s succeeded"]);
    assert_eq!(over["calls"][0]["outcome"]["value"], json!({"chosen": "red"}));
}

#[tokio::test]
async fn a_batch_that_is_waited_for_inline_is_recorded_before_its_calls_are_over() {
    let served = Served::new().await;
    let body = json!({"key": "k", "calls": [call("p", "peek")]});
    let store = served.api.runtime().store().clone();
    let looking = async {
        // A read is recorded with its result, but for this.
        while store.open_batches(None).await.expect("readable").is_empty() {
            tokio::task::yield_now().await;
        }
        served.go.add_permits(1);
    };
    let both = async { tokio::join!(served.post(BATCHES, body), looking) };
    let (answer, ()) = tokio::time::timeout(Duration::from_secs(60), both).await.expect("it is recorded");
    assert_eq!(states(&answer.expect(200)), ["p succeeded"]);
}

#[tokio::test]
async fn answers_from_outside_are_taken() {
    let served = Served::new().await;
    let calls = json!([call("y", "yours"), call("k", "key"), call("m", "mail")]);
    let batch = json!({"key": "b", "calls": calls});
    let open = served.post(BATCHES, batch.clone()).await.expect(200);
    assert_eq!(states(&open), ["y awaiting_client", "k awaiting_completion", "m awaiting_connection"]);
    let yours = open["calls"][0]["call"].as_str().expect("a handle");
    served.post(&format!("/v1/calls/{yours}/result"), json!({"ok": 1})).await.expect(200);
    let again = served.post(&format!("/v1/calls/{yours}/result"), json!({"ok": 2})).await;
    assert_eq!(again.told(), (409, "conflict".into()));
    // The key is all that is needed.
    let key = served.keys.lock().expect("no panic")[0].clone();
    let complete = format!("/v1/completions/{key}");
    served.ask_as(None, "POST", &complete, json!({"ok": {"from": "outside"}})).await.expect(200);
    let other = served.ask_as(None, "POST", &complete, json!({"cancelled": true})).await;
    assert_eq!(other.told(), (409, "conflict".into()));
    let forged = served.ask_as(None, "POST", "/v1/completions/x", json!({"ok": 1})).await;
    assert_eq!(forged.told(), (404, "not_found".into()));
    let connect = "/v1/sessions/s/connections/mail";
    assert_eq!(served.post(connect, json!({"connected": false})).await.expect(200), json!({"waiting": 1}));
    let settled = json!({"key": "b", "wait": "settled", "calls": calls});
    let over = served.post(BATCHES, settled).await.expect(200);
    assert_eq!(states(&over), ["y succeeded", "k succeeded", "m failed"]);
    assert_eq!(over["calls"][1]["outcome"]["value"], json!({"from": "outside"}));
}

#[tokio::test]
async fn calls_are_pushed_one_after_the_other_until_the_batch_is_closed() {
    let served = Served::new().await;
    let (push, close) = (format!("{BATCHES}/p/calls"), format!("{BATCHES}/p/close"));
    assert_eq!(served.post(&close, json!({})).await.told(), (404, "not_found".into()), "nothing was pushed");
    let first = served.post(&push, json!({"turn": "t", "calls": [call("a", "say")]})).await.expect(200);
    assert_eq!(first["key"], "p");
    let second = json!({"calls": [call("b", "fail"), call("a", "say")], "wait": "settled"});
    assert_eq!(states(&served.post(&push, second.clone()).await.expect(200)), ["b failed", "a succeeded"]);
    let whole = served.post(&close, json!({"wait": "settled"})).await.expect(200);
    assert_eq!(states(&whole), ["a succeeded", "b failed"]);
    served.post(&close, json!({})).await.expect(200);
    let late = served.post(&push, json!({"calls": [call("c", "say")]})).await;
    assert_eq!(late.told(), (410, "over".into()));
    assert_eq!(
        states(&served.post(&push, second).await.expect(200)),
        ["b failed", "a succeeded"],
        "recorded"
    );
    // One that was submitted whole is no batch for pushes.
    served.post(BATCHES, json!({"key": "w", "calls": [call("a", "say")]})).await.expect(200);
    let pushed = served.post(&format!("{BATCHES}/w/calls"), json!({"calls": [call("b", "say")]})).await;
    assert_eq!(pushed.told(), (400, "bad_batch".into()));
}

#[tokio::test]
async fn calls_are_cancelled_and_listed() {
    let served = Served::new().await;
    let hold = |key: &str| json!({"key": key, "wait": "none", "calls": [call("h", "hold")]});
    let mut calls = Vec::new();
    for key in ["one", "two", "three"] {
        let open = served.post(BATCHES, hold(key)).await.expect(200);
        calls.push(open["calls"][0]["call"].as_str().expect("a handle").to_string());
    }
    let page = served.get("/v1/sessions/s/calls?state=open&limit=2").await.expect(200);
    assert_eq!(page["items"].as_array().map(Vec::len), Some(2));
    let next = page["next"].as_str().expect("there is more");
    let rest = served.get(&format!("/v1/calls?state=open&limit=2&after={next}")).await.expect(200);
    assert_eq!((rest["items"].as_array().map(Vec::len), &rest["next"]), (Some(1), &Value::Null));
    let asked = json!({"asked": 1, "over": 0});
    assert_eq!(served.post(&format!("/v1/calls/{}/cancel", calls[0]), json!({})).await.expect(200), asked);
    assert_eq!(
        served.post(&format!("{BATCHES}/two/cancel"), json!({"reason": "enough"})).await.expect(200),
        asked
    );
    // Those that were asked before may be open still.
    let all = served.post("/v1/sessions/s/cancel", Value::Null).await.expect(200);
    assert!(all["asked"].as_u64().is_some_and(|asked| (1..=3).contains(&asked)), "{all}");
    for (key, call) in ["one", "two", "three"].iter().zip(&calls) {
        let mut settled = hold(key);
        settled["wait"] = "settled".into();
        let over = served.post(BATCHES, settled).await.expect(200);
        assert_eq!(
            (states(&over), &over["calls"][0]["call"]),
            (vec!["h cancelled".to_string()], &json!(call))
        );
    }
    // Whoever looked finds out what became of it.
    let resolved =
        served.post(&format!("/v1/calls/{}/resolve", calls[0]), json!({"landed": 7})).await.expect(200);
    assert_eq!(resolved["state"], "succeeded");
    let accept = served.post(&format!("/v1/calls/{}/accept", calls[1]), json!({})).await;
    assert_eq!(accept.told(), (409, "unfit".into()));
}

#[tokio::test]
async fn what_has_no_shape_is_refused_whole() {
    let served = Served::new().await;
    let many: Vec<Value> = (0..257).map(|n| call(&n.to_string(), "say")).collect();
    let cases = [
        (json!({"calls": []}), 422, "empty_batch"),
        (json!({"calls": many}), 400, "bad_batch"),
        (json!({"calls": [call("", "say")]}), 400, "bad_batch"),
        (json!({"calls": [call("a", "say")], "key": ""}), 400, "bad_batch"),
        (json!({"calls": [call("a", "say")], "inputs": [1]}), 400, "bad_batch"),
        (json!({"calls": [call("a", "say")], "timeout_ms": 600_001}), 400, "bad_batch"),
        (json!({"calls": [call("a", "say")], "siblings": {"quorum": 0}}), 400, "bad_batch"),
        (json!({"calls": [call("a", "say")], "wat": 1}), 400, "bad_body"),
        (json!({"calls": [{"id": "a", "tool": "say", "granted": "g"}]}), 400, "bad_body"),
        (json!({"calls": [call("a", "say")], "wait": "forever"}), 400, "bad_body"),
        (json!({"calls": [{"id": "a", "args": {}}]}), 400, "bad_body"),
        (json!({"calls": {}}), 400, "bad_body"),
        (json!([]), 400, "bad_body"),
        (json!({}), 400, "bad_body"),
    ];
    for (body, status, code) in cases {
        let told = served.post(BATCHES, body.clone()).await.told();
        assert_eq!(told, (status, code.to_string()), "{body}");
    }
    let name = served.post("/v1/sessions/a%20b/batches", json!({"calls": [call("a", "say")]})).await;
    assert_eq!(name.told(), (422, "invalid_session".into()));
    // Nothing of it was recorded.
    assert_eq!(served.get("/v1/calls").await.expect(200)["items"], json!([]));
}

#[tokio::test]
async fn a_client_that_goes_away_cancels_nothing_and_a_server_that_stops_lets_go() {
    let served = Served::new().await;
    let body = json!({"key": "k", "wait": "settled", "calls": [call("h", "hold")]});
    let runs = async {
        while !served.api.runtime().live().iter().any(|call| call.state == "running") {
            tokio::task::yield_now().await;
        }
    };
    // The client goes away once its call runs.
    tokio::select! {
        answer = served.post(BATCHES, body.clone()) => panic!("it waits: {}", answer.body),
        () = runs => {}
    }
    let open = served.get(&format!("{BATCHES}/k")).await.expect(200);
    assert_eq!(states(&open), ["h running"]);
    // Who waits is answered with what there is, and no work is taken any more.
    let waiting = async { served.post(BATCHES, body.clone()).await };
    let draining = async {
        let is_waiting = || served.api.runtime().open_calls() == 1;
        assert!(is_waiting());
        served.api.drain();
    };
    let (waited, ()): (Answer, ()) = tokio::join!(waiting, draining);
    assert!(matches!(waited.told(), (200, _) | (503, _)), "{}", waited.body);
    let refused = served.post(BATCHES, body).await;
    assert_eq!(refused.told(), (503, "draining".into()));
    assert!(refused.head.contains("retry-after: 1"), "{}", refused.head);
    assert_eq!(served.ask_as(None, "GET", "/readyz", Value::Null).await.told(), (503, "draining".into()));
    served.ask_as(None, "GET", "/healthz", Value::Null).await.expect(200);
}

#[tokio::test]
async fn sessions_and_tools_are_opened_shown_and_paused() {
    let served = Served::new().await;
    let wanted = json!({"id": "mine", "title": "Mine", "labels": {"team": "a"}});
    let made = served.post("/v1/sessions", wanted.clone()).await.expect(201);
    assert_eq!((&made["principal"], &made["entries"]), (&json!("local"), &json!(0)));
    assert_eq!(served.post("/v1/sessions", wanted).await.expect(200), made);
    let other = served.post("/v1/sessions", json!({"id": "mine", "title": "Other"})).await;
    assert_eq!(other.told(), (409, "conflict".into()));
    let unnamed = served.post("/v1/sessions", json!({})).await.expect(201);
    assert_eq!(served.get("/v1/sessions/mine/calls").await.expect(200)["items"], json!([]));
    assert_eq!(served.post("/v1/sessions/mine/cancel", json!({})).await.expect(200)["asked"], 0);
    served.post("/v1/sessions/mine/batches", json!({"calls": [call("a", "say")]})).await.expect(200);
    assert_eq!(served.get("/v1/sessions/mine").await.expect(200)["title"], "Mine");
    let page = served.get("/v1/sessions?limit=1").await.expect(200);
    let rest =
        served.get(&format!("/v1/sessions?after={}", page["next"].as_str().expect("more"))).await.expect(200);
    let mut ids = [page["items"][0]["id"].clone(), rest["items"][0]["id"].clone()];
    ids.sort_by_key(ToString::to_string);
    let mut expected = [json!("mine"), unnamed["id"].clone()];
    expected.sort_by_key(ToString::to_string);
    assert_eq!(ids, expected);
    for (body, code) in [
        (json!({"id": "a/b"}), "invalid_session"),
        (json!({"title": "x".repeat(201)}), "invalid_session"),
        (json!({"labels": {"x".repeat(129): "y"}}), "invalid_session"),
        (json!({"folder": "/etc"}), "invalid_session"),
        (json!({"directory": "/etc"}), "bad_body"),
    ] {
        assert_eq!(served.post("/v1/sessions", body).await.told().1, code);
    }

    let tools = served.get("/v1/tools?limit=2").await.expect(200);
    assert_eq!((&tools["items"][0]["name"], &tools["next"]), (&json!("after"), &json!("ask")));
    assert_eq!(
        served.get("/v1/sessions/mine/tools?after=message_task").await.expect(200)["items"][0]["name"],
        "peek"
    );
    assert_eq!(served.get("/v1/tools/say").await.expect(200)["class"], "read");
    let missing = served.get("/v1/tools/sey").await;
    assert!(missing.body.contains("did you mean") && missing.status == 404, "{}", missing.body);
    assert_eq!(served.post("/v1/tools/say/pause", json!({})).await.expect(200)["paused"], true);
    let held = json!({"key": "p", "calls": [call("a", "say")]});
    let waits = served.post("/v1/sessions/mine/batches", held.clone()).await.expect(200);
    assert_eq!(waits["calls"][0]["waiting_for"], "tool_paused");
    assert_eq!(served.post("/v1/tools/say/resume", json!({})).await.expect(200)["paused"], false);
    let over = served.post("/v1/sessions/mine/batches", held).await.expect(200);
    assert_eq!(states(&over), ["a succeeded"]);
}

#[tokio::test]
async fn pairs_are_written_read_and_listed() {
    let served = Served::new().await;
    let kv = "/v1/sessions/s/kv";
    let put = async |key: &str, body: Value| served.ask("PUT", &format!("{kv}/{key}"), body).await;
    let first = put("a%2Fb", json!({"value": {"n": 1}})).await.expect(200);
    assert_eq!(first["key"], "a/b");
    let shown = served.get(&format!("{kv}/a%2Fb")).await.expect(200);
    assert_eq!((&shown["value"], &shown["generation"]), (&json!({"n": 1}), &first["generation"]));
    put("c", json!({"value": null, "generation": 0})).await.expect(200);
    let late = put("a%2Fb", json!({"value": 2, "generation": 0})).await;
    assert_eq!(late.told(), (409, "conflict".into()));
    put("a%2Fb", json!({"value": 2, "generation": first["generation"]})).await.expect(200);
    assert_eq!(put("x", json!({})).await.told(), (400, "bad_body".into()));
    let large = json!({"value": "y".repeat(65 << 10)});
    assert_eq!(put("x", large).await.told(), (422, "invalid_pair".into()));
    let page = served.get(&format!("{kv}?limit=1")).await.expect(200);
    assert_eq!((&page["items"][0]["key"], &page["next"]), (&json!("a/b"), &json!("a/b")));
    let rest = served.get(&format!("{kv}?after=a%2Fb")).await.expect(200);
    assert_eq!((&rest["items"][0]["key"], &rest["next"]), (&json!("c"), &Value::Null));
    assert_eq!(served.get(&format!("{kv}?prefix=z")).await.expect(200)["items"], json!([]));
    served.ask("DELETE", &format!("{kv}/c"), Value::Null).await.expect(200);
    assert_eq!(served.get(&format!("{kv}/c")).await.told(), (404, "not_found".into()));
}
