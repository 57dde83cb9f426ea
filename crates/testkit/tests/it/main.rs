//! The tests of the testkit: one binary, one module per topic.

// Inside `cfg(test)`, so that clippy holds helpers to the rules of tests.
#[cfg(test)]
mod faults;
#[cfg(test)]
mod tidy;
