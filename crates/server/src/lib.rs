//! The HTTP API of Windlass: at an address for whoever has a token, and on the socket by which commands reach a folder's
//! owner.
//!
//! Read `router` first: it is the whole surface on one screen, and everything else follows from it. [`address`] and
//! [`control`] are the two doors to it, [`client`] asks there. What is shown is made in [`view`], from the record and from
//! what the owner knows beyond it; a command that finds no owner uses the same view on the record alone, so both ways show
//! the same.
#![warn(missing_docs)]

pub mod access;
pub mod address;
mod api;
pub mod client;
pub mod control;
pub mod events;
mod extract;
pub mod following;
pub mod guest;
mod metrics;
pub mod openapi;
pub mod otlp;
mod patience;
mod problem;
mod router;
mod routes;
mod serving;
pub mod sessions;
mod socket;
pub mod tokens;
mod undisturbed;
pub mod view;
pub mod wire;

pub use api::Api;
pub use problem::{CODES, Problem};
pub use router::router;
