//! Removing unreferenced blobs.

use super::known::{Loose, blob_of, key};
use crate::api::data_error::ArtifactError;
use crate::api::error::{SessionError, chain};
use crate::api::limits::Limits;
use crate::session::inner::{Inner, Runtime};
use crate::session::lane::Lane;
use std::sync::Arc;
use windlass_core::ids::BlobNo;
use windlass_store::{Change, Guard, Hold, RecordPage, Refused, Row, STORE, Space, Store, StoredRecord};

/// How many pieces are removed in one change: a large blob must not block the store for everybody else.
const PIECES_AT_ONCE: u32 = 64;

/// The page size for reading records.
const PAGE: u64 = 100;

impl Runtime {
    /// Removes the artifacts that nothing has referred to for `artifact_loose_ms`: the remains of lost attempts, and artifacts
    /// that tools stored and did not return. Returns their number. The runtime does this by itself from time to time.
    pub async fn collect_artifacts(&self) -> Result<u64, SessionError> {
        let rt = &self.0;
        collect(rt).await.map_err(|error| match error {
            ArtifactError::Lost(lost) => lost.into(),
            error @ (ArtifactError::TooLarge { .. }
            | ArtifactError::Unknown { .. }
            | ArtifactError::MediaType { .. }) => {
                SessionError::undecodable("an artifact that nothing refers to", error)
            }
        })
    }
}

/// Checks all loose blobs.
pub(crate) async fn look_over(rt: &Inner) {
    if let Err(error) = collect(rt).await {
        tracing::warn!(error = %chain(&error), "what nothing refers to could not be removed; it is tried again later");
    }
}

/// Checks all loose blobs, and schedules the next check.
pub(crate) async fn sweep(rt: Arc<Inner>) {
    look_over(&rt).await;
    rt.wheel.collect_at(rt.clock.elapsed_us().saturating_add(sweep_us(&rt.limits)));
}

/// The time between checks: a quarter of the time that loose blobs have, so that they hardly stay longer.
pub(crate) fn sweep_us(limits: &Limits) -> u64 {
    limits.artifact_loose_ms.saturating_mul(1_000) / 4
}

async fn collect(rt: &Inner) -> Result<u64, ArtifactError> {
    let store = &*rt.store;
    let (mut after, mut removed) = (None, 0);
    loop {
        let page = RecordPage {
            session: STORE,
            space: Space::Loose,
            prefix: "",
            after: after.as_deref(),
            limit: PAGE,
        };
        let records = store.records(page).await?;
        let Some(last) = records.last() else { return Ok(removed) };
        for record in &records {
            removed += u64::from(look_at(rt, record).await?);
        }
        after = Some(last.key.clone());
    }
}

/// Removes a blob if nothing has referred to it for too long. An open call may still refer to it: then its time starts again.
async fn look_at(rt: &Inner, record: &StoredRecord) -> Result<bool, ArtifactError> {
    let store = &*rt.store;
    let loose = Loose::of(record)?;
    let Some(blob) = blob_of(&record.key) else { return Ok(false) };
    if rt.wheel.age_us(loose.since) < rt.limits.artifact_loose_ms.saturating_mul(1_000) {
        return Ok(false);
    }
    let open = store.open_batches(Some(loose.session)).await?;
    if open.iter().any(|batch| batch.no == loose.batch) {
        change(store, record, vec![Loose { since: rt.clock.now(), ..loose }.row(blob)]).await?;
        return Ok(false);
    }
    remove_loose(store, record, blob).await
}

/// Removes a loose blob.
pub(super) async fn remove(store: &dyn Store, blob: BlobNo) -> Result<bool, ArtifactError> {
    match store.record(STORE, Space::Loose, &key(blob)).await? {
        Some(record) => remove_loose(store, &record, blob).await,
        None => Ok(false),
    }
}

/// Removes a blob from its end, a bounded piece at a time, unless something refers to it by then. If
/// interrupted, it stays loose.
async fn remove_loose(store: &dyn Store, record: &StoredRecord, blob: BlobNo) -> Result<bool, ArtifactError> {
    let size = store.blob_size(blob).await?;
    let mut left = size.map_or(0, |size| size.pieces);
    loop {
        left = left.saturating_sub(PIECES_AT_ONCE);
        let mut rows = vec![
            Row::Cut { blob, pieces: left },
            Row::Remove { space: Space::Artifact, key: record.key.clone() },
        ];
        if left == 0 {
            rows.push(Row::Remove { space: Space::Loose, key: record.key.clone() });
        }
        if !change(store, record, rows).await? {
            return Ok(false);
        }
        if left == 0 {
            return Ok(true);
        }
    }
}

/// Forgets the records of a session's blobs, which are removed with the session. The lane is closed, so that
/// no blob comes in between; the owner writes past it.
pub(crate) async fn forget_session(rt: &Inner, lane: &Lane) -> Result<(), SessionError> {
    let mut after = None;
    loop {
        let (session, space) = (lane.session(), Space::Blob);
        let page = RecordPage { session, space, prefix: "", after: after.as_deref(), limit: PAGE };
        let records = rt.store.records(page).await?;
        let Some(last) = records.last() else { return Ok(()) };
        after = Some(last.key.clone());
        let forgotten = |record: &StoredRecord| {
            [Space::Artifact, Space::Loose].map(|space| Row::Remove { space, key: record.key.clone() })
        };
        let rows = records.iter().flat_map(forgotten).collect();
        let change = Change { session, hold: Hold::Held(lane.fence()), guards: Vec::new(), rows };
        let answers = rt.store.commit(vec![change]).await?;
        answers.into_iter().collect::<Result<Vec<_>, _>>().map_err(crate::api::error::Lost::Refused)?;
    }
}

/// Writes a change if the record is unchanged.
async fn change(store: &dyn Store, record: &StoredRecord, rows: Vec<Row>) -> Result<bool, ArtifactError> {
    let guard = Guard::Generation { space: Space::Loose, key: record.key.clone(), is: record.generation };
    let change = Change { session: STORE, hold: Hold::Store, guards: vec![guard], rows };
    let answer = store.commit(vec![change]).await?.pop();
    match answer {
        Some(Ok(_)) => Ok(true),
        Some(Err(Refused::Changed { .. })) => Ok(false),
        Some(Err(refused)) => Err(ArtifactError::Lost(crate::api::error::Lost::Refused(refused))),
        None => Ok(false),
    }
}
