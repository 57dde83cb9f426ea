//! How long the slowest of the hostile inputs takes: text that a model wrote until it is taken or explained, a schema
//! until it is taken or refused, and values until it is said why they do not fit.
//!
//! `cargo bench -p windlass-args --bench hostile` prints the slowest of each kind, each the best of ten. Words behind `--`
//! choose inputs by name.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::wildcard_enum_match_arm,
    clippy::disallowed_methods,
    reason = "a benchmark of known inputs"
)]

#[allow(dead_code, reason = "the tests use the rest")]
#[path = "../tests/it/schema/hostile/cases.rs"]
mod cases;
#[allow(dead_code, reason = "the tests use the rest")]
#[path = "../tests/it/corpus/exercise.rs"]
mod exercise;
#[allow(dead_code, reason = "the tests use the rest")]
#[path = "../tests/it/corpus/table.rs"]
mod table;

use serde_json::Value;
use std::hint::black_box;
use std::io::Write;
use std::time::{Duration, Instant};
use windlass_args::arguments::{Arguments, Given};
use windlass_args::json;
use windlass_args::limits::ArgLimits;
use windlass_args::repair::{self, ArgumentContract};
use windlass_args::schema::{Schema, SchemaRole};

/// How many of each kind are printed.
const SHOWN: usize = 5;

/// The promise, for whatever a model may send.
const QUICKLY: Duration = Duration::from_millis(50);

fn main() -> std::io::Result<()> {
    let mut slow = print("arguments of a model", arguments())?;
    slow |= print("values that a schema is tried on", values())?;
    print("schemas, once per registration", schemas())?;
    std::process::exit(i32::from(slow));
}

/// Prints the slowest and says whether one took longer than is promised.
fn print(kind: &str, mut took: Vec<(String, Duration)>) -> std::io::Result<bool> {
    let mut out = std::io::stdout();
    took.sort_by_key(|(_, took)| std::cmp::Reverse(*took));
    writeln!(out, "{kind}: {} inputs, the slowest", took.len())?;
    for (name, took) in took.iter().take(SHOWN) {
        writeln!(out, "{:>10.2} ms  {name}", took.as_secs_f64() * 1e3)?;
    }
    Ok(took.first().is_some_and(|(_, slowest)| *slowest > QUICKLY))
}

fn arguments() -> Vec<(String, Duration)> {
    let (tools, limits) = (exercise::tools(), ArgLimits::default());
    let cases = table::read("arguments")
        .into_iter()
        .flat_map(|table| table.cases)
        .filter(|case| is_asked_for(&case.name));
    let timed = |case: table::Case| {
        let tool = &tools[&case.tool];
        let wanted = ArgumentContract {
            schema: tool.schema.as_ref(),
            takes_cut_off: tool.takes_cut_off,
            limits: &limits,
        };
        let args = Arguments { given: Given::Text, text: case.input.as_str().into() };
        let answer = || repair::fit(&args, &wanted).map_err(|unfit| unfit.to_string());
        (format!("{}: {}", case.tool, case.name), best(answer))
    };
    cases.map(timed).collect()
}

fn values() -> Vec<(String, Duration)> {
    let limits = ArgLimits::default();
    let timed = |(name, schema, value, _): (&str, Value, Value, bool)| {
        let schema = Schema::compile(&schema, SchemaRole::Input, "t", &limits).expect("it is taken");
        let size = json::measure(&value, &limits).expect("it is within the limits");
        (name.to_string(), best(|| schema.validate(&value, size).map_err(|invalid| invalid.to_string())))
    };
    cases::harmless().into_iter().filter(|case| is_asked_for(case.0)).map(timed).collect()
}

fn schemas() -> Vec<(String, Duration)> {
    let limits = ArgLimits::default();
    let compile = |schema: &Value| {
        best(|| {
            Schema::compile(schema, SchemaRole::Input, "t", &limits).map_err(|refused| refused.to_string())
        })
    };
    let mut took = Vec::new();
    for (name, schema) in cases::refused() {
        if is_asked_for(name) {
            took.push((name.to_string(), compile(&schema)));
        }
        json::dismantle(schema);
    }
    let wide = ArgLimits { args_bytes_max: 4 << 20, args_depth_max: 1_000, ..ArgLimits::default() };
    for case in table::read("schemas").into_iter().flat_map(|table| table.cases) {
        if let (true, Ok(schema)) = (is_asked_for(&case.name), json::parse(&case.input, &wide)) {
            took.push((case.name, compile(&schema)));
            json::dismantle(schema);
        }
    }
    took
}

/// Whether an input was asked for.
fn is_asked_for(name: &str) -> bool {
    let mut words = std::env::args().skip(1).filter(|word| !word.starts_with('-')).peekable();
    words.peek().is_none() || words.any(|word| name.contains(&word))
}

/// The best of ten: the machine may be busy.
fn best<T>(answer: impl Fn() -> T) -> Duration {
    let timed = || {
        let start = Instant::now();
        let answered = black_box(answer());
        let took = start.elapsed();
        drop(answered);
        took
    };
    (0..10).map(|_| timed()).min().unwrap_or_default()
}
