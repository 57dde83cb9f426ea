//! The words of what goes on without its caller.

use clap::Args;

/// `windlass tasks`
#[derive(Args)]
#[command(after_help = "\
A call of a tool with background = true that takes longer than its caller waits goes on as a task.

Example: windlass tasks --session default")]
pub struct Tasks {
    /// Of this session only
    #[arg(long)]
    pub session: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `windlass logs`
#[derive(Args)]
#[command(after_help = "\
Each line begins with where it comes from: out, err, or windlass for what is said between attempts. Of a long log the
beginning and the end are kept.

Example: windlass logs 01j8a6zc -f")]
pub struct Logs {
    /// The task, or the beginning of its id
    pub task: String,
    /// Stay, and print what it says until it ends
    #[arg(short, long)]
    pub follow: bool,
    /// Print JSON, one piece a line
    #[arg(long)]
    pub json: bool,
}

/// `windlass inbox`
#[derive(Args)]
#[command(after_help = "\
A notice is taken for a time; if it is not acknowledged until then it is taken again.

Examples:
  windlass inbox
  windlass inbox --take 1 --json
  windlass inbox --ack 127-00062d…")]
pub struct Inbox {
    /// The session
    #[arg(long, default_value = "default")]
    pub session: String,
    /// Take the next ones, at most so many
    #[arg(long, value_name = "COUNT", conflicts_with_all = ["ack", "requeue"])]
    pub take: Option<u64>,
    /// For how long nobody else gets them, in milliseconds; a minute if not said
    #[arg(long, requires = "take", value_name = "MS")]
    pub lease_ms: Option<u64>,
    /// A notice was heard: remove it
    #[arg(long, value_name = "ID", conflicts_with = "requeue")]
    pub ack: Option<String>,
    /// A notice was not heard: put it back
    #[arg(long, value_name = "ID")]
    pub requeue: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
