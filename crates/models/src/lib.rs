//! Language models for `complete`: OpenAI-compatible endpoints and Anthropic.
//!
#![doc = include_str!("../../../docs/models.md")]
#![warn(missing_docs)]

mod anthropic;
mod endpoint;
mod key;
mod openai;

pub use anthropic::AnthropicModel;
pub use endpoint::EndpointConfig;
pub use key::{ApiKey, KeyProblem};
pub use openai::OpenAiModel;
