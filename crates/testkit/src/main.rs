//! `windlass-testkit`: the proofs in their long form.
#![expect(clippy::print_stdout, reason = "a command says what it did")]

use anyhow::{Context, Result, bail};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;
use windlass_testkit::fleet;
use windlass_testkit::hostile;
use windlass_testkit::proof::kill::Plans;
use windlass_testkit::proof::programs::Build;
use windlass_testkit::proof::trial::{Planned, Programs};
use windlass_testkit::proof::{backup, kill, mutants, points, poison, rows};
use windlass_testkit::results::ProofRecord;
use windlass_testkit::sibling;

const USAGE: &str =
    "usage: windlass-testkit kill [--count N] [--seed S] [--seconds T] [--lanes L] [--tasks|--approvals|--grants] [--mutant RULE]
       windlass-testkit points [--short]
       windlass-testkit table [--short]
       windlass-testkit poison
       windlass-testkit hostile [--count N] [--seed S] [--lanes L] [--world N]
       windlass-testkit backup [--count N] [--seed S]
       windlass-testkit workers [--upgrades] [--count N] [--seed S] [--seconds T] [--lease MS] [--windlass PROGRAM] [--mutant RULE]
       windlass-testkit takeover-workers [--sessions N] [--lease MS] [--windlass PROGRAM]
       windlass-testkit mutants [--only RULE]
each also takes [--results FILE]";
/// Where every proof leaves a line.
const RESULTS: &str = "proofs/results.jsonl";

fn main() -> Result<ExitCode> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    // Runs take minutes: whoever asks for help starts none.
    if args.iter().any(|arg| arg == "--help" || arg == "-h") {
        println!("{USAGE}");
        return Ok(ExitCode::SUCCESS);
    }
    match args.first().map(String::as_str) {
        Some("kill") => kill(&args[1..]),
        Some("points") => points(&args[1..]),
        Some("table") => table(&args[1..]),
        Some("poison") => poison(&args[1..]),
        Some("hostile") => hostile(&args[1..]),
        Some("backup") => backup(&args[1..]),
        Some("workers") => workers(&args[1..]),
        Some("takeover-workers") => takeover_workers(&args[1..]),
        Some("mutants") => mutants(&args[1..]),
        _ => bail!("{USAGE}"),
    }
}

fn kill(args: &[String]) -> Result<ExitCode> {
    let given = |name, usual| option(args, name).map(|given| given.unwrap_or(usual));
    let options = kill::KillOptions {
        kills: given("--count", 1_000)?,
        seed: given("--seed", 1)?,
        time_max: Duration::from_secs(given("--seconds", 24 * 3_600)?),
        lanes: given("--lanes", lanes())?,
        plans: match args.iter().find(|arg| ["--tasks", "--approvals", "--grants"].contains(&arg.as_str())) {
            Some(plans) if plans == "--tasks" => Plans::Tasks,
            Some(plans) if plans == "--grants" => Plans::Grants,
            Some(_) => Plans::Approvals,
            None => Plans::Calls,
        },
    };
    let build = Build::like_this_program()?;
    let programs = match text(args, "--mutant")? {
        None => build.programs()?,
        mutant => Programs { mutant: mutant.cloned(), ..build.with_points().programs()? },
    };
    let report = kill::run(&programs, &options)?;
    println!("{report:#?}");
    finish(args, &report.record(options.seed), &report.violations)
}

fn points(args: &[String]) -> Result<ExitCode> {
    let programs = Build::like_this_program()?.with_points().programs()?;
    let every_visit = !args.iter().any(|arg| arg == "--short");
    let options = points::PointOptions {
        planned: Planned::EveryWrite,
        names: programs.points()?,
        only: None,
        every_visit,
        until: None,
        lanes: lanes(),
    };
    let report = points::run(&programs, &options)?;
    println!("{report:#?}");
    finish(args, &report.record(), &report.violations)
}

fn table(args: &[String]) -> Result<ExitCode> {
    let programs = Build::like_this_program()?.with_points().programs()?;
    let thorough = !args.iter().any(|arg| arg == "--short");
    let report = rows::run(&programs, &rows::RowOptions { thorough, only: None, lanes: lanes() })?;
    println!("{report:#?}");
    finish(args, &report.record(), &report.violations)
}

fn poison(args: &[String]) -> Result<ExitCode> {
    let report = poison::run(&Build::like_this_program()?.programs()?)?;
    println!("{report:#?}");
    finish(args, &report.record(), &report.violations)
}

