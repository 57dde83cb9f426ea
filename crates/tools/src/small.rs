//! The small built-in tools, one file each.

mod arithmetic;
mod echo;
mod fail;
mod get_current_time;
mod read_artifact;
mod sleep;

use serde::de::DeserializeOwned;
use serde_json::Value;
use std::sync::Arc;
use windlass::error::FailureClass;
use windlass::{Cx, Output, Tool, ToolError, ToolFuture, ToolSpec};

/// All built-in tools, in the order of their names.
pub fn builtin() -> Vec<Arc<dyn Tool>> {
    vec![
        Arc::new(PlainTool { spec: arithmetic::add, run: arithmetic::run_add }),
        Arc::new(PlainTool { spec: arithmetic::divide, run: arithmetic::run_divide }),
        Arc::new(PlainTool { spec: echo::spec, run: echo::run }),
        Arc::new(PlainTool { spec: fail::spec, run: fail::run }),
        Arc::new(get_current_time::GetCurrentTime { now: std::time::SystemTime::now }),
        Arc::new(PlainTool { spec: arithmetic::multiply, run: arithmetic::run_multiply }),
        Arc::new(read_artifact::ReadArtifact),
        Arc::new(sleep::SleepTool),
        Arc::new(PlainTool { spec: arithmetic::subtract, run: arithmetic::run_subtract }),
    ]
}

/// A tool that needs only its arguments.
struct PlainTool {
    spec: fn() -> ToolSpec,
    run: fn(Value) -> Result<Value, ToolError>,
}

impl Tool for PlainTool {
    fn spec(&self) -> ToolSpec {
        (self.spec)()
    }

    fn run<'a>(&'a self, args: Value, _cx: &'a Cx) -> ToolFuture<'a> {
        Box::pin(async move { (self.run)(args).map(Output::from) })
    }
}

/// The arguments as a type. They fit the schema, so this fails only where a type is stricter than a schema can be.
fn parse<T: DeserializeOwned>(args: Value) -> Result<T, ToolError> {
    serde_json::from_value(args).map_err(|error| ToolError {
        class: FailureClass::InvalidRequest,
        did_not_happen: true,
        ..ToolError::new(format!("the arguments do not fit: {error}; see the input schema"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tool_is_described_and_closed_and_in_order() {
        let specs: Vec<ToolSpec> = builtin().iter().map(|tool| tool.spec()).collect();
        assert!(specs.is_sorted_by(|a, b| a.name < b.name));
        for spec in specs {
            let name = &spec.name;
            assert!(!spec.title.is_empty() && spec.description.ends_with('.'), "{name}");
            assert!(spec.class.is_some(), "{name}");
            let schema = spec.input_schema.expect("a schema");
            assert_eq!(schema["type"], "object", "{name}");
            assert_eq!(schema["additionalProperties"], false, "{name}");
            for (property, schema) in schema["properties"].as_object().expect("properties") {
                assert!(schema["description"].is_string(), "{name}.{property}");
            }
        }
    }
}
