//! The runtime through its public face, on real stores.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::wildcard_enum_match_arm,
    clippy::disallowed_methods,
    reason = "a panic is how a test speaks"
)]

mod artifacts;
mod asks;
mod attach;
mod attempts;
mod away;
mod children;
mod claims;
mod commits;
mod completions;
mod dedupe;
mod effects;
mod events;
mod files;
mod gates;
mod hooks;
mod inside;
mod load;
mod loops;
mod metrics;
mod nested;
mod observer;
mod order;
mod outcomes;
mod pairs;
mod prepare;
mod registry;
mod removal;
mod rig;
mod room;
mod schedules;
mod scopes;
mod siblings;
mod signals;
mod streams;
mod submission;
mod takeover;
mod tasks;
mod threads;
mod triggers;
mod waits;
mod workers;
mod world;
