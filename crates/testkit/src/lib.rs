//! Suites, rigs and house rules.

pub mod store_suite;
