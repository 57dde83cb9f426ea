//! The API over the real socket and over TCP: a real runtime on a real store, asked as a second process would.
#![expect(clippy::expect_used, reason = "a test that cannot go on says why and ends")]

mod answers;
mod asks;
mod bad_requests;
mod batches;
mod bounds;
mod children;
mod context;
mod events;
mod expired;
mod images;
mod kept;
mod looks;
mod matrix;
mod mcp;
mod mount;
mod overlays;
mod policy;
mod principals;
mod provisional;
mod races;
mod revoked;
mod rig;
mod same_bytes;
mod schedules;
mod sessions;
mod socket;
mod surface;
mod tasks;
mod tcp;
mod traces;
mod triggers;
mod turns;
mod webhooks;
