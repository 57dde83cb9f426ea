//! The floors Windlass is measured against: the least any correct program must do, on this machine, in this run.
//!
//! Machines differ tenfold and are noisy, so every bar is a ratio to a floor of the same run. Nothing here uses
//! Windlass itself. [`floor`] holds the floors; `cargo run --release -p windlass-bench --bin floors` prints them.
#![warn(missing_docs)]

pub mod allocations;
pub mod floor;
mod rate;
pub mod table;

pub use rate::Rate;
