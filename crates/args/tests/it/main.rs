//! The argument code, tested through its public face.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::wildcard_enum_match_arm,
    reason = "a panic is how a test speaks"
)]

mod corpus;
mod json;
mod repair;
mod schema;