fn hostile(args: &[String]) -> Result<ExitCode> {
    let given = |name, usual| option(args, name).map(|given| given.unwrap_or(usual));
    let cores = std::thread::available_parallelism().map_or(2, |cores| cores.get() as u64);
    let options = hostile::HostileOptions {
        calls: given("--count", 10_000)?,
        seed: given("--seed", 1)?,
        lanes: given("--lanes", cores)?,
        violations_max: hostile::VIOLATIONS_MAX,
    };
    // A world that broke a promise is played again by itself.
    if let Some(number) = option(args, "--world")? {
        let outcome = hostile::one(options.seed, number)?;
        println!("{outcome:#?}");
        return Ok(if outcome.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    let report = hostile::run(&options)?;
    println!("{report:#?}");
    finish(args, &report.record(options.seed), &report.violations)
}

fn backup(args: &[String]) -> Result<ExitCode> {
    let trials = backup::BackupTrials {
        count: option(args, "--count")?.unwrap_or(100),
        seed: option(args, "--seed")?.unwrap_or(1),
    };
    let programs = backup::BackupPrograms { owner: sibling("scenario")?, backup: sibling("backup")? };
    let running = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let report = running.block_on(backup::run(&programs, &trials))?;
    println!("{report:#?}");
    finish(args, &report.record(&trials), &report.violations)
}

fn workers(args: &[String]) -> Result<ExitCode> {
    let options = fleet_options(args, 500)?;
    let Some(report) = fleet::run(&options)? else { return Ok(ExitCode::SUCCESS) };
    println!("{report:#?}");
    finish(args, &report.record(options.seed), &report.violations)
}

fn takeover_workers(args: &[String]) -> Result<ExitCode> {
    // With the lease that workers have if nobody says otherwise.
    let options = fleet_options(args, windlass::Limits::default().lease_ms)?;
    let sessions = option(args, "--sessions")?.unwrap_or(10_000);
    let Some(report) = fleet::takeover::run(&options, sessions)? else { return Ok(ExitCode::SUCCESS) };
    println!("{report:#?}");
    finish(args, &report.record(), &report.violations)
}

fn fleet_options(args: &[String], lease_ms: u64) -> Result<fleet::FleetOptions> {
    let given = |name, usual| option(args, name).map(|given| given.unwrap_or(usual));
    Ok(fleet::FleetOptions {
        windlass: text(args, "--windlass")?.map_or_else(|| sibling("windlass"), |path| Ok(path.into()))?,
        templates: Build::like_this_program()?.target.join("tmp"),
        trouble: match args.iter().any(|arg| arg == "--upgrades") {
            true => fleet::FleetTrouble::Upgrades,
            false => fleet::FleetTrouble::Faults,
        },
        events: given("--count", 1_000)?,
        seed: given("--seed", 1)?,
        time_max: Duration::from_secs(given("--seconds", 24 * 3_600)?),
        lease_ms: given("--lease", lease_ms)?,
        mutant: text(args, "--mutant")?.cloned(),
    })
}

fn mutants(args: &[String]) -> Result<ExitCode> {
    let only = text(args, "--only")?.map(String::as_str);
    let report = mutants::run(&Build::like_this_program()?, only, lanes())?;
    println!("{report:#?}");
    finish(args, &report.record(), &report.survived)
}

/// Workers wait for the disk most of the time.
fn lanes() -> u64 {
    2 * std::thread::available_parallelism().map_or(2, |cores| cores.get() as u64)
}

fn finish(args: &[String], record: &ProofRecord, violations: &[String]) -> Result<ExitCode> {
    let results = text(args, "--results")?.map_or(RESULTS, String::as_str);
    record.append(Path::new(results))?;
    println!("{}", record.line());
    for violation in violations {
        println!("VIOLATION {violation}");
    }
    Ok(if violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The number after an option.
fn option(args: &[String], name: &str) -> Result<Option<u64>> {
    let Some(given) = text(args, name)? else { return Ok(None) };
    given.parse().map(Some).with_context(|| format!("{name} needs a number, not {given:?}; {USAGE}"))
}

/// The word after an option.
fn text<'a>(args: &'a [String], name: &str) -> Result<Option<&'a String>> {
    let Some(at) = args.iter().position(|arg| arg == name) else { return Ok(None) };
    args.get(at + 1).map(Some).with_context(|| format!("{name} needs a value; {USAGE}"))
}
