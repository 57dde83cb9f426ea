//! `windlass-testkit`: the proofs in their long form.
#![expect(clippy::print_stdout, reason = "a command says what it did")]

use anyhow::{Context, Result, bail};
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;
use windlass_testkit::proof::kill;
use windlass_testkit::proof::trial::Programs;
use windlass_testkit::results::Record;

const USAGE: &str = "usage: windlass-testkit kill [--count N] [--seed S] [--seconds T] [--lanes L]";
/// Where every proof leaves a line.
const RESULTS: &str = "proofs/results.jsonl";

fn main() -> Result<ExitCode> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.first().map(String::as_str) {
        Some("kill") => kill(&args[1..]),
        _ => bail!("{USAGE}"),
    }
}

fn kill(args: &[String]) -> Result<ExitCode> {
    let given = |name, usual| option(args, name).map(|given| given.unwrap_or(usual));
    let cores = std::thread::available_parallelism().map_or(2, |cores| cores.get() as u64);
    let options = kill::Options {
        kills: given("--count", 1_000)?,
        seed: given("--seed", 1)?,
        time_max: Duration::from_secs(given("--seconds", 24 * 3_600)?),
        // Workers wait for the disk most of the time.
        lanes: given("--lanes", cores * 2)?,
    };
    let report = kill::run(&programs()?, &options)?;
    println!("{report:#?}");
    finish(&report.record(options.seed), &report.violations)
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

/// The worker and the ledger beside this program, built anew if cargo started it.
fn programs() -> Result<Programs> {
    let own = std::env::current_exe()?;
    let folder = own.parent().context("this program lies in no folder")?;
    if let Some(cargo) = std::env::var_os("CARGO") {
        let release = if folder.ends_with("release") { &["--release"][..] } else { &[] };
        let built = Command::new(cargo)
            .args(["build", "--quiet", "--package=windlass-testkit"])
            .args(["--bin=windlass-worker", "--bin=windlass-ledger"])
            .args(release)
            .status()?;
        if !built.success() {
            bail!("the worker and the ledger could not be built");
        }
    }
    Ok(Programs { worker: folder.join("windlass-worker"), ledger: folder.join("windlass-ledger") })
}
