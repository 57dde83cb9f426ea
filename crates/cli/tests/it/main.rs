//! The real binary, from outside: what people and programs get for what they type.
#![expect(clippy::expect_used, reason = "a test that cannot go on says why and ends")]

mod bad_input;
mod batches;
mod commands;
mod configuration;
mod data_folder;
mod dev;
mod examples;
mod flood;
mod kills;
mod rig;
mod schedules;
mod second_terminal;
mod serve;
mod signals;
mod tasks;
mod triggers;
mod waiting;
mod watch;
mod words;
