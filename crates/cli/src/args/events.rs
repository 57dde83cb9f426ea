//! Arguments of the commands that tell a session something: events, and notices.

use clap::{ArgGroup, Args, ValueEnum};
use windlass::tasks::Urgency;

/// `windlass emit`
#[derive(Args)]
#[command(after_help = "\
The kind must be one that a tool of the session declares, and the payload must fit its schema. Triggers of the session
start their tasks.

Examples:
  windlass emit sold '{\"item\": \"door\"}'
  windlass emit sold '{\"item\": \"door\"}' --once-by order-7")]
pub struct EmitArgs {
    /// The kind of event, as a tool declares it
    pub kind: String,
    /// Its payload, as JSON
    #[arg(default_value = "{}")]
    pub payload: String,
    /// The session
    #[arg(long, default_value = "default")]
    pub session: String,
    /// Idempotency key: events of one kind with the same key are emitted once
    #[arg(long, value_name = "KEY")]
    pub once_by: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `windlass fulfil`
#[derive(Args)]
#[command(group = ArgGroup::new("what").required(true).args(["ok", "error"]))]
#[command(after_help = "\
Calls of the session that wait for the event continue, and so do calls that wait for it later. The first answer counts:
repeating it is fine, and a different one is refused.

Examples:
  windlass fulfil release-approved --ok '{\"by\": \"Ann\"}'
  windlass fulfil release-approved --error rejected --message 'The tests are red.'")]
pub struct FulfilArgs {
    /// The name of the event, as calls wait for it
    pub event: String,
    /// The session
    #[arg(long, default_value = "default")]
    pub session: String,
    /// It happened, with this value
    #[arg(long, value_name = "JSON")]
    pub ok: Option<String>,
    /// It failed: an error code of your own, for programs
    #[arg(long, value_name = "CODE", requires = "message")]
    pub error: Option<String>,
    /// The error message for the model
    #[arg(long, value_name = "TEXT", requires = "error")]
    pub message: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `windlass notice`
#[derive(Args)]
#[command(after_help = "\
The agent of the session gets the notice with its others: `windlass inbox` lists them.

Example: windlass notice 'Build is red' 'The nightly build fails since commit 4711.' --urgency interrupt")]
pub struct NoticeArgs {
    /// The title for people
    pub title: String,
    /// The text for the model
    pub text: String,
    /// The session
    #[arg(long, default_value = "default")]
    pub session: String,
    /// How it wants to reach the agent
    #[arg(long, value_enum, default_value_t = NoticeUrgency::WhenIdle, value_name = "WHEN")]
    pub urgency: NoticeUrgency,
    /// Higher ones are delivered first
    #[arg(long, default_value_t = 0, allow_negative_numbers = true)]
    pub priority: i8,
    /// Idempotency key: notices with the same key are posted once
    #[arg(long)]
    pub key: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// How a notice wants to reach the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum NoticeUrgency {
    /// At once, even if the agent is at work
    Interrupt,
    /// As soon as the agent has nothing else to do
    #[value(name = "when_idle")]
    WhenIdle,
    /// When the agent looks by itself
    Silent,
}

impl From<NoticeUrgency> for Urgency {
    fn from(urgency: NoticeUrgency) -> Urgency {
        match urgency {
            NoticeUrgency::Interrupt => Urgency::Interrupt,
            NoticeUrgency::WhenIdle => Urgency::WhenIdle,
            NoticeUrgency::Silent => Urgency::Silent,
        }
    }
}
