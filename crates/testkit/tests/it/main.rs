//! The tests of the testkit: one binary, one module per topic.

// Inside `cfg(test)`, so that clippy holds helpers to the rules of tests.
#[cfg(test)]
mod check;
#[cfg(test)]
mod kill;
#[cfg(test)]
mod takeover;
#[cfg(test)]
mod tidy;
