//! Recorded answers are the same in every response: provider data byte for byte, a finished call as the first answer
//! had it. A mistake in one call is that call's failure; the reasons for refusing a batch are a closed list.

use crate::tcp::Served;
use serde_json::{Value, json};

const BATCHES: &str = "/v1/sessions/s/batches";

async fn post(served: &Served, path: &str, body: &str) -> String {
    let head = Served::request(Some(&served.token), "POST", path, Value::Null);
    let request =
        head.replace("content-length: 0\r\n\r\n", &format!("content-length: {}\r\n\r\n{body}", body.len()));
    let answer = served.raw(&request).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.body
}

/// Numbers that no float holds, keys out of order and twice, white space, escapes, depth.
const PROVIDER: &str = r#"{"z": 1.0, "a":1e300,  "a": 123456789012345678901234567890, "s":"\u00fc\/ü", "d":-0.0,
	"n": [ null,true ]}"#;

#[tokio::test]
async fn provider_data_comes_back_byte_for_byte() {
    let served = Served::new().await;
    let deep = format!("{}{}", "[".repeat(60), "]".repeat(60));
    for (n, data) in [PROVIDER, &deep, "1.50", "\"\"", "18446744073709551617"].into_iter().enumerate() {
        let call = format!(r#"{{"id": "a", "tool": "say", "args": {{"n": {n}}}, "provider": {data}}}"#);
        let body = format!(r#"{{"key": "{n}", "calls": [{call}]}}"#);
        let first = post(&served, BATCHES, &body).await;
        let call = serde_json::from_str::<Value>(&first).expect("JSON")["calls"][0]["call"].clone();
        let call = call.as_str().expect("a handle");
        for shown in [
            first.clone(),
            post(&served, BATCHES, &body).await,
            served.get(&format!("{BATCHES}/{n}")).await.body,
            served.get(&format!("/v1/calls/{call}")).await.body,
            served.get("/v1/sessions/s/calls").await.body,
        ] {
            assert!(shown.contains(&format!(r#""provider":{data}"#)), "{data}: {shown}");
        }
    }
    // An answer that nobody could read helps nobody.
    for data in ["1e400", &format!("{}{}", "[".repeat(100), "]".repeat(100))] {
        let body = format!(r#"{{"calls": [{{"id": "a", "tool": "say", "provider": {data}}}]}}"#);
        let head = Served::request(Some(&served.token), "POST", BATCHES, Value::Null);
        let request = head.replace("length: 0\r\n\r\n", &format!("length: {}\r\n\r\n{body}", body.len()));
        assert_eq!(served.raw(&request).await.told(), (400, "bad_batch".into()), "{data}");
    }
}

/// The objects of calls in an answer, as they are written.
fn calls(body: &str) -> Vec<&str> {
    let all = body.split_once(r#""calls":["#).expect("calls").1;
    let (mut depth, mut in_text, mut escaped, mut begin, mut found) = (0, false, false, 0, Vec::new());
    for (at, byte) in all.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_text => escaped = true,
            b'"' => in_text = !in_text,
            _ if in_text => {}
            b'{' | b'[' => {
                if depth == 0 {
                    begin = at;
                }
                depth += 1;
            }
            b'}' | b']' if depth == 0 => break,
            b'}' | b']' => {
                depth -= 1;
                if depth == 0 {
                    found.push(&all[begin..=at]);
                }
            }
            _ => {}
        }
    }
    found
}

#[tokio::test]
async fn a_call_that_is_over_is_the_same_bytes_in_every_answer() {
    let served = Served::new().await;
    let body = json!({"key": "k", "timeout_ms": 1, "calls": [
        {"id": "said", "tool": "say", "args": {"z": 1.0, "a": [1e3, "ü"]}, "provider": {"z": 1, "a": 2.0}},
        {"id": "failed", "tool": "fail"},
        {"id": "nobody", "tool": "nobody"},
        {"id": "wrong", "tool": "say", "args": "{"},
        {"id": "open", "tool": "yours"},
    ]})
    .to_string();
    post(&served, BATCHES, &body).await;
    // All but one have ended, then all: both answers are made in ways of their own.
    let part = post(&served, BATCHES, &body).await;
    served.post("/v1/sessions/s/cancel", json!({})).await.expect(200);
    let settled = body.replace(r#""timeout_ms":1"#, r#""wait":"settled""#);
    let whole = post(&served, BATCHES, &settled).await;
    let again = post(&served, BATCHES, &settled).await;
    let shown = served.get(&format!("{BATCHES}/k")).await.body;
    let first = calls(&whole);
    assert_eq!(first.len(), 5, "{whole}");
    assert_eq!(calls(&part)[..4], first[..4]);
    assert_eq!(calls(&again), first);
    assert_eq!(calls(&shown), first);
    for call in first {
        let handle =
            serde_json::from_str::<Value>(call).expect("JSON")["call"].as_str().expect("it").to_string();
        let alone = served.get(&format!("/v1/calls/{handle}")).await.body;
        assert!(alone.starts_with(&call[..call.len() - 1]), "alone it begins the same: {alone}\n{call}");
        let list = served.get("/v1/sessions/s/calls").await.body;
        assert!(list.contains(&call[..call.len() - 1]), "in a list: {list}\n{call}");
    }
}

#[tokio::test]
async fn a_bad_name_of_a_tool_fails_that_call_alone() {
    let served = Served::new().await;
    let long = "x".repeat(100_000);
    let names = [
        "",
        " ",
        "say it",
        &"x".repeat(65),
        &"x".repeat(129),
        &long,
        "s\nay",
        "s\u{0}",
        "\u{202e}yas",
        "ünsäy",
    ];
    for (n, name) in names.into_iter().enumerate() {
        let body = json!({"key": format!("bad-{n}"), "calls": [
            {"id": "before", "tool": "say"}, {"id": "bad", "tool": name}, {"id": "after", "tool": "say"},
        ]});
        let answer = served.post(BATCHES, body.clone()).await.expect(200);
        let states: Vec<&str> = answer["calls"]
            .as_array()
            .expect("calls")
            .iter()
            .filter_map(|call| call["state"].as_str())
            .collect();
        assert_eq!(states, ["succeeded", "failed", "succeeded"], "{name:?}");
        let failure = &answer["calls"][1]["outcome"]["failure"];
        assert_eq!(
            (&failure["class"], &failure["code"]),
            (&json!("unavailable"), &json!("no_such_tool")),
            "{failure}"
        );
        // Of whatever it was called, as much is recorded as tables and logs can show.
        let shown = answer["calls"][1]["tool"].as_str().expect("a name");
        assert!(shown.len() < 1_000 && !shown.contains(char::is_control), "{shown:?}");
        let again = served.post(BATCHES, body).await.expect(200);
        assert_eq!((&again["calls"], &again["recorded"]), (&answer["calls"], &json!(3)), "{name:?}");
    }
}

#[tokio::test]
async fn what_refuses_a_whole_batch_is_a_closed_list() {
    let served = Served::new().await;
    let good = json!({"id": "good", "tool": "say"});
    let with = |bad: Value| json!({"calls": [good, bad]});
    let many: Vec<Value> = (0..257).map(|n| json!({"id": n.to_string(), "tool": "say"})).collect();
    for (what, body, code) in [
        ("no calls", json!({"key": "k"}), "bad_body"),
        ("a call without a tool", with(json!({"id": "a"})), "bad_body"),
        ("a tool that is no text", with(json!({"id": "a", "tool": 1})), "bad_body"),
        ("an empty id", with(json!({"id": "", "tool": "say"})), "bad_batch"),
        ("an oversized id", with(json!({"id": "x".repeat(129), "tool": "say"})), "bad_batch"),
        ("too many calls", json!({"calls": many}), "bad_batch"),
        ("an unknown field", with(json!({"id": "a", "tool": "say", "arg": {}})), "bad_body"),
        ("nothing in it", json!({"calls": []}), "empty_batch"),
    ] {
        let answer = served.post(BATCHES, body).await;
        assert_eq!(answer.told().1, code, "{what}: {}", answer.body);
    }
    let listed = served.get("/v1/sessions/s/calls").await.expect(200);
    assert_eq!(listed["items"], json!([]), "nothing of it is recorded");
    // Everything else is the failure of its call.
    for (n, bad) in [
        json!({"id": "a", "tool": "nobody"}),
        json!({"id": "a", "tool": ""}),
        json!({"id": "a", "tool": "say", "args": "{"}),
        json!({"id": "a", "tool": "say", "args": [1]}),
        json!({"id": "good", "tool": "fail"}),
        json!({"id": "a", "tool": "say", "args": {"x": "y".repeat(1 << 20)}}),
    ]
    .into_iter()
    .enumerate()
    {
        let mut body = with(bad.clone());
        body["key"] = format!("opposite-{n}").into();
        let answer = served.post(BATCHES, body).await.expect(200);
        assert_eq!(answer["calls"][1]["state"], "failed", "{answer}");
        let twins = bad["id"] == "good";
        assert_eq!(answer["calls"][0]["state"], if twins { "failed" } else { "succeeded" }, "{answer}");
    }
}
