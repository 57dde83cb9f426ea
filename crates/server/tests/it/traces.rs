//! Spans reach a collector, and metrics whoever asks.

use crate::rig::Rig;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use windlass::store::memory::MemoryStore;
use windlass::{Args, BatchRequest, CallRequest, Config, Cx, EffectClass, Runtime, ToolSpec, tool_fn};
use windlass_server::otlp::{ExportError, Exporter};

/// A request as a collector reads it: its first line, and its body.
async fn received(stream: &mut TcpStream) -> (String, Value) {
    let (mut bytes, mut buffer) = (Vec::new(), [0; 4_096]);
    loop {
        let read = stream.read(&mut buffer).await.expect("readable");
        assert!(read > 0, "it ended in the middle");
        bytes.extend_from_slice(&buffer[..read]);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        if let Ok(body) = serde_json::from_str(body) {
            let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
            stream.write_all(answer).await.expect("sent");
            return (head.lines().next().unwrap_or_default().to_string(), body);
        }
    }
}

fn attributes(span: &Value) -> Value {
    let list = span["attributes"].as_array().expect("a list").iter();
    list.map(|one| (one["key"].as_str().expect("a key").to_string(), one["value"].clone())).collect()
}

/// A call that makes another inside it, and one of a tool that is not there; what the collector got of them, by name.
async fn exported(contents: bool) -> Vec<Value> {
    let runtime = Runtime::new(Config::new(MemoryStore::new().expect("a store")));
    let spec = |name: &str, class| ToolSpec { name: name.into(), class: Some(class), ..ToolSpec::default() };
    let inner = tool_fn(spec("inner", EffectClass::Read), |args, _: &Cx| async move { Ok(args.into()) });
    let outer = tool_fn(spec("outer", EffectClass::Stepped), |_, cx: &Cx| {
        let cx = cx.clone();
        async move { Ok(cx.call("go", "inner", json!({"secret": 7})).await?.value::<Value>()?.into()) }
    });
    runtime.register(inner).expect("it fits");
    runtime.register(outer).expect("it fits");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let endpoint = format!("http://{}", listener.local_addr().expect("an address"));
    let exporter = Exporter::start(&runtime, &endpoint, contents).expect("it begins");
    assert!(matches!(Exporter::start(&runtime, &endpoint, contents), Err(ExportError::Taken)));
    let call = |id: &str, tool: &str| CallRequest {
        id: Some(id.into()),
        tool: tool.into(),
        args: Args::Json(json!({})),
        ..CallRequest::default()
    };
    let calls = vec![call("c1", "outer"), call("c2", "nobody")];
    let batch = BatchRequest { key: Some("k".into()), calls, ..BatchRequest::default() };
    runtime.submit("s", batch).await.expect("taken").settled().await.expect("answered");
    let ending = tokio::spawn(exporter.end());
    let mut spans = Vec::new();
    // The attempts end before their calls.
    let is_call = |span: &Value| span["name"].as_str().is_some_and(|name| name.starts_with("execute_tool"));
    while spans.iter().filter(|span| is_call(span)).count() < 3 {
        let (mut stream, _) = listener.accept().await.expect("it connects");
        let (line, body) = received(&mut stream).await;
        assert_eq!(line, "POST /v1/traces HTTP/1.1");
        let scope = &body["resourceSpans"][0]["scopeSpans"][0];
        spans.extend(scope["spans"].as_array().expect("spans").clone());
    }
    ending.await.expect("no panic");
    spans.sort_by_key(|span| (!is_call(span), span["name"].to_string()));
    spans
}

#[tokio::test]
async fn a_collector_gets_a_span_for_every_attempt() {
    let spans = exported(false).await;
    let (attempts, calls): (Vec<&Value>, Vec<&Value>) =
        spans.iter().partition(|span| span["name"].as_str().expect("a name").starts_with("attempt "));
    for name in ["inner", "outer"] {
        let name = format!("execute_tool {name}");
        let call = calls.iter().find(|call| call["name"] == json!(name)).expect("a call");
        let own =
            |span: &&&Value| span["parentSpanId"] == call["spanId"] && span["traceId"] == call["traceId"];
        let last = attempts.iter().rfind(own).expect("an attempt");
        assert_eq!(last["name"], json!("attempt 1"));
        assert_eq!(attributes(last)["windlass.attempt.end"], json!({"stringValue": "returned"}));
    }
}

#[tokio::test]
async fn a_collector_gets_a_span_for_every_call() {
    let mut spans = exported(false).await;
    spans.retain(|span| span["name"].as_str().expect("a name").starts_with("execute_tool"));
    let names: Vec<&str> = spans.iter().map(|span| span["name"].as_str().expect("a name")).collect();
    assert_eq!(names, ["execute_tool inner", "execute_tool nobody", "execute_tool outer"]);
    let (inner, nobody, outer) = (&spans[0], &spans[1], &spans[2]);
    assert_eq!(inner["parentSpanId"], outer["spanId"]);
    assert!(outer.get("parentSpanId").is_none());
    assert!(spans.iter().all(|span| span["traceId"] == outer["traceId"]), "one batch is one trace");
    assert_eq!(outer["traceId"].as_str().map(str::len), Some(32));
    assert_eq!(outer["spanId"].as_str().map(str::len), Some(16));
    let told = attributes(nobody);
    for (key, value) in [
        ("gen_ai.operation.name", "execute_tool"),
        ("gen_ai.tool.name", "nobody"),
        ("gen_ai.tool.call.id", "c2"),
        ("gen_ai.conversation.id", "s"),
        ("error.type", "no_such_tool"),
    ] {
        assert_eq!(told[key], json!({"stringValue": value}), "{key}");
    }
    assert_eq!((&nobody["status"], &outer["status"]), (&json!({"code": 2}), &json!({"code": 1})));
    assert!(attributes(outer).get("error.type").is_none());
    let time = |span: &Value, which: &str| span[which].as_str().and_then(|text| text.parse::<u64>().ok());
    assert!(time(outer, "startTimeUnixNano") <= time(inner, "startTimeUnixNano"));
    assert!(time(inner, "endTimeUnixNano") <= time(outer, "endTimeUnixNano"));
    assert!(!json!(spans).to_string().contains("secret"), "what a call is about is nobody's business");
    let told = attributes(&exported(true).await[0]);
    assert_eq!(told["gen_ai.tool.call.arguments"], json!({"stringValue": "{\"secret\":7}"}));
    assert_eq!(told["gen_ai.tool.call.result"], json!({"stringValue": "{\"secret\":7}"}));
}

#[tokio::test]
async fn metrics_are_served() {
    let rig = Rig::new();
    let submitted = rig.submit("s", "k", &["look"]).await;
    rig.go.add_permits(1);
    submitted.settled().await.expect("answered");
    let request = b"GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    let (status, head, body) = rig.exchange(request).await;
    assert_eq!(status, 200);
    assert!(head.contains("content-type: text/plain; version=0.0.4"), "{head}");
    assert!(body.contains("windlass_calls_total{tool=\"look\",outcome=\"succeeded\"} 1\n"), "{body}");
}
