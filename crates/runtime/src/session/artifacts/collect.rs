//! Removing unreferenced blobs.

use super::known::{Loose, blob_of};
use super::owned;
use crate::api::data_error::ArtifactError;
use crate::api::error::{SessionError, chain};
use crate::api::limits::Limits;
use crate::session::inner::{Inner, Runtime};
use crate::session::lane::Lane;
use crate::session::owner::Session;
use std::sync::Arc;
use windlass_core::ids::BlobNo;
use windlass_store::{Guard, RecordPage, Row, SessionRow, Space, StoredRecord, blob_key};

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
pub(crate) async fn look_over(rt: &Arc<Inner>) {
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

async fn collect(rt: &Arc<Inner>) -> Result<u64, ArtifactError> {
    let (mut after, mut removed) = (None, 0);
    loop {
        let sessions = rt.store.sessions_with(Space::Loose, after, PAGE).await?;
        let Some(last) = sessions.last() else { return Ok(removed) };
        after = Some(last.no);
        for row in &sessions {
            if let Some(session) = writable(rt, row).await? {
                removed += collect_of(rt, &session).await?;
            }
        }
    }
}

/// The session with loose blobs, if it is this runtime's, or nobody's business: taking one with open calls would drive them.
async fn writable(rt: &Arc<Inner>, row: &SessionRow) -> Result<Option<Arc<Session>>, ArtifactError> {
    if rt.owned_session(&row.name).is_none() && !rt.store.open_batches(Some(row.no)).await?.is_empty() {
        return Ok(None);
    }
    let session = match rt.session(&row.name).await {
        Ok(session) => session,
        Err(error) => {
            tracing::debug!(session = %row.name, error = %chain(&error), "unused artifacts of a session stay for now");
            return Ok(None);
        }
    };
    if !session.lane.is_taken() {
        // A change that may be refused must not be the one that takes the session.
        session.lane.commit_rows(Vec::new()).await.map_err(ArtifactError::Lost)?;
    }
    Ok(Some(session))
}

async fn collect_of(rt: &Inner, session: &Session) -> Result<u64, ArtifactError> {
    let (mut after, mut removed) = (None, 0);
    loop {
        let shelf = Space::Loose.of(session.lane.session());
        let page = RecordPage { shelf, prefix: "", after: after.as_deref(), limit: PAGE };
        let records = rt.store.records(page).await?;
        let Some(last) = records.last() else { return Ok(removed) };
        for record in &records {
            removed += u64::from(look_at(rt, &session.lane, record).await?);
        }
        after = Some(last.key.clone());
    }
}

/// Removes a blob if nothing has referred to it for too long. An open call may still refer to it: then its time starts again.
async fn look_at(rt: &Inner, lane: &Lane, record: &StoredRecord) -> Result<bool, ArtifactError> {
    let loose = Loose::of(record)?;
    let Some(blob) = blob_of(&record.key) else { return Ok(false) };
    if rt.wheel.age_us(loose.since) < rt.limits.artifact_loose_ms.saturating_mul(1_000) {
        return Ok(false);
    }
    let open = rt.store.open_batches(Some(lane.session())).await?;
    if open.iter().any(|batch| batch.no == loose.batch) {
        change(lane, record, vec![Loose { since: rt.clock.now(), ..loose }.row(blob)]).await?;
        return Ok(false);
    }
    remove_loose(lane, record, blob).await
}

/// Removes a loose blob.
pub(super) async fn remove(lane: &Lane, blob: BlobNo) -> Result<bool, ArtifactError> {
    match lane.store().record(Space::Loose.of(lane.session()), &blob_key(blob)).await? {
        Some(record) => remove_loose(lane, &record, blob).await,
        None => Ok(false),
    }
}

/// Removes a blob from its end, a bounded piece at a time, unless something refers to it by then. If
/// interrupted, it stays loose.
async fn remove_loose(lane: &Lane, record: &StoredRecord, blob: BlobNo) -> Result<bool, ArtifactError> {
    let size = lane.store().blob_size(blob).await?;
    let mut left = size.map_or(0, |size| size.pieces);
    loop {
        left = left.saturating_sub(PIECES_AT_ONCE);
        // From the first piece on it is incomplete, and found by nobody.
        let mut rows = vec![Row::Cut { blob, pieces: left }, owned(blob)];
        if left == 0 {
            let forgotten = [Space::Blob, Space::Loose];
            rows.extend(forgotten.map(|space| Row::Remove { space, key: record.key.clone() }));
        }
        if !change(lane, record, rows).await? {
            return Ok(false);
        }
        if left == 0 {
            return Ok(true);
        }
    }
}

/// Writes a change if the record is unchanged.
async fn change(lane: &Lane, record: &StoredRecord, rows: Vec<Row>) -> Result<bool, ArtifactError> {
    let guard = Guard::Generation { space: Space::Loose, key: record.key.clone(), is: record.generation };
    Ok(lane.attempt(vec![guard], rows).await.map_err(ArtifactError::Lost)?.is_ok())
}
