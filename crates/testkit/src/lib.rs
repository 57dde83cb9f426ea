//! Suites, rigs and house rules.

pub mod postgres;
pub mod store_suite;
