//! The real binary, from outside: what people and programs get for what they type.
#![expect(clippy::expect_used, reason = "a test that cannot go on says why and ends")]

mod approvals;
mod backup;
mod bad_input;
mod batches;
mod canary;
mod commands;
mod configuration;
mod copies;
mod data_folder;
mod dev;
mod examples;
mod flood;
mod grants;
mod kills;
mod logs;
mod mcp;
mod mcp_servers;
mod mcp_waits;
mod memory;
mod narration;
mod people;
mod policy;
mod rig;
mod schedules;
mod second_terminal;
mod serve;
mod shared;
mod signals;
mod stall;
mod tasks;
mod triggers;
mod waiting;
mod watch;
mod webhooks;
mod words;
