//! Metrics as text, and the spans of calls.

mod text;

pub use crate::session::meters::CallSpan;
pub use text::METRICS;
pub(crate) use text::metrics;
