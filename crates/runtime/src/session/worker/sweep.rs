//! Watching the other workers: finds sessions without a live owner, and takes them over.

use super::{ALL, Worker, WorkerPlace, is_over, owner};
use crate::api::error::{SessionError, chain};
use crate::session::held::due_us;
use crate::session::inner::Inner;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::task::{JoinError, JoinSet};
use windlass_core::ids::SessionNo;
use windlass_store::{RecordChange, RecordGuard, RecordPage, StoreSpace, StoredRecord};

/// Checks the others once per heartbeat until the runtime is gone.
pub(super) async fn keep_looking(mut place: WorkerPlace) {
    let mut known = BTreeSet::new();
    let Some(mut wakes) = place.rt.upgrade().map(|rt| rt.store.wakes(ALL)) else { return };
    loop {
        let next_us = {
            let Some((rt, worker)) = place.upgrade() else { return };
            if let Err(error) = look(&rt, &worker, &mut known).await {
                tracing::warn!(error = %chain(&error), "the other workers could not be looked after; they are again later");
            }
            due_us(rt.clock.elapsed_us(), rt.limits.heartbeat_ms)
        };
        if !place.sleep_or_wake(next_us, &mut wakes).await {
            return;
        }
    }
}

/// Takes over sessions of workers that died, or whose records are gone.
async fn look(rt: &Arc<Inner>, worker: &Worker, known: &mut BTreeSet<String>) -> Result<(), SessionError> {
    let Some(own) = worker.id_now() else { return Ok(()) };
    let (silent, alive) = others(rt, worker, &own).await?;
    // Sessions this worker owned under an earlier id have no owner either.
    let has_gone = known.iter().any(|id| **id != *own && !alive.contains(id));
    let seen = || alive.iter().cloned().chain([own.to_string()]).collect();
    if !has_gone && silent.is_empty() && !worker.has_orphans.load(Ordering::Relaxed) {
        *known = seen();
        return Ok(());
    }
    let left = take_orphans(rt, worker, &alive, &own).await?;
    for record in silent {
        if !left.contains(&record.key) {
            bury(rt, &record).await?;
        }
    }
    // Sessions that were not taken are checked again.
    if left.is_empty() {
        *known = seen();
    }
    Ok(())
}

/// Takes what workers that are gone have left, as far as it can be taken now; what cannot is tried for again at the next looks.
pub(crate) async fn take_left(rt: &Arc<Inner>, worker: &Worker) -> Result<(), SessionError> {
    let own = worker.id().await?;
    let (_, alive) = others(rt, worker, &own).await?;
    take_orphans(rt, worker, &alive, &own).await?;
    Ok(())
}

/// The records of the other workers that are gone, and the ids of those that are alive.
async fn others(
    rt: &Inner,
    worker: &Worker,
    own: &str,
) -> Result<(Vec<StoredRecord>, BTreeSet<String>), SessionError> {
    let (mut silent, mut alive): (Vec<StoredRecord>, BTreeSet<String>) = (Vec::new(), BTreeSet::new());
    for record in records(rt).await?.into_iter().filter(|record| *record.key != *own) {
        let (now_us, lease_ms) = (rt.clock.elapsed_us(), rt.limits.lease_ms);
        if is_over(&record) || worker.is_silent(&record.key, record.generation, now_us, lease_ms) {
            silent.push(record);
        } else {
            alive.insert(record.key);
        }
    }
    let mut state = worker.state.lock();
    state.seen.retain(|id, _| alive.contains(id) || silent.iter().any(|record| record.key == *id));
    state.alive.clone_from(&alive);
    drop(state);
    Ok((silent, alive))
}

/// The records of all workers.
pub(super) async fn records(rt: &Inner) -> Result<Vec<StoredRecord>, SessionError> {
    let mut found: Vec<StoredRecord> = Vec::new();
    loop {
        let after = found.last().map(|record| record.key.clone());
        let (shelf, limit) = (StoreSpace::Worker.shelf(), rt.limits.workers_page);
        let page = RecordPage { shelf, prefix: "", after: after.as_deref(), limit };
        let more = rt.store.records(page).await?;
        let is_last = (more.len() as u64) < limit;
        found.extend(more);
        if is_last {
            return Ok(found);
        }
    }
}

