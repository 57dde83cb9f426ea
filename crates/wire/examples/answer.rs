//! Reads a provider's response from standard input, answers each call with its own arguments, and prints the tools, the
//! calls and the messages as one JSON object. The check against the providers' own clients uses it.
#![allow(clippy::print_stdout, reason = "its output is its purpose")]

use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::io::Read;
use windlass_core::outcome::{ModelAnswer, Part};
use windlass_wire::{CallResult, ToolOffer, Wire};

#[derive(Serialize)]
struct Report {
    calls: Vec<Value>,
    messages: Vec<Box<RawValue>>,
    notice: Vec<Box<RawValue>>,
    tools: Value,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let wire: Wire = std::env::args().nth(1).unwrap_or_default().parse()?;
    let mut response = String::new();
    std::io::stdin().read_to_string(&mut response)?;
    let turn = wire.read(&response)?;
    let image = Part::Image { media_type: "image/png".into(), data: b"\x89PNG\r\n\x1a\n"[..].into() };
    let answers: Vec<ModelAnswer> = turn
        .calls
        .iter()
        .enumerate()
        .map(|(place, call)| ModelAnswer {
            parts: vec![
                Part::Text(format!("arguments: {}", call.args)),
                image.clone(),
                Part::Json("{\"n\":1}".into()),
            ],
            is_error: place > 0,
        })
        .collect();
    let results: Vec<_> =
        turn.calls.iter().zip(&answers).map(|(call, answer)| CallResult { call, answer }).collect();
    let schema =
        json!({"type": "object", "properties": {"path": {"type": "string"}}, "additionalProperties": false});
    let offers = ["read_file", "7zip"].map(|name| ToolOffer {
        name: name.into(),
        description: "A tool.".into(),
        input_schema: Some(schema.clone()),
    });
    let calls = turn.calls.iter().map(|call| json!({"id": call.id, "tool": call.tool, "args": call.args}));
    let report = Report {
        calls: calls.collect(),
        messages: turn.messages(&results),
        notice: answers.first().map(|answer| wire.notice(answer)).unwrap_or_default(),
        tools: wire.tools(&offers),
    };
    println!("{}", serde_json::to_string(&report)?);
    Ok(())
}
