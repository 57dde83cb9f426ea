//! Windlass as an MCP server, whatever transport carries the messages, and as a client of MCP servers of others ([`upstream`]).
//!
//! [`Gateway::take`] takes one message of a client and answers it at once or as a [`Conversation`]: progress, then the
//! answer. Both eras of the protocol are spoken: 2025-03-26 to 2025-11-25, which begin with `initialize`, and 2026-07-28,
//! whose requests each say everything about themselves.
//!
//! A call becomes an ordinary batch of one call. Read `request` first: it is the life of one `tools/call`, from its identity
//! over the ladder of answers to its delivery.
//!
//! Messages stay raw JSON: what this crate does not know is left alone and hides nothing.
#![warn(missing_docs)]

mod apart;
mod conversation;
mod delivery;
mod forms;
mod forward;
mod gateway;
mod hello;
mod identity;
mod list;
mod listen;
mod message;
mod param_headers;
mod peer;
mod people;
mod request;
mod resources;
mod result;
mod seal;
mod subscriptions;
mod task;
pub mod upstream;

pub use conversation::Conversation;
pub use gateway::{Exchange, Gateway, Headers, Visitor};
pub use identity::session_name;
pub use windlass_tools::declared::McpListing;
