//! Declared tools and the world around them: images on standard output, traces handed on, tools that the caller runs.

use crate::rig::in_time;
use crate::stage::{Stage, submit};
use serde_json::{Value, json};
use windlass::outcome::Part;
use windlass::trace::TraceParent;
use windlass::wait::Completed;
use windlass::{BatchRequest, CallRequest};

/// A shell command that prints these bytes.
fn prints(bytes: &[u8]) -> String {
    let octal: String = bytes.iter().map(|byte| format!("\\{byte:03o}")).collect();
    format!("printf '{octal}'")
}

#[tokio::test]
async fn a_command_that_prints_an_image_returns_one() {
    let png = b"\x89PNG\r\n\x1a\n\x00\xff".as_slice();
    for (keys, bytes, expected) in [
        ("class = 'read'", png, Some("image/png")),
        ("class = 'read'", b"\xff\xd8\xff\xe0jfif", Some("image/jpeg")),
        ("class = 'read'", b"GIF89a\xff", Some("image/gif")),
        ("class = 'read'", b"RIFF\xff\x00\x00\x00WEBPVP8 ", Some("image/webp")),
        ("class = 'read'", b"\xfe\xfe\xfe", None),
        // What is declared counts, also of text.
        ("class = 'read'\noutput_media_type = 'image/png'", b"no image", Some("image/png")),
    ] {
        let stage = Stage::new(keys, &prints(bytes));
        let answer = in_time(stage.submit().await.settled()).await.expect("answered");
        let parts = answer.calls[0].model().parts;
        match (expected, &parts[..]) {
            (Some(expected), [Part::KeptImage { kept, media_type }]) => {
                assert_eq!((media_type.as_str(), kept.bytes), (expected, bytes.len() as u64));
                let stored = stage.runtime.read_artifact(kept.artifact, 0, 1_000).await.expect("stored");
                assert_eq!(stored, bytes);
            }
            (None, [Part::Text(line)]) => assert!(line.contains("application/octet-stream"), "{line}"),
            (_, other) => panic!("{expected:?}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn the_trace_of_the_caller_is_handed_to_the_command() {
    let stage = Stage::new("class = 'read'", "printf '\"%s\"' \"$TRACEPARENT\"");
    let traceparent = TraceParent::parse("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
    let call = CallRequest { id: Some("c".into()), tool: "t".into(), ..CallRequest::default() };
    for (key, given) in [("traced", traceparent), ("alone", None)] {
        let (key, calls) = (Some(key.to_string()), vec![call.clone()]);
        let batch = BatchRequest { key, calls, traceparent: given, ..BatchRequest::default() };
        let submitted = stage.runtime.submit("s", batch).await.expect("taken");
        let answer = in_time(submitted.settled()).await.expect("answered");
        let handed = answer.calls[0].value::<String>().expect("text");
        let handed = TraceParent::parse(&handed).map(|handed| (handed.trace, handed.flags));
        assert_eq!(handed, given.map(|given| (given.trace, given.flags)));
    }
}

#[tokio::test]
async fn a_tool_that_the_caller_runs_is_declared_with_a_time_of_its_own() {
    let stage = Stage::declared(
        "[tools.t]\nclient = true\nclient_ms = 60000\ndescription = 'Opens a tab'\ncategory = 'browser'\n\
         tags = ['tab', 'web']\ninput = { type = 'object', required = ['url'] }",
    );
    let listed = stage.runtime.tool("t").expect("listed").tool.expect("loaded");
    assert_eq!((listed.spec.category.as_str(), listed.spec.source.as_str()), ("browser", "declared"));
    assert_eq!(listed.spec.tags, ["tab", "web"]);
    assert!(stage.runtime.tool("nobody").is_none());
    // Arguments are checked here, like those of any tool.
    let wrong = in_time(submit(&stage.runtime, "t", json!({})).await.settled()).await.expect("answered");
    assert_eq!(wrong.calls[0].state(), "failed");
    let submitted = submit(&stage.runtime, "t", json!({ "url": "https://example.com" })).await;
    let waits = loop {
        let open = stage.runtime.open().await.expect("a list");
        if let Some(call) = open.into_iter().find(|call| call.state == "awaiting_client") {
            break call;
        }
        tokio::task::yield_now().await;
    };
    stage.runtime.client_result(&waits.call, Completed::ok(json!({ "tab": 1 }))).await.expect("taken");
    let answer = in_time(submitted.settled()).await.expect("answered");
    assert_eq!(answer.calls[0].value::<Value>().expect("a value"), json!({ "tab": 1 }));
}
