//! Arguments of `windlass token`.

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use windlass_server::access::TokenScope;

/// `windlass token`
#[derive(Args)]
#[command(after_help = "Example: windlass token create ci --scope calls --scope read")]
pub struct TokenArgs {
    /// The subcommand
    #[command(subcommand)]
    pub what: TokenWhat,
}

/// The subcommands of `windlass token`.
#[derive(Subcommand)]
pub enum TokenWhat {
    /// Create a token; its secret is printed only once
    #[command(
        after_help = "Example: windlass token create ci --scope calls --scope read --expires-in-s 86400"
    )]
    Create(TokenCreate),
    /// List tokens (secrets are never shown)
    #[command(after_help = "Example: windlass token list --json")]
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Revoke a token
    #[command(after_help = "Example: windlass token revoke 01j8a6zc")]
    Revoke {
        /// The token's id, as `windlass token list` shows it
        id: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

/// `windlass token create`
#[derive(Args)]
pub struct TokenCreate {
    /// The principal the token stands for; sessions belong to a principal
    pub principal: String,
    /// A permission of the token; repeatable
    #[arg(long, required = true, value_parser = PossibleValuesParser::new(TokenScope::ALL.map(TokenScope::as_str)))]
    pub scope: Vec<String>,
    /// With the scope approve: a principal whose calls the token may approve, beside its own; repeatable
    #[arg(long, value_name = "PRINCIPAL")]
    pub approves: Vec<String>,
    /// A note for people on what the token is for
    #[arg(long, value_name = "TEXT")]
    pub title: Option<String>,
    /// The token's lifetime in seconds [default: until revoked]
    #[arg(long, value_name = "SECONDS")]
    pub expires_in_s: Option<u64>,
    /// The token's own request rate per minute [default: token_requests_per_minute]
    #[arg(long, value_name = "N")]
    pub requests_per_minute: Option<u32>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
