//! Arguments of `windlass mcp`.

use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;

/// `windlass mcp`
#[derive(Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Without a command it reads one message per line and writes one message per line; logs go to standard error. The calls are made by
the owner of the data folder, which is started if there is none and is not stopped at the end: a call that takes long survives
the client.

Example: windlass --data .windlass mcp --session notes
Claude Code: claude mcp add windlass -- windlass --data \"$PWD/.windlass\" mcp
Codex: codex mcp add windlass -- windlass --data \"$PWD/.windlass\" mcp"
)]
pub struct McpArgs {
    /// The session of the calls [default: the client's own where it names one, else one for the data folder]
    #[arg(long)]
    pub session: Option<String>,
    /// Let the person at the client approve calls, in a form that the client shows
    #[arg(long)]
    pub approve: bool,
    /// The tools that are listed: all, or search_tools and call_tool, by which all are found and called [default: what windlass.toml says]
    #[arg(long, value_enum)]
    pub list: Option<McpListArg>,
    /// The command
    #[command(subcommand)]
    pub command: Option<McpCommand>,
}

/// The tools that are listed.
#[derive(Clone, Copy, ValueEnum)]
pub enum McpListArg {
    /// All of the session.
    All,
    /// `search_tools` and `call_tool`.
    Search,
}

/// Commands about MCP servers of others, whose tools are offered here.
#[derive(Subcommand)]
pub enum McpCommand {
    /// List the servers in windlass.toml, and their accepted tools
    Ls(McpLsArgs),
    /// Connect to a server, and compare its tools with the accepted ones
    Test(McpTestArgs),
    /// Show what is new or changed at a server, and accept it
    Accept(McpAcceptArgs),
    /// Connect to a server, show its tools, and write it into windlass.toml
    Add(McpAddArgs),
    /// Print the servers in the configuration file of another client as entries for windlass.toml
    Import(McpImportArgs),
}

/// `windlass mcp ls`
#[derive(Args)]
#[command(after_help = "Example: windlass mcp ls --json")]
pub struct McpLsArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `windlass mcp test`
#[derive(Args)]
#[command(after_help = "\
Exit codes: 0 all tools are accepted and unchanged, 1 some are not, 6 the server cannot be reached.

Example: windlass mcp test github")]
pub struct McpTestArgs {
    /// The server
    pub name: String,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `windlass mcp accept`
#[derive(Args)]
#[command(after_help = "\
A tool is offered only while the server defines it as it was accepted. The definitions are in windlass.mcp.json, beside
windlass.toml; a running owner reads them at once.

Example: windlass mcp accept github create_issue")]
pub struct McpAcceptArgs {
    /// The server
    pub name: String,
    /// The tools, by their names at the server [default: all]
    pub tools: Vec<String>,
    /// Accept without asking
    #[arg(long)]
    pub yes: bool,
}

/// `windlass mcp add`
#[derive(Args)]
#[command(after_help = "\
Example: windlass mcp add files -- npx @modelcontextprotocol/server-filesystem@2025.8.21 /srv/data
Example: windlass mcp add issues --url https://mcp.example.com/mcp --header 'Authorization=Bearer {secret:issues}'")]
pub struct McpAddArgs {
    /// Its name here
    pub name: String,
    /// Its address
    #[arg(long, conflicts_with = "command")]
    pub url: Option<String>,
    /// A header of requests to its address, as NAME=VALUE; {secret:NAME} stands for a secret
    #[arg(long, requires = "url", value_name = "NAME=VALUE")]
    pub header: Vec<String>,
    /// A variable of its environment, as NAME=VALUE; secret:NAME stands for a secret
    #[arg(long, value_name = "NAME=VALUE")]
    pub env: Vec<String>,
    /// Write it and accept its tools without asking
    #[arg(long)]
    pub yes: bool,
    /// The command that starts it
    #[arg(last = true)]
    pub command: Vec<String>,
}

/// `windlass mcp import`
#[derive(Args)]
#[command(after_help = "\
Reads a file, or the files of a client: claude-code, claude-desktop, codex, cursor, gemini, opencode, vscode, windsurf, zed.
Values that look like secrets become secrets, to be stored with `windlass secrets set`.

Example: windlass mcp import cursor >> windlass.toml
Example: windlass mcp import ~/.cursor/mcp.json >> windlass.toml")]
pub struct McpImportArgs {
    /// The file, or the name of a client
    #[arg(value_name = "FILE|CLIENT")]
    pub file: PathBuf,
}
