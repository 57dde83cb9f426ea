//! A schedule as it is kept, and what is read from that.

use super::{Schedule, ScheduleError};
use crate::answer;
use crate::error::BatchError;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::Arc;
use windlass_core::call::Wake;
use windlass_core::handle::{Handle, Kind, Secret};
use windlass_core::ids::{CallId, SessionNo};
use windlass_core::schedule::{CatchUp, Overlap, Rules, Times, Written};
use windlass_core::time::Timestamp;
use windlass_store::{RECORD_VALUE_BYTES_MAX, Record, RecordPage, Row, Space, Store};

/// Runs of a schedule that may be open; of more of them the oldest are forgotten, and run on.
const RUNS_MAX: usize = 16;

/// A schedule as it is kept.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Kept {
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
    /// How often somebody wrote it; what it does by itself is not counted.
    pub(super) generation: u64,
    /// Its times until then are dealt with.
    pub(super) handled_us: i64,
    /// The time that waits for the end of a run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) waits_us: Option<i64>,
    /// The last time that was used, and the call it started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) last: Option<(i64, u64)>,
    pub(super) count: u64,
    pub(super) skipped: u64,
    /// The calls it has started that may be open, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) runs: Vec<u64>,
}

impl Kept {
    pub(super) fn times(&self) -> Result<Times, BatchError> {
        let written = Written { cron: self.cron.as_deref(), at: self.at.as_deref(), zone: Some(&self.zone) };
        Times::read(written).map_err(|problem| BatchError::Unreadable { what: problem.to_string() })
    }

    pub(super) fn rules(&self) -> Result<Rules, BatchError> {
        let unreadable = |what: &str| BatchError::Unreadable { what: format!("a schedule says {what:?}") };
        let catch_up = CatchUp::parse(&self.catch_up).ok_or_else(|| unreadable(&self.catch_up))?;
        let overlap = Overlap::parse(&self.overlap).ok_or_else(|| unreadable(&self.overlap))?;
        Ok(Rules { catch_up, overlap })
    }

    pub(super) fn wake(&self) -> Wake {
        Wake::parse(&self.wake).unwrap_or(Wake::OnEnd)
    }

    pub(super) fn handled(&self) -> Timestamp {
        Timestamp(self.handled_us)
    }

    /// When it is next to be looked at. `None`: not by itself.
    pub(super) fn next(&self, times: &Times) -> Option<Timestamp> {
        if self.enabled { times.after(self.handled()) } else { None }
    }

    /// A time was used, and this call started.
    pub(super) fn fired(&mut self, nominal: Timestamp, call: CallId) {
        self.handled_us = self.handled_us.max(nominal.0);
        self.last = Some((nominal.0, call.packed()));
        self.count += 1;
        self.runs.push(call.packed());
        if self.runs.len() > RUNS_MAX {
            self.runs.remove(0);
        }
    }

    /// The rows that keep it: itself, and that it is enabled or not.
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

    /// Whether it can be kept.
    pub(super) fn check_size(&self) -> Result<(), ScheduleError> {
        // Room for what it adds up in its life.
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

    /// As it is shown.
    pub(super) fn shown(&self, id: &str, secret: &Secret) -> Schedule {
        let times = self.times().ok();
        let when = |at: i64| answer::wall_time(Timestamp(at));
        let task = |call: u64| Handle::seal(secret, Kind::Call, call).to_string();
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

/// All schedules of a session that can be read, by id, each with the generation of its record.
pub(super) async fn all(
    store: &dyn Store,
    session: SessionNo,
) -> Result<Vec<(String, Kept, u64)>, BatchError> {
    let mut found: Vec<(String, Kept, u64)> = Vec::new();
    let mut after: Option<String> = None;
    loop {
        let page =
            RecordPage { session, space: Space::Schedule, prefix: "", after: after.as_deref(), limit: PAGE };
        let records = store.records(page).await?;
        let Some(last) = records.last() else { return Ok(found) };
        after = Some(last.key.clone());
        for record in records {
            match read(&record) {
                Ok(kept) => found.push((record.key, kept, record.generation)),
                Err(error) => tracing::error!(schedule = %record.key, %error, "a schedule stands still"),
            }
        }
    }
}

/// Schedules are read in pages of this size.
const PAGE: u64 = 100;

pub(super) fn read(record: &Record) -> Result<Kept, BatchError> {
    serde_json::from_slice(&record.value).map_err(|error| BatchError::Unreadable {
        what: format!("the schedule {:?} cannot be read: {error}", record.key),
    })
}
