//! How calls end, and what model and operator are told.

use crate::rig::{Count, batch, call, echo, memory, n, one, quick, returns, run, spec, states};
use serde_json::{Value, json};
use windlass::{
    Args, BatchRequest, CallRequest, Cx, EffectClass, Flags, Output, Runtime, ToolError, ToolSpec, tool_fn,
};
use windlass_core::failure::FailureClass;
use windlass_core::handle::Handle;

fn with_tools() -> Runtime {
    let runtime = memory();
    let read = |name| quick(name, EffectClass::Read);
    let schema = json!({
        "type": "object", "properties": {"message": {"type": "string"}},
        "required": ["message"], "additionalProperties": false,
    });
    let strict = ToolSpec { input_schema: Some(schema), ..read("echo") };
    runtime.register(echo(strict, &Count::default())).unwrap();
    runtime.register(echo(read("any"), &Count::default())).unwrap();
    runtime.register(returns(read("text"), Ok(json!("two\nlines")))).unwrap();
    runtime.register(returns(read("broken"), Err(ToolError::internal("password=hunter2")))).unwrap();
    let outside = ToolError {
        class: FailureClass::External,
        tool_code: Some("E42".into()),
        detail: Some("host db-3".into()),
        ..ToolError::new("the other side said no")
    };
    runtime.register(returns(read("outside"), Err(outside.did_not_happen()))).unwrap();
    let promises = ToolSpec { output_schema: Some(json!({"type": "integer"})), ..read("promises") };
    runtime.register(returns(promises, Ok(json!({"not": "a number"})))).unwrap();
    runtime
}

fn text(answer: &Value) -> &str {
    answer["model"]["parts"][0]["text"].as_str().unwrap()
}

#[tokio::test]
async fn a_call_is_shown_in_one_shape() {
    let runtime = with_tools();
    let answer = one(&runtime, "echo", json!({"message": "hi"})).await;
    let expected = json!({
        "id": "c", "tool": "echo", "state": "succeeded", "attempts": 1,
        "outcome": {"value": {"message": "hi"}, "parts": []},
        "model": {"parts": [{"type": "text", "text": "{\"message\":\"hi\"}"}]},
    });
    assert_eq!(answer, expected);
    assert_eq!(text(&one(&runtime, "text", json!({})).await), "two\nlines");
}

