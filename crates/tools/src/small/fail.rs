//! `fail`: fails in the requested way.

use super::HARMLESS;
use serde::Deserialize;
use serde_json::{Value, json};
use windlass::tool::ToolSource;
use windlass::{EffectClass, Flags, ToolError, ToolSpec};

pub(super) fn spec() -> ToolSpec {
    ToolSpec {
        name: "fail".into(),
        title: "Fail".into(),
        description: "Fails on purpose, for trying out what happens then. Never succeeds.".into(),
        input_schema: Some(json!({
            "type": "object",
            "properties": {
                "message": { "type": "string", "description": "The message of the failure." },
                "kind": {
                    "enum": ["error", "panic", "internal", "safe", "did_not_happen"],
                    "default": "error",
                    "description": "error: an ordinary failure. panic: the tool crashes. internal: a failure whose \
                        message only operators see. safe: a failure that may be tried again. did_not_happen: a failure \
                        before which certainly nothing happened, so that whatever the class it may be tried again.",
                },
            },
            "required": ["message"],
            "additionalProperties": false,
        })),
        class: Some(EffectClass::Read),
        hints: HARMLESS,
        flags: Flags { quick: true, ..Flags::default() },
        source: ToolSource::BuiltIn,
        ..ToolSpec::default()
    }
}

#[derive(Deserialize)]
struct FailArgs {
    message: String,
    #[serde(default)]
    kind: FailureKind,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "snake_case")]
enum FailureKind {
    #[default]
    Error,
    Panic,
    Internal,
    Safe,
    DidNotHappen,
}

pub(super) fn run(args: Value) -> Result<Value, ToolError> {
    let FailArgs { message, kind } = super::parse(args)?;
    Err(match kind {
        FailureKind::Error => ToolError::new(message),
        FailureKind::Panic => panic!("{message}"),
        FailureKind::Internal => ToolError::internal(message),
        FailureKind::Safe => ToolError::new(message).safe_to_retry(),
        FailureKind::DidNotHappen => ToolError::new(message).did_not_happen(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_is_what_it_says() {
        let of = |kind: &str| run(json!({ "message": "no", "kind": kind }));
        assert_eq!(run(json!({ "message": "no" })), Err(ToolError::new("no")));
        assert_eq!(of("error"), Err(ToolError::new("no")));
        assert_eq!(of("internal"), Err(ToolError::internal("no")));
        assert_eq!(of("safe"), Err(ToolError::new("no").safe_to_retry()));
        assert_eq!(of("did_not_happen"), Err(ToolError::new("no").did_not_happen()));
        let panicked = std::panic::catch_unwind(|| of("panic")).expect_err("it panics");
        assert_eq!(panicked.downcast_ref::<String>().map(String::as_str), Some("no"));
    }
}
