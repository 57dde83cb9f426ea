//! The records of toolboxes: a head, and its manifest in pieces that fit into records. The head is written last, so that a
//! manifest counts whole or not at all.

use super::manifest::digest;
use super::{ToolManifest, ToolboxError};
use crate::api::error::SessionError;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use windlass_core::tool::Digest;
use windlass_store::{RecordChange, RecordGuard, RecordPage, Refused, Store, StoreSpace, StoredRecord};

/// The head of a toolbox, under its name.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct KeptToolbox {
    /// The principal that put it first.
    pub(super) principal: String,
    /// The digest of its manifest, in hexadecimal digits.
    pub(super) manifest: String,
    /// The number of pieces of the manifest.
    pub(super) pieces: u32,
    pub(super) created_us: i64,
    pub(super) changed_us: i64,
}

/// A toolbox as it is stored.
pub(super) struct StoredToolbox {
    pub(super) head: KeptToolbox,
    /// The generation of its head.
    pub(super) generation: u64,
}

/// The bytes of a manifest in one record.
const PIECE_BYTES: usize = 48 << 10;
/// The page size for reading records.
const PAGE: u64 = 100;

/// A manifest as text, and its digest.
pub(super) fn encoded(tools: &[ToolManifest]) -> Result<(Vec<u8>, Digest), ToolboxError> {
    let text =
        serde_json::to_vec(tools).map_err(|error| ToolboxError::Invalid { what: error.to_string() })?;
    let digest = digest(&text);
    Ok((text, digest))
}

/// The heads of all toolboxes, by name.
pub(super) async fn all(store: &dyn Store) -> Result<Vec<(String, StoredToolbox)>, SessionError> {
    let (mut found, mut after) = (Vec::new(), None::<String>);
    loop {
        let shelf = StoreSpace::Toolbox.shelf();
        let page = RecordPage { shelf, prefix: "", after: after.as_deref(), limit: PAGE };
        let records = store.records(page).await?;
        let Some(last) = records.last() else { return Ok(found) };
        after = Some(last.key.clone());
        for record in records.iter().filter(|record| !record.key.contains('/')) {
            found.push((record.key.clone(), read(record)?));
        }
    }
}

/// The head of one toolbox.
pub(super) async fn one(store: &dyn Store, name: &str) -> Result<Option<StoredToolbox>, SessionError> {
    let record = store.record(StoreSpace::Toolbox.shelf(), name).await?;
    record.as_ref().map(read).transpose()
}

fn read(record: &StoredRecord) -> Result<StoredToolbox, SessionError> {
    let head = serde_json::from_slice(&record.value)
        .map_err(|error| SessionError::undecodable(format!("the toolbox {:?}", record.key), error))?;
    Ok(StoredToolbox { head, generation: record.generation })
}

/// The manifest of a toolbox.
pub(super) async fn manifest(
    store: &dyn Store,
    name: &str,
    head: &KeptToolbox,
) -> Result<Vec<ToolManifest>, SessionError> {
    let mut text = Vec::new();
    for piece in 0..head.pieces {
        let key = piece_key(name, &head.manifest, piece);
        let found = store.record(StoreSpace::Toolbox.shelf(), &key).await?;
        let missing =
            || SessionError::unreadable(format!("the manifest of the toolbox {name:?} is incomplete"));
        text.extend_from_slice(&found.ok_or_else(missing)?.value);
    }
    serde_json::from_slice(&text)
        .map_err(|error| SessionError::undecodable(format!("the manifest of the toolbox {name:?}"), error))
}

fn piece_key(name: &str, manifest: &str, piece: u32) -> String {
    format!("{name}/{manifest}/{piece:04}")
}

/// Writes a toolbox, if its head still has this generation; 0: if there is none. `false`: it has another.
pub(super) async fn put(
    store: &dyn Store,
    name: &str,
    text: &[u8],
    mut head: KeptToolbox,
    generation: u64,
) -> Result<bool, SessionError> {
    let pieces: Vec<&[u8]> = text.chunks(PIECE_BYTES).collect();
    head.pieces = u32::try_from(pieces.len()).unwrap_or(u32::MAX);
    for (place, piece) in pieces.into_iter().enumerate() {
        let key = piece_key(name, &head.manifest, place as u32);
        let value: Arc<[u8]> = piece.into();
        let put = RecordChange::put(StoreSpace::Toolbox, key, value);
        committed(store, put).await?.map_err(|refused| SessionError::unreadable(refused.to_string()))?;
    }
    let value: Arc<[u8]> = serde_json::to_vec(&head).unwrap_or_default().into();
    let put = RecordChange::put(StoreSpace::Toolbox, name, value);
    Ok(committed(store, put.guarded(RecordGuard::Generation(generation))).await?.is_ok())
}

/// Removes the pieces of earlier manifests; of all of them if there is none any more.
pub(super) async fn clean(store: &dyn Store, name: &str, manifest: Option<&str>) -> Result<(), SessionError> {
    let (prefix, mut after) = (format!("{name}/"), None::<String>);
    let current = manifest.map(|manifest| format!("{name}/{manifest}/"));
    loop {
        let shelf = StoreSpace::Toolbox.shelf();
        let page = RecordPage { shelf, prefix: &prefix, after: after.as_deref(), limit: PAGE };
        let records = store.records(page).await?;
        let Some(last) = records.last() else { return Ok(()) };
        after = Some(last.key.clone());
        for record in &records {
            if current.as_ref().is_none_or(|current| !record.key.starts_with(current)) {
                let gone = RecordChange::remove(StoreSpace::Toolbox, &record.key);
                committed(store, gone)
                    .await?
                    .map_err(|refused| SessionError::unreadable(refused.to_string()))?;
            }
        }
    }
}

/// Removes a toolbox.
pub(super) async fn remove(store: &dyn Store, name: &str) -> Result<(), SessionError> {
    let gone = RecordChange::remove(StoreSpace::Toolbox, name);
    committed(store, gone).await?.map_err(|refused| SessionError::unreadable(refused.to_string()))?;
    clean(store, name, None).await
}

async fn committed(store: &dyn Store, change: RecordChange) -> Result<Result<(), Refused>, SessionError> {
    let said = store.commit(vec![change.into()]).await?.pop();
    Ok(said.map_or(Ok(()), |said| said.map(drop)))
}
