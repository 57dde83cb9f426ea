//! Whole responses.

use serde_json::{Value, json};
use windlass_wire::{Wire, WireError, batch_key};

/// A response of each wire as its provider documents it, with a call that has a number no float can hold.
pub fn fixture(wire: Wire) -> &'static str {
    match wire {
        Wire::OpenaiChat => include_str!("../fixtures/openai_chat.json"),
        Wire::OpenaiResponses => include_str!("../fixtures/openai_responses.json"),
        Wire::Anthropic => include_str!("../fixtures/anthropic.json"),
        Wire::Gemini => include_str!("../fixtures/gemini.json"),
        _ => unreachable!("a wire without a fixture"),
    }
}

#[test]
fn calls_are_read_with_their_ids_arguments_and_provider_data() {
    let mut told = String::new();
    for wire in Wire::ALL {
        let turn = wire.read(fixture(wire)).unwrap();
        told += &format!("{wire} {}\n", turn.response_id.as_deref().unwrap());
        for call in &turn.calls {
            told += &format!("  {} {} {:?} {:?}\n", call.id, call.tool, call.args, call.provider);
        }
    }
    insta::assert_snapshot!(told);
}

#[test]
fn what_the_assistant_said_stays_the_bytes_that_came() {
    for wire in Wire::ALL {
        let turn = wire.read(fixture(wire)).unwrap();
        let messages = turn.messages(&[]);
        assert!(!messages.is_empty());
        for message in messages {
            let text = message.get();
            let content = match wire {
                Wire::Anthropic => &text[text.find('[').unwrap()..=text.rfind(']').unwrap()],
                Wire::Gemini => {
                    // Its parts, one by one: our brackets around them have no spaces.
                    assert!(text.contains(r#""thoughtSignature": "CiQBVKhc7n+/RkA=""#), "{text}");
                    assert!(text.contains("12345678901234567890123"), "{text}");
                    continue;
                }
                _ => text,
            };
            assert!(fixture(wire).contains(content), "{wire}: {content}");
        }
    }
}

#[test]
fn the_message_alone_is_read_too_and_has_no_id() {
    for wire in Wire::ALL {
        let whole: Value = serde_json::from_str(fixture(wire)).unwrap();
        let message = match wire {
            Wire::OpenaiChat => &whole["choices"][0]["message"],
            Wire::OpenaiResponses => &whole["output"],
            Wire::Gemini => &whole["candidates"][0]["content"],
            _ => &json!({"role": "assistant", "content": whole["content"]}),
        };
        let turn = wire.read(&message.to_string()).unwrap();
        assert_eq!((turn.calls.len(), turn.response_id.as_deref()), (2, None), "{wire}");
        batch_key(wire, turn.response_id.as_deref(), None).unwrap_err();
        batch_key(wire, turn.response_id.as_deref(), Some("3")).unwrap();
    }
}

#[test]
fn an_answer_without_calls_ends_the_turn() {
    let answers = [
        (Wire::OpenaiChat, r#"{"role": "assistant", "content": "Done."}"#),
        (Wire::OpenaiResponses, r#"[{"type": "message", "role": "assistant", "content": []}]"#),
        (Wire::Anthropic, r#"{"role": "assistant", "content": "Done."}"#),
        (Wire::Gemini, r#"{"parts": [{"text": "Done."}], "role": "model"}"#),
    ];
    for (wire, answer) in answers {
        let turn = wire.read(answer).unwrap();
        assert!(turn.is_over(), "{wire}");
        assert_eq!(turn.messages(&[]).len(), 1, "{wire}");
    }
}

#[test]
fn calls_without_an_id_are_named_by_their_place() {
    let parts = r#"{"parts": [{"functionCall": {"name": "a"}}, {"text": "-"}, {"functionCall": {"name": "a", "args": null}}]}"#;
    let turn = Wire::Gemini.read(parts).unwrap();
    let ids: Vec<_> = turn.calls.iter().map(|call| (call.id.as_str(), call.args.as_str())).collect();
    assert_eq!(ids, [("a#1", ""), ("a#2", "")]);
    let message = r#"{"role": "assistant", "tool_calls": [{"id": "", "type": "function", "function": {"name": "a", "arguments": "{}"}}]}"#;
    assert_eq!(Wire::OpenaiChat.read(message).unwrap().calls[0].id, "a#1");
}

#[test]
fn responses_that_cannot_be_read_say_why() {
    let mut told = String::new();
    let cases = [
        (Wire::OpenaiChat, "{"),
        (Wire::OpenaiChat, "[]"),
        (Wire::OpenaiChat, r#"{"role": "user", "content": "x"}"#),
        (Wire::OpenaiChat, r#"{"id": "x", "choices": []}"#),
        (Wire::OpenaiChat, r#"{"role": "assistant", "tool_calls": [{"id": "a"}]}"#),
        (Wire::OpenaiChat, r#"{"role": "assistant", "tool_calls": [{"id": "a", "id": "b"}]}"#),
        (Wire::OpenaiChat, r#"{"role": "assistant", "function_call": {"name": "a", "arguments": ""}}"#),
        (
            Wire::OpenaiChat,
            r#"{"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "a", "input": {}}]}"#,
        ),
        (
            Wire::OpenaiChat,
            r#"{"role": "assistant", "content": [{"type": "text", "text": "x"}], "stop_reason": "end_turn"}"#,
        ),
        (Wire::Anthropic, r#"{"role": "assistant", "content": "x", "tool_calls": []}"#),
        (Wire::OpenaiResponses, r#"{"id": "resp_1"}"#),
        (Wire::OpenaiResponses, r#"[{"name": "a"}]"#),
        (Wire::OpenaiResponses, r#"[{"type": "function_call", "name": "a", "arguments": "{}"}]"#),
        (Wire::Anthropic, r#"{"type": "error", "error": {"type": "overloaded_error"}}"#),
        (Wire::Anthropic, r#"{"role": "assistant", "content": [{"type": "tool_use", "name": "a"}]}"#),
        (Wire::Gemini, r#"{"error": {"code": 429}}"#),
        (Wire::Gemini, r#"{"candidates": [{}, {}]}"#),
        (Wire::Gemini, r#"{"parts": [{"functionCall": {"args": {}}}]}"#),
    ];
    for (wire, response) in cases {
        told += &format!("{response}\n  {}\n", wire.read(response).unwrap_err());
    }
    insta::assert_snapshot!(told);
}

#[test]
fn deep_and_large_responses_are_refused_or_read_without_harm() {
    let deep =
        format!(r#"{{"role": "assistant", "content": {}1{}}}"#, "[".repeat(100_000), "]".repeat(100_000));
    for wire in Wire::ALL {
        // Whether it is read or refused: it neither overflows the stack nor takes long.
        let _: Result<_, WireError> = wire.read(&deep);
    }
    let fields: Vec<String> = (0..200_000).map(|n| format!("\"k{n}\":1")).collect();
    let wide = format!(r#"{{"role":"assistant","tool_calls":[{{{}}}]}}"#, fields.join(","));
    Wire::OpenaiChat.read(&wide).unwrap_err();
}

#[test]
fn an_id_that_no_batch_takes_is_replaced_and_the_result_still_carries_it() {
    let id = format!("call_1__thought__{}", "A".repeat(400));
    let message = format!(
        r#"{{"role": "assistant", "tool_calls": [{{"id": "{id}", "function": {{"name": "a", "arguments": "{{}}"}}}}]}}"#
    );
    let turn = Wire::OpenaiChat.read(&message).unwrap();
    assert_eq!(turn.calls[0].id.len(), 35, "{}", turn.calls[0].id);
    assert_eq!(Wire::OpenaiChat.read(&message).unwrap().calls, turn.calls, "the same id each time");
    let answer = windlass_core::outcome::ModelAnswer::default();
    let results = [windlass_wire::CallResult { call: &turn.calls[0], answer: &answer }];
    assert!(turn.messages(&results)[1].get().contains(&id));
}

#[test]
fn a_provider_that_paused_goes_on_and_one_that_failed_has_no_turn() {
    let paused = r#"{"id": "msg_1", "role": "assistant", "content": [], "stop_reason": "pause_turn"}"#;
    let turn = Wire::Anthropic.read(paused).unwrap();
    assert!(turn.calls.is_empty() && !turn.is_over());
    for wrong in [
        r#"{"id": "resp_1", "output": [], "status": "failed", "error": {"code": "server_error"}}"#,
        r#"{"id": "resp_1", "output": [], "status": "in_progress"}"#,
    ] {
        let error = Wire::OpenaiResponses.read(wrong).unwrap_err();
        assert!(matches!(error, WireError::Incomplete { .. }), "{error}");
    }
}
