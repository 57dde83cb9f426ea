//! Answers from outside over HTTP: parts, raw output, timeouts, and artifacts uploaded first.

use crate::rig::Rig;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use windlass::tool::client_tool;
use windlass::{Cx, EffectClass, Output, ToolSpec, tool_fn};

const PNG: &[u8] = b"\x89PNG\r\n\x1a\n";

/// A rig with a tool that hands out its completion keys.
fn rig() -> (Rig, mpsc::UnboundedReceiver<String>) {
    let rig = Rig::new();
    let (sends, keys) = mpsc::unbounded_channel();
    let spec = ToolSpec { name: "pends".into(), class: Some(EffectClass::Keyed), ..ToolSpec::default() };
    let tool = tool_fn(spec, move |_, cx: &Cx| {
        let (cx, sends) = (cx.clone(), sends.clone());
        async move {
            let key = cx.completion("answer").await?;
            sends.send(key.to_string()).expect("somebody waits");
            Ok(Output::pending(key))
        }
    });
    rig.runtime.register(tool).expect("it fits");
    (rig, keys)
}

/// Posts bytes of this media type.
async fn upload(rig: &Rig, path: &str, media_type: &str, body: &[u8]) -> (u16, Value) {
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: {media_type}\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    rig.raw(&[head.as_bytes(), body].concat()).await
}

async fn post(rig: &Rig, path: &str, body: &Value) -> (u16, Value) {
    rig.post(path, body.to_string().as_bytes()).await
}

