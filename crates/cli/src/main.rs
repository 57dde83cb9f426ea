//! The windlass command line: one file per command, named like it.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod accept;
mod answer;
mod approvals;
mod args;
mod backup;
mod bench;
mod call;
mod calls;
mod cancel;
mod complete;
mod confirm;
mod connections;
mod database;
mod dev;
mod doctor;
mod door;
mod driver;
mod emit;
mod exit;
mod folder;
mod grants;
mod inbox;
mod init;
mod input;
mod install;
mod logs;
mod mcp;
mod migrate;
mod open;
mod owner;
mod policy;
mod questions;
mod resolve;
mod run;
mod schedules;
mod secrets;
mod serve;
mod sessions;
mod show;
mod signal;
mod standing;
mod tasks;
mod token;
mod toolboxes;
mod tools;
mod triggers;
mod turn;
mod watch;
mod webhooks;

use anyhow::Context;
use args::{Cli, Command};
use clap::FromArgMatches;
use door::{At, ServerAddress};
use exit::Usage;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// How long the command waits at its end for its tasks and threads.
const CLOSE_WAIT: Duration = Duration::from_secs(2);

fn main() -> ExitCode {
    // A command tool is started through this same binary, so that the command dies with its owner.
    if std::env::args_os().nth(1).is_some_and(|arg| windlass_tools::is_launch_arg(&arg)) {
        return windlass_tools::launch_main();
    }
    let cli = match Cli::from_arg_matches(&args::command().get_matches()) {
        Ok(cli) => cli,
        Err(error) => error.exit(),
    };
    if let Err(error) = logs::start(&cli.command) {
        return exit::report(&error.into());
    }
    tell_panics_shortly();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return exit::report(&anyhow::Error::new(error).context("could not start threads")),
    };
    let mut owned = None;
    let ended = runtime.block_on(command(cli, &mut owned));
    // Tasks that still drive calls release the store. Tools that block their threads must not keep the
    // command from exiting.
    runtime.shutdown_timeout(CLOSE_WAIT);
    folder::close(owned, CLOSE_WAIT);
    let code = ended.unwrap_or_else(|error| exit::report(&error));
    logs::flush();
    code
}

/// A panicking tool fails one call, and must not look like a crash of windlass; RUST_BACKTRACE restores the
/// usual report.
fn tell_panics_shortly() {
    if std::env::var_os("RUST_BACKTRACE").is_some_and(|wish| wish != "0") {
        return;
    }
    std::panic::set_hook(Box::new(|panic| {
        let what = windlass_core::visible::line(panic.payload_as_str().unwrap_or("no message"));
        let place = panic.location().map_or_else(|| "an unknown place".to_string(), ToString::to_string);
        logs::tell!("a panic at {place}: {what} (RUST_BACKTRACE=1 prints a backtrace)");
    }));
}

async fn command(cli: Cli, owned: &mut folder::Owned) -> anyhow::Result<ExitCode> {
    let at = at(&cli)?;
    match cli.command {
        Command::Serve(args) => serve::serve(&at, owned, args).await,
        Command::Dev(args) => dev::dev(&at, owned, args).await,
        Command::Mcp(args) => mcp::mcp(&at, args).await,
        Command::Run(args) => run::run(&at, owned, args).await,
        Command::Call(args) => call::call(&at, owned, args).await,
        Command::Tools(args) => tools::tools(&at, args).await,
        Command::Sessions(args) => sessions::sessions(&at, args).await,
        Command::Calls(args) => calls::calls(&at, args).await,
        Command::Tasks(args) => tasks::tasks(&at, args).await,
        Command::Logs(args) => tasks::logs(&at, args).await,
        Command::Inbox(args) => inbox::inbox(&at, args).await,
        Command::Schedules(args) => schedules::schedules(&at, args).await,
        Command::Triggers(args) => triggers::triggers(&at, args).await,
        Command::Emit(args) => emit::emit(&at, args).await,
        Command::Fulfil(args) => emit::fulfil(&at, args).await,
        Command::Notice(args) => emit::notice(&at, args).await,
        Command::Cancel(args) => cancel::cancel(&at, args).await,
        Command::Resolve(args) => resolve::resolve(&at, owned, args).await,
        Command::Accept(args) => accept::accept(&at, args).await,
        Command::Complete(args) => complete::complete(&at, args).await,
        Command::Waiting(args) => approvals::waiting(&at, args).await,
        Command::Approvals(args) => approvals::approvals(&at, args).await,
        Command::Approve(args) => approvals::approve(&at, args).await,
        Command::Deny(args) => approvals::deny(&at, args).await,
        Command::Questions(args) => questions::questions(&at, args).await,
        Command::Answer(args) => answer::answer(&at, args).await,
        Command::Signal(args) => signal::signal(&at, args).await,
        Command::Connections(args) => connections::connections(&at, args).await,
        Command::Watch(args) => watch::watch(&at, args).await,
        Command::Policy(args) => policy::policy(&at, owned, args).await,
        Command::Init(args) => init::init(&at, &args),
        Command::Secrets(args) => secrets::secrets(&at, owned, args).await,
        Command::Grants(args) => grants::grants(&at, owned, args).await,
        Command::Toolboxes(args) => toolboxes::toolboxes(&at, owned, args).await,
        Command::Webhooks(args) => webhooks::webhooks(&at, owned, args).await,
        Command::Token(args) => token::token(&at, owned, args).await,
        Command::Open(args) => open::open(&at, args).await,
        Command::Backup(args) => backup::backup(&at, args).await,
        Command::Migrate(args) => migrate::migrate(&at, &args).await,
        Command::Confirm(args) => confirm::confirm(&at, &args).await,
        Command::Doctor(args) => doctor::doctor(&at, args).await,
        Command::Bench(args) => bench::bench(&at, args),
        Command::Completions(args) => install::completions(&args),
        Command::Man => install::manual(),
    }
}

/// The place of the calls, from the global options.
fn at(cli: &Cli) -> anyhow::Result<At> {
    let server = match (&cli.server, &cli.token_file) {
        (None, _) => None,
        (Some(url), Some(file)) => {
            let token = std::fs::read_to_string(file)
                .with_context(|| Usage(format!("could not read the token in {}", file.display())))?;
            Some(ServerAddress { url: url.clone(), token: Some(token.trim().to_string()) })
        }
        (Some(url), None) => {
            Some(ServerAddress { url: url.clone(), token: std::env::var("WINDLASS_TOKEN").ok() })
        }
    };
    let config = if let Command::Serve(args) = &cli.command { args.config.clone() } else { None };
    let usual = if let Command::Dev(_) = &cli.command { ".windlass-dev" } else { ".windlass" };
    let is_demo = matches!(cli.command, Command::Dev(_) | Command::Bench(_));
    let store = if is_demo { None } else { database::given(cli.store.as_deref())? };
    let is_named = cli.data.is_some();
    let data = cli.data.clone().unwrap_or_else(|| PathBuf::from(usual));
    Ok(At { data, is_named, is_demo, config, store, server, token_file: cli.token_file.clone() })
}
