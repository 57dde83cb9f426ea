//! Arguments of the commands about background work: tasks, logs, inbox.

use clap::{Args, Subcommand};

/// `windlass tasks`
#[derive(Args)]
#[command(
    after_help = "\
A call of a tool with background = true becomes a task when it takes longer than its caller waits.

Examples:
  windlass tasks --session default
  windlass tasks messages 01j8a6zc
  windlass tasks say 01j8a6zc 'use the other mirror'",
    args_conflicts_with_subcommands = true
)]
pub struct TasksArgs {
    /// The subcommand; without one, tasks are listed
    #[command(subcommand)]
    pub command: Option<TasksCommand>,
    /// Only the tasks of this session
    #[arg(long)]
    pub session: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Subcommand)]
pub enum TasksCommand {
    /// Print the messages to and from a task
    Messages(MessagesArgs),
    /// Send a message to a task whose tool takes messages
    Say(SayArgs),
}

/// `windlass tasks messages`
#[derive(Args)]
#[command(after_help = "Example: windlass tasks messages 01j8a6zc")]
pub struct MessagesArgs {
    /// The task: its id, or a prefix of it
    pub task: String,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `windlass tasks say`
#[derive(Args)]
#[command(after_help = "\
The task receives it as the signal `message`, which its tool must declare. With --key, repeating the same message is safe.

Example: windlass tasks say 01j8a6zc 'use the other mirror' --in-reply-to out.asks")]
pub struct SayArgs {
    /// The task: its id, or a prefix of it
    pub task: String,
    /// The message
    pub text: String,
    /// The id of the message this one replies to
    #[arg(long, value_name = "MESSAGE")]
    pub in_reply_to: Option<String>,
    /// Idempotency key: the same message sent again under this key counts once
    #[arg(long)]
    pub key: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `windlass logs`
#[derive(Args)]
#[command(after_help = "\
Each line begins with its source: out, err, or windlass for messages between attempts. Only the beginning and the end of a
long log are retained.

Example: windlass logs 01j8a6zc -f")]
pub struct Logs {
    /// The task: its id, or a prefix of it
    pub task: String,
    /// Keep printing new output until the task ends
    #[arg(short, long)]
    pub follow: bool,
    /// Print JSON, one piece per line
    #[arg(long)]
    pub json: bool,
}

/// `windlass inbox`
#[derive(Args)]
#[command(after_help = "\
A taken notice is reserved for a time; if it is not acknowledged by then, it is delivered again.

Examples:
  windlass inbox
  windlass inbox --take 1 --json
  windlass inbox --take 1 --wait-ms 60000
  windlass inbox --ack 127-00062d…")]
pub struct InboxArgs {
    /// The session
    #[arg(long, default_value = "default")]
    pub session: String,
    /// Take the next notices, at most this many
    #[arg(long, value_name = "COUNT", conflicts_with_all = ["ack", "requeue"])]
    pub take: Option<u64>,
    /// How long the taken notices stay reserved, in milliseconds [default: one minute]
    #[arg(long, requires = "take", value_name = "MS")]
    pub lease_ms: Option<u64>,
    /// How long to wait for a notice if there is none, in milliseconds [default: not at all]
    #[arg(long, requires = "take", value_name = "MS")]
    pub wait_ms: Option<u64>,
    /// Acknowledge a notice: it was delivered
    #[arg(long, value_name = "ID", conflicts_with = "requeue")]
    pub ack: Option<String>,
    /// Return a notice to the inbox: it was not delivered
    #[arg(long, value_name = "ID")]
    pub requeue: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
