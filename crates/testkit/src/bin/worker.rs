//! `windlass-worker FOLDER LEDGER TRIAL WORKER PLAN`: the process that the rigs kill. `PLAN` is a seed,
//! `every-write`, `whole`, `asked`, `row-N` or `poison-CLASS`.

fn main() -> anyhow::Result<std::process::ExitCode> {
    windlass_testkit::proof::worker::main(std::env::args().skip(1).collect())
}
