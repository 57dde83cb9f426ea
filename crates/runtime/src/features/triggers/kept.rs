//! A stored trigger, and the owner's triggers of a session.

use super::Trigger;
use crate::api::answer;
use crate::api::error::SessionError;
use crate::session::owner::Session;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::Arc;
use windlass_core::call::Wake;
use windlass_core::handle::{Handle, HandleKind, Secret};
use windlass_core::ids::{CallId, SessionNo};
use windlass_core::time::Timestamp;
use windlass_core::trigger::{Filter, TriggerArguments};
use windlass_store::{RECORD_VALUE_BYTES_MAX, RecordPage, Row, Space, Store, StoredRecord};

/// A stored trigger.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct KeptTrigger {
    pub(super) event: String,
    pub(super) filter: Filter,
    pub(super) tool: String,
    #[serde(flatten)]
    pub(super) given: TriggerArguments,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) title: Option<String>,
    pub(super) wake: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) owner: Option<String>,
    pub(super) created_us: i64,
    /// When an event last started a call, and which one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) last: Option<(i64, u64)>,
    pub(super) count: u64,
}

impl KeptTrigger {
    pub(super) fn takes(&self, event: &str, payload: &Value) -> bool {
        self.event == event && self.filter.takes(payload)
    }

    pub(super) fn wake(&self) -> Wake {
        Wake::parse(&self.wake).unwrap_or(Wake::OnEnd)
    }

    /// Records that an event has started this call.
    pub(super) fn started(&mut self, at: Timestamp, call: CallId) {
        self.last = Some((at.0, call.packed()));
        self.count += 1;
    }

    pub(super) fn row(&self, id: &str) -> Row {
        let value = serde_json::to_vec(self).unwrap_or_default().into();
        Row::Put { space: Space::Trigger, key: id.to_string(), value }
    }

    /// Checks that it can be stored.
    pub(super) fn check_size(&self) -> Result<(), String> {
        // Reserve for what it accumulates over its life.
        let max = RECORD_VALUE_BYTES_MAX - 1_024;
        let bytes = serde_json::to_vec(self).unwrap_or_default().len();
        if bytes <= max {
            return Ok(());
        }
        Err(format!(
            "the trigger has {bytes} bytes with its arguments, and {max} are kept; give its tool less to do, or a file to read"
        ))
    }

    /// Whether the request matches the existing trigger.
    pub(super) fn asks_the_same(&self, there: &KeptTrigger) -> bool {
        let when = |kept: &KeptTrigger| (kept.event.clone(), kept.filter.clone(), kept.wake.clone());
        let what = |kept: &KeptTrigger| (kept.tool.clone(), kept.given.clone(), kept.title.clone());
        when(self) == when(there) && what(self) == what(there)
    }

    /// Its rendered form.
    pub(super) fn shown(&self, id: &str, secret: &Secret) -> Trigger {
        let task = |call: u64| Handle::seal(secret, HandleKind::Call, call).to_string();
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

/// The triggers of an owned session, once they were needed.
#[derive(Default)]
pub(crate) struct Armed(Option<Vec<ArmedTrigger>>);

/// A trigger of a session, with its id.
pub(crate) struct ArmedTrigger {
    pub(super) id: Arc<str>,
    pub(super) kept: KeptTrigger,
}

impl Armed {
    /// All of them, by id.
    pub(super) async fn read(&mut self, session: &Session) -> Result<&mut Vec<ArmedTrigger>, SessionError> {
        let found = match self.0.take() {
            Some(known) => known,
            None => all(session.lane.store(), session.lane.session()).await?,
        };
        Ok(self.0.insert(found))
    }
}

/// All readable triggers of a session, by id.
pub(super) async fn all(store: &dyn Store, session: SessionNo) -> Result<Vec<ArmedTrigger>, SessionError> {
    let mut found: Vec<ArmedTrigger> = Vec::new();
    let mut after: Option<String> = None;
    loop {
        let (space, prefix) = (Space::Trigger, "");
        let page = RecordPage { shelf: space.of(session), prefix, after: after.as_deref(), limit: PAGE };
        let records = store.records(page).await?;
        let Some(last) = records.last() else { return Ok(found) };
        after = Some(last.key.clone());
        for record in records {
            match read(&record) {
                Ok(kept) => found.push(ArmedTrigger { id: record.key.into(), kept }),
                Err(error) => tracing::error!(trigger = %record.key, %error, "a trigger starts nothing"),
            }
        }
    }
}

/// The page size for reading triggers.
const PAGE: u64 = 100;

fn read(record: &StoredRecord) -> Result<KeptTrigger, serde_json::Error> {
    serde_json::from_slice(&record.value)
}
