//! Versions of the policy in the store: the newest under one key, which a change replaces only if nobody else has, and each
//! version under its number.

use crate::api::error::{Lost, SessionError};
use crate::session::inner::Inner;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use windlass_store::{
    RecordChange, RecordGuard, RecordPage, Refused, Store, StoreError, StoreSpace, StoredRecord,
};

/// The key of the newest version.
const NEWEST: &str = "newest";
/// The prefix of the keys of all versions.
const VERSION: &str = "v";

/// A version of the policy as its record has it. Fields may be added; those that are here never change.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct StoredPolicy {
    /// Its number, from 1.
    pub(super) version: u64,
    /// The rules that the host declared.
    #[serde(default)]
    pub(super) declared: Vec<Value>,
    /// The rules that were set.
    #[serde(default)]
    pub(super) set: Vec<Value>,
    /// The author of this version.
    pub(super) by: String,
    /// The time of the change, in microseconds since 1970.
    pub(super) at: i64,
}

/// The newest version as it was found.
pub(super) struct NewestVersion {
    /// The version, or why it cannot be read; `None` if there was never one.
    pub(super) read: Option<Result<StoredPolicy, String>>,
    /// The generation of its record.
    pub(super) generation: u64,
}

/// The result of storing a version.
pub(super) enum Stored {
    /// It is the newest, and its record has this generation.
    Done(u64),
    /// Somebody else stored a version meanwhile.
    Outrun,
}

pub(super) async fn newest(store: &dyn Store) -> Result<NewestVersion, SessionError> {
    let Some(record) = store.record(StoreSpace::Policy.shelf(), NEWEST).await? else {
        return Ok(NewestVersion { read: None, generation: 0 });
    };
    Ok(NewestVersion { read: Some(decode(&record)), generation: record.generation })
}

/// Stores a version, if the newest one still has this generation. Durable when this returns.
pub(super) async fn store(rt: &Inner, version: &StoredPolicy, over: u64) -> Result<Stored, SessionError> {
    let value = encode(version);
    let newest = RecordChange::put(StoreSpace::Policy, NEWEST, value.clone());
    let newest = newest.guarded(RecordGuard::Generation(over));
    let generation = match rt.store.commit(vec![newest.into()]).await?.pop() {
        Some(Ok(receipt)) => receipt.generation,
        Some(Err(Refused::Changed { .. })) => return Ok(Stored::Outrun),
        Some(Err(refused)) => return Err(Lost::Refused(refused).into()),
        None => return Err(StoreError::Closed.into()),
    };
    keep(rt, version).await?;
    Ok(Stored::Done(generation))
}

/// Keeps the newest version under its number too, and drops one that is too old. Repeated after a crash in between.
pub(super) async fn keep(rt: &Inner, version: &StoredPolicy) -> Result<(), SessionError> {
    let kept = RecordChange::put(StoreSpace::Policy, key(version.version), encode(version));
    let mut changes = vec![kept.into()];
    if let Some(old) = version.version.checked_sub(rt.limits.policy_versions_max).filter(|old| *old > 0) {
        changes.push(RecordChange::remove(StoreSpace::Policy, key(old)).into());
    }
    for told in rt.store.commit(changes).await? {
        told.map_err(Lost::Refused)?;
    }
    Ok(())
}

/// Whether this version is kept under its number.
pub(super) async fn is_kept(rt: &Inner, version: u64) -> Result<bool, SessionError> {
    Ok(rt.store.record(StoreSpace::Policy.shelf(), &key(version)).await?.is_some())
}

/// Versions below this one, newest first. One that cannot be read is left out.
pub(super) async fn before(rt: &Inner, version: u64, limit: u64) -> Result<Vec<StoredPolicy>, SessionError> {
    let mut found = Vec::new();
    let mut next = version;
    // Numbers are contiguous, so each version is one look-up.
    while (found.len() as u64) < limit && next > 1 {
        next -= 1;
        match rt.store.record(StoreSpace::Policy.shelf(), &key(next)).await? {
            Some(record) => found.extend(decode(&record).ok()),
            None => break,
        }
    }
    Ok(found)
}

/// The highest number of a version that is kept: for a newest one that cannot be read.
pub(super) async fn highest(rt: &Inner) -> Result<u64, SessionError> {
    let mut last: Option<String> = None;
    loop {
        let shelf = StoreSpace::Policy.shelf();
        let page = RecordPage { shelf, prefix: VERSION, after: last.as_deref(), limit: PAGE };
        match rt.store.records(page).await?.pop() {
            Some(record) => last = Some(record.key),
            None => break,
        }
    }
    let number = last.and_then(|key| u64::from_str_radix(key.strip_prefix(VERSION)?, 16).ok());
    Ok(number.unwrap_or(0))
}

/// The page size for reading versions.
const PAGE: u64 = 16;

fn key(version: u64) -> String {
    format!("{VERSION}{version:016x}")
}

fn encode(version: &StoredPolicy) -> Vec<u8> {
    // Numbers, texts and JSON values serialise without fail.
    serde_json::to_vec(version).unwrap_or_default()
}

/// The length of a stored version.
pub(super) fn bytes(version: &StoredPolicy) -> u64 {
    encode(version).len() as u64
}

fn decode(record: &StoredRecord) -> Result<StoredPolicy, String> {
    serde_json::from_slice(&record.value).map_err(|error| {
        format!("the stored policy cannot be read: {error}; set it anew with `windlass policy set`")
    })
}
