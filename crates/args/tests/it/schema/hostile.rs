//! Schemas that were written to do harm: each is refused or harmless, and quickly.

mod cases;

use super::{compile, validate};
use cases::{harmless, refused};
use std::time::{Duration, Instant};
use windlass_args::json::dismantle;

/// Very generous, because the machine may be busy: what these schemas are after takes for ever.
const QUICKLY: Duration = Duration::from_secs(30);

#[test]
fn hostile_schemas_are_refused() {
    let mut told = Vec::new();
    let cases = refused();
    assert!(cases.len() >= 30, "{} cases", cases.len());
    for (name, schema) in cases {
        let (outcome, took) = timed(|| compile(&schema).map(|_| ()));
        let refused = outcome.err().unwrap_or_else(|| panic!("{name} was taken"));
        assert!(took < QUICKLY, "{name} took {took:?}");
        told.push(format!("{name}\n    {refused}"));
        dismantle(schema);
    }
    insta::assert_snapshot!(told.join("\n"));
}

#[test]
fn what_is_taken_does_no_harm() {
    for (name, schema, value, fits) in harmless() {
        let (outcome, took) = timed(|| {
            let compiled = compile(&schema).unwrap_or_else(|refused| panic!("{name}: {refused}"));
            validate(&compiled, &value)
        });
        assert_eq!(outcome.is_ok(), fits, "{name}");
        let told = outcome.err().map(|invalid| invalid.to_string()).unwrap_or_default();
        assert!(told.lines().count() <= 10 && told.len() < 20_000, "{name}: {} bytes", told.len());
        assert!(took < QUICKLY, "{name} took {took:?}");
    }
}

#[expect(clippy::disallowed_methods, reason = "a test of time must look at the clock")]
fn timed<T>(act: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let outcome = act();
    (outcome, start.elapsed())
}
