//! Typed tools: schemas from types, arguments and values as types, and ordinary errors in tools.

use crate::api::data_error::{ArtifactError, FileError};
use crate::api::error::chain;
use crate::api::misuse::StepError;
use crate::api::output::{Output, ToolError};
use crate::api::secret::SecretError;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::error::Error;
use windlass_core::failure::FailureClass;

/// An ordinary error is internal: operators find its whole chain under a reference, and the model gets a
/// fixed sentence. For a message to the model, use [`ToolError::new`] with `map_err`. Errors of the context's
/// own methods keep their messages.
impl<E: Into<Box<dyn Error + Send + Sync>>> From<E> for ToolError {
    fn from(error: E) -> ToolError {
        let error: Box<dyn Error + Send + Sync> = error.into();
        let error = match error.downcast::<StepError>() {
            Ok(error) => return error.into_tool_error(),
            Err(error) => error,
        };
        let error = match error.downcast::<ArtifactError>() {
            Ok(error) => return error.into_tool_error(),
            Err(error) => error,
        };
        let error = match error.downcast::<SecretError>() {
            Ok(error) => return error.into_tool_error(),
            Err(error) => error,
        };
        match error.downcast::<FileError>() {
            Ok(error) => error.into_tool_error(),
            Err(error) => ToolError::internal(chain(&*error)),
        }
    }
}

/// A type that the arguments of a tool are read into.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the arguments of a tool",
    note = "write `#[derive(serde::Deserialize, schemars::JsonSchema)]` above `{Self}`"
)]
pub trait ToolArguments: DeserializeOwned + JsonSchema {}

#[diagnostic::do_not_recommend]
impl<T: DeserializeOwned + JsonSchema> ToolArguments for T {}

/// A type whose values a tool may return.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the value of a tool",
    note = "write `#[derive(serde::Serialize, schemars::JsonSchema)]` above `{Self}`",
    note = "or return `windlass::Output` or `serde_json::Value`"
)]
pub trait ToolValue: Serialize + JsonSchema {}

#[diagnostic::do_not_recommend]
impl<T: Serialize + JsonSchema> ToolValue for T {}

/// An error that a tool may return.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the error of a tool",
    note = "return `Result<_, windlass::ToolError>`, or implement `std::error::Error` for `{Self}`"
)]
pub trait ToolFailure {
    /// The error as the runtime takes it. No error has a method of this name, which would hide its own.
    fn into_failure_of_tool(self) -> ToolError;
}

#[diagnostic::do_not_recommend]
impl<E> ToolFailure for E
where
    ToolError: From<E>,
{
    fn into_failure_of_tool(self) -> ToolError {
        ToolError::from(self)
    }
}

/// The error of a typed tool.
pub fn failure<E: ToolFailure>(error: E) -> ToolError {
    error.into_failure_of_tool()
}

/// The JSON Schema of a type.
pub fn schema<T: JsonSchema>() -> Value {
    let mut schema = SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<T>();
    schema.remove("$schema");
    // The title of a root is the name of the Rust type, which does not concern the model.
    schema.remove("title");
    schema.into()
}

/// The schema of a tool's arguments: an object with named properties takes no others, so that a model learns
/// about misspelt ones.
pub fn input_schema<T: ToolArguments>() -> Value {
    let mut schema = schema::<T>();
    let is_open = ["additionalProperties", "unevaluatedProperties", "anyOf", "oneOf", "allOf", "$ref"];
    if let Value::Object(fields) = &mut schema
        && fields.contains_key("properties")
        && !is_open.iter().any(|keyword| fields.contains_key(*keyword))
    {
        fields.insert("additionalProperties".to_owned(), false.into());
    }
    schema
}

/// The schema of a tool's value; `None` if it may be anything.
pub fn output_schema<T: ToolValue>() -> Option<Value> {
    let schema = schema::<T>();
    let says_nothing =
        schema == Value::Bool(true) || schema.as_object().is_some_and(serde_json::Map::is_empty);
    (!says_nothing).then_some(schema)
}

/// Arguments as the type of the tool. They fit its schema; violations of stricter type rules are reported to the model.
pub fn arguments<T: DeserializeOwned>(args: Value) -> Result<T, ToolError> {
    serde_json::from_value(args).map_err(|error| ToolError {
        class: FailureClass::InvalidRequest,
        ..ToolError::new(format!("the arguments do not fit: {error}")).did_not_happen()
    })
}

/// A value of the tool's type as its output.
pub fn output<T: Serialize>(value: T) -> Result<Output, ToolError> {
    Ok(serde_json::to_value(value)?.into())
}
