//! Tests of your own tools: a runtime in memory, a clock that you move, assertions about effects.
//!
#![doc = include_str!("../../../docs/testing.md")]
#![warn(missing_docs)]

mod call;
mod clock;
mod observed;
mod runtime;

pub use call::{StartedCall, TestedCall};
pub use clock::TestClock;
pub use observed::ObservedRun;
pub use runtime::{TestError, TestRuntime};
