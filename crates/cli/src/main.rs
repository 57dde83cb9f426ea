//! The windlass command line: one file per command, named like it.

mod accept;
mod answer;
mod args;
mod bench;
mod call;
mod calls;
mod cancel;
mod complete;
mod connections;
mod doctor;
mod door;
mod exit;
mod folder;
mod input;
mod owner;
mod questions;
mod resolve;
mod run;
mod show;
mod signal;
mod tools;

use args::{Cli, Command};
use clap::Parser;
use std::process::ExitCode;
use std::time::Duration;

/// How long the end of the command waits for what it started.
const CLOSE_WAIT: Duration = Duration::from_secs(2);

fn main() -> ExitCode {
    // A command tool is run by this same binary started again, so that the command dies with its owner.
    if std::env::args_os().nth(1).is_some_and(|arg| arg == windlass_tools::LAUNCH_ARG) {
        return windlass_tools::launch_main();
    }
    let cli = Cli::parse();
    tell_panics_shortly();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return exit::report(&anyhow::Error::new(error).context("could not start threads")),
    };
    let mut owned = None;
    let ended = runtime.block_on(command(cli, &mut owned));
    // Whatever still drives calls lets go of the store. Tools that block their threads must not keep the command from
    // ending.
    runtime.shutdown_timeout(CLOSE_WAIT);
    folder::close(owned, CLOSE_WAIT);
    ended.unwrap_or_else(|error| exit::report(&error))
}

/// A tool that panics fails one call, and must not look as if windlass had crashed; whoever asks for a backtrace
/// gets the usual report.
fn tell_panics_shortly() {
    if std::env::var_os("RUST_BACKTRACE").is_some_and(|wish| wish != "0") {
        return;
    }
    std::panic::set_hook(Box::new(|panic| {
        let what = panic.payload_as_str().unwrap_or("no message");
        let place = panic.location().map_or_else(|| "an unknown place".to_string(), ToString::to_string);
        eprintln!("windlass: a panic at {place}: {what} (RUST_BACKTRACE=1 shows how it came there)");
    }));
}

async fn command(cli: Cli, owned: &mut folder::Owned) -> anyhow::Result<ExitCode> {
    match cli.command {
        Command::Run(args) => run::run((&cli.data, owned), args).await,
        Command::Call(args) => call::call((&cli.data, owned), args).await,
        Command::Tools(args) => tools::tools(&cli.data, args).await,
        Command::Calls(args) => calls::calls(&cli.data, args).await,
        Command::Cancel(args) => cancel::cancel(&cli.data, args).await,
        Command::Resolve(args) => resolve::resolve((&cli.data, owned), args).await,
        Command::Accept(args) => accept::accept(&cli.data, args).await,
        Command::Complete(args) => complete::complete(&cli.data, args).await,
        Command::Questions(args) => questions::questions(&cli.data, args).await,
        Command::Answer(args) => answer::answer(&cli.data, args).await,
        Command::Signal(args) => signal::signal(&cli.data, args).await,
        Command::Connections(args) => connections::connections(&cli.data, args).await,
        Command::Doctor(args) => doctor::doctor(&cli.data, args).await,
        Command::Bench(args) => bench::bench(args),
    }
}
