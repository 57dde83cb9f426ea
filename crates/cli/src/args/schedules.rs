//! The words of what is started at its times.

use clap::{Args, Subcommand};

/// `windlass schedules`
#[derive(Args)]
pub struct Schedules {
    /// What to do
    #[command(subcommand)]
    pub command: SchedulesCommand,
}

#[derive(Subcommand)]
pub enum SchedulesCommand {
    /// Make a schedule
    Add(AddSchedule),
    /// List the schedules of a session
    List(ListSchedules),
    /// Show the next times of what would be a schedule
    Preview(PreviewSchedule),
    /// Let a schedule start calls again, from its next time on
    Enable(OneSchedule),
    /// Let a schedule start nothing until it is enabled
    Disable(OneSchedule),
    /// Remove a schedule; what it has started goes on
    Remove(OneSchedule),
}

/// The times of a schedule.
#[derive(Args)]
pub struct Times {
    /// Minute, hour, day of the month, month, day of the week
    #[arg(long, value_name = "FIELDS", conflicts_with = "at", required_unless_present = "at")]
    pub cron: Option<String>,
    /// One time: RFC 3339, or by the clocks of the zone
    #[arg(long, value_name = "TIME")]
    pub at: Option<String>,
    /// The IANA zone; UTC if not said
    #[arg(long)]
    pub zone: Option<String>,
}

/// `windlass schedules add`
#[derive(Args)]
#[command(after_help = "\
The tool needs background = true. Each time starts a task; its end is told in the inbox of the session.

Example: windlass schedules add build '{\"target\": \"all\"}' --cron '0 9 * * MON-FRI' --zone Europe/Berlin")]
pub struct AddSchedule {
    /// The tool that is called
    pub tool: String,
    /// Its arguments, as JSON
    pub args: Option<String>,
    #[command(flatten)]
    pub times: Times,
    /// The session
    #[arg(long, default_value = "default")]
    pub session: String,
    /// The id of the schedule; one is made if not said
    #[arg(long)]
    pub id: Option<String>,
    /// What people call it
    #[arg(long)]
    pub title: Option<String>,
    /// What becomes of times that nobody was there for
    #[arg(long, value_name = "RULE", default_value = "one", value_parser = ["skip", "one", "all"])]
    pub catch_up: String,
    /// What becomes of a time at which an earlier run is open
    #[arg(long, value_name = "RULE", default_value = "skip", value_parser = ["skip", "queue_one", "allow", "cancel_previous"])]
    pub overlap: String,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `windlass schedules list`
#[derive(Args)]
#[command(after_help = "Example: windlass schedules list --session default")]
pub struct ListSchedules {
    /// The session
    #[arg(long, default_value = "default")]
    pub session: String,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `windlass schedules preview`
#[derive(Args)]
#[command(
    after_help = "Example: windlass schedules preview --cron '30 2 * * *' --zone Europe/Berlin --limit 10"
)]
pub struct PreviewSchedule {
    #[command(flatten)]
    pub times: Times,
    /// How many times
    #[arg(long, default_value_t = 5)]
    pub limit: u64,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `windlass schedules enable`, `disable`, `remove`
#[derive(Args)]
#[command(after_help = "Example: windlass schedules disable nightly")]
pub struct OneSchedule {
    /// The schedule, or the beginning of its id
    pub schedule: String,
    /// The session
    #[arg(long, default_value = "default")]
    pub session: String,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
