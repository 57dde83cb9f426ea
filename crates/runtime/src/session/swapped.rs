//! Records of the whole store that all workers change, each by compare-and-swap.

use crate::api::error::{Lost, SessionError};
use crate::session::inner::Inner;
use serde::Serialize;
use serde::de::DeserializeOwned;
use windlass_store::{RecordChange, RecordGuard, Refused, StoreError, StoreSpace};

/// Keys that are longer are kept under their hash: a key must fit into an index.
const KEY_BYTES_MAX: usize = 200;

/// A key that fits; no shorter key begins like that of a long one.
pub(crate) fn fitting_key(key: &str) -> String {
    match key.len() <= KEY_BYTES_MAX {
        true => key.to_string(),
        false => format!("#{}", blake3::hash(key.as_bytes()).to_hex()),
    }
}

/// The value of a record, and its generation; the default of generation 0 if there is none. Fields of a value may be added; those that
/// are there never change.
pub(crate) async fn find<T: DeserializeOwned + Default>(
    rt: &Inner,
    space: StoreSpace,
    key: &str,
    of: &str,
) -> Result<(T, u64), SessionError> {
    let Some(found) = rt.store.record(space.shelf(), key).await? else {
        return Ok((T::default(), 0));
    };
    let value = serde_json::from_slice(&found.value)
        .map_err(|error| SessionError::unreadable(format!("the record of {of} cannot be read: {error}")))?;
    Ok((value, found.generation))
}

/// Replaces a record that still has this generation, or removes it. `false`: somebody else was faster.
pub(crate) async fn replace<T: Serialize>(
    rt: &Inner,
    space: StoreSpace,
    key: String,
    value: Option<&T>,
    generation: u64,
) -> Result<bool, SessionError> {
    let change = match value {
        None => RecordChange::remove(space, key),
        // Numbers and texts serialise without fail.
        Some(value) => RecordChange::put(space, key, serde_json::to_vec(value).unwrap_or_default()),
    };
    swap(rt, change, generation).await
}

/// Makes a change of a record that still has this generation. `false`: somebody else was faster.
pub(crate) async fn swap(rt: &Inner, change: RecordChange, generation: u64) -> Result<bool, SessionError> {
    let change = change.guarded(RecordGuard::Generation(generation));
    match rt.store.commit(vec![change.into()]).await?.pop() {
        Some(Ok(_)) => Ok(true),
        Some(Err(Refused::Changed { .. })) => Ok(false),
        Some(Err(refused)) => Err(Lost::Refused(refused).into()),
        None => Err(StoreError::Closed.into()),
    }
}
