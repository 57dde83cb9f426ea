//! The tests of the testkit: one binary, one module per topic.

// Inside `cfg(test)`, so that clippy holds helpers to the rules of tests.
#[cfg(test)]
mod backup;
#[cfg(test)]
mod cancel;
#[cfg(test)]
mod check;
#[cfg(test)]
mod damage;
#[cfg(test)]
mod dedupe;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod full;
#[cfg(test)]
mod golden;
#[cfg(test)]
mod granted;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod internal;
#[cfg(test)]
mod kill;
mod leases;
#[cfg(test)]
mod migration;
mod nth;
mod order;
#[cfg(test)]
mod points;
#[cfg(test)]
mod poison;
#[cfg(test)]
mod powercut;
#[cfg(test)]
mod table;
#[cfg(test)]
mod takeover;
#[cfg(test)]
mod tidy;

/// Says aloud that a proof was not made here, and why. Where the environment says it must be, that is a failure.
#[cfg(test)]
fn skip(proof: &str, reason: &str, expected: &str) {
    assert!(std::env::var_os(expected).is_none(), "{expected} is set, and {proof} cannot run: {reason}");
    // Not by a macro: the runner hides what passing tests print.
    let line = format!("SKIP {proof}: {reason}\n");
    std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes()).expect("standard error is open");
}
