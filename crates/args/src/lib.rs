//! Arguments of a Windlass call: JSON text, schemas, repair, canonical text. No IO, no async, no clock, no randomness.
//!
//! Read [`repair`] first: [`repair::fit`] takes arguments as a model wrote them and returns a value that fits the tool's
//! schema, or says what is wrong. [`json`] parses and measures, [`schema`] compiles and validates, [`canonical`] compares.
#![warn(missing_docs)]

pub mod arguments;
pub mod canonical;
pub mod code;
pub mod json;
pub mod limits;
mod named;
pub mod names;
pub mod repair;
pub mod schema;
pub mod template;
pub mod text;
