//! Measuring Windlass against floors.
//!
//! Machines differ tenfold and are noisy, so every bar is a ratio to a floor of the same run: the least any correct program must
//! do. [`floor`] holds the floors and uses nothing of Windlass; [`memory`] and [`durable`] measure whole calls against them and
//! give a [`report`], [`parked`] calls that wait, [`served`] calls over HTTP. `windlass bench` prints it.
//!
//! All of it is plain loops in plain binaries, the small ones too: a harness that samples one function at a time cannot measure
//! floor and call in turn, and the bar is on the ratio of the two.
#![warn(missing_docs)]

pub mod allocations;
pub mod durable;
mod error;
pub mod floor;
pub mod memory;
pub mod parked;
mod rate;
pub mod report;
pub mod served;
pub mod table;

pub use error::BenchError;
pub use rate::MeasuredRate;
