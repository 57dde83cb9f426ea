//! The HTTP API of Windlass, and the socket by which commands reach a folder's owner.
//!
//! Read [`router`] first: it is the whole surface on one screen. [`control`] serves it on `DIR/control.sock`,
//! [`client`] asks there. What is shown is made in [`view`], from the record and from what the owner knows beyond it;
//! a command that finds no owner uses the same view on the record alone, so both ways show the same.
#![warn(missing_docs)]

pub mod client;
pub mod control;
pub mod events;
mod extract;
pub mod following;
pub mod guest;
mod metrics;
pub mod otlp;
pub mod patience;
mod problem;
mod router;
mod socket;
pub mod view;
pub mod wire;

pub use problem::Problem;
pub use router::router;
