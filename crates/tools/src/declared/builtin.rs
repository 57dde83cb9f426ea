//! The built-in tools that a file chooses, and the folders that it allows.

use super::keys;
use super::place::{ConfigError, DeclarationSource};
use crate::builtin::BuiltinGroup;
use serde::Deserialize;
use std::path::PathBuf;
use toml::Spanned;
use toml::de::{DeValue, ValueDeserializer};
use windlass::tool::nearest_name;

/// Parses the list of groups.
pub(super) fn groups(
    source: &DeclarationSource<'_>,
    value: &Spanned<DeValue<'_>>,
) -> Result<Vec<BuiltinGroup>, ConfigError> {
    let names = || BuiltinGroup::ALL.iter().map(|group| group.as_str());
    let told = |near: Option<&str>| {
        let near = near.map(|near| format!("; did you mean {near:?}?")).unwrap_or_default();
        format!("`builtin` lists groups of built-in tools: {}{near}", names().collect::<Vec<_>>().join(", "))
    };
    let Some(listed) = value.get_ref().as_array() else {
        return Err(source.value_error(value.span(), told(None)));
    };
    let group = |item: &Spanned<DeValue<'_>>| {
        let name = item.get_ref().as_str().unwrap_or_default();
        let near = nearest_name(name, names());
        BuiltinGroup::named(name).ok_or_else(|| source.value_error(item.span(), told(near)))
    };
    listed.iter().map(group).collect()
}

#[derive(Deserialize)]
struct FilesTable {
    #[serde(default)]
    allow: Vec<String>,
}

/// Parses the folders that sessions may be opened with: relative to the folder of the file.
pub(super) fn folders(
    source: &DeclarationSource<'_>,
    value: Spanned<DeValue<'_>>,
) -> Result<Vec<PathBuf>, ConfigError> {
    let span = value.span();
    keys::check(source, source.table(&value, "files")?, &keys::FILES)?;
    let table =
        FilesTable::deserialize(ValueDeserializer::from(value)).map_err(|error| source.rejected(error))?;
    let base = source.folder()?;
    let folder = |allowed: String| {
        let folder = base.join(&allowed);
        match folder.is_dir() {
            true => Ok(folder),
            false => {
                let told = format!(
                    "`allow` of [files] names the folder {allowed:?}, and there is none; create it, or leave it out"
                );
                Err(source.value_error(span.clone(), told))
            }
        }
    };
    table.allow.into_iter().map(folder).collect()
}
