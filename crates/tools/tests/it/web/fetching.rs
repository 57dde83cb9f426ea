//! Responses of every kind, as `web_fetch` shows them.

use crate::rig::in_time;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use windlass::store::memory::MemoryStore;
use windlass::{Args, BatchRequest, CallRequest, Config, Limits, Runtime};
use windlass_http::HttpConfig;
use windlass_tools::WebFetch;

/// A server that gives every connection the same response; returns its URL.
async fn server(response: Vec<u8>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
    let url = format!("http://{}/docs/page", listener.local_addr().expect("an address"));
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                match stream.read_u8().await {
                    Ok(byte) => head.push(byte),
                    Err(_) => break,
                }
            }
            let _ = stream.write_all(&response).await;
        }
    });
    url
}

fn response(status: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let mut response =
        format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {}\r\n{headers}\r\n", body.len())
            .into_bytes();
    response.extend(body);
    response
}

async fn call(limits: Limits, args: Value) -> Value {
    let runtime = Runtime::new(Config { limits, ..Config::new(MemoryStore::new().expect("a store")) });
    let http = HttpConfig { allowed: vec!["127.0.0.1".parse().expect("a range")], ..HttpConfig::default() };
    runtime.register(WebFetch::new(http)).expect("registered");
    let call = CallRequest {
        id: Some("c".into()),
        tool: "web_fetch".into(),
        args: Args::Json(args),
        ..CallRequest::default()
    };
    let batch = BatchRequest { calls: vec![call], ..BatchRequest::default() };
    let submitted = runtime.submit("s", batch).await.expect("submitted");
    let answer = in_time(submitted.settled()).await.expect("settled");
    serde_json::to_value(answer.calls[0].view_for_operators()).expect("shown")
}

/// The parts that the model reads.
fn parts(answer: &Value) -> Vec<String> {
    let parts = answer["model"]["parts"].as_array().expect("parts").iter();
    parts.map(|part| part["text"].as_str().map_or_else(|| part.to_string(), str::to_string)).collect()
}

const PAGE: &str = "<!doctype html><title>Tea</title><nav>menu</nav><main><h1>Tea</h1><p>Gr\u{fc}n is <a href='/green'>green</a>.</p></main>";

#[tokio::test]
async fn a_page_is_shown_as_it_is_asked_for() {
    let latin: Vec<u8> = PAGE.chars().map(|letter| letter as u8).collect();
    let url = server(response("200 OK", "content-type: text/html; charset=iso-8859-1\r\n", &latin)).await;
    let origin = url.trim_end_matches("/docs/page").to_string();
    for (form, expected) in [
        ("markdown", format!("# Tea\n\nGrün is [green]({origin}/green).")),
        ("text", "Tea\n\nGrün is green.".to_string()),
        ("raw", PAGE.to_string()),
    ] {
        let answer = call(Limits::default(), json!({ "url": url, "as": form })).await;
        assert_eq!(parts(&answer)[1], expected, "{form}");
        let value = &answer["outcome"]["value"];
        assert_eq!((&value["status"], &value["content_type"]), (&json!(200), &json!("text/html")));
        assert_eq!(value["title"], if form == "raw" { Value::Null } else { "Tea".into() });
    }
    let head = call(Limits::default(), json!({ "url": url, "method": "HEAD" })).await;
    assert_eq!(head["outcome"]["value"]["status"], 200, "{head}");
    let refused = call(Limits::default(), json!({ "url": url, "method": "POST" })).await;
    assert_eq!(refused["outcome"]["failure"]["code"], "invalid_args", "{refused}");
}

#[tokio::test]
async fn other_types_are_shown_as_what_they_are() {
    let json_page = server(response("200 OK", "content-type: application/json\r\n", br#"{"a": 1}"#)).await;
    assert_eq!(parts(&call(Limits::default(), json!({ "url": json_page })).await)[1], r#"{"a": 1}"#);
    let png = server(response("200 OK", "content-type: text/html\r\n", b"\x89PNG\r\n\x1a\nrest")).await;
    let answer = call(Limits::default(), json!({ "url": png })).await;
    assert_eq!(answer["outcome"]["parts"][0]["media_type"], "image/png", "{answer}");
    let pdf = server(response("200 OK", "content-type: application/pdf\r\n", b"%PDF-1.7 \xff")).await;
    let answer = call(Limits::default(), json!({ "url": pdf })).await;
    assert_eq!(
        (&answer["outcome"]["parts"][0]["name"], &answer["outcome"]["value"]["bytes"]),
        (&json!("page"), &json!(10)),
        "{answer}"
    );
}

#[tokio::test]
async fn failures_say_what_to_think_of_them() {
    let missing = server(response("404 Not Found", "", b"no")).await;
    let large = server(response("200 OK", "content-type: text/plain\r\n", &[b'x'; 2_000])).await;
    let looping = server(response("302 Found", "location: /docs/page\r\n", b"")).await;
    let inside = server(response("302 Found", "location: http://127.0.0.2/secret\r\n", b"")).await;
    let small = Limits { fetch_bytes_max: 1_000, ..Limits::default() };
    for (url, code) in [
        (missing.as_str(), "http 404"),
        (large.as_str(), "too_large"),
        (looping.as_str(), "redirects"),
        (inside.as_str(), "internal_address"),
        ("http://169.254.169.254/latest/meta-data", "internal_address"),
        ("file:///etc/passwd", "bad_url"),
        ("http://user:hunter2@127.0.0.1/", "bad_url"),
    ] {
        let answer = call(small.clone(), json!({ "url": url })).await;
        assert_eq!(answer["outcome"]["failure"]["tool_code"], code, "{url}: {answer}");
        let told = answer["model"].to_string();
        assert!(!told.contains("127.0.0.2") && !told.contains("hunter2"), "{told}");
    }
    // Such a status may pass, and the rule of the tool decides how often it is tried.
    let busy = server(response("503 Busy", "retry-after: 0\r\n", b"")).await;
    let answer = call(Limits::default(), json!({ "url": busy })).await;
    assert_eq!(
        (&answer["outcome"]["failure"]["class"], &answer["attempts"]),
        (&json!("unavailable"), &json!(3)),
        "{answer}"
    );
}

#[tokio::test]
async fn a_long_page_is_cut_and_says_how_to_read_on() {
    let body: String = (0..20_000).map(|n| format!("<p>paragraph {n}</p>")).collect();
    let url = server(response("200 OK", "content-type: text/html\r\n", body.as_bytes())).await;
    let answer = call(Limits::default(), json!({ "url": url })).await;
    let shown = parts(&answer).join("\n");
    assert!(
        shown.len() < 60_000 && shown.contains("paragraph 0") && shown.contains("read_artifact"),
        "{}",
        shown.len()
    );
}
