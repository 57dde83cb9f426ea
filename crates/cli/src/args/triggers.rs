//! Arguments of `windlass triggers`.

use clap::{Args, Subcommand};

/// `windlass triggers`
#[derive(Args)]
#[command(after_help = "Example: windlass triggers list --session default")]
pub struct TriggersArgs {
    /// The subcommand
    #[command(subcommand)]
    pub command: TriggersCommand,
}

#[derive(Subcommand)]
pub enum TriggersCommand {
    /// Create a trigger
    Add(AddTrigger),
    /// List the triggers of a session
    List(ListTriggers),
    /// Remove a trigger; calls it has started continue
    Remove(OneTrigger),
}

/// `windlass triggers add`
#[derive(Args)]
#[command(after_help = "\
The tool needs background = true. Each event starts a task; when it ends, the session's inbox gets a notice. A filter is a
JSON pointer into the event and the JSON value expected there; a value that is not JSON is taken as a string.

Example: windlass triggers add sold deliver '{\"by\": \"bike\"}' --filter /item=door --event-as order")]
pub struct AddTrigger {
    /// The kind of event, as a tool declares it
    pub event: String,
    /// The tool to call
    pub tool: String,
    /// Its arguments, as JSON
    pub args: Option<String>,
    /// Only events with this value at this JSON pointer; repeatable
    #[arg(long = "filter", value_name = "/PLACE=VALUE")]
    pub filters: Vec<String>,
    /// The argument that receives the event's payload
    #[arg(long, value_name = "ARGUMENT")]
    pub event_as: Option<String>,
    /// The session
    #[arg(long, default_value = "default")]
    pub session: String,
    /// The id of the trigger [default: generated]
    #[arg(long)]
    pub id: Option<String>,
    /// A title for the tasks it starts
    #[arg(long)]
    pub title: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `windlass triggers list`
#[derive(Args)]
#[command(after_help = "Example: windlass triggers list --session default")]
pub struct ListTriggers {
    /// The session
    #[arg(long, default_value = "default")]
    pub session: String,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `windlass triggers remove`
#[derive(Args)]
#[command(after_help = "Example: windlass triggers remove doors")]
pub struct OneTrigger {
    /// The trigger: its id, or a prefix of it
    pub trigger: String,
    /// The session
    #[arg(long, default_value = "default")]
    pub session: String,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
