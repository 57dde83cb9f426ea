//! Arguments of `windlass grants`.

use clap::{Args, Subcommand};

/// `windlass grants`
#[derive(Args)]
#[command(after_help = "Example: windlass grants issue deploy --session agent --uses 1 --expires-in-s 3600")]
pub struct GrantsArgs {
    /// The subcommand
    #[command(subcommand)]
    pub command: GrantsCommand,
}

#[derive(Subcommand)]
pub enum GrantsCommand {
    /// List grants (tokens and bindings are never shown)
    #[command(after_help = "Example: windlass grants ls --session agent")]
    Ls(ListGrants),
    /// Issue a grant to a session; its token is printed only once
    Issue(IssueGrant),
    /// Make a narrower copy of a grant; its token is printed only once
    Attenuate(AttenuateGrant),
    /// Revoke a grant and all its copies
    #[command(after_help = "Example: windlass grants revoke 4f2a")]
    Revoke(OneGrant),
}

/// `windlass grants ls`
#[derive(Args)]
pub struct ListGrants {
    /// Only grants of this session
    #[arg(long)]
    pub session: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `windlass grants issue`
#[derive(Args)]
#[command(after_help = "\
A call names the tool and has the token as its `grant`: then the tool runs although the session does not have it, within the
conditions of the grant. The policy applies as to any other call.

Example: windlass grants issue deploy --session agent --where '{\"pointer\": \"/service\", \"equals\": \"shop\"}' --uses 1")]
pub struct IssueGrant {
    /// The tool: its name or its stable id
    pub tool: String,
    /// The session that gets the grant
    #[arg(long)]
    pub session: String,
    /// A condition on the arguments, as in a policy; repeatable
    #[arg(long = "where", value_name = "JSON")]
    pub conditions: Vec<String>,
    /// How many calls may start by it [default: any number]
    #[arg(long, value_name = "N")]
    pub uses: Option<u64>,
    /// How long it lasts [default: as long as the session]
    #[arg(long, value_name = "SECONDS")]
    pub expires_in_s: Option<u64>,
    /// A value for the tool
    #[arg(long, value_name = "JSON")]
    pub binding: Option<String>,
    /// How often its calls are tried [default: as the tool says]
    #[arg(long, value_name = "N")]
    pub attempts: Option<u32>,
    /// The source that the tool must have
    #[arg(long)]
    pub source: Option<String>,
    /// The digest of the contract that the tool must have
    #[arg(long)]
    pub contract: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `windlass grants attenuate`
#[derive(Args)]
#[command(after_help = "\
The copy has the conditions of the grant and those given here. Its uses are taken out of the grant.

Example: windlass grants attenuate 4f2a --session agent.reviewer --uses 1")]
pub struct AttenuateGrant {
    /// The grant: its id, or a prefix of it
    pub grant: String,
    /// The session that gets the copy, a child of the grant's session [default: the grant's session]
    #[arg(long)]
    pub session: Option<String>,
    /// One more condition on the arguments; repeatable
    #[arg(long = "where", value_name = "JSON")]
    pub conditions: Vec<String>,
    /// The uses that the copy takes; needed if the grant counts them
    #[arg(long, value_name = "N")]
    pub uses: Option<u64>,
    /// How long it lasts [default: as long as the grant]
    #[arg(long, value_name = "SECONDS")]
    pub expires_in_s: Option<u64>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// One grant.
#[derive(Args)]
pub struct OneGrant {
    /// The grant: its id, or a prefix of it
    pub grant: String,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
