//! Any calls, written as each provider writes them: whole, as the message alone and streamed in any pieces, they are read the same.

use proptest::prelude::*;
use serde_json::{Value, json};
use windlass_core::outcome::{ModelAnswer, Part};
use windlass_wire::{CallResult, ModelCall, StreamReader, Wire};

/// A call as a model asks for it.
#[derive(Clone, Debug)]
struct AskedCall {
    name: String,
    args: Value,
    /// Where its arguments are cut in a stream.
    cut: usize,
}

fn asked() -> impl Strategy<Value = Vec<AskedCall>> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "\\PC{0,12}".prop_map(Value::from),
        "[\"\\\\\u{202e}\n\t/<]{0,6}".prop_map(Value::from),
    ];
    let value =
        leaf.prop_recursive(3, 12, 3, |inner| prop::collection::vec(inner, 0..3).prop_map(Value::from));
    let args = prop::collection::btree_map("\\PC{0,8}", value, 0..4);
    let args = args.prop_map(|fields| Value::Object(fields.into_iter().collect()));
    let call = ("[a-zA-Z_][a-zA-Z0-9_-]{0,40}", args, 0..64usize);
    prop::collection::vec(call.prop_map(|(name, args, cut)| AskedCall { name, args, cut }), 0..4)
}

fn id(place: usize) -> String {
    format!("call_{place}")
}

/// The whole response, and the message in it.
fn whole(wire: Wire, calls: &[AskedCall]) -> (Value, Value) {
    let each = calls.iter().enumerate();
    match wire {
        Wire::OpenaiChat => {
            let calls: Vec<Value> = each
                .map(|(place, call)| {
                    let function = json!({"name": call.name, "arguments": call.args.to_string()});
                    json!({"id": id(place), "type": "function", "function": function})
                })
                .collect();
            let message = json!({"role": "assistant", "content": "Hm.", "tool_calls": calls});
            (json!({"id": "r", "choices": [{"index": 0, "message": message}]}), message)
        }
        Wire::OpenaiResponses => {
            let output: Value = each.map(|(place, call)| item(place, call)).collect();
            (json!({"id": "r", "status": "completed", "output": output}), output)
        }
        Wire::Anthropic => {
            let content: Value = each
                .map(|(place, call)| json!({"type": "tool_use", "id": id(place), "name": call.name, "input": call.args}))
                .collect();
            let message = json!({"role": "assistant", "content": content});
            (json!({"id": "r", "type": "message", "role": "assistant", "content": content}), message)
        }
        _ => {
            let parts: Value = each.map(|(place, call)| part(place, call)).collect();
            let content = json!({"role": "model", "parts": parts});
            (
                json!({"responseId": "r", "candidates": [{"content": content, "finishReason": "STOP"}]}),
                content,
            )
        }
    }
}

fn item(place: usize, call: &AskedCall) -> Value {
    let args = call.args.to_string();
    json!({"type": "function_call", "id": format!("fc_{place}"), "call_id": id(place), "name": call.name, "arguments": args})
}

fn part(place: usize, call: &AskedCall) -> Value {
    json!({"functionCall": {"id": id(place), "name": call.name, "args": call.args}})
}

/// The events of the same response, each call in two pieces where the wire has pieces.
fn streamed(wire: Wire, calls: &[AskedCall]) -> Vec<Value> {
    let each = calls.iter().enumerate();
    let halves = |call: &AskedCall| {
        let text = call.args.to_string();
        let cut = text.floor_char_boundary(call.cut.min(text.len()));
        [text[..cut].to_owned(), text[cut..].to_owned()]
    };
    match wire {
        Wire::OpenaiChat => {
            let chunk = |delta: Value| json!({"id": "r", "choices": [{"index": 0, "delta": delta}]});
            let mut events = vec![chunk(json!({"role": "assistant", "content": "Hm."}))];
            for (place, call) in each {
                let head = json!({"index": place, "id": id(place), "type": "function", "function": {"name": call.name, "arguments": ""}});
                events.push(chunk(json!({"tool_calls": [head]})));
                events.extend(halves(call).map(|piece| {
                    chunk(json!({"tool_calls": [{"index": place, "function": {"arguments": piece}}]}))
                }));
            }
            events.push(json!({"id": "r", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}));
            events
        }
        Wire::OpenaiResponses => {
            let mut events = vec![json!({"type": "response.created", "response": {"id": "r"}})];
            events.extend(each.map(|(place, call)| {
                json!({"type": "response.output_item.done", "output_index": place, "item": item(place, call)})
            }));
            events.push(json!({"type": "response.completed", "response": {"id": "r"}}));
            events
        }
        Wire::Anthropic => {
            let mut events = vec![json!({"type": "message_start", "message": {"id": "r"}})];
            for (place, call) in each {
                let block = json!({"type": "tool_use", "id": id(place), "name": call.name, "input": {}});
                events.push(json!({"type": "content_block_start", "index": place, "content_block": block}));
                events.extend(halves(call).map(|piece| {
                    let delta = json!({"type": "input_json_delta", "partial_json": piece});
                    json!({"type": "content_block_delta", "index": place, "delta": delta})
                }));
                events.push(json!({"type": "content_block_stop", "index": place}));
            }
            events.extend([
                json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}}),
                json!({"type": "message_stop"}),
            ]);
            events
        }
        _ => {
            let chunk = |parts: Value| json!({"responseId": "r", "candidates": [{"content": {"role": "model", "parts": parts}}]});
            let mut events: Vec<Value> =
                each.map(|(place, call)| chunk(json!([part(place, call)]))).collect();
            events.push(json!({"responseId": "r", "candidates": [{"content": {"parts": []}, "finishReason": "STOP"}]}));
            events
        }
    }
}

/// The calls as they were asked for.
fn read_back(calls: &[ModelCall]) -> Vec<(String, String, Value)> {
    let args = |call: &ModelCall| serde_json::from_str(&call.args).unwrap();
    calls.iter().map(|call| (call.id.clone(), call.tool.clone(), args(call))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn calls_are_read_as_they_were_written_and_every_result_finds_its_call(calls in asked()) {
        let expected: Vec<_> =
            calls.iter().enumerate().map(|(place, call)| (id(place), call.name.clone(), call.args.clone())).collect();
        for wire in Wire::ALL {
            let (response, message) = whole(wire, &calls);
            let turn = wire.read(&response.to_string()).unwrap();
            prop_assert_eq!(&read_back(&turn.calls), &expected, "{}", wire);
            prop_assert_eq!(&read_back(&wire.read(&message.to_string()).unwrap().calls), &expected, "{}", wire);
            let mut reader = StreamReader::new(wire);
            let mut early = Vec::new();
            for event in streamed(wire, &calls) {
                early.extend(reader.push(&event.to_string()).unwrap());
            }
            prop_assert_eq!(&read_back(&early), &expected, "{}", wire);
            let streamed = reader.finish().unwrap();
            prop_assert_eq!(&read_back(&streamed.calls), &expected, "{}", wire);
            prop_assert_eq!(streamed.response_id.as_deref(), Some("r"));
            let answer = ModelAnswer { parts: vec![Part::Text("done".into())], is_error: false };
            let results: Vec<_> = turn.calls.iter().map(|call| CallResult { call, answer: &answer }).collect();
            let results: String = turn.messages(&results)[turn.assistant.len()..].iter().map(|message| message.get()).collect();
            for (id, ..) in &expected {
                prop_assert_eq!(results.matches(&format!("\"{id}\"")).count(), 1, "{}: {}", wire, results);
            }
        }
    }
}
