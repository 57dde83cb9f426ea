//! The secrets that toolboxes may read.

use super::keys;
use super::place::{ConfigError, DeclarationSource};
use serde::Deserialize;
use std::collections::BTreeMap;
use toml::Spanned;
use toml::de::{DeValue, ValueDeserializer};

/// The table of one toolbox as written; its keys are checked before.
#[derive(Deserialize)]
struct ToolboxTable {
    #[serde(default)]
    secrets: Vec<String>,
}

/// Parses the secrets of each toolbox, by its name.
pub(super) fn read(
    source: &DeclarationSource<'_>,
    value: Spanned<DeValue<'_>>,
) -> Result<BTreeMap<String, Vec<String>>, ConfigError> {
    let mut read = BTreeMap::new();
    for (name, table) in source.table(&value, "toolboxes")?.clone() {
        let place = format!("toolboxes.{}", name.get_ref());
        keys::check(source, source.table(&table, &place)?, &keys::TOOLBOX)?;
        let table = ToolboxTable::deserialize(ValueDeserializer::from(table));
        read.insert(name.get_ref().to_string(), table.map_err(|error| source.rejected(error))?.secrets);
    }
    Ok(read)
}
