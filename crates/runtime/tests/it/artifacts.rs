//! Output too long for an answer.

use crate::rig::{batch, call, n, one, quick, returns, run, spec, sqlite};
use serde_json::{Value, json};
use windlass::store::memory::MemoryStore;
use windlass::{Config, Cx, EffectClass, Flags, Limits, Output, Runtime, ToolSpec, tool_fn};
use windlass_core::handle::Handle;

/// A tool that reads an artifact back.
pub fn reader(runtime: &Runtime) {
    let tool = tool_fn(quick("reader", EffectClass::Read), |args: Value, cx: &Cx| {
        let artifact = args["artifact"].as_str().and_then(Handle::parse).unwrap();
        let (offset, len) = (args["offset"].as_u64().unwrap(), args["len"].as_u64().unwrap());
        // The context outlives the attempt only as far as it is read here.
        let bytes = futures_lite_block(cx.read_artifact(artifact, offset, len));
        async move { Ok(json!(String::from_utf8(bytes.unwrap()).unwrap()).into()) }
    });
    runtime.register(tool).unwrap();
}

/// Reading from these stores answers at once.
fn futures_lite_block<F: Future>(future: F) -> F::Output {
    let mut future = std::pin::pin!(future);
    match future.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop())) {
        std::task::Poll::Ready(output) => output,
        std::task::Poll::Pending => panic!("it answers at once"),
    }
}

#[tokio::test]
async fn a_long_value_is_kept_whole_and_told_by_its_ends() {
    let (runtime, _folder) = sqlite();
    reader(&runtime);
    let text: String = (0..40_000).map(|line| format!("line {line}\n")).collect();
    runtime.register(returns(spec("long", EffectClass::Once), Ok(json!(text)))).unwrap();
    let before = runtime.store().commits();
    let answer = one(&runtime, "long", json!({})).await;
    assert_eq!(runtime.store().commits() - before, 2, "what is kept travels with the result");
    let kept = &answer["outcome"]["kept"];
    assert_eq!((kept["bytes"].as_u64(), kept["form"].as_str()), (Some(text.len() as u64), Some("text")));
    let parts = answer["model"]["parts"].as_array().unwrap();
    let shown = parts[0]["text"].as_str().unwrap();
    assert!(shown.starts_with("line 0\n") && shown.trim_end().ends_with("line 39999"), "{shown}");
    let read_on: Value = serde_json::from_str(parts[1]["text"].as_str().unwrap()).unwrap();
    assert_eq!(
        (read_on["total"].as_u64(), &read_on["artifact"]),
        (Some(text.len() as u64), &kept["artifact"])
    );

    let offset = read_on["next_offset"].as_u64().unwrap();
    let args = json!({"artifact": kept["artifact"], "offset": offset, "len": 1000});
    let piece = one(&runtime, "reader", args).await;
    assert_eq!(piece["outcome"]["value"].as_str().unwrap(), &text[offset as usize..offset as usize + 1000]);
}

#[tokio::test]
async fn a_long_json_value_stays_json() {
    let (runtime, _folder) = sqlite();
    let list: Vec<u64> = (0..50_000).collect();
    runtime
        .register(returns(spec("long", EffectClass::Read), Ok(json!({"list": list, "more": true}))))
        .unwrap();
    let answer = one(&runtime, "long", json!({})).await;
    let shown: Value = serde_json::from_str(answer["model"]["parts"][0]["text"].as_str().unwrap()).unwrap();
    assert_eq!(shown["more"], true);
    assert_eq!(answer["outcome"]["kept"]["form"], "json");
}

#[tokio::test]
async fn output_is_streamed_in_pieces_and_bounded() {
    let limits = Limits { chunk_bytes_max: 1_000, artifact_bytes_max: 100_000, ..Limits::default() };
    let runtime = Runtime::new(Config { limits, ..Config::new(MemoryStore::new().unwrap()) });
    reader(&runtime);
    let tool = tool_fn(spec("stream", EffectClass::Once), |args: Value, cx: &Cx| {
        let (mut kept, bytes) = (cx.keep(), args["n"].as_u64().unwrap() as usize);
        async move {
            for piece in "0123456789".repeat(bytes / 10).as_bytes().chunks(777) {
                kept.write(piece).await?;
            }
            Ok(Output { kept: Some(kept.finish("text/plain").await?), ..Output::default() })
        }
    });
    runtime.register(tool).unwrap();
    let answer = one(&runtime, "stream", n(90_000)).await;
    let kept = &answer["outcome"]["kept"];
    assert_eq!(kept["bytes"], 90_000);
    let piece =
        one(&runtime, "reader", json!({"artifact": kept["artifact"], "offset": 990, "len": 20})).await;
    assert_eq!(piece["outcome"]["value"], "01234567890123456789");
    let refused = one(&runtime, "stream", n(110_000)).await;
    let failure = &refused["outcome"]["failure"];
    assert_eq!(
        (failure["class"].as_str(), failure["source"].as_str()),
        (Some("resource_limit"), Some("tool"))
    );
}

#[tokio::test]
async fn persisted_output_is_kept_however_short() {
    let (runtime, _folder) = sqlite();
    let flags = Flags { persist_output: true, ..Flags::default() };
    let kept = ToolSpec { flags, ..spec("kept", EffectClass::Read) };
    runtime.register(returns(kept, Ok(json!("short")))).unwrap();
    let answer = run(&runtime, "s", batch("k", vec![call("c", "kept", n(1))])).await;
    assert_eq!(answer.calls[0].model_text(), "short");
    let shown = serde_json::to_value(&answer.calls[0]).unwrap();
    assert_eq!(shown["outcome"]["kept"]["bytes"], 5);
}