#[tokio::test]
async fn a_tool_error_is_told_to_the_model_and_its_detail_is_not() {
    let answer = one(&with_tools(), "outside", json!({})).await;
    let failure = json!({
        "class": "external", "code": "tool_failed", "source": "tool", "message": "the other side said no",
        "retry": {"exhausted": {"attempts": 3}}, "did_not_happen": true, "tool_code": "E42",
    });
    assert_eq!(answer["outcome"]["failure"], failure);
    assert_eq!(text(&answer), r#"{"error":"the other side said no","code":"tool_failed","tool_code":"E42"}"#);
    assert_eq!(answer["model"]["is_error"], true);
    assert!(!answer.to_string().contains("db-3"));
}

#[tokio::test]
async fn an_internal_error_stays_inside() {
    let runtime = with_tools();
    let answer = run(&runtime, "s", batch("k", vec![call("c", "broken", json!({}))])).await;
    let call = &answer.calls[0];
    let reference = call.handle().to_string();
    assert!(call.model_text().contains(&reference), "{}", call.model_text());
    assert!(!serde_json::to_string(&answer).unwrap().contains("hunter2"));
    assert_eq!(call.failure().unwrap().detail.as_deref(), Some("password=hunter2"), "operators see it");
}

#[tokio::test]
async fn a_panic_harms_nobody_else() {
    let runtime = with_tools();
    for (name, flags) in [
        ("quick", Flags { quick: true, ..Flags::default() }),
        ("task", Flags::default()),
        ("computing", Flags { cpu_bound: true, ..Flags::default() }),
    ] {
        let spec =
            ToolSpec { name: name.into(), class: Some(EffectClass::Read), flags, ..ToolSpec::default() };
        // One panics before it has made its future, the others while it is polled.
        let early = flags.quick;
        let tool = tool_fn(spec, move |_, _: &Cx| {
            assert!(!early, "early secret");
            async { panic!("late secret") }
        });
        runtime.register(tool).unwrap();
    }
    let calls = vec![
        call("1", "quick", json!({})),
        call("2", "task", json!({})),
        call("3", "computing", json!({})),
        call("4", "echo", json!({"message": "unharmed"})),
    ];
    let answer = run(&runtime, "s", batch("k", calls)).await;
    assert_eq!(
        states(&answer),
        "1 failed/tool_panicked, 2 failed/tool_panicked, 3 failed/tool_panicked, 4 succeeded"
    );
    assert!(!serde_json::to_string(&answer).unwrap().contains("secret"));
    let told = answer.calls[1].failure().unwrap().detail.clone();
    assert_eq!(told.as_deref(), Some("late secret"));
}

#[tokio::test]
async fn a_result_that_breaks_its_promise_is_kept_and_refused() {
    let answer = one(&with_tools(), "promises", json!({})).await;
    let failure = &answer["outcome"]["failure"];
    assert_eq!(
        (failure["class"].as_str(), failure["code"].as_str()),
        (Some("execution"), Some("invalid_output"))
    );
    assert_eq!(failure["raw"], r#"{"not":"a number"}"#);
}

#[tokio::test]
async fn a_result_that_cannot_be_checked_is_kept_and_refused() {
    for class in [EffectClass::Read, EffectClass::Keyed, EffectClass::Once] {
        let runtime = memory();
        let promises = ToolSpec { output_schema: Some(json!({})), ..spec("streams", class) };
        let tool = tool_fn(promises, |_, cx: &Cx| {
            let mut kept = cx.keep();
            async move {
                kept.write(b"{}").await?;
                Ok(Output { kept: Some(kept.finish("text/plain").await?), ..Output::default() })
            }
        });
        runtime.register(tool).unwrap();
        let answer = one(&runtime, "streams", json!({})).await;
        let failure = &answer["outcome"]["failure"];
        assert_eq!(
            (failure["class"].as_str(), failure["code"].as_str(), answer["attempts"].as_u64()),
            (Some("execution"), Some("invalid_output"), Some(1)),
            "{class}"
        );
        let message = failure["message"].as_str().unwrap();
        let kept = message.rsplit("kept as artifact ").next().unwrap().trim_end_matches('.');
        let found = runtime.artifact(Handle::parse(kept).unwrap()).await.unwrap();
        assert_eq!(found.map(|found| found.bytes), Some(2), "{message}");
    }
}

#[tokio::test]
async fn what_cannot_be_prepared_is_answered_without_an_attempt() {
    let runtime = with_tools();
    let call = |id: &str, tool: &str, args| CallRequest {
        id: Some(id.into()),
        tool: tool.into(),
        args,
        ..CallRequest::default()
    };
    let mut deep = Value::Null;
    for _ in 0..100_000 {
        deep = Value::Array(vec![deep]);
    }
    let text = |text: &str| Args::Text(text.to_string());
    let calls = vec![
        call("misspelt", "ehco", text("{}")),
        call("wrong", "echo", text(r#"{"mesage": "hi"}"#)),
        call("broken", "any", text("{\"a\": ")),
        call("twice", "any", text(r#"{"a": 1, "a": 2}"#)),
        call("rounded", "any", text(r#"{"a": 123456789012345678901234567890}"#)),
        call("deep", "any", text(&"[".repeat(100_000))),
        call("deeper", "any", Args::Json(deep)),
        call("large", "any", text(&format!("\"{}\"", "x".repeat(1 << 20)))),
        call("number", "any", text("7")),
        call("absent", "any", text("")),
        call("null", "any", Args::Json(Value::Null)),
    ];
    let answer = run(&runtime, "s", batch("k", calls)).await;
    let expected = "misspelt failed/no_such_tool, wrong failed/invalid_args, broken failed/invalid_json, \
                    twice failed/duplicate_key, rounded failed/inexact_number, deep failed/too_deep, \
                    deeper failed/too_deep, large failed/too_large, number failed/invalid_args, absent succeeded, \
                    null succeeded";
    assert_eq!(states(&answer), expected);
    assert!(
        answer.calls.iter().filter(|call| call.failure().is_some()).all(|call| call.call().attempts == 0)
    );
    assert!(
        answer.calls[0].model_text().contains("Did you mean \\\"echo\\\"?"),
        "{}",
        answer.calls[0].model_text()
    );
    assert!(answer.calls[1].model_text().contains("message"), "{}", answer.calls[1].model_text());
}

#[tokio::test]
async fn provider_data_comes_back_with_the_answer() {
    let runtime = with_tools();
    let call = CallRequest { provider: Some(json!({"signature": "x"}).into()), ..call("c", "any", n(1)) };
    let answer = run(&runtime, "s", batch("k", vec![call])).await;
    assert_eq!(serde_json::to_value(&answer.calls[0]).unwrap()["provider"], json!({"signature": "x"}));
}

#[tokio::test]
async fn a_batch_of_the_wrong_shape_is_refused_whole() {
    let runtime = with_tools();
    let ran = Count::default();
    runtime.register(echo(spec("counted", EffectClass::Read), &ran)).unwrap();
    let good = || call("a", "counted", n(1));
    let named = |id: &str| call(id, "counted", n(1));
    let cases: Vec<(&str, BatchRequest, &str)> = vec![
        ("s", batch("", vec![good()]), "key"),
        ("s", batch("k", vec![good(), named("")]), "calls[1].id"),
        ("s", batch("k", vec![good(), named(&"x".repeat(129))]), "calls[1].id"),
        ("s", batch("k", vec![good(), named("a\nb")]), "printable"),
        ("s", batch("k", (0..257).map(|i| named(&i.to_string())).collect()), "256"),
        ("no such/name", batch("k", vec![good()]), "session"),
    ];
    for (session, batch, names) in cases {
        let refused = runtime.submit(session, batch).await.map(|_| ()).unwrap_err().to_string();
        assert!(refused.contains(names), "{refused:?} names {names:?}");
    }
    let empty = runtime.submit("s", batch("k", Vec::new())).await.unwrap().settled().await.unwrap();
    assert_eq!((empty.calls.len(), ran.get()), (0, 0));
}

#[tokio::test]
async fn nothing_a_tool_or_caller_says_grows_without_bound() {
    let runtime = with_tools();
    let long = "x".repeat(1 << 20);
    let read = |name| quick(name, EffectClass::Read);
    runtime.register(returns(read("talks"), Err(ToolError::new(long.clone())))).unwrap();
    runtime.register(returns(read("mutters"), Err(ToolError::internal(long.clone())))).unwrap();
    let promises = ToolSpec { output_schema: Some(json!({"type": "integer"})), ..read("long_promise") };
    runtime.register(returns(promises, Ok(json!(long.clone())))).unwrap();
    let calls = ["talks", "mutters", "long_promise"].map(|tool| call(tool, tool, json!({}))).into();
    let answer = run(&runtime, "s", batch("k", calls)).await;
    for call in &answer.calls {
        let failure = call.failure().unwrap();
        let kept = failure.message.len() + failure.detail.as_ref().map_or(0, String::len);
        assert!(kept < 60_000 && failure.raw.is_none(), "{}: {kept} bytes", call.id());
    }
    assert!(answer.calls[2].failure().unwrap().message.contains("kept as artifact"));
    let text = |text: &str| Args::Text(format!("{{\"a\": \"{text}\"}}"));
    let huge =
        |fill: &str| CallRequest { args: text(&fill.repeat(5 << 20)), ..call("huge", "any", json!({})) };
    let answer = run(&runtime, "s", batch("huge", vec![huge("x")])).await;
    assert_eq!(states(&answer), "huge failed/too_large");
    assert!(answer.calls[0].call().opened.args.text.len() < 200);
    let again = vec![huge("x")];
    assert_eq!(states(&run(&runtime, "s", batch("huge", again)).await), "huge failed/too_large");
    let other = vec![huge("y")];
    assert_eq!(states(&run(&runtime, "s", batch("huge", other)).await), "huge failed/conflict");
    let cases = [
        BatchRequest { turn: Some(long.clone()), ..batch("k2", vec![call("a", "any", n(1))]) },
        batch("k2", vec![CallRequest { provider: Some(json!(long + "x").into()), ..call("a", "any", n(1)) }]),
    ];
    for case in cases {
        assert!(runtime.submit("s", case).await.is_err());
    }
    let long_name = "x".repeat(1 << 20);
    let answer = run(&runtime, "s", batch("k3", vec![call("a", &long_name, n(1))])).await;
    assert_eq!(states(&answer), "a failed/no_such_tool");
    assert!(answer.calls[0].tool().len() < 300);
}

#[tokio::test]
async fn a_batch_does_not_grow_past_its_limit() {
    let runtime = with_tools();
    let calls = |from: u64, to: u64| (from..to).map(|i| call(&i.to_string(), "any", n(i))).collect();
    run(&runtime, "s", batch("k", calls(0, 200))).await;
    let refused = runtime.submit("s", batch("k", calls(150, 257))).await.map(|_| ()).unwrap_err();
    assert!(refused.to_string().contains("more than 256"), "{refused}");
    assert_eq!(run(&runtime, "s", batch("k", calls(150, 256))).await.calls.len(), 106);
}