#[tokio::test]
async fn an_artifact_is_uploaded_under_a_key_and_named_in_the_answer() {
    let (rig, mut keys) = rig();
    let submitted = rig.submit("s", "k", &["pends"]).await;
    let key = keys.recv().await.expect("a key");
    let (status, stored) = upload(&rig, &format!("/v1/completions/{key}/artifacts"), "image/png", PNG).await;
    assert_eq!((status, &stored["bytes"], &stored["media_type"]), (201, &json!(8), &json!("image/png")));
    let artifact = &stored["artifact"];
    let parts = json!([
        {"type": "text", "text": "Before:"},
        {"type": "image", "media_type": "image/png", "artifact": artifact},
        {"type": "image", "media_type": "image/png", "data": "iVBORw=="},
        {"type": "json", "value": {"n": 1}},
        {"type": "file", "artifact": artifact, "media_type": "application/octet-stream", "name": "shot"},
    ]);
    let said = json!({"ok": "signed", "parts": parts, "raw": {"by": "Ann"}, "control": {"end_turn": true}});
    assert_eq!(post(&rig, &format!("/v1/completions/{key}"), &said).await.0, 200);
    let handle = submitted.settled().await.expect("answered").calls[0].handle().to_string();
    let (_, call) = rig.get(&format!("/v1/calls/{handle}")).await;
    let model = call["model"]["parts"].as_array().expect("parts");
    assert_eq!(model[0]["text"], json!("signed"));
    assert_eq!(model[1]["text"], json!("Before:"));
    assert_eq!(
        (&model[2]["type"], &model[2]["artifact"], &model[2]["bytes"]),
        (&json!("image"), artifact, &json!(8))
    );
    assert_eq!((&model[3]["data"], &model[4]["value"]["n"]), (&json!("iVBORw=="), &json!(1)));
    assert!(model[5]["text"].as_str().is_some_and(|text| text.starts_with("file \"shot\"")), "{call}");
    let outcome = &call["outcome"];
    assert_eq!(
        (&outcome["control"], &outcome["raw_artifact"]["bytes"]),
        (&json!({"end_turn": true}), &json!(12))
    );
    // The uploaded bytes are there for whoever may see the session; the call takes no more.
    let raw = outcome["raw_artifact"]["artifact"].as_str().expect("an id");
    let (_, _, bytes) = rig
        .exchange(
            format!("GET /v1/artifacts/{raw} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").as_bytes(),
        )
        .await;
    assert_eq!(bytes, r#"{"by":"Ann"}"#);
    let (status, late) = upload(&rig, &format!("/v1/completions/{key}/artifacts"), "image/png", PNG).await;
    assert_eq!((status, &late["code"]), (410, &json!("over")));
    let (status, forged) = upload(&rig, "/v1/completions/nonsense/artifacts", "image/png", PNG).await;
    assert_eq!((status, &forged["code"]), (404, &json!("not_found")));
}

#[tokio::test]
async fn an_error_carries_parts_and_a_timeout_is_said_in_a_word() {
    let (rig, mut keys) = rig();
    let submitted = rig.submit("s", "k1", &["pends"]).await;
    let key = keys.recv().await.expect("a key");
    let error = json!({"code": "E_UI", "message": "No button.", "raw": {"status": 500},
        "parts": [{"type": "image", "media_type": "image/png", "data": "iVBORw=="}]});
    assert_eq!(post(&rig, &format!("/v1/completions/{key}"), &json!({"error": error})).await.0, 200);
    let call = submitted.settled().await.expect("answered").calls.remove(0);
    let shown = serde_json::to_value(call.view()).expect("JSON");
    let told = r#"{"error":"No button.","code":"tool_failed","tool_code":"E_UI"}"#;
    assert_eq!(
        (&shown["model"]["parts"][0]["text"], &shown["model"]["parts"][1]["type"]),
        (&json!(told), &json!("image"))
    );
    assert_eq!(shown["outcome"]["failure"]["raw"], json!(r#"{"status":500}"#));

    let submitted = rig.submit("s", "k2", &["pends"]).await;
    let key = keys.recv().await.expect("a key");
    for bad in [
        json!({"timeout": true, "cancelled": true}),
        json!({"timeout": true, "parts": [{"type": "text", "text": "x"}]}),
        json!({"ok": 1, "parts": [{"type": "image", "media_type": "image/png"}]}),
        json!({"ok": 1, "parts": [{"type": "image", "media_type": "image/png", "data": "no base64!"}]}),
        json!({"ok": 1, "parts": [{"type": "file", "artifact": "x", "media_type": "a/b", "name": "n"}]}),
    ] {
        let (status, problem) = post(&rig, &format!("/v1/completions/{key}"), &bad).await;
        assert_eq!((status, &problem["code"]), (400, &json!("bad_body")), "{bad}: {problem}");
    }
    assert_eq!(post(&rig, &format!("/v1/completions/{key}"), &json!({"timeout": true})).await.0, 200);
    let call = submitted.settled().await.expect("answered").calls.remove(0);
    assert_eq!(call.failure().map(|failure| failure.code.as_str()), Some("timeout"));
}

#[tokio::test]
async fn a_client_side_result_names_what_was_uploaded_for_its_call() {
    let (rig, _keys) = rig();
    rig.runtime
        .register(client_tool(ToolSpec { name: "open_tab".into(), ..ToolSpec::default() }))
        .expect("it fits");
    let submitted = rig.submit("s", "k", &["open_tab"]).await;
    let (_, page) = loop {
        let page = rig.get("/v1/sessions/s/calls?state=awaiting_client").await;
        if page.1["items"].get(0).is_some() {
            break page;
        }
    };
    let handle = page["items"][0]["call"].as_str().expect("a handle");
    let path = format!("/v1/sessions/s/artifacts?call={handle}");
    let (status, stored) = upload(&rig, &path, "image/png", PNG).await;
    assert_eq!(status, 201, "{stored}");
    let other = format!("/v1/sessions/other/artifacts?call={handle}");
    assert_eq!(upload(&rig, &other, "image/png", PNG).await.0, 404);
    assert_eq!(upload(&rig, "/v1/sessions/s/artifacts", "no media type", PNG).await.0, 422);
    let parts = json!([{"type": "image", "media_type": "image/png", "artifact": stored["artifact"]}]);
    let (status, _) =
        post(&rig, &format!("/v1/calls/{handle}/result"), &json!({"ok": null, "parts": parts})).await;
    assert_eq!(status, 200);
    let call = submitted.settled().await.expect("answered").calls.remove(0);
    let shown = serde_json::to_value(call.view()).expect("JSON");
    assert_eq!(
        shown["model"]["parts"],
        json!([{"type": "image", "media_type": "image/png", "artifact": stored["artifact"], "bytes": 8}])
    );
}

#[tokio::test]
async fn the_callers_trace_is_continued() {
    let rig = Rig::new();
    let spec = ToolSpec { name: "says".into(), class: Some(EffectClass::Read), ..ToolSpec::default() };
    let tool = tool_fn(spec, |_, cx: &Cx| {
        let traceparent = cx.traceparent().map(|parent| parent.to_string());
        async move { Ok(json!(traceparent).into()) }
    });
    rig.runtime.register(tool).expect("it fits");
    for (header, expected) in [
        (
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            Some("00-4bf92f3577b34da6a3ce929d0e0e4736-"),
        ),
        ("nonsense", None),
    ] {
        let body = json!({"calls": [{"id": header, "tool": "says"}]}).to_string();
        let request = format!(
            "POST /v1/sessions/s/batches HTTP/1.1\r\nhost: x\r\nconnection: close\r\ntraceparent: {header}\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        let (status, answer) = rig.raw(request.as_bytes()).await;
        assert_eq!(status, 200, "{answer}");
        let handed = answer["calls"][0]["outcome"]["value"].as_str();
        assert_eq!(handed.map(|handed| &handed[..36]), expected, "{answer}");
    }
}

#[tokio::test]
async fn calls_are_listed_by_turn_and_cancelled_by_batch_and_id() {
    let (rig, _keys) = rig();
    let spec = ToolSpec {
        name: "open_tab".into(),
        category: "browser".into(),
        tags: vec!["tab".into()],
        ..ToolSpec::default()
    };
    rig.runtime.register(client_tool(spec)).expect("it fits");
    let (_, shown) = rig.get("/v1/tools/open_tab").await;
    let listed = (&shown["category"], &shown["tags"], &shown["source"]);
    assert_eq!(listed, (&json!("browser"), &json!(["tab"]), &json!("registered")));
    for (key, turn) in [("k1", "t1"), ("k2", "t2")] {
        let calls = json!([{"id": "a", "tool": "open_tab"}, {"id": "b", "tool": "open_tab"}]);
        let body = json!({"key": key, "turn": turn, "calls": calls, "wait": "inline"});
        let (status, answer) = post(&rig, "/v1/sessions/s/batches", &body).await;
        assert_eq!((status, &answer["calls"][0]["state"]), (200, &json!("awaiting_client")), "{answer}");
    }
    let (_, page) = rig.get("/v1/sessions/s/calls?turn=t2").await;
    assert_eq!(page["items"].as_array().map(Vec::len), Some(2), "{page}");
    assert!(
        page["items"].as_array().expect("calls").iter().all(|call| call["batch"] == json!("k2")),
        "{page}"
    );
    let (status, asked) = post(&rig, "/v1/sessions/s/batches/k2/cancel", &json!({"id": "b"})).await;
    assert_eq!((status, &asked["asked"]), (200, &json!(1)), "{asked}");
    let (status, unknown) = post(&rig, "/v1/sessions/s/batches/k2/cancel", &json!({"id": "z"})).await;
    assert_eq!((status, &unknown["code"]), (404, &json!("not_found")));
    let open = loop {
        let (_, open) = rig.get("/v1/sessions/s/calls?turn=t2&state=open").await;
        if open["items"].as_array().is_some_and(|items| items.len() == 1) {
            break open;
        }
    };
    assert_eq!(open["items"][0]["id"], json!("a"));
}
