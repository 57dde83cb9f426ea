//! The schedules of several sessions in one list.

use super::{Schedule, all};
use crate::api::error::SessionError;
use crate::session::inner::Runtime;
use schemars::JsonSchema;
use serde::Serialize;
use windlass_store::{SessionRow, Space};

/// The page size for finding sessions with schedules.
const SESSIONS_PAGE: u64 = 200;

/// A schedule and its session.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct SessionSchedule {
    /// The session's name.
    pub session: String,
    /// The schedule.
    #[serde(flatten)]
    pub schedule: Schedule,
}

impl Runtime {
    /// The schedules of all sessions for which `is_wanted`, in the order in which the sessions were opened, then by id. Stops after
    /// the session with which there are `schedules_max` or more.
    pub async fn all_schedules(
        &self,
        is_wanted: impl Fn(&SessionRow) -> bool,
        schedules_max: usize,
    ) -> Result<Vec<SessionSchedule>, SessionError> {
        let store = &*self.0.store;
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let rows = store.sessions_with(Space::Schedule, after, SESSIONS_PAGE).await?;
            let Some(last) = rows.last() else { return Ok(found) };
            after = Some(last.no);
            for row in rows.iter().filter(|row| is_wanted(row)) {
                let session = || row.name.clone();
                let schedules = all(store, row.no).await?;
                found.extend(
                    schedules.into_iter().map(|schedule| SessionSchedule { session: session(), schedule }),
                );
                if found.len() >= schedules_max {
                    return Ok(found);
                }
            }
        }
    }
}
