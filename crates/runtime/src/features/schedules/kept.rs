//! A stored schedule, and what is derived from it.

use super::{Schedule, ScheduleError};
use crate::api::answer;
use crate::api::error::SessionError;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::Arc;
use windlass_core::call::Wake;
use windlass_core::handle::{Handle, HandleKind, Secret};
use windlass_core::ids::{CallId, SessionNo};
use windlass_core::schedule::{CatchUp, FiringRules, Overlap, Times, WrittenTimes};
use windlass_core::time::Timestamp;
use windlass_store::{RECORD_VALUE_BYTES_MAX, RecordPage, Row, Space, Store, StoredRecord};

/// The number of remembered runs that may be open; older ones are forgotten, and run on.
const RUNS_MAX: usize = 16;

/// A stored schedule.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct KeptSchedule {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) cron: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) at: Option<String>,
    pub(super) zone: String,
    pub(super) tool: String,
    pub(super) args: Value,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) title: Option<String>,
    pub(super) catch_up: String,
    pub(super) overlap: String,
    pub(super) wake: String,
    pub(super) enabled: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) owner: Option<String>,
    pub(super) created_us: i64,
    /// The number of edits; its own progress is not counted.
    pub(super) generation: u64,
    /// Its times until then are handled.
    pub(super) handled_us: i64,
    /// The time that waits for the end of a run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) waits_us: Option<i64>,
    /// The last used time, and the call it started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) last: Option<(i64, u64)>,
    pub(super) count: u64,
    pub(super) skipped: u64,
    /// The calls it has started that may be open, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) runs: Vec<u64>,
}

impl KeptSchedule {
    pub(super) fn times(&self) -> Result<Times, SessionError> {
        let written =
            WrittenTimes { cron: self.cron.as_deref(), at: self.at.as_deref(), zone: Some(&self.zone) };
        Times::read(written).map_err(|problem| SessionError::undecodable("the times of a schedule", problem))
    }

    pub(super) fn rules(&self) -> Result<FiringRules, SessionError> {
        let unreadable = |what: &str| SessionError::unreadable(format!("a schedule says {what:?}"));
        let catch_up = CatchUp::parse(&self.catch_up).ok_or_else(|| unreadable(&self.catch_up))?;
        let overlap = Overlap::parse(&self.overlap).ok_or_else(|| unreadable(&self.overlap))?;
        Ok(FiringRules { catch_up, overlap })
    }

    pub(super) fn wake(&self) -> Wake {
        Wake::parse(&self.wake).unwrap_or(Wake::OnEnd)
    }

    pub(super) fn handled(&self) -> Timestamp {
        Timestamp(self.handled_us)
    }

    /// When it is checked next. `None`: not by itself.
    pub(super) fn next(&self, times: &Times) -> Option<Timestamp> {
        if self.enabled { times.after(self.handled()) } else { None }
    }

    /// Records that a time was used, and this call started.
    pub(super) fn fired(&mut self, nominal: Timestamp, call: CallId) {
        self.handled_us = self.handled_us.max(nominal.0);
        self.last = Some((nominal.0, call.packed()));
        self.count += 1;
        self.runs.push(call.packed());
        if self.runs.len() > RUNS_MAX {
            self.runs.remove(0);
        }
    }

    /// The rows that store it: itself, and whether it is enabled.
    pub(super) fn rows(&self, id: &str) -> Vec<Row> {
        let armed = (Space::Armed, id.to_string());
        let armed = match self.enabled {
            true => Row::Put { space: armed.0, key: armed.1, value: Arc::default() },
            false => Row::Remove { space: armed.0, key: armed.1 },
        };
        vec![self.row(id), armed]
    }

    fn row(&self, id: &str) -> Row {
        let value = serde_json::to_vec(self).unwrap_or_default().into();
        Row::Put { space: Space::Schedule, key: id.to_string(), value }
    }

    /// Checks that it can be stored.
    pub(super) fn check_size(&self) -> Result<(), ScheduleError> {
        // Reserve for what it accumulates over its life.
        let max = RECORD_VALUE_BYTES_MAX - 1_024;
        let bytes = serde_json::to_vec(self).unwrap_or_default().len();
        if bytes <= max {
            return Ok(());
        }
        let what = format!(
            "the schedule has {bytes} bytes with its arguments, and {max} are kept; give its tool less to do, or a file to read"
        );
        Err(ScheduleError::Invalid { what })
    }

    /// Its rendered form.
    pub(super) fn shown(&self, id: &str, secret: &Secret) -> Schedule {
        let times = self.times().ok();
        let when = |at: i64| answer::wall_time(Timestamp(at));
        let task = |call: u64| Handle::seal(secret, HandleKind::Call, call).to_string();
        Schedule {
            id: id.to_string(),
            enabled: self.enabled,
            cron: self.cron.clone(),
            at: self.at.clone(),
            zone: self.zone.clone(),
            tool: self.tool.clone(),
            args: self.args.clone(),
            title: self.title.clone(),
            catch_up: self.catch_up.clone(),
            overlap: self.overlap.clone(),
            wake: self.wake.clone(),
            owner: self.owner.clone(),
            generation: self.generation,
            created_at: Timestamp(self.created_us),
            next: times.and_then(|times| self.next(&times)).map(answer::wall_time),
            waits: self.waits_us.map(when),
            last: self.last.map(|(at, _)| when(at)),
            last_task: self.last.map(|(_, call)| task(call)),
            count: self.count,
            skipped: self.skipped,
        }
    }
}

/// A schedule as it is kept, with its id.
pub(super) struct ScheduleRecord {
    pub(super) id: String,
    pub(super) kept: KeptSchedule,
}

impl ScheduleRecord {
    pub(super) fn shown(&self, secret: &Secret) -> Schedule {
        self.kept.shown(&self.id, secret)
    }

    /// The rows by which it is kept as it is now.
    pub(super) fn rows(&self) -> Vec<Row> {
        self.kept.rows(&self.id)
    }
}

/// All readable schedules of a session, by id.
pub(super) async fn all(store: &dyn Store, session: SessionNo) -> Result<Vec<ScheduleRecord>, SessionError> {
    let mut found: Vec<ScheduleRecord> = Vec::new();
    let mut after: Option<String> = None;
    loop {
        let page = RecordPage {
            shelf: Space::Schedule.of(session),
            prefix: "",
            after: after.as_deref(),
            limit: PAGE,
        };
        let records = store.records(page).await?;
        let Some(last) = records.last() else { return Ok(found) };
        after = Some(last.key.clone());
        for record in records {
            match read(&record) {
                Ok(kept) => found.push(ScheduleRecord { id: record.key, kept }),
                Err(error) => tracing::error!(schedule = %record.key, %error, "a schedule stands still"),
            }
        }
    }
}

/// The page size for reading schedules.
const PAGE: u64 = 100;

pub(super) fn read(record: &StoredRecord) -> Result<KeptSchedule, SessionError> {
    serde_json::from_slice(&record.value)
        .map_err(|error| SessionError::undecodable(format!("the schedule {:?}", record.key), error))
}
