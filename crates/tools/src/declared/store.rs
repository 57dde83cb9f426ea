//! The store that several workers share.

use super::keys;
use super::place::{ConfigError, DeclarationSource};
use serde::Deserialize;
use std::path::PathBuf;
use toml::Spanned;
use toml::de::{DeValue, ValueDeserializer};

/// The most connections of one kind: more make commits slower, and a server has a few hundred for all.
const CONNECTIONS_MAX: usize = 64;

/// The store that several workers share.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct SharedStore {
    /// The address of the database, `postgres://…`; the command line and `WINDLASS_STORE` come first.
    pub url: Option<String>,
    /// The address of the server itself, if `url` is that of a pool.
    pub direct: Option<String>,
    /// Connections that write.
    pub writers: Option<usize>,
    /// Connections that read.
    pub readers: Option<usize>,
    /// The folder, the same for all workers, with the files of sessions.
    pub files: Option<PathBuf>,
}

/// Parses it from its table.
pub(super) fn read(
    source: &DeclarationSource<'_>,
    value: Spanned<DeValue<'_>>,
) -> Result<SharedStore, ConfigError> {
    let (span, table) = (value.span(), source.table(&value, "store")?.clone());
    keys::check(source, &table, &keys::STORE)?;
    let mut store =
        SharedStore::deserialize(ValueDeserializer::from(value)).map_err(|error| source.rejected(error))?;
    for (name, count) in [("writers", store.writers), ("readers", store.readers)] {
        if count.is_some_and(|count| count == 0 || count > CONNECTIONS_MAX) {
            let told = format!("`{name}` is a number of connections, from 1 to {CONNECTIONS_MAX}");
            return Err(source.value_error(span, told));
        }
    }
    if let Some(files) = store.files.take() {
        store.files = Some(source.folder()?.join(files));
    }
    Ok(store)
}
