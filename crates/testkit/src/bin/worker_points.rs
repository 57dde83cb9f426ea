//! The worker with kill points; `windlass-worker-points --points` lists them, and `--migration-points` those that only a file of an
//! older format passes. `--open FOLDER` opens a data folder and closes it again. `--hostile CALLS SEED LANES` plays the hostile model.
#![expect(clippy::print_stdout, reason = "the list is what was asked for")]

use windlass_testkit::hostile::HostileOptions;

fn main() -> anyhow::Result<std::process::ExitCode> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args == ["--points"] {
        for name in windlass_store::points::NAMES.iter().chain(windlass::points::NAMES) {
            println!("{name}");
        }
        return Ok(std::process::ExitCode::SUCCESS);
    }
    if args == ["--migration-points"] {
        windlass_store::points::MIGRATION.iter().for_each(|name| println!("{name}"));
        return Ok(std::process::ExitCode::SUCCESS);
    }
    if let [open, folder] = &args[..]
        && open == "--open"
    {
        drop(windlass_store::SqliteStore::open(windlass_store::sqlite::Options::new(folder))?);
        return Ok(std::process::ExitCode::SUCCESS);
    }
    if let [hostile, calls, seed, lanes] = &args[..]
        && hostile == "--hostile"
    {
        let (calls, seed, lanes) = (calls.parse()?, seed.parse()?, lanes.parse()?);
        let options = HostileOptions { calls, seed, lanes, violations_max: 1 };
        windlass_testkit::hostile::run(&options)?.violations.iter().for_each(|broken| println!("{broken}"));
        return Ok(std::process::ExitCode::SUCCESS);
    }
    windlass_testkit::proof::worker::main(args)
}
