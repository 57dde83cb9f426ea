//! The words of what goes on without its caller.

use clap::{Args, Subcommand};

/// `windlass tasks`
#[derive(Args)]
#[command(
    after_help = "\
A call of a tool with background = true that takes longer than its caller waits goes on as a task.

Examples:
  windlass tasks --session default
  windlass tasks messages 01j8a6zc
  windlass tasks say 01j8a6zc 'use the other mirror'",
    args_conflicts_with_subcommands = true
)]
pub struct Tasks {
    /// What to do, if not to list them
    #[command(subcommand)]
    pub command: Option<TasksCommand>,
    /// Of this session only
    #[arg(long)]
    pub session: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Subcommand)]
pub enum TasksCommand {
    /// Print what was said to a task and what it said
    Messages(Messages),
    /// Say something to a task whose tool takes messages
    Say(Say),
}

/// `windlass tasks messages`
#[derive(Args)]
#[command(after_help = "Example: windlass tasks messages 01j8a6zc")]
pub struct Messages {
    /// The task, or the beginning of its id
    pub task: String,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `windlass tasks say`
#[derive(Args)]
#[command(after_help = "\
The task receives it as the signal `message`, which its tool must declare. What is said twice with one key is said once.

Example: windlass tasks say 01j8a6zc 'use the other mirror' --in-reply-to out.asks")]
pub struct Say {
    /// The task, or the beginning of its id
    pub task: String,
    /// What to say
    pub text: String,
    /// The id of the message that this answers
    #[arg(long, value_name = "MESSAGE")]
    pub in_reply_to: Option<String>,
    /// What makes it one message, however often it is sent
    #[arg(long)]
    pub key: Option<String>,
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
