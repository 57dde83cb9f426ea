//! Schedules as they are asked for and shown.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use windlass::ScheduleEdit;
use windlass::core::schedule::{CatchUp as CoreCatchUp, Overlap as CoreOverlap, Written};

/// A schedule that is wanted.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ScheduleRequest")]
pub struct NewSchedule {
    /// Its id, 1 to 64 of `[a-zA-Z0-9_.-]`; one is made if it is not said. The same again under one id is answered with what is there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Five fields: minute, hour, day of the month, month, day of the week. Either this or `at`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cron: Option<String>,
    /// One time, as RFC 3339 or by the clocks of the zone. Either this or `cron`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// An IANA zone; UTC if it is not said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// The tool that is called; it must have the flag `background`.
    pub tool: String,
    /// The arguments of the call.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub args: Value,
    /// What people call it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// What becomes of times that nobody was there for; `one` if it is not said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub catch_up: Option<CatchUp>,
    /// What becomes of a time at which an earlier run is open; `skip` if it is not said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overlap: Option<Overlap>,
    /// Whether the session is told when a run has ended; it is if nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal_on_completion: Option<bool>,
    /// Whether it starts anything; it does if nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
}

/// What is changed of a schedule; what is not said stays.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EditSchedule {
    /// Only if it still has this generation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generation: Option<u64>,
    /// From now on by this cron.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cron: Option<String>,
    /// From now on at this one time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// In this zone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// With these arguments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub args: Option<Value>,
    /// Called so by people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// What becomes of times that nobody was there for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub catch_up: Option<CatchUp>,
    /// What becomes of a time at which an earlier run is open.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overlap: Option<Overlap>,
    /// Whether it starts anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
}

/// Times that are to be shown.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PreviewSchedule {
    /// Five fields; either this or `at`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cron: Option<String>,
    /// One time; either this or `cron`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// An IANA zone; UTC if it is not said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// At most so many, 5 if it is not said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
}

impl PreviewSchedule {
    /// What is written of the times.
    pub fn written(&self) -> Written<'_> {
        Written { cron: self.cron.as_deref(), at: self.at.as_deref(), zone: self.zone.as_deref() }
    }
}

/// What becomes of times that nobody was there for.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CatchUp {
    /// They are skipped.
    Skip,
    /// The last of them is made up for.
    One,
    /// They are made up for, the last ones up to a limit.
    All,
}

/// What becomes of a time at which an earlier run is open.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Overlap {
    /// It is skipped.
    Skip,
    /// The last such time waits for the end of the run.
    QueueOne,
    /// Both run.
    Allow,
    /// The earlier run is cancelled.
    CancelPrevious,
}

impl From<CatchUp> for CoreCatchUp {
    fn from(rule: CatchUp) -> CoreCatchUp {
        match rule {
            CatchUp::Skip => CoreCatchUp::Skip,
            CatchUp::One => CoreCatchUp::One,
            CatchUp::All => CoreCatchUp::All,
        }
    }
}

impl From<Overlap> for CoreOverlap {
    fn from(rule: Overlap) -> CoreOverlap {
        match rule {
            Overlap::Skip => CoreOverlap::Skip,
            Overlap::QueueOne => CoreOverlap::QueueOne,
            Overlap::Allow => CoreOverlap::Allow,
            Overlap::CancelPrevious => CoreOverlap::CancelPrevious,
        }
    }
}

impl From<EditSchedule> for ScheduleEdit {
    fn from(edit: EditSchedule) -> ScheduleEdit {
        let EditSchedule { generation, cron, at, zone, args, title, catch_up, overlap, enabled } = edit;
        let (catch_up, overlap) = (catch_up.map(Into::into), overlap.map(Into::into));
        ScheduleEdit { generation, cron, at, zone, args, title, catch_up, overlap, enabled }
    }
}

/// A schedule.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Schedule {
    /// Its id.
    pub id: String,
    /// Whether it starts anything.
    pub enabled: bool,
    /// Its cron, if it has one.
    pub cron: Option<String>,
    /// Its one time, if it has one.
    pub at: Option<String>,
    /// Its zone.
    pub zone: String,
    /// The tool that is called.
    pub tool: String,
    /// With these arguments.
    pub args: Value,
    /// What people call it.
    pub title: Option<String>,
    /// What becomes of times that nobody was there for.
    pub catch_up: CatchUp,
    /// What becomes of a time at which an earlier run is open.
    pub overlap: Overlap,
    /// When the session is told of a run: `on_end`, or `silent`.
    pub wake: String,
    /// Who asked for it.
    pub owner: Option<String>,
    /// Which writing of it this is.
    pub generation: u64,
    /// When it was made.
    pub created: String,
    /// Its next time.
    pub next: Option<String>,
    /// The time that waits for the end of a run.
    pub waits: Option<String>,
    /// The last time that was used.
    pub last: Option<String>,
    /// The task that it started.
    pub last_task: Option<String>,
    /// How many calls it has started.
    pub count: u64,
    /// How many of its times were skipped.
    pub skipped: u64,
}

/// A time of a schedule.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Fire {
    /// In UTC.
    pub at: String,
    /// By the clocks of the zone.
    pub local: String,
}

/// The next times of what would be a schedule.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Fires {
    /// In order.
    pub items: Vec<Fire>,
}
