//! The rules of core, tested through its public face.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::wildcard_enum_match_arm,
    reason = "a panic is how a test speaks"
)]

mod batch;
mod call;
mod claim;
mod corpus;
mod entry;
mod json;
mod loops;
mod operation;
mod plan;
mod projection;
mod repair;
mod schedule;
mod schema;
mod siblings;
mod trigger;
