//! Arguments of the commands that serve.

use clap::{Args, ValueEnum};
use std::net::SocketAddr;
use std::path::PathBuf;

/// Default address of servers.
const LISTEN: &str = "127.0.0.1:7420";

/// `windlass serve`
#[derive(Args)]
#[command(after_help = "\
The first start writes a token into the data folder. Ctrl-C shuts down gracefully: running calls may finish, and the
next owner of the folder continues the rest.

Example: windlass serve --listen 127.0.0.1:7420")]
pub struct Serve {
    /// The address to listen on; port 0 picks a free port
    #[arg(long, default_value = LISTEN, value_name = "ADDR")]
    pub listen: SocketAddr,
    /// The address at which the other workers of a shared store reach this one [default: the one it listens on]
    #[arg(long, value_name = "URL")]
    pub advertise: Option<String>,
    /// The configuration file [default: windlass.toml in the data folder, else in the current folder]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Leave once no MCP client has asked for anything for a while and nothing is open or scheduled
    #[arg(long, hide = true)]
    pub leave_when_idle: bool,
    #[command(flatten)]
    pub logging: Logging,
}

/// Log options of a server.
#[derive(Args)]
pub struct Logging {
    /// The format of the log on standard error
    #[arg(long, value_enum, default_value_t = LogFormat::Text, value_name = "FORMAT")]
    pub log: LogFormat,
    /// The log level: off, error, warn, info, debug, trace, or filters like info,windlass_server=debug
    /// [default: WINDLASS_LOG, else info]
    #[arg(long, value_name = "LEVEL")]
    pub log_level: Option<String>,
}

/// The format of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    Text,
    Json,
}

/// `windlass dev`
#[derive(Args)]
#[command(after_help = "\
This is `windlass serve` on .windlass-dev. The first start writes a windlass.toml there, with tools to try and to change;
every start submits a batch of example calls, which returns the recorded answers if it ran before. Remove the folder to
start over.

Examples:
  windlass dev
  windlass dev --listen 127.0.0.1:0 --data /tmp/tour")]
pub struct Dev {
    /// The address to listen on; port 0 picks a free port
    #[arg(long, default_value = LISTEN, value_name = "ADDR")]
    pub listen: SocketAddr,
    #[command(flatten)]
    pub logging: Logging,
}
