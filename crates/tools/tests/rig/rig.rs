//! Helper processes of the tests: a launcher, or an owner of a command that can be killed.

use std::io::Write;
use std::process::ExitCode;
use windlass_tools::command::{CommandPiece, Invocation, Tail, spawn};
use windlass_tools::{Launcher, is_launch_arg, launch_main};

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    match args.next() {
        Some(first) if is_launch_arg(first.as_ref()) => launch_main(),
        Some(call) => match own(call, args.map(Into::into).collect()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("the owner failed: {error}");
                ExitCode::FAILURE
            }
        },
        None => ExitCode::FAILURE,
    }
}

/// Runs a command as the runtime would, and passes its output on.
fn own(call: String, words: Vec<std::ffi::OsString>) -> Result<(), Box<dyn std::error::Error>> {
    let cwd = std::env::current_dir()?;
    let invocation = Invocation { call, words, program_file: None, env: Vec::new(), cwd, stdin: Vec::new() };
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let mut running = spawn(&Launcher::this_binary()?, invocation, Tail::new(4096)).await?;
        while let Some(piece) = running.next().await? {
            if let CommandPiece::Stdout(piece) = piece {
                std::io::stdout().write_all(piece)?;
                std::io::stdout().flush()?;
            }
        }
        Ok(())
    })
}
