//! Streamed responses: the same turn as the whole one, with each call handed out as soon as it is complete.

use crate::turns::fixture;
use proptest::prelude::*;
use serde_json::Value;
use windlass_wire::{ModelCall, ModelTurn, SseReader, StreamReader, Wire, WireError};

fn stream(wire: Wire) -> &'static str {
    match wire {
        Wire::OpenaiChat => include_str!("../fixtures/openai_chat.sse"),
        Wire::OpenaiResponses => include_str!("../fixtures/openai_responses.sse"),
        Wire::Anthropic => include_str!("../fixtures/anthropic.sse"),
        Wire::Gemini => include_str!("../fixtures/gemini.sse"),
        _ => unreachable!("a wire without a stream"),
    }
}

fn events(bytes: &[u8]) -> Vec<String> {
    SseReader::new(1 << 20).push(bytes).unwrap()
}

fn read(wire: Wire, events: &[String]) -> (Vec<ModelCall>, Result<ModelTurn, WireError>) {
    let mut reader = StreamReader::new(wire);
    let calls = events.iter().flat_map(|event| reader.push(event).unwrap()).collect();
    (calls, reader.finish())
}

#[test]
fn a_streamed_response_is_the_same_turn_as_the_whole_one() {
    for wire in Wire::ALL {
        let whole = wire.read(fixture(wire)).unwrap();
        let (calls, turn) = read(wire, &events(stream(wire).as_bytes()));
        let turn = turn.unwrap();
        assert_eq!(calls, turn.calls, "{wire}");
        assert_eq!(turn.response_id, whole.response_id, "{wire}");
        for (streamed, whole) in turn.calls.iter().zip(&whole.calls) {
            let canonical = |args: &str| {
                serde_json::from_str::<Value>(if args.is_empty() { "{}" } else { args }).unwrap()
            };
            assert_eq!(canonical(&streamed.args), canonical(&whole.args), "{wire}");
            assert_eq!((&streamed.id, &streamed.tool), (&whole.id, &whole.tool), "{wire}");
            let data = |call: &ModelCall| {
                call.provider.as_deref().map(|text| serde_json::from_str::<Value>(text).unwrap())
            };
            assert_eq!(data(streamed), data(whole), "{wire}");
            assert_eq!(
                streamed.args.contains("12345678901234567890123"),
                whole.args.contains("12345678901234567890123")
            );
        }
        let said = |turn: &ModelTurn| -> Vec<Value> {
            turn.messages(&[])
                .iter()
                .map(|message| without_nulls(serde_json::from_str(message.get()).unwrap()))
                .collect()
        };
        assert_eq!(said(&turn), said(&whole), "{wire}");
    }
}

/// A field that is `null` or an empty list says nothing; streams leave such fields out.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let says = |value: &Value| !value.is_null() && *value != Value::Array(Vec::new());
            fields
                .into_iter()
                .filter(|(_, value)| says(value))
                .map(|(key, value)| (key, without_nulls(value)))
                .collect()
        }
        Value::Array(values) => values.into_iter().map(without_nulls).collect(),
        other => other,
    }
}

#[test]
fn the_first_call_is_complete_while_the_second_still_arrives() {
    for wire in Wire::ALL {
        let events = events(stream(wire).as_bytes());
        let mut reader = StreamReader::new(wire);
        let mut seen = Vec::new();
        for (place, event) in events.iter().enumerate() {
            for call in reader.push(event).unwrap() {
                assert!(reader.response_id().is_some(), "{wire}: the key is known with the first call");
                seen.push((place, call.tool));
            }
        }
        let [(first, _), (second, _)] = seen.as_slice() else { panic!("{wire}: {seen:?}") };
        assert!(first < second, "{wire}: {seen:?}");
    }
}

