//! The HTTP API of Windlass: at an address for callers with a token, and on the socket by which commands
//! reach a folder's owner.
//!
//! A program that embeds a runtime serves its API with one call, [`mount`]. A runtime alone serves nothing.
//!
//! Read `router` first: it is the whole surface on one screen, and everything else follows from it.
//! [`address`] and [`control`] are its two listeners, [`client`] its client. [`view`] renders calls and lists
//! from the record and from the owner's memory; a command that finds no owner uses the same view on the
//! record alone, so both show the same.
#![warn(missing_docs)]

mod accepted;
pub mod access;
pub mod address;
mod api;
mod bodies;
mod changes;
pub mod client;
pub mod control;
mod crowd;
pub mod events;
mod extract;
pub mod following;
mod guest;
mod images;
mod metrics;
mod mount;
pub mod openapi;
pub mod otlp;
mod own_wakes;
mod page;
mod patience;
mod problem;
mod pulled;
mod router;
mod routes;
mod serving;
pub mod sessions;
mod shares;
mod socket;
pub mod tokens;
pub mod turns;
mod undisturbed;
pub mod view;
mod watched;
pub mod webhooks;
pub mod wire;
mod workers;

pub use api::Api;
pub use mount::{Mount, MountError, MountedApi, mount};
pub use problem::{Problem, ProblemCode};
pub use router::router;

/// The program in the page on the server compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/server.md")]
struct ServerPage;
