//! Arguments of `windlass toolboxes`.

use clap::{Args, Subcommand};

/// `windlass toolboxes`
#[derive(Args)]
#[command(after_help = "Example: windlass toolboxes ls")]
pub struct ToolboxesArgs {
    /// The subcommand
    #[command(subcommand)]
    pub command: ToolboxesCommand,
}

#[derive(Subcommand)]
pub enum ToolboxesCommand {
    /// List toolboxes with the processes that serve them
    #[command(after_help = "Example: windlass toolboxes ls --json")]
    Ls {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Remove a toolbox and its tools; attempts that its processes have go on
    #[command(after_help = "Example: windlass toolboxes rm crm")]
    Rm {
        /// The name of the toolbox
        name: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}