/// Takes every session with open work whose owner is not alive, several at a time. Returns the workers whose sessions could not be
/// taken, and may be later.
async fn take_orphans(
    rt: &Arc<Inner>,
    worker: &Worker,
    alive: &BTreeSet<String>,
    own: &str,
) -> Result<BTreeSet<String>, SessionError> {
    // Until all of it has gone well.
    worker.has_orphans.store(true, Ordering::Relaxed);
    let open: BTreeSet<SessionNo> =
        rt.store.open_batches(None).await?.into_iter().map(|batch| batch.session).collect();
    let mut open: Vec<SessionNo> = open.into_iter().collect();
    // Each of the workers that are left begins somewhere else, so that they do not try for the same ones.
    if let Some(places) = (open.len() as u64).checked_sub(1).filter(|places| *places > 0) {
        open.rotate_left(usize::try_from(rt.chance() % places).unwrap_or(0));
    }
    let others: Arc<BTreeSet<String>> = Arc::new(alive.iter().cloned().chain([own.to_string()]).collect());
    let (mut left, mut taking) = (BTreeSet::new(), JoinSet::new());
    for session in open {
        if taking.len() >= TAKEN_AT_ONCE {
            left.extend(taken(taking.join_next().await)?);
        }
        let (rt, others) = (rt.clone(), others.clone());
        taking.spawn(async move { take_orphan(&rt, session, &others).await });
    }
    while let Some(ended) = taking.join_next().await {
        left.extend(taken(Some(ended))?);
    }
    (rt.plugs.resume)(rt).await?;
    worker.has_orphans.store(!left.is_empty(), Ordering::Relaxed);
    Ok(left)
}

/// The number of sessions taken at once. A taking is a dozen round trips to the store, one after the other, and a store on a server
/// makes one statement of those that wait at the same time.
const TAKEN_AT_ONCE: usize = 128;

/// The worker whose session could not be taken yet, by how the task for it ended.
fn taken(
    ended: Option<Result<Result<Option<String>, SessionError>, JoinError>>,
) -> Result<Option<String>, SessionError> {
    match ended {
        Some(Ok(taken)) => taken,
        // One that panicked says so itself, and is tried for again at the next look.
        Some(Err(_)) | None => Ok(None),
    }
}

/// Takes a session unless one of these workers owns it. Returns the owner if it could not be taken yet.
async fn take_orphan(
    rt: &Arc<Inner>,
    session: SessionNo,
    alive: &BTreeSet<String>,
) -> Result<Option<String>, SessionError> {
    // One that belongs to nobody was left by a process that was no worker.
    let owner = owner(&*rt.store, session).await?.unwrap_or_default();
    if alive.contains(&owner) {
        return Ok(None);
    }
    match rt.session_by_no(session).await {
        Ok(taken) => {
            tracing::warn!(session = %taken.name, worker = %owner, "a session was taken over from a worker that is gone");
        }
        // Another worker was faster, its owner is alive after all, or it was removed meanwhile.
        Err(SessionError::Owned { .. } | SessionError::NotFound { .. } | SessionError::Gone { .. }) => {}
        Err(error @ SessionError::Unreadable { .. }) => {
            tracing::error!(%session, error = %chain(&error), "a session stands still");
        }
        Err(error) => {
            tracing::warn!(%session, error = %chain(&error), "a session could not be taken over yet");
            return Ok(Some(owner));
        }
    }
    Ok(None)
}

/// Removes the record of a worker that is over and has no open work; if it was heard of again, it stays.
async fn bury(rt: &Inner, record: &StoredRecord) -> Result<(), SessionError> {
    let change = RecordChange::remove(StoreSpace::Worker, record.key.as_str())
        .guarded(RecordGuard::Generation(record.generation));
    // A refusal means that it is alive, or that another worker has written the record.
    let _told = rt.store.commit(vec![change.into()]).await?;
    Ok(())
}
