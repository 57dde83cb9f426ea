//! A trigger as it is kept, and the triggers of a session as its owner has them.

use super::Trigger;
use crate::answer;
use crate::error::BatchError;
use crate::session::Session;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::Arc;
use windlass_core::call::Wake;
use windlass_core::handle::{Handle, Kind, Secret};
use windlass_core::ids::{CallId, SessionNo};
use windlass_core::time::Timestamp;
use windlass_core::trigger::{Filter, Given};
use windlass_store::{RECORD_VALUE_BYTES_MAX, Record, RecordPage, Row, Space, Store};

/// A trigger as it is kept.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Kept {
    pub(super) event: String,
    pub(super) filter: Filter,
    pub(super) tool: String,
    #[serde(flatten)]
    pub(super) given: Given,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) title: Option<String>,
    pub(super) wake: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) owner: Option<String>,
    pub(super) created_us: i64,
    /// When an event last started something, and which call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) last: Option<(i64, u64)>,
    pub(super) count: u64,
}

impl Kept {
    pub(super) fn takes(&self, event: &str, payload: &Value) -> bool {
        self.event == event && self.filter.takes(payload)
    }

    pub(super) fn wake(&self) -> Wake {
        Wake::parse(&self.wake).unwrap_or(Wake::OnEnd)
    }

    /// An event has started this call.
    pub(super) fn started(&mut self, at: Timestamp, call: CallId) {
        self.last = Some((at.0, call.packed()));
        self.count += 1;
    }

    pub(super) fn row(&self, id: &str) -> Row {
        let value = serde_json::to_vec(self).unwrap_or_default().into();
        Row::Put { space: Space::Trigger, key: id.to_string(), value }
    }

    /// Whether it can be kept.
    pub(super) fn check_size(&self) -> Result<(), String> {
        // Room for what it adds up in its life.
        let max = RECORD_VALUE_BYTES_MAX - 1_024;
        let bytes = serde_json::to_vec(self).unwrap_or_default().len();
        if bytes <= max {
            return Ok(());
        }
        Err(format!(
            "the trigger has {bytes} bytes with its arguments, and {max} are kept; give its tool less to do, or a file to read"
        ))
    }

    /// Whether somebody asks for what is there.
    pub(super) fn asks_the_same(&self, there: &Kept) -> bool {
        let when = |kept: &Kept| (kept.event.clone(), kept.filter.clone(), kept.wake.clone());
        let what = |kept: &Kept| (kept.tool.clone(), kept.given.clone(), kept.title.clone());
        when(self) == when(there) && what(self) == what(there)
    }

    /// As it is shown.
    pub(super) fn shown(&self, id: &str, secret: &Secret) -> Trigger {
        let task = |call: u64| Handle::seal(secret, Kind::Call, call).to_string();
        Trigger {
            id: id.to_string(),
            event: self.event.clone(),
            filter: self.filter.conditions().clone(),
            tool: self.tool.clone(),
            args: self.given.args().clone(),
            event_as: self.given.event_as().map(str::to_string),
            title: self.title.clone(),
            wake: self.wake.clone(),
            owner: self.owner.clone(),
            created_at: Timestamp(self.created_us),
            last: self.last.map(|(at, _)| answer::wall_time(Timestamp(at))),
            last_task: self.last.map(|(_, call)| task(call)),
            count: self.count,
        }
    }
}

/// The triggers of a session that is owned here, once somebody needed them.
#[derive(Default)]
pub(crate) struct Armed(Option<Vec<(Arc<str>, Kept)>>);

impl Armed {
    /// All of them, by id.
    pub(super) async fn read(&mut self, session: &Session) -> Result<&mut Vec<(Arc<str>, Kept)>, BatchError> {
        let found = match self.0.take() {
            Some(known) => known,
            None => all(session.lane.store(), session.lane.session()).await?,
        };
        Ok(self.0.insert(found))
    }
}

/// All triggers of a session that can be read, by id.
pub(super) async fn all(store: &dyn Store, session: SessionNo) -> Result<Vec<(Arc<str>, Kept)>, BatchError> {
    let mut found: Vec<(Arc<str>, Kept)> = Vec::new();
    let mut after: Option<String> = None;
    loop {
        let (space, prefix) = (Space::Trigger, "");
        let page = RecordPage { session, space, prefix, after: after.as_deref(), limit: PAGE };
        let records = store.records(page).await?;
        let Some(last) = records.last() else { return Ok(found) };
        after = Some(last.key.clone());
        for record in records {
            match read(&record) {
                Ok(kept) => found.push((record.key.into(), kept)),
                Err(error) => tracing::error!(trigger = %record.key, %error, "a trigger starts nothing"),
            }
        }
    }
}

/// Triggers are read in pages of this size.
const PAGE: u64 = 100;

fn read(record: &Record) -> Result<Kept, serde_json::Error> {
    serde_json::from_slice(&record.value)
}
