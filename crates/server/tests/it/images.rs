//! Images that are kept as artifacts, in the messages of every wire.

use crate::tcp::Served;
use serde_json::{Value, json};
use windlass::{Cx, EffectClass, Output, ToolSpec, tool_fn};

/// The bytes of a picture, and as base64.
const PICTURE: (&[u8], &str) = (b"\x89PNG\r\n\x1a\n", "iVBORw0KGgo=");

/// A server with a tool that returns text, an image of an artifact, text.
async fn served(images_bytes_max: u64) -> Served {
    let served = Served::with(|config| config.limits.wire_images_bytes_max = images_bytes_max).await;
    let spec = ToolSpec { name: "shoot".into(), class: Some(EffectClass::Keyed), ..ToolSpec::default() };
    let shoots = tool_fn(spec, |_, cx: &Cx| {
        let cx = cx.clone();
        async move {
            let image = cx.attach("shot", PICTURE.0, "image/png").await?.into_image();
            Ok(Output { parts: vec![image], ..Output::default() })
        }
    });
    served.api.runtime().register(shoots).expect("it fits");
    served
}

/// A response with two calls, over this wire.
fn response(wire: &str) -> Value {
    let chat =
        |id: &str| json!({"id": id, "type": "function", "function": {"name": "shoot", "arguments": "{}"}});
    let call = |id: &str| json!({"type": "function_call", "call_id": id, "name": "shoot", "arguments": "{}"});
    let block = |id: &str| json!({"type": "tool_use", "id": id, "name": "shoot", "input": {}});
    let part = json!({"functionCall": {"name": "shoot", "args": {}}});
    match wire {
        "openai_chat" => {
            json!({"id": "r1", "object": "chat.completion", "choices": [{"index": 0, "finish_reason": "tool_calls",
            "message": {"role": "assistant", "content": null, "tool_calls": [chat("a"), chat("b")]}}]})
        }
        "openai_responses" => json!({"id": "r1", "object": "response", "output": [call("a"), call("b")]}),
        "anthropic" => json!({"id": "r1", "type": "message", "role": "assistant", "stop_reason": "tool_use",
            "content": [block("a"), block("b")]}),
        _ => {
            json!({"responseId": "r1", "candidates": [{"content": {"role": "model", "parts": [part, part]}}]})
        }
    }
}

async fn messages(served: &Served, wire: &str) -> String {
    let path = format!("/v1/sessions/{wire}/batches?wire={wire}&turn=1");
    served.post(&path, response(wire)).await.expect(200)["messages"].to_string()
}

#[tokio::test]
async fn an_image_of_an_artifact_is_an_image_in_every_wire() {
    let served = served(1_000).await;
    for wire in ["openai_chat", "openai_responses", "anthropic", "gemini"] {
        let told = messages(&served, wire).await;
        assert_eq!(told.matches(PICTURE.1).count(), 2, "{wire}: {told}");
        assert!(!told.contains("read_artifact"), "{wire}: {told}");
    }
}

#[tokio::test]
async fn images_past_the_limit_are_named() {
    let bytes = PICTURE.0.len() as u64;
    for (limit, shown) in [(2 * bytes - 1, 1), (bytes, 1), (bytes - 1, 0)] {
        let served = served(limit).await;
        let told = messages(&served, "anthropic").await;
        assert_eq!(told.matches(PICTURE.1).count(), shown, "{limit}: {told}");
        assert_eq!(told.matches("read_artifact").count(), 2 - shown, "{limit}: {told}");
    }
}
