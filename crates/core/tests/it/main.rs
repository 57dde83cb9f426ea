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
mod class_change;
mod damaged;
mod deadline;
mod entry;
mod grant;
mod loops;
mod opened;
mod operation;
mod permission;
mod plan;
mod policy;
mod projection;
mod schedule;
mod siblings;
mod span;
mod trigger;
