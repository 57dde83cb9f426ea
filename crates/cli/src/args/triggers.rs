//! The words of what is started by events.

use clap::{Args, Subcommand};

/// `windlass triggers`
#[derive(Args)]
pub struct Triggers {
    /// What to do
    #[command(subcommand)]
    pub command: TriggersCommand,
}

#[derive(Subcommand)]
pub enum TriggersCommand {
    /// Make a trigger
    Add(AddTrigger),
    /// List the triggers of a session
    List(ListTriggers),
    /// Remove a trigger; what it has started goes on
    Remove(OneTrigger),
}

/// `windlass triggers add`
#[derive(Args)]
#[command(after_help = "\
The tool needs background = true. Each event starts a task; its end is told in the inbox of the session. A filter names a
place of the event by a JSON pointer, and the JSON that must stand there; what is no JSON is taken for a text.

Example: windlass triggers add sold deliver '{\"by\": \"bike\"}' --filter /item=door --event-as order")]
pub struct AddTrigger {
    /// The kind of event, as a tool declares it
    pub event: String,
    /// The tool that is called
    pub tool: String,
    /// Its arguments, as JSON
    pub args: Option<String>,
    /// Only events that have this; may be given several times
    #[arg(long = "filter", value_name = "/PLACE=VALUE")]
    pub filters: Vec<String>,
    /// The argument that is given the event
    #[arg(long, value_name = "ARGUMENT")]
    pub event_as: Option<String>,
    /// The session
    #[arg(long, default_value = "default")]
    pub session: String,
    /// The id of the trigger; one is made if not said
    #[arg(long)]
    pub id: Option<String>,
    /// What people call the tasks that it starts
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
    /// The trigger, or the beginning of its id
    pub trigger: String,
    /// The session
    #[arg(long, default_value = "default")]
    pub session: String,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
