//! `echo`: returns its message.

use super::HARMLESS;
use serde::Deserialize;
use serde_json::{Value, json};
use windlass::tool::ToolSource;
use windlass::{EffectClass, Flags, ToolError, ToolSpec};

pub(super) fn spec() -> ToolSpec {
    ToolSpec {
        name: "echo".into(),
        title: "Echo".into(),
        description: "Returns the message it was given, and how many characters it has.".into(),
        input_schema: Some(json!({
            "type": "object",
            "properties": { "message": { "type": "string", "description": "The message to return." } },
            "required": ["message"],
            "additionalProperties": false,
        })),
        output_schema: Some(json!({
            "type": "object",
            "properties": { "echoed": { "type": "string" }, "length": { "type": "integer", "minimum": 0 } },
            "required": ["echoed", "length"],
        })),
        class: Some(EffectClass::Read),
        hints: HARMLESS,
        flags: Flags { quick: true, ..Flags::default() },
        source: ToolSource::BuiltIn,
        ..ToolSpec::default()
    }
}

#[derive(Deserialize)]
struct EchoArgs {
    message: String,
}

pub(super) fn run(args: Value) -> Result<Value, ToolError> {
    let EchoArgs { message } = super::parse(args)?;
    let length = message.chars().count();
    Ok(json!({ "echoed": message, "length": length }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_are_counted_not_bytes() {
        assert_eq!(run(json!({ "message": "grüß" })), Ok(json!({ "echoed": "grüß", "length": 4 })));
    }
}
