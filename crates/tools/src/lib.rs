//! Built-in tools, and tools declared in `windlass.toml`, on the public API of the runtime only.
#![warn(missing_docs)]

pub mod command;
pub mod declared;
pub mod launcher;
mod small;

pub use declared::{ConfigError, Declared, Served, load};
pub use launcher::{LAUNCH_ARG, Launcher, kill_survivors, launch_main};
pub use small::builtin;
