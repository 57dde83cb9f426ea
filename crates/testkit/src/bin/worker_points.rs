//! The worker with kill points; `windlass-worker-points --points` lists them.
#![expect(clippy::print_stdout, reason = "the list is what was asked for")]

fn main() -> anyhow::Result<std::process::ExitCode> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args == ["--points"] {
        for name in windlass_store::points::NAMES.iter().chain(windlass::points::NAMES) {
            println!("{name}");
        }
        return Ok(std::process::ExitCode::SUCCESS);
    }
    windlass_testkit::proof::worker::main(args)
}
