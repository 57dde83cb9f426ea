//! `windlass-testkit`: the proofs in their long form.
#![expect(clippy::print_stdout, reason = "a command says what it did")]

use anyhow::{Context, Result, bail};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;
use windlass_testkit::proof::programs::Build;
use windlass_testkit::proof::{kill, points};
use windlass_testkit::results::Record;

const USAGE: &str =
    "usage: windlass-testkit kill [--count N] [--seed S] [--seconds T] [--lanes L] | points [--short]";
/// Where every proof leaves a line.
const RESULTS: &str = "proofs/results.jsonl";

fn main() -> Result<ExitCode> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.first().map(String::as_str) {
        Some("kill") => kill(&args[1..]),
        Some("points") => points(&args[1..]),
        _ => bail!("{USAGE}"),
    }
}

fn kill(args: &[String]) -> Result<ExitCode> {
    let given = |name, usual| option(args, name).map(|given| given.unwrap_or(usual));
    let options = kill::Options {
        kills: given("--count", 1_000)?,
        seed: given("--seed", 1)?,
        time_max: Duration::from_secs(given("--seconds", 24 * 3_600)?),
        lanes: given("--lanes", lanes())?,
    };
    let report = kill::run(&Build::like_this_program()?.programs()?, &options)?;
    println!("{report:#?}");
    finish(&report.record(options.seed), &report.violations)
}

fn points(args: &[String]) -> Result<ExitCode> {
    let programs = Build::like_this_program()?.with_points().programs()?;
    let every_visit = !args.iter().any(|arg| arg == "--short");
    let options = points::Options { names: programs.points()?, every_visit, lanes: lanes() };
    let report = points::run(&programs, &options)?;
    println!("{report:#?}");
    finish(&report.record(), &report.violations)
}

/// Workers wait for the disk most of the time.
fn lanes() -> u64 {
    2 * std::thread::available_parallelism().map_or(2, |cores| cores.get() as u64)
}

fn finish(record: &Record, violations: &[String]) -> Result<ExitCode> {
    record.append(Path::new(RESULTS))?;
    println!("{}", record.line());
    for violation in violations {
        println!("VIOLATION {violation}");
    }
    Ok(if violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The number after an option.
fn option(args: &[String], name: &str) -> Result<Option<u64>> {
    let Some(at) = args.iter().position(|arg| arg == name) else { return Ok(None) };
    let given = args.get(at + 1).with_context(|| format!("{name} needs a number; {USAGE}"))?;
    given.parse().map(Some).with_context(|| format!("{name} needs a number, not {given:?}; {USAGE}"))
}
