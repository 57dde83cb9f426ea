//! Arguments of `windlass schedules`.

use clap::{Args, Subcommand};

/// `windlass schedules`
#[derive(Args)]
#[command(after_help = "Example: windlass schedules list --session default")]
pub struct SchedulesArgs {
    /// The subcommand
    #[command(subcommand)]
    pub command: SchedulesCommand,
}

#[derive(Subcommand)]
pub enum SchedulesCommand {
    /// Create a schedule
    Add(AddSchedule),
    /// List the schedules of a session
    List(ListSchedules),
    /// Show the next times of a schedule without creating it
    Preview(PreviewScheduleArgs),
    /// Enable a schedule, from its next time on
    #[command(after_help = "Example: windlass schedules enable nightly")]
    Enable(OneSchedule),
    /// Disable a schedule until it is enabled again
    #[command(after_help = "Example: windlass schedules disable nightly")]
    Disable(OneSchedule),
    /// Remove a schedule; calls it has started continue
    #[command(after_help = "Example: windlass schedules remove nightly")]
    Remove(OneSchedule),
}

/// The times of a schedule.
#[derive(Args)]
pub struct TimesArgs {
    /// Minute, hour, day of the month, month, day of the week
    #[arg(long, value_name = "FIELDS", conflicts_with = "at", required_unless_present = "at")]
    pub cron: Option<String>,
    /// One time: RFC 3339, or local time in the zone
    #[arg(long, value_name = "TIME")]
    pub at: Option<String>,
    /// The IANA time zone [default: UTC]
    #[arg(long)]
    pub zone: Option<String>,
}

/// `windlass schedules add`
#[derive(Args)]
#[command(after_help = "\
The tool needs background = true. Each time starts a task; when it ends, the session's inbox gets a notice.

Example: windlass schedules add build '{\"target\": \"all\"}' --cron '0 9 * * MON-FRI' --zone Europe/Berlin")]
pub struct AddSchedule {
    /// The tool to call
    pub tool: String,
    /// Its arguments, as JSON
    pub args: Option<String>,
    #[command(flatten)]
    pub times: TimesArgs,
    /// The session
    #[arg(long, default_value = "default")]
    pub session: String,
    /// The id of the schedule [default: generated]
    #[arg(long)]
    pub id: Option<String>,
    /// A title for people
    #[arg(long)]
    pub title: Option<String>,
    /// How to handle times missed while no process was running
    #[arg(long, value_name = "RULE", default_value = "one", value_parser = ["skip", "one", "all"])]
    pub catch_up: String,
    /// How to handle a time at which an earlier run is still open
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
pub struct PreviewScheduleArgs {
    #[command(flatten)]
    pub times: TimesArgs,
    /// The number of times to show
    #[arg(long, default_value_t = 5)]
    pub limit: u64,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `windlass schedules enable`, `disable`, `remove`
#[derive(Args)]
pub struct OneSchedule {
    /// The schedule: its id, or a prefix of it
    pub schedule: String,
    /// The session
    #[arg(long, default_value = "default")]
    pub session: String,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
