//! Suites, rigs and house rules.
