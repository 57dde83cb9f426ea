//! Responses as providers document them, read whole and streamed, and the messages they are answered with.
#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test that fails may panic, and wires are told apart by the few that differ"
)]

mod results;
mod round_trips;
mod schemas;
mod streams;
mod turns;
