//! Looking after the other workers: whose sessions nobody drives any more is found out, and they are taken over.

use super::{Place, owner, sleep};
use crate::error::{BatchError, chain};
use crate::held::due_us;
use crate::removal;
use crate::runtime::Inner;
use crate::schedules;
use std::collections::BTreeSet;
use std::sync::Arc;
use windlass_core::ids::SessionNo;
use windlass_store::{Change, Guard, Hold, Record, RecordPage, Row, STORE, Space};

/// Looks at the others once per heartbeat until the runtime is gone.
pub(super) async fn keep_looking(mut place: Place) {
    let mut known = BTreeSet::new();
    loop {
        let next_us = {
            let Some(rt) = place.0.upgrade() else { return };
            if let Err(error) = look(&rt, &mut known).await {
                tracing::warn!(error = %chain(&error), "the other workers could not be looked after; they are again later");
            }
            due_us(rt.clock.elapsed_us(), rt.limits.heartbeat_ms)
        };
        if !sleep(&mut place, next_us).await {
            return;
        }
    }
}

/// Takes over what workers have left that died, or that are not there any more.
async fn look(rt: &Arc<Inner>, known: &mut BTreeSet<String>) -> Result<(), BatchError> {
    let Some(worker) = &rt.worker else { return Ok(()) };
    let Some(own) = worker.id_now() else { return Ok(()) };
    let (mut silent, mut alive): (Vec<Record>, BTreeSet<String>) = (Vec::new(), BTreeSet::new());
    for record in records(rt).await?.into_iter().filter(|record| *record.key != *own) {
        let (now_us, lease_ms) = (rt.clock.elapsed_us(), rt.limits.lease_ms);
        if worker.is_silent((&record.key, record.generation), now_us, lease_ms) {
            silent.push(record);
        } else {
            alive.insert(record.key);
        }
    }
    worker.lock().seen.retain(|id, _| alive.contains(id) || silent.iter().any(|record| record.key == *id));
    // What this worker owned under an earlier id is nobody's either.
    let has_gone = known.iter().any(|id| **id != *own && !alive.contains(id));
    let seen = || alive.iter().cloned().chain([own.to_string()]).collect();
    if !has_gone && silent.is_empty() {
        *known = seen();
        return Ok(());
    }
    let left = take_over(rt, &alive, &own).await?;
    for record in silent {
        if !left.contains(&record.key) {
            bury(rt, &record).await?;
        }
    }
    // What was not taken is looked at again.
    if left.is_empty() {
        *known = seen();
    }
    Ok(())
}

/// The records of all workers.
async fn records(rt: &Inner) -> Result<Vec<Record>, BatchError> {
    let mut found: Vec<Record> = Vec::new();
    loop {
        let after = found.last().map(|record| record.key.clone());
        let (session, space, limit) = (STORE, Space::Worker, rt.limits.workers_page);
        let page = RecordPage { session, space, prefix: "", after: after.as_deref(), limit };
        let more = rt.store.records(page).await?;
        let is_last = (more.len() as u64) < limit;
        found.extend(more);
        if is_last {
            return Ok(found);
        }
    }
}

/// Takes every session with something to do whose owner is not alive. Those whose sessions could not be taken, and may be later.
async fn take_over(
    rt: &Arc<Inner>,
    alive: &BTreeSet<String>,
    own: &str,
) -> Result<BTreeSet<String>, BatchError> {
    let open: BTreeSet<SessionNo> =
        rt.store.open_batches(None).await?.into_iter().map(|batch| batch.session).collect();
    let mut left = BTreeSet::new();
    for session in open {
        let Some(owner) = owner(&*rt.store, session).await? else { continue };
        if owner == own || alive.contains(&owner) {
            continue;
        }
        match rt.session_by_no(session).await {
            Ok(taken) => {
                tracing::warn!(session = %taken.name, worker = %owner, "a session was taken over from a worker that is gone");
            }
            // Somebody else was quicker, or its owner is alive after all.
            Err(BatchError::Owned { .. }) => {}
            Err(error @ BatchError::Unreadable { .. }) => {
                tracing::error!(%session, error = %chain(&error), "a session stands still");
            }
            Err(error) => {
                tracing::warn!(%session, error = %chain(&error), "a session could not be taken over yet");
                left.insert(owner);
            }
        }
    }
    removal::go_on_with_all(rt).await?;
    schedules::resume(rt).await?;
    Ok(left)
}

/// Removes the record of a worker that died and of which nothing is left to do; if it was heard of again, it stays.
async fn bury(rt: &Inner, record: &Record) -> Result<(), BatchError> {
    let (space, key) = (Space::Worker, record.key.clone());
    let guards = vec![Guard::Generation { space, key: key.clone(), is: record.generation }];
    let rows = vec![Row::Remove { space, key }];
    let change = Change { session: STORE, hold: Hold::Store, guards, rows };
    // Refused means that it is alive, or that somebody else has done it.
    let _told = rt.store.commit(vec![change]).await?;
    Ok(())
}
