//! The mark of a session that is being removed.

use crate::api::error::SessionError;
use crate::session::principal;
use serde::{Deserialize, Serialize};
use windlass_store::{STORE, Space, Store, gone_value};

/// The key prefix of records about sessions that are being removed.
pub(crate) const REMOVING: &str = "removing/";

/// A session that is being removed.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct RemovalMark {
    /// Its number.
    pub(crate) session: u64,
    /// Keys of [`Space::Setting`] to remove with it, written by older versions.
    #[serde(default)]
    pub(crate) settings: Vec<String>,
    /// The hash to retain; `None` in marks of older versions.
    #[serde(default)]
    pub(crate) gone: Option<[u8; 32]>,
    /// The parent that lists it, if it is a child.
    #[serde(default)]
    pub(crate) parent: Option<String>,
}

impl RemovalMark {
    /// The removal mark of the session of this name, if there is one.
    pub(crate) async fn of(store: &dyn Store, name: &str) -> Result<Option<RemovalMark>, SessionError> {
        let Some(record) = store.record(STORE, Space::Setting, &key(name)).await? else { return Ok(None) };
        let mark = serde_json::from_slice(&record.value)
            .map_err(|error| SessionError::undecodable(format!("the record {:?}", record.key), error))?;
        Ok(Some(mark))
    }

    /// The hash to retain of the session of this name.
    pub(crate) async fn hash(&self, store: &dyn Store, name: &str) -> Result<[u8; 32], SessionError> {
        match self.gone {
            Some(gone) => Ok(gone),
            None => {
                let principal = principal::older(store, name).await?;
                Ok(gone_value(store.secret(), name, principal.as_deref()))
            }
        }
    }
}

/// The retained hash of a session of which only the mark is left.
pub(crate) async fn left_of(store: &dyn Store, name: &str) -> Result<Option<Vec<u8>>, SessionError> {
    match RemovalMark::of(store, name).await? {
        Some(mark) => Ok(Some(mark.hash(store, name).await?.to_vec())),
        None => Ok(None),
    }
}

/// The key of a session's removal mark.
pub(crate) fn key(name: &str) -> String {
    format!("{REMOVING}{name}")
}
