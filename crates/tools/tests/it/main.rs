//! Commands, their trees and their declarations, against real processes.
#![expect(clippy::expect_used, reason = "a test that cannot go on says why and ends")]

mod approved;
mod attempts;
mod command;
mod declared;
mod docs;
mod errors;
mod files;
mod http;
mod outside;
mod rig;
mod sandbox;
mod stage;
mod template;
mod trees;
mod web;
