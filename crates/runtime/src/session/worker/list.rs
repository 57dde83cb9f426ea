//! The workers of a store, for people who ask.

use super::record::LiveRecord;
use super::{Leases, is_dead, is_over, owner, sweep};
use crate::api::answer::wall_time;
use crate::api::error::SessionError;
use crate::session::inner::Inner;
use crate::session::owners::{WorkerEntry, WorkerState, store_state};
use std::collections::BTreeMap;
use windlass_core::time::Timestamp;
use windlass_store::Space;

/// The page size for counting sessions.
const SESSIONS_PAGE: u64 = 500;
/// So many sessions with an owner are counted.
const SESSIONS_MAX: u64 = 10_000;

/// The workers that have a record, by id.
pub(super) async fn list(leases: &Leases, rt: &Inner) -> Result<Vec<WorkerEntry>, SessionError> {
    let records = sweep::records(rt).await?;
    let mut owned = BTreeMap::<String, u64>::new();
    let (mut after, mut counted) = (None, 0);
    // Live workers say themselves how many they have.
    while counted < SESSIONS_MAX && records.iter().any(is_over) {
        let rows = rt.store.sessions_with(Space::Owner, after, SESSIONS_PAGE).await?;
        let Some(last) = rows.last() else { break };
        after = Some(last.no);
        counted += rows.len() as u64;
        for row in &rows {
            if let Some(worker) = owner(&*rt.store, row.no).await? {
                *owned.entry(worker).or_default() += 1;
            }
        }
    }
    let own = leases.0.id_now();
    let now_us = rt.clock.elapsed_us();
    let entry = |record: &windlass_store::StoredRecord| {
        let (this, is_live) = (own.as_deref() == Some(&*record.key), !is_over(record));
        let live = if is_live { LiveRecord::read(&record.value) } else { LiveRecord::default() };
        let text = |text: String| Some(text).filter(|text| !text.is_empty());

        let seen = leases.0.state.lock().seen.get(&record.key).copied();
        // Only a heartbeat that was seen to change has an age: no two clocks are compared.
        let fresh = seen.filter(|(generation, _)| *generation == record.generation);
        WorkerEntry {
            this,
            state: match (is_dead(record), is_over(record)) {
                (true, _) => WorkerState::Dead,
                (false, true) => WorkerState::Left,
                (false, false) => WorkerState::Alive,
            },
            sessions: if this {
                rt.sessions_in_memory() as u64
            } else if is_live {
                live.sessions
            } else {
                owned.get(&record.key).copied().unwrap_or(0)
            },
            address: live.address,
            since: (live.since != 0).then(|| wall_time(Timestamp(live.since))),
            version: text(live.version),
            tools: text(live.tools),
            leaving: live.leaving,
            store: this.then(|| store_state(rt).to_string()),
            heartbeat_age_ms: fresh.map(|(_, since_us)| now_us.saturating_sub(since_us) / 1_000),
            id: record.key.clone(),
        }
    };
    Ok(records.iter().map(entry).collect())
}
