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
mod dev;
mod doctor;
mod door;
mod driver;
mod exit;
mod folder;
mod inbox;
mod input;
mod owner;
mod questions;
mod resolve;
mod run;
mod schedules;
mod serve;
mod sessions;
mod show;
mod signal;
mod standing;
mod tasks;
mod token;
mod tools;
mod triggers;
mod watch;

use anyhow::Context;
use args::{Cli, Command};
use clap::Parser;
use door::{At, Server};
use exit::Usage;
use std::path::PathBuf;
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
    let at = at(&cli)?;
    match cli.command {
        Command::Serve(args) => serve::serve((&at, owned), args).await,
        Command::Dev(args) => dev::dev((&at, owned), args).await,
        Command::Run(args) => run::run((&at, owned), args).await,
        Command::Call(args) => call::call((&at, owned), args).await,
        Command::Tools(args) => tools::tools(&at, args).await,
        Command::Sessions(args) => sessions::sessions(&at, args).await,
        Command::Calls(args) => calls::calls(&at, args).await,
        Command::Tasks(args) => tasks::tasks(&at, args).await,
        Command::Logs(args) => tasks::logs(&at, args).await,
        Command::Inbox(args) => inbox::inbox(&at, args).await,
        Command::Schedules(args) => schedules::schedules(&at, args).await,
        Command::Triggers(args) => triggers::triggers(&at, args).await,
        Command::Cancel(args) => cancel::cancel(&at, args).await,
        Command::Resolve(args) => resolve::resolve((&at, owned), args).await,
        Command::Accept(args) => accept::accept(&at, args).await,
        Command::Complete(args) => complete::complete(&at, args).await,
        Command::Questions(args) => questions::questions(&at, args).await,
        Command::Answer(args) => answer::answer(&at, args).await,
        Command::Signal(args) => signal::signal(&at, args).await,
        Command::Connections(args) => connections::connections(&at, args).await,
        Command::Watch(args) => watch::watch(&at, args).await,
        Command::Token(args) => token::token((&at, owned), args).await,
        Command::Doctor(args) => doctor::doctor(&at, args).await,
        Command::Bench(args) => bench::bench(args),
    }
}

/// Where the calls are that the command is about.
fn at(cli: &Cli) -> anyhow::Result<At> {
    let server = match (&cli.server, &cli.token_file) {
        (None, _) => None,
        (Some(url), Some(file)) => {
            let token = std::fs::read_to_string(file)
                .with_context(|| Usage(format!("could not read the token in {}", file.display())))?;
            Some(Server { url: url.clone(), token: Some(token.trim().to_string()) })
        }
        (Some(url), None) => Some(Server { url: url.clone(), token: std::env::var("WINDLASS_TOKEN").ok() }),
    };
    let config = if let Command::Serve(args) = &cli.command { args.config.clone() } else { None };
    let usual = if let Command::Dev(_) = &cli.command { ".windlass-dev" } else { ".windlass" };
    let data = cli.data.clone().unwrap_or_else(|| PathBuf::from(usual));
    Ok(At { data, config, server })
}
