//! Metrics as text, and the spans of calls.

mod text;

pub use crate::session::meters::{AttemptSpan, CallSpan, TraceSpan};
pub use text::METRICS;
pub(crate) use text::metrics;
