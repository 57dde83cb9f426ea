//! Helper processes of the tests: a launcher, or an owner of a command or of files that can be killed.

mod files_owner;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use windlass_tools::command::{CommandPiece, Invocation, Tail, spawn};
use windlass_tools::{Launcher, is_launch_arg, launch_main};

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let owned = match args.next() {
        Some(first) if is_launch_arg(first.as_ref()) => return launch_main(),
        Some(first) if first == "--files" => files_owner::own(&args.map(PathBuf::from).collect::<PathBuf>()),
        Some(call) => own(call, args.map(Into::into).collect()),
        None => return ExitCode::FAILURE,
    };
    match owned {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("the owner failed: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs a command as the runtime would, and passes its output on.
fn own(call: String, words: Vec<std::ffi::OsString>) -> Result<(), Box<dyn std::error::Error>> {
    let cwd = std::env::current_dir()?;
    let invocation = Invocation {
        call,
        words,
        program_file: None,
        env: Vec::new(),
        cwd,
        stdin: Vec::new(),
        stdin_file: None,
    };
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
