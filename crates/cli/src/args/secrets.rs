//! Arguments of `windlass secrets`.

use clap::{Args, Subcommand};

/// `windlass secrets`
#[derive(Args)]
#[command(after_help = "\
A tool uses a secret by name: `env = { TOKEN = \"secret:deploy_token\" }` in windlass.toml. Values are stored encrypted and never shown.

Example: windlass secrets set deploy_token < token.txt")]
pub struct SecretsArgs {
    /// The subcommand
    #[command(subcommand)]
    pub what: SecretsCommand,
}

/// The subcommands of `windlass secrets`.
#[derive(Subcommand)]
pub enum SecretsCommand {
    /// List the names of secrets (values are never shown)
    #[command(after_help = "Example: windlass secrets ls --session default")]
    Ls(ListSecrets),
    /// Store a secret; its value is read from standard input, or asked for on a terminal
    #[command(after_help = "Example: windlass secrets set deploy_token < token.txt")]
    Set(OneSecret),
    /// Remove a secret
    #[command(after_help = "Example: windlass secrets rm deploy_token")]
    Rm(OneSecret),
}

/// `windlass secrets ls`
#[derive(Args)]
pub struct ListSecrets {
    /// The session whose own secrets are listed [default: those of all sessions]
    #[arg(long)]
    pub session: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `windlass secrets set`, `rm`
#[derive(Args)]
pub struct OneSecret {
    /// The secret's name
    pub name: String,
    /// The session whose own secret it is [default: one of all sessions]
    #[arg(long)]
    pub session: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
