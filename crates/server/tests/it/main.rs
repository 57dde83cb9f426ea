//! The API over the real socket: a real runtime on a real store, asked as a second process would.
#![expect(clippy::expect_used, reason = "a test that cannot go on says why and ends")]

mod asks;
mod bad_requests;
mod events;
mod looks;
mod rig;
mod socket;
mod traces;
