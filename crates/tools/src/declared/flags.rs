//! The flags of a tool: how it may be called and what happens to its output.

use super::place::{ConfigError, DeclarationSource};
use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeValue, ValueDeserializer};
use windlass::Flags;

/// The flags as written.
#[derive(Deserialize)]
pub(super) struct FlagTable {
    #[serde(default)]
    persist_output: bool,
    #[serde(default)]
    polls: bool,
    pub(super) background: Option<Spanned<bool>>,
    background_only: Option<Spanned<bool>>,
    stays_direct: Option<Spanned<bool>>,
}

impl FlagTable {
    pub(super) fn read(
        source: &DeclarationSource<'_>,
        value: Spanned<DeValue<'_>>,
    ) -> Result<FlagTable, ConfigError> {
        FlagTable::deserialize(ValueDeserializer::from(value)).map_err(|error| source.rejected(error))
    }

    /// The flags, if they are consistent with each other and with whether the tool `claims` anything.
    /// `background_only` implies `background`.
    pub(super) fn flags(&self, source: &DeclarationSource<'_>, claims: bool) -> Result<Flags, ConfigError> {
        let given =
            [&self.background_only, &self.background].into_iter().flatten().find(|given| *given.get_ref());
        let direct = self.stays_direct.as_ref().filter(|given| *given.get_ref());
        if let (Some(_), Some(direct)) = (given, direct) {
            let message = "what is never a task cannot go on as one: drop `stays_direct` or `background`";
            return Err(source.value_error(direct.span(), message));
        }
        if let Some(given) = given.filter(|_| !claims) {
            let message = "a call that goes on in the background must say beside what: declare its `claims`, `[]` for none";
            return Err(source.value_error(given.span(), message));
        }
        Ok(Flags {
            persist_output: self.persist_output,
            polls: self.polls,
            background: given.is_some(),
            background_only: self.background_only.as_ref().is_some_and(|given| *given.get_ref()),
            stays_direct: direct.is_some(),
            ..Flags::default()
        })
    }
}
