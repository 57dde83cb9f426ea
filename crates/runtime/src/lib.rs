//! A durable tool runtime for AI agents.
#![warn(missing_docs)]

mod artifacts;
mod error;
mod lane;
mod tool;

pub use artifacts::{ArtifactError, ArtifactWriter};
pub use error::{Lost, chain};
pub use tool::{Cx, Output, Tool, ToolError, ToolFuture, tool_fn};
pub use windlass_core::tool::{EffectClass, Flags, Hints, ToolSpec};
pub use windlass_core as core;
pub use windlass_store as store;
