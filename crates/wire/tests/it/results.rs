//! Results as messages, and tools as lists.

use crate::turns::fixture;
use serde_json::{Value, json};
use windlass_core::handle::{Handle, HandleKind, Secret};
use windlass_core::outcome::{KeptBytes, ModelAnswer, Part};
use windlass_wire::{CallResult, ToolOffer, Wire};

fn image(media_type: &str) -> Part {
    Part::Image { media_type: media_type.into(), data: b"\x89PNG"[..].into() }
}

/// Possible answers of a tool: text around an image, exact JSON, a file, and an error.
fn answers() -> Vec<ModelAnswer> {
    let kept = KeptBytes { artifact: Handle::seal(&Secret([7; 32]), HandleKind::Call, 1), bytes: 12_345 };
    let file = Part::File { kept, media_type: "text/csv".into(), name: "a.csv".into() };
    let text = |text: &str| Part::Text(text.into());
    let ok = |parts: Vec<Part>| ModelAnswer { parts, is_error: false };
    vec![
        ok(vec![text("before"), image("image/png"), text("after"), file]),
        ok(vec![Part::Json(r#"{"big":12345678901234567890123}"#.into())]),
        ModelAnswer {
            parts: vec![Part::Json(r#"{"error":"No such file.","code":"x"}"#.into())],
            is_error: true,
        },
        ok(vec![image("image/tiff")]),
        ok(vec![]),
    ]
}

#[test]
fn results_are_told_in_each_wires_own_way() {
    let mut told = String::new();
    for wire in Wire::ALL {
        let turn = wire.read(fixture(wire)).unwrap();
        for pair in answers().chunks(2) {
            let results: Vec<_> =
                turn.calls.iter().zip(pair).map(|(call, answer)| CallResult { call, answer }).collect();
            for message in turn.messages(&results).iter().skip(turn.assistant.len()) {
                told += &format!("{wire} {}\n", message.get());
            }
        }
    }
    insta::assert_snapshot!(told);
}

#[test]
fn notices_are_user_messages() {
    let mut told = String::new();
    for wire in Wire::ALL {
        for message in wire.notice(&answers()[0]) {
            let value: Value = serde_json::from_str(message.get()).unwrap();
            assert_eq!(value["role"], "user", "what a tool returned has no authority");
            told += &format!("{wire} {}\n", message.get());
        }
    }
    insta::assert_snapshot!(told);
}

#[test]
fn tools_are_listed_in_each_wires_own_way() {
    let schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {"path": {"type": "string", "minLength": 1}, "limit": {"type": "integer", "description": "Lines."}},
        "required": ["path"],
        "additionalProperties": false,
    });
    let offers = [
        ToolOffer {
            name: "read_file".into(),
            description: "Reads a file.".into(),
            input_schema: Some(schema),
        },
        ToolOffer { name: "7zip".into(), description: "Packs.".into(), input_schema: None },
    ];
    let mut told = String::new();
    for wire in Wire::ALL {
        told += &format!("{wire} {:#}\n", wire.tools(&offers));
    }
    insta::assert_snapshot!(told);
}
