//! Arguments of the commands about what waits for a person.

use clap::{ArgGroup, Args};

/// `windlass waiting`
#[derive(Args)]
#[command(after_help = "\
Lists approvals, questions, connections, changed tools and calls of which nobody knows whether they took effect, each with
the command that answers it.

Example: windlass waiting")]
pub struct WaitingArgs {
    /// Only those of this session
    #[arg(long)]
    pub session: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `windlass approvals`
#[derive(Args)]
#[command(after_help = "\
Examples:
  windlass approvals
  windlass approvals --remembered default
  windlass approvals --remembered default --forget 5a0000-1")]
pub struct ApprovalsArgs {
    /// Only those of this session
    #[arg(long)]
    pub session: Option<String>,
    /// List the answers that this session gives again by itself, instead
    #[arg(long, value_name = "SESSION", conflicts_with = "session")]
    pub remembered: Option<String>,
    /// Forget one of them: a person is asked again
    #[arg(long, value_name = "ID", requires = "remembered")]
    pub forget: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `windlass approve`
#[derive(Args)]
#[command(after_help = "\
The first answer counts. Edited arguments must match the tool's schema, and the model is told what was changed. A remembered
answer is given again to calls of the same tool in the same session; `windlass approvals --remembered SESSION` lists and
forgets them. If no process owns the data folder, the answer is recorded for the next owner.

Examples:
  windlass approve 01j8a6zc
  windlass approve 01j8a6zc --args '{\"amount\": 10}'
  windlass approve 01j8a6zc --remember-args /path --remember-for-s 3600")]
pub struct ApproveArgs {
    /// The approval: its id, or a prefix of it
    pub id: String,
    /// Run it with these arguments instead
    #[arg(long, value_name = "JSON")]
    pub args: Option<String>,
    /// Approve calls with the same arguments from now on
    #[arg(long)]
    pub remember: bool,
    /// Approve calls that have this argument from now on, by its JSON pointer; repeatable
    #[arg(long, value_name = "POINTER")]
    pub remember_args: Vec<String>,
    /// Approve calls of this tool with any arguments from now on
    #[arg(long, conflicts_with = "remember_args")]
    pub remember_any: bool,
    /// For how many seconds it is remembered [default: as long as the session is there]
    #[arg(long, value_name = "SECONDS")]
    pub remember_for_s: Option<u64>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `windlass deny`
#[derive(Args)]
#[command(after_help = "\
The first answer counts. The model is told the reason. If no process owns the data folder, the answer is recorded for the next
owner.

Example: windlass deny 01j8a6zc --reason 'not on a Friday'")]
pub struct DenyArgs {
    /// The approval: its id, or a prefix of it
    pub id: String,
    /// The reason, for the model
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `windlass connections`
#[derive(Args)]
#[command(group = ArgGroup::new("what").required(true).args(["connected", "declined"]))]
#[command(after_help = "\
For calls in state awaiting_connection: `windlass calls --state awaiting_connection` shows what they need. All calls of the
session that wait for this provider run again, or fail. If no process owns the data folder, the report is recorded for the
next owner.

Example: windlass connections default mail --connected")]
pub struct Connections {
    /// The session
    pub session: String,
    /// The provider, as the calls name it
    pub provider: String,
    /// It is connected
    #[arg(long)]
    pub connected: bool,
    /// The connection was declined
    #[arg(long)]
    pub declined: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
