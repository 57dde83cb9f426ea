//! Providers' own responses, posted whole and streamed: what is answered, and that nothing runs twice.

use crate::rig::Rig;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::watch;
use windlass::{EffectClass, Flags, Runtime, ToolSpec, tool_fn};

/// A fixture of the crate that knows providers.
macro_rules! fixture {
    ($name:literal) => {
        include_str!(concat!("../../../wire/tests/fixtures/", $name))
    };
}

/// The wires, each with a response that asks for two calls, whole and streamed.
const FIXTURES: [(&str, &str, &str); 4] = [
    ("openai_chat", fixture!("openai_chat.json"), fixture!("openai_chat.sse")),
    ("openai_responses", fixture!("openai_responses.json"), fixture!("openai_responses.sse")),
    ("anthropic", fixture!("anthropic.json"), fixture!("anthropic.sse")),
    ("gemini", fixture!("gemini.json"), fixture!("gemini.sse")),
];

/// The fixtures, with a number that arguments take: one that would be rounded is refused.
fn wires() -> [(&'static str, String, String); 4] {
    let exact = |text: &str| text.replace("01234567890123", "");
    FIXTURES.map(|(wire, response, stream)| (wire, exact(response), exact(stream)))
}

/// The tools that the fixtures call; how often they ran.
fn offer(runtime: &Runtime) -> Arc<AtomicU64> {
    let ran = Arc::new(AtomicU64::new(0));
    for name in ["read_file", "list_directory"] {
        let spec = ToolSpec { name: name.into(), class: Some(EffectClass::Once), ..ToolSpec::default() };
        let ran = ran.clone();
        let tool = tool_fn(spec, move |args, _| {
            ran.fetch_add(1, Ordering::SeqCst);
            async move { Ok(args.into()) }
        });
        runtime.register(tool).expect("it fits");
    }
    ran
}

#[tokio::test]
async fn a_response_is_answered_with_the_messages_to_append_and_runs_once() {
    let rig = Rig::new();
    let ran = offer(&rig.runtime);
    for (nth, (wire, response, _)) in (1..).zip(wires()) {
        let path = format!("/v1/sessions/{wire}/batches?wire={wire}");
        let (status, answer) = rig.post(&path, response.as_bytes()).await;
        assert_eq!(status, 200, "{answer}");
        assert_eq!(answer["over"], false);
        let states: Vec<_> =
            answer["calls"].as_array().expect("calls").iter().map(|call| &call["state"]).collect();
        assert_eq!(states, ["succeeded", "succeeded"], "{wire}");
        let told = answer["messages"].to_string();
        assert!(told.contains("123456789"), "{wire}: {told}");
        let key = answer["key"].as_str().expect("a key").to_string();
        assert!(key.starts_with(&format!("{wire}/")), "{key}");
        // Posted again, whole: the same answer, and nothing ran.
        assert_eq!(rig.post(&path, response.as_bytes()).await, (200, answer));
        assert_eq!(ran.load(Ordering::SeqCst), 2 * nth, "{wire}");
        // Another turn is another batch.
        let (status, other) = rig.post(&format!("{path}&turn=2"), response.as_bytes()).await;
        assert_eq!(status, 200);
        assert_ne!(other["key"], key);
        ran.fetch_sub(2, Ordering::SeqCst);
    }
}

/// Sends a request whose body comes in pieces.
struct Pieces(UnixStream);

impl Pieces {
    async fn to(rig: &Rig, path: &str) -> Pieces {
        let mut stream = UnixStream::connect(rig.folder.path().join("control.sock")).await.expect("served");
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: text/event-stream\r\n\
             transfer-encoding: chunked\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.expect("sent");
        Pieces(stream)
    }

    async fn send(&mut self, piece: &str) {
        let chunk = format!("{:x}\r\n{piece}\r\n", piece.len());
        self.0.write_all(chunk.as_bytes()).await.expect("sent");
    }

    async fn end(mut self) -> (u16, Value) {
        self.0.write_all(b"0\r\n\r\n").await.expect("sent");
        let mut answer = String::new();
        self.0.read_to_string(&mut answer).await.expect("answered");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a body");
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        (status, serde_json::from_str(body).expect("JSON"))
    }
}

#[tokio::test]
async fn the_first_call_of_a_stream_has_run_before_the_stream_ends() {
    for (wire, response, stream) in wires() {
        let rig = Rig::new();
        let ran = offer(&rig.runtime);
        let (begins, mut begun) = watch::channel(0);
        let watched = tool_fn(
            ToolSpec { name: "read_file".into(), class: Some(EffectClass::Once), ..ToolSpec::default() },
            move |args, _| {
                begins.send_modify(|begun| *begun += 1);
                async move { Ok(args.into()) }
            },
        );
        rig.runtime.replace(watched).expect("it fits");
        let path = format!("/v1/sessions/s/batches?wire={wire}");
        let mut post = Pieces::to(&rig, &path).await;
        // All but what ends the second call: the first can run now.
        let events: Vec<&str> = stream.split_inclusive("\n\n").collect();
        let second = match wire {
            "openai_chat" => "finish_reason\":\"tool_calls",
            "openai_responses" => "\"call_2\",\"name\":\"list_directory\",\"arguments\":\"{}\"",
            _ => "list_directory",
        };
        let end = events
            .iter()
            .rposition(|event| event.replace("\": ", "\":").replace(", \"", ",\"").contains(second));
        let end = end.unwrap_or_else(|| panic!("{wire}: no event ends the second call"));
        let (before, after) = (events[..end].concat(), events[end..].concat());
        post.send(&before).await;
        begun.wait_for(|begun| *begun == 1).await.expect("it begins");
        assert_eq!(ran.load(Ordering::SeqCst), 0, "{wire}: the second call has not come");
        post.send(&after).await;
        let (status, streamed) = post.end().await;
        assert_eq!(status, 200, "{wire}: {streamed}");
        // Posted whole, and streamed again: the same batch, and nothing runs.
        let (_, whole) = rig.post(&path, response.as_bytes()).await;
        assert_eq!((&whole["key"], &whole["calls"]), (&streamed["key"], &streamed["calls"]), "{wire}");
        let mut again = Pieces::to(&rig, &path).await;
        again.send(&stream).await;
        assert_eq!(again.end().await, (200, streamed), "{wire}");
        assert_eq!((ran.load(Ordering::SeqCst), *begun.borrow()), (1, 1), "{wire}");
    }
}

#[tokio::test]
async fn a_stream_that_broke_off_is_finished_by_the_whole_response() {
    let rig = Rig::new();
    let ran = offer(&rig.runtime);
    let (wire, response, stream) = &wires()[2];
    let path = format!("/v1/sessions/s/batches?wire={wire}");
    let cut = stream.find("toolu_02").expect("the second call");
    let cut = stream[..cut].rfind("\n\n").expect("an event") + 2;
    let mut broken = Pieces::to(&rig, &path).await;
    broken.send(&stream[..cut]).await;
    let (status, problem) = broken.end().await;
    assert_eq!((status, &problem["code"]), (400, &json!("bad_response")), "{problem}");
    // What was complete runs.
    let key = format!("{wire}%2Fmsg_01Aq9w938a90dw8q%2F");
    while rig.get(&format!("/v1/sessions/s/batches/{key}")).await.1["calls"][0]["state"] != "succeeded" {}
    assert_eq!(ran.load(Ordering::SeqCst), 1);
    // The batch was closed without its second call, as a restart does it.
    let closed = rig.post(&format!("/v1/sessions/s/batches/{key}/close"), b"{}").await;
    assert_eq!(closed.0, 200, "{}", closed.1);
    let (status, whole) = rig.post(&path, response.as_bytes()).await;
    assert_eq!(status, 200, "{whole}");
    assert_eq!(whole["messages"][1]["content"].as_array().map(Vec::len), Some(2), "{whole}");
    assert_eq!(ran.load(Ordering::SeqCst), 2, "the first call did not run again");
    assert_eq!(rig.post(&path, response.as_bytes()).await, (200, whole));
    assert_eq!(ran.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_response_without_an_id_needs_a_turn_or_a_key() {
    let rig = Rig::new();
    offer(&rig.runtime);
    let message = json!({"role": "assistant", "tool_calls": [
        {"id": "c", "type": "function", "function": {"name": "read_file", "arguments": "{}"}}]});
    let post = async |query: &str| {
        rig.post(&format!("/v1/sessions/s/batches?wire=openai_chat{query}"), message.to_string().as_bytes())
            .await
    };
    let (status, problem) = post("").await;
    assert_eq!((status, &problem["code"]), (422, &json!("no_response_id")), "{problem}");
    assert_eq!(post("&turn=3").await.1["key"], "openai_chat//3");
    assert_eq!(post("&key=mine").await.1["key"], "mine");
    let over = json!({"role": "assistant", "content": "Done."});
    let (status, answer) =
        rig.post("/v1/sessions/s/batches?wire=openai_chat", over.to_string().as_bytes()).await;
    assert_eq!((status, answer), (200, json!({"messages": [over], "over": true, "calls": []})));
    for (query, code) in [
        ("wire=telegram", "bad_query"),
        ("turn=3", "bad_query"),
        ("wire=anthropic&turn=3", "bad_response"),
        ("wire=openai_chat&turn=3&timeout_ms=999999999", "bad_batch"),
    ] {
        let (status, problem) =
            rig.post(&format!("/v1/sessions/s/batches?{query}"), message.to_string().as_bytes()).await;
        assert_eq!((status, &problem["code"]), (400, &json!(code)), "{query}: {problem}");
    }
}

#[tokio::test]
async fn a_call_that_waits_is_told_so_and_its_end_comes_as_a_message() {
    let rig = Rig::new();
    let flags = Flags { background: true, ..Flags::default() };
    let spec = ToolSpec {
        name: "build".into(),
        flags,
        claims: Some(vec![]),
        inline_ms: Some(0),
        ..ToolSpec::default()
    };
    let go = rig.go.clone();
    let build = tool_fn(spec, move |_, _| {
        let go = go.clone();
        async move {
            go.acquire().await.expect("it stays open").forget();
            Ok(json!("built").into())
        }
    });
    rig.runtime.register(build).expect("it fits");
    let response = json!({"responseId": "r1", "candidates": [{"content": {"parts": [
        {"functionCall": {"name": "build", "args": {}}}]}}]});
    let (_, answer) = rig.post("/v1/sessions/s/batches?wire=gemini", response.to_string().as_bytes()).await;
    assert_eq!(answer["calls"][0]["state"], "running", "{answer}");
    let task = answer["calls"][0]["task"].as_str().expect("a task");
    let told = answer["messages"][1]["parts"][0]["functionResponse"]["response"]["output"].as_str();
    assert!(told.is_some_and(|told| told.contains(task)), "{answer}");
    rig.go.add_permits(1);
    for (wire, role) in [("gemini", "user"), ("anthropic", "user"), ("openai_responses", "user")] {
        let taken = loop {
            let (_, taken) = rig.post(&format!("/v1/sessions/s/inbox/take?wire={wire}"), b"{}").await;
            if taken["items"].get(0).is_some() {
                break taken;
            }
        };
        assert_eq!(taken["messages"].as_array().map(Vec::len), Some(1), "{taken}");
        assert_eq!(taken["messages"][0]["role"], role);
        assert!(taken["messages"].to_string().contains("built"), "{taken}");
        let id = taken["items"][0]["id"].as_str().expect("an id");
        rig.post(&format!("/v1/sessions/s/inbox/{id}/requeue"), b"{}").await;
    }
    let (_, plain) = rig.post("/v1/sessions/s/inbox/take", b"{}").await;
    assert_eq!(plain.get("messages"), None);
}

#[tokio::test]
async fn tools_are_listed_for_a_wire_and_many_are_found_by_a_search() {
    let rig = Rig::new();
    offer(&rig.runtime);
    rig.submit("s", "k", &["no_such"]).await.settled().await.expect("answered");
    let (status, listed) = rig.get("/v1/sessions/s/tools?wire=anthropic").await;
    assert_eq!(status, 200, "{listed}");
    let names = |listed: &Value| -> Vec<String> {
        let tools = listed["tools"].as_array().expect("tools").iter();
        tools.map(|tool| tool["name"].as_str().expect("a name").to_string()).collect()
    };
    assert_eq!(names(&listed), ["hold", "list_directory", "look", "read_file"]);
    for n in 0..20 {
        let spec = ToolSpec {
            name: format!("t{n}"),
            description: format!("Paints number {n}."),
            ..ToolSpec::default()
        };
        rig.runtime.register(tool_fn(spec, |args, _| async { Ok(args.into()) })).expect("it fits");
    }
    assert_eq!(names(&rig.get("/v1/sessions/s/tools?wire=anthropic").await.1), ["search_tools"]);
    let search = json!({"id": "msg_7", "role": "assistant", "content": [
        {"type": "tool_use", "id": "toolu_1", "name": "search_tools", "input": {"query": "paint 7"}}]});
    let (_, answer) = rig.post("/v1/sessions/s/batches?wire=anthropic", search.to_string().as_bytes()).await;
    assert_eq!(answer["calls"][0]["state"], "succeeded", "{answer}");
    let seen = names(&rig.get("/v1/sessions/s/tools?wire=anthropic").await.1);
    assert!(seen.len() == 9 && seen.contains(&"t7".to_string()), "{seen:?}");
    let fixed = names(&rig.get("/v1/sessions/s/tools?wire=anthropic&fixed=true").await.1);
    assert_eq!(fixed, ["call_tool", "search_tools"]);
    assert_eq!(rig.get("/v1/sessions/s/tools?fixed=true").await.0, 400);
}

#[tokio::test]
async fn a_stream_joins_the_whole_response_that_is_under_way() {
    let rig = Rig::new();
    let response = json!({"id": "msg_9", "role": "assistant", "content": [
        {"type": "tool_use", "id": "toolu_1", "name": "hold", "input": {}}]});
    let path = "/v1/sessions/s/batches?wire=anthropic";
    let stream = [
        r#"{"type":"message_start","message":{"id":"msg_9"}}"#,
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"toolu_1","name":"hold","input":{}}}"#,
        r#"{"type":"content_block_stop","index":0}"#,
        r#"{"type":"message_stop"}"#,
    ]
    .map(|event| format!("data: {event}\n\n"))
    .concat();
    let mut begun = rig.begun.clone();
    let body = response.to_string();
    let whole = rig.post(path, body.as_bytes());
    let streamed = async {
        begun.wait_for(|begun| *begun == 1).await.expect("it begins");
        let mut post = Pieces::to(&rig, path).await;
        post.send(&stream).await;
        rig.go.add_permits(1);
        post.end().await
    };
    let (whole, streamed) = tokio::join!(whole, streamed);
    assert_eq!(whole.0, 200, "{}", whole.1);
    assert_eq!(streamed, whole);
    assert_eq!(*rig.begun.borrow(), 1);
}

#[tokio::test]
async fn a_response_continues_the_trace_that_it_was_posted_in() {
    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    let rig = Rig::new();
    let (told, mut traced) = tokio::sync::mpsc::unbounded_channel();
    let spec = ToolSpec { name: "t".into(), class: Some(EffectClass::Read), ..ToolSpec::default() };
    let tool = tool_fn(spec, move |_, cx: &windlass::Cx| {
        told.send(cx.traceparent().map(|parent| parent.to_string())).expect("the test listens");
        async { Ok(json!("traced").into()) }
    });
    rig.runtime.register(tool).expect("it fits");
    let calls =
        json!([{"index": 0, "id": "c", "type": "function", "function": {"name": "t", "arguments": "{}"}}]);
    let whole = json!({"id": "r1", "object": "chat.completion", "choices": [
        {"index": 0, "finish_reason": "tool_calls", "message": {"role": "assistant", "tool_calls": calls}}]});
    let piece = json!({"id": "r2", "object": "chat.completion.chunk", "choices": [
        {"index": 0, "finish_reason": "tool_calls", "delta": {"role": "assistant", "tool_calls": calls}}]});
    let streamed = format!("data: {piece}\n\ndata: [DONE]\n\n");
    for (kind, body) in [("application/json", whole.to_string()), ("text/event-stream", streamed)] {
        let request = format!(
            "POST /v1/sessions/s/batches?wire=openai_chat HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: {kind}\r\n\
             traceparent: 00-{TRACE}-00f067aa0ba902b7-01\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        let (status, answer) = rig.raw(request.as_bytes()).await;
        assert_eq!((status, &answer["calls"][0]["state"]), (200, &json!("succeeded")), "{answer}");
        let parent = traced.recv().await.expect("it ran").unwrap_or_default();
        assert!(parent.contains(TRACE), "{kind}: {parent}");
    }
}

#[tokio::test]
async fn a_response_of_another_wire_is_refused_and_its_wire_named() {
    let rig = Rig::new();
    let ran = offer(&rig.runtime);
    for (of, response, stream) in wires() {
        for (wire, ..) in wires().iter().filter(|(wire, ..)| *wire != of) {
            let path = format!("/v1/sessions/s/batches?wire={wire}&turn=1");
            let mut streamed = Pieces::to(&rig, &path).await;
            streamed.send(&stream).await;
            for (status, problem) in [rig.post(&path, response.as_bytes()).await, streamed.end().await] {
                assert_eq!(
                    (status, &problem["code"]),
                    (400, &json!("bad_response")),
                    "{of} as {wire}: {problem}"
                );
                let detail = problem["detail"].as_str().unwrap_or_default();
                assert!(
                    detail.contains(&format!("it looks like one of {of}; name that wire")),
                    "{of} as {wire}: {detail}"
                );
            }
        }
    }
    assert_eq!(ran.load(Ordering::SeqCst), 0);
}
