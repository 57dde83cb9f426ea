//! The windlass command line: one file per command, named like it.

mod args;
mod bench;
mod call;
mod calls;
mod doctor;
mod exit;
mod folder;
mod input;
mod run;
mod show;
mod tools;

use args::{Cli, Command};
use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    // A command tool is run by this same binary started again, so that the command dies with its owner.
    if std::env::args_os().nth(1).is_some_and(|arg| arg == windlass_tools::LAUNCH_ARG) {
        return windlass_tools::launch_main();
    }
    let cli = Cli::parse();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return exit::report(&anyhow::Error::new(error).context("could not start threads")),
    };
    let ended = runtime.block_on(command(cli));
    // Tools that block their threads must not keep the command from ending.
    runtime.shutdown_background();
    ended.unwrap_or_else(|error| exit::report(&error))
}

async fn command(cli: Cli) -> anyhow::Result<ExitCode> {
    match cli.command {
        Command::Run(args) => run::run(&cli.data, args).await,
        Command::Call(args) => call::call(&cli.data, args).await,
        Command::Tools(args) => tools::tools(&cli.data, args).await,
        Command::Calls(args) => calls::calls(&cli.data, args).await,
        Command::Doctor(args) => doctor::doctor(&cli.data, args).await,
        Command::Bench(args) => bench::bench(args),
    }
}