#[test]
fn arguments_that_were_cut_off_stay_as_they_came() {
    let events = [
        r#"{"type":"message_start","message":{"id":"msg_1"}}"#,
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"t","name":"a","input":{}}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\"x\": 1"}}"#,
        r#"{"type":"content_block_stop","index":0}"#,
        r#"{"type":"message_delta","delta":{"stop_reason":"max_tokens"}}"#,
        r#"{"type":"message_stop"}"#,
    ];
    let (_, turn) = read(Wire::Anthropic, &events.map(str::to_owned));
    let turn = turn.unwrap();
    assert_eq!(turn.calls[0].args, "{\"x\": 1");
    assert!(turn.messages(&[])[0].get().contains(r#""input":{}"#), "what is appended is valid");
}

#[test]
fn servers_that_number_all_calls_alike_are_understood() {
    let chunk = |id: &str| {
        format!(
            r#"{{"id":"c","choices":[{{"index":0,"delta":{{"tool_calls":[{{"index":0,"id":"{id}","function":{{"name":"a","arguments":"{{}}"}}}}]}}}}]}}"#
        )
    };
    let end = r#"{"id":"c","choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}"#.to_owned();
    let (calls, turn) = read(Wire::OpenaiChat, &[chunk("1"), chunk("2"), end]);
    assert_eq!(calls.iter().map(|call| call.id.as_str()).collect::<Vec<_>>(), ["1", "2"]);
    assert_eq!(turn.unwrap().calls, calls);
}

#[test]
fn a_stream_of_another_wire_is_refused_at_its_first_event_and_its_wire_named() {
    for of in Wire::ALL {
        let events = events(stream(of).as_bytes());
        for wire in Wire::ALL.into_iter().filter(|wire| *wire != of) {
            let refused = StreamReader::new(wire).push(&events[0]).unwrap_err().to_string();
            assert!(refused.contains(&format!("it looks like one of {of}; name that wire")), "{refused}");
        }
        let nothing = StreamReader::new(of).finish().unwrap_err().to_string();
        assert!(nothing.contains("application/json"), "{nothing}");
        let streamed = of.read(stream(of)).unwrap_err().to_string();
        assert!(streamed.contains("text/event-stream"), "{streamed}");
    }
}

#[test]
fn what_a_provider_reports_in_a_stream_is_told() {
    let mut told = String::new();
    let cases = [
        (Wire::OpenaiChat, r#"{"error": {"message": "overloaded"}}"#),
        (
            Wire::OpenaiResponses,
            r#"{"type": "response.failed", "response": {"id": "r", "error": {"code": "server_error"}}}"#,
        ),
        (Wire::OpenaiResponses, r#"{"type": "error", "message": "rate limit"}"#),
        (
            Wire::Anthropic,
            r#"{"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}"#,
        ),
        (Wire::Anthropic, r#"{"type": "content_block_delta", "index": 3, "delta": {}}"#),
        (Wire::Gemini, r#"{"error": {"code": 503, "status": "UNAVAILABLE"}}"#),
        (
            Wire::Gemini,
            r#"{"candidates": [{"content": {"parts": [{"functionCall": {"name": "a", "willContinue": true}}]}}]}"#,
        ),
    ];
    for (wire, event) in cases {
        told += &format!("{wire}: {}\n", StreamReader::new(wire).push(event).unwrap_err());
    }
    insta::assert_snapshot!(told);
}

proptest! {
    #[test]
    fn a_stream_that_was_cut_is_never_taken_for_a_whole_one(wire in 0_usize..4, cut in 0.0_f64..1.0) {
        let wire = Wire::ALL[wire];
        let bytes = stream(wire).as_bytes();
        let whole = events(bytes);
        let cut = events(&bytes[..(bytes.len() as f64 * cut) as usize]);
        let (calls, turn) = read(wire, &cut);
        let (all, _) = read(wire, &whole);
        prop_assert!(all.starts_with(&calls), "a call is handed out complete or not at all");
        if let Ok(turn) = turn {
            prop_assert_eq!(turn.calls, all);
        }
    }
}
