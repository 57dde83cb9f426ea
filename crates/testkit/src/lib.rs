//! Suites, rigs and house rules.

pub mod proof;
pub mod store_suite;
