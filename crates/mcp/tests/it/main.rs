//! The gateway, asked as a transport would: a real runtime, real conversations, clients that stay, leave and cancel.
#![expect(clippy::expect_used, reason = "a test that cannot go on says why and ends")]

mod answers;
mod forwarding;
mod identity;
mod listens;
mod people;
mod rig;
mod search;
mod server;
mod upstream;
mod workers;
