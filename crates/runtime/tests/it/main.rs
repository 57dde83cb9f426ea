//! The runtime through its public face, on real stores.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::wildcard_enum_match_arm,
    clippy::disallowed_methods,
    reason = "a panic is how a test speaks"
)]

mod approvals;
mod artifacts;
mod asks;
mod attach;
mod attempts;
mod away;
mod bounds;
mod budgets;
mod catalog;
mod children;
mod claims;
mod class_change;
mod clocks;
mod commits;
mod completions;
mod context;
mod dedupe;
mod effects;
mod events;
mod files;
mod filters;
mod frames;
mod gates;
mod gives_way;
mod gone;
mod grants;
mod hooks;
mod inside;
mod load;
mod loops;
mod metrics;
mod mistakes;
mod nested;
mod observer;
mod order;
mod outcomes;
mod overlays;
mod pairs;
mod policy;
mod prepare;
mod projector;
mod provisional;
mod registry;
mod removal;
mod results;
mod retention;
mod rig;
mod room;
mod schedules;
mod scopes;
mod secrets;
mod siblings;
mod signals;
mod standing;
mod streams;
mod submission;
mod submitted_here;
mod takeover;
mod tasks;
mod threads;
mod toolboxes;
mod traces;
mod triggers;
mod typed;
mod vault;
mod waits;
mod workers;
mod world;
