//! Arguments of `windlass policy` and `windlass init`.

use clap::{Args, Subcommand};
use std::path::PathBuf;

/// `windlass policy`
#[derive(Args)]
#[command(after_help = "\
Without a subcommand it shows the rules in force: those of windlass.toml and those that were set. Every rule that matches a
call counts, and the strictest one wins: deny before ask before allow. docs/policy.md explains how rules are written.

Examples:
  windlass policy
  windlass policy check send_mail '{\"to\": \"bob@example.com\"}' --as alice
  windlass policy set rules.json")]
#[command(args_conflicts_with_subcommands = true)]
pub struct PolicyArgs {
    /// The subcommand
    #[command(subcommand)]
    pub command: Option<PolicyCommand>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Subcommand)]
pub enum PolicyCommand {
    /// Explain the ruling on a call, rule by rule, without making it
    Check(PolicyCheckArgs),
    /// Replace the rules that were set before; those of windlass.toml stay
    Set(PolicySetArgs),
    /// List the versions of the policy, newest first
    History(PolicyHistoryArgs),
}

/// `windlass policy check`
#[derive(Args)]
#[command(after_help = "\
Nothing runs. A condition on a value that is absent or of the wrong type holds in ask and deny rules, and in no allow rule.

Example: windlass policy check delete_file '{\"path\": \"/etc/hosts\"}' --as alice --session default")]
pub struct PolicyCheckArgs {
    /// The tool
    pub tool: String,
    /// Its arguments, as JSON
    #[arg(default_value = "{}")]
    pub args: String,
    /// The requesting principal [default: that of --session]
    #[arg(long = "as", value_name = "PRINCIPAL")]
    pub principal: Option<String>,
    /// The session whose tools, labels and principal count
    #[arg(long)]
    pub session: Option<String>,
    /// The turn of the conversation
    #[arg(long)]
    pub turn: Option<String>,
    /// As if the session had read private data and untrusted content
    #[arg(long)]
    pub exposed: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `windlass policy set`
#[derive(Args)]
#[command(after_help = "\
The file holds {\"rules\": [...]}. The command returns when every worker uses the new version.

Example: windlass policy set rules.json --version 3")]
pub struct PolicySetArgs {
    /// The file with the rules, as JSON; - for standard input
    pub file: PathBuf,
    /// The version to replace; refused if there is a newer one
    #[arg(long, value_name = "N")]
    pub version: Option<u64>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `windlass policy history`
#[derive(Args)]
#[command(after_help = "Example: windlass policy history --limit 5")]
pub struct PolicyHistoryArgs {
    /// The maximum number of versions
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=100))]
    pub limit: u64,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `windlass init`
#[derive(Args)]
#[command(after_help = "\
The file is written into the current folder, or into the folder of --data. An existing one is never changed.

Examples:
  windlass init --policy
  windlass init --policy --print >> windlass.toml")]
pub struct InitArgs {
    /// Add a policy: read freely, ask before anything destructive, ask before private data can leave
    #[arg(long)]
    pub policy: bool,
    /// Print the text instead of writing the file
    #[arg(long)]
    pub print: bool,
}
