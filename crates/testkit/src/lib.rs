//! Suites, rigs and house rules.

pub mod chance;
pub mod fault_store;
pub mod scenario;
pub mod store_suite;
