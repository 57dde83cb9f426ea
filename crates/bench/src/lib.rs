//! What Windlass is measured against, and how.
//!
//! Machines differ tenfold and are noisy, so every bar is a ratio to a floor of the same run: the least any correct
//! program must do. [`floor`] holds the floors and uses nothing of Windlass; [`memory`] and [`durable`] measure whole
//! calls against them and give a [`report`], [`parked`] calls that wait, [`served`] calls over HTTP. `windlass bench` prints it.
//!
//! All of it is plain loops in plain binaries, the small ones too: a harness that samples one function at a time
//! cannot take floor and call in turn, and it is the ratio of the two that has a bar.
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

pub use error::Error;
pub use rate::Rate;
