//! Built-in tools, and tools declared in `windlass.toml`, on the public API of the runtime only.
#![warn(missing_docs)]

mod builtin;
pub mod command;
pub mod declared;
mod files;
pub mod http;
pub mod launcher;
mod run_command;
pub mod sandbox;
mod small;
mod web;

pub use builtin::{BuiltinGroup, builtin};
pub use declared::{ConfigError, Declared, Served, load};
pub use launcher::{LAUNCH_ARG, Launcher, is_launch_arg, kill_survivors, launch_main};
pub use run_command::RunCommand;
pub use web::WebFetch;
