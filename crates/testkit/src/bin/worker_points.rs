//! The worker with kill points; `windlass-worker-points --points` lists them, and `--migration-points` those that only a file of an
//! older format passes. `--open FOLDER` opens a data folder and closes it again.
#![expect(clippy::print_stdout, reason = "the list is what was asked for")]

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
    windlass_testkit::proof::worker::main(args)
}
