//! Removing what nothing refers to.

use super::ArtifactError;
use super::known::{Loose, blob_of, key};
use crate::error::{BatchError, chain};
use crate::lane::Lane;
use crate::runtime::{Inner, Runtime};
use std::sync::Arc;
use windlass_core::ids::BlobNo;
use windlass_core::limits::Limits;
use windlass_core::time::Timestamp;
use windlass_store::{Change, Guard, Hold, Record, RecordPage, Refused, Row, STORE, Space, Store};

/// Pieces that are removed in one change: a large blob must not keep the store from everybody else.
const PIECES_AT_ONCE: u32 = 64;

/// Records that are looked at in one page.
const PAGE: u64 = 100;

impl Runtime {
    /// Removes the artifacts that nothing has referred to for `artifact_loose_ms`: what lost attempts left, and what tools
    /// kept and did not return. Returns how many there were. The runtime does this by itself from time to time.
    pub async fn collect_artifacts(&self) -> Result<u64, BatchError> {
        let rt = &self.0;
        collect(&*rt.store, &rt.limits, rt.clock.now()).await.map_err(|error| match error {
            ArtifactError::Lost(lost) => lost.into(),
            error @ (ArtifactError::TooLarge { .. }
            | ArtifactError::Unknown { .. }
            | ArtifactError::MediaType { .. }) => BatchError::Unreadable { what: error.to_string() },
        })
    }
}

/// Looks through what is loose.
pub(crate) async fn look_over(rt: &Inner) {
    if let Err(error) = collect(&*rt.store, &rt.limits, rt.clock.now()).await {
        tracing::warn!(error = %chain(&error), "what nothing refers to could not be removed; it is tried again later");
    }
}

/// The same, and has that done again later.
pub(crate) async fn sweep(rt: Arc<Inner>) {
    look_over(&rt).await;
    rt.wheel.collect_at(rt.clock.elapsed_us().saturating_add(sweep_us(&rt.limits)));
}

/// How long nobody looks: a quarter of the time that loose ones have, so that they hardly stay longer.
pub(crate) fn sweep_us(limits: &Limits) -> u64 {
    limits.artifact_loose_ms.saturating_mul(1_000) / 4
}

async fn collect(store: &dyn Store, limits: &Limits, now: Timestamp) -> Result<u64, ArtifactError> {
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
            removed += u64::from(look_at(store, record, (now, limits.artifact_loose_ms)).await?);
        }
        after = Some(last.key.clone());
    }
}

/// Removes a blob if nothing has referred to it for too long. An open call may still: then its time begins anew.
async fn look_at(
    store: &dyn Store,
    record: &Record,
    (now, loose_ms): (Timestamp, u64),
) -> Result<bool, ArtifactError> {
    let loose = Loose::of(record)?;
    let Some(blob) = blob_of(&record.key) else { return Ok(false) };
    if now.since(loose.since) < loose_ms.saturating_mul(1_000) {
        return Ok(false);
    }
    let open = store.open_batches(Some(loose.session)).await?;
    if open.iter().any(|batch| batch.no == loose.batch) {
        change(store, record, vec![Loose { since: now, ..loose }.row(blob)]).await?;
        return Ok(false);
    }
    remove_loose(store, record, blob).await
}

/// Removes a blob that is loose.
pub(super) async fn remove(store: &dyn Store, blob: BlobNo) -> Result<bool, ArtifactError> {
    match store.record(STORE, Space::Loose, &key(blob)).await? {
        Some(record) => remove_loose(store, &record, blob).await,
        None => Ok(false),
    }
}

/// Removes a blob from its end, a bounded piece at a time, unless something refers to it by then. Whoever is cut off leaves
/// it loose.
async fn remove_loose(store: &dyn Store, record: &Record, blob: BlobNo) -> Result<bool, ArtifactError> {
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

/// Forgets what is known of a session's blobs, which are removed with the session.
pub(crate) async fn forget_session(rt: &Inner, lane: &Lane) -> Result<(), BatchError> {
    let mut after = None;
    loop {
        let (session, space) = (lane.session(), Space::Blob);
        let page = RecordPage { session, space, prefix: "", after: after.as_deref(), limit: PAGE };
        let records = rt.store.records(page).await?;
        let Some(last) = records.last() else { return Ok(()) };
        after = Some(last.key.clone());
        let forgotten = |record: &Record| {
            [Space::Artifact, Space::Loose].map(|space| Row::Remove { space, key: record.key.clone() })
        };
        lane.commit_rows(records.iter().flat_map(forgotten).collect()).await?;
    }
}

/// Changes something if the record is still what it was.
async fn change(store: &dyn Store, record: &Record, rows: Vec<Row>) -> Result<bool, ArtifactError> {
    let guard = Guard::Generation { space: Space::Loose, key: record.key.clone(), is: record.generation };
    let change = Change { session: STORE, hold: Hold::Store, guards: vec![guard], rows };
    let answer = store.commit(vec![change]).await?.pop();
    match answer {
        Some(Ok(_)) => Ok(true),
        Some(Err(Refused::Changed { .. })) => Ok(false),
        Some(Err(refused)) => Err(ArtifactError::Lost(crate::Lost::Refused(refused))),
        None => Ok(false),
    }
}
