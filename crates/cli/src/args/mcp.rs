//! Arguments of `windlass mcp`.

use clap::Args;

/// `windlass mcp`
#[derive(Args)]
#[command(after_help = "\
Reads one message per line and writes one message per line; logs go to standard error. The calls are made by the owner of the
data folder, which is started if there is none and is not stopped at the end: a call that takes long survives the client.

Example: windlass --data .windlass mcp --session notes
Claude Code: claude mcp add windlass -- windlass --data \"$PWD/.windlass\" mcp
Codex: codex mcp add windlass -- windlass --data \"$PWD/.windlass\" mcp")]
pub struct McpArgs {
    /// The session of the calls [default: the client's own where it names one, else one for the data folder]
    #[arg(long)]
    pub session: Option<String>,
    /// Let the person at the client approve calls, in a form that the client shows
    #[arg(long)]
    pub approve: bool,
}
