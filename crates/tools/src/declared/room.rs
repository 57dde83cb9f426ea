//! The claims of a tool's calls, and the limits on how many of them run.

use super::keys;
use super::place::{ConfigError, DeclarationSource};
use super::rules::number;
use serde::Deserialize;
use std::borrow::Cow;
use std::collections::BTreeSet;
use toml::Spanned;
use toml::de::{DeValue, ValueDeserializer};
use windlass::Limits;
use windlass::error::BadClaim;
use windlass::limits::{Cap, Rate};
use windlass::tool::{ClaimTemplate, nearest_name};

/// The claims and limits in a tool's table; its other keys are read elsewhere.
#[derive(Deserialize)]
pub(super) struct RoomTable {
    claims: Option<Vec<Spanned<String>>>,
    limits: Option<GroupBounds>,
    #[serde(default)]
    groups: Vec<Spanned<String>>,
}

/// The limits of a tool, or of a group of tools.
#[derive(Default, Deserialize)]
struct GroupBounds {
    running: Option<Spanned<i64>>,
    per_minute: Option<Spanned<i64>>,
}

/// The groups of tools with shared limits, by name.
pub(super) type Groups = Vec<(String, Cap)>;

/// Far more than any machine runs or starts; a larger value means no limit.
const BOUND_MAX: i64 = 1_000_000;
const MINUTE_MS: u64 = 60_000;

impl RoomTable {
    /// Parses it from the table of a tool.
    pub(super) fn read(
        source: &DeclarationSource<'_>,
        table: Spanned<DeValue<'_>>,
    ) -> Result<RoomTable, ConfigError> {
        RoomTable::deserialize(ValueDeserializer::from(table)).map_err(|error| source.rejected(error))
    }

    /// The declared claims, each of which can be filled from arguments with these properties.
    pub(super) fn claims(
        &self,
        source: &DeclarationSource<'_>,
        properties: &BTreeSet<String>,
        limits: &Limits,
    ) -> Result<Option<Vec<String>>, ConfigError> {
        let Some(claims) = &self.claims else { return Ok(None) };
        let (found, max) = (claims.len() as u64, limits.claims_max);
        if let Some(last) = claims.last().filter(|_| found > max) {
            let problem = BadClaim::TooMuch { what: "claims", found, max };
            return Err(source.value_error(last.span(), format!("`claims`: {problem}")));
        }
        for claim in claims {
            let refused = |what: String| source.value_error(claim.span(), format!("`claims`: {what}"));
            let template = ClaimTemplate::parse(claim.get_ref(), &limits.call())
                .map_err(|problem| refused(problem.to_string()))?;
            if let Some(unknown) = template.properties().find(|name| !properties.contains(*name)) {
                return Err(refused(unknown_property(unknown, properties)));
            }
        }
        Ok(Some(claims.iter().map(|claim| claim.get_ref().clone()).collect()))
    }

    /// The maximum number of its calls running at once.
    pub(super) fn running_max(&self, source: &DeclarationSource<'_>) -> Result<Option<u32>, ConfigError> {
        self.limits.as_ref().map_or(Ok(None), |limits| limits.running(source))
    }

    /// The maximum number of starts in a number of milliseconds.
    pub(super) fn rate(&self, source: &DeclarationSource<'_>) -> Result<Option<(u32, u64)>, ConfigError> {
        let count = self.limits.as_ref().map_or(Ok(None), |limits| limits.per_minute(source))?;
        Ok(count.map(|count| (count, MINUTE_MS)))
    }

    /// The groups it belongs to, which are declared.
    pub(super) fn groups(
        &self,
        source: &DeclarationSource<'_>,
        declared: &Groups,
    ) -> Result<Vec<String>, ConfigError> {
        for group in &self.groups {
            let name = group.get_ref();
            if !declared.iter().any(|(known, _)| known == name) {
                let message = format!(
                    "`groups` names {name:?}, which is not declared; add [groups.{name}] with what bounds it"
                );
                return Err(source.value_error(group.span(), message));
            }
        }
        Ok(self.groups.iter().map(|group| group.get_ref().clone()).collect())
    }
}

impl GroupBounds {
    fn running(&self, source: &DeclarationSource<'_>) -> Result<Option<u32>, ConfigError> {
        let hint = "calls at once; remove it for no limit of its own";
        number(source, "running", self.running.as_ref(), 1..=BOUND_MAX, hint)
    }

    fn per_minute(&self, source: &DeclarationSource<'_>) -> Result<Option<u32>, ConfigError> {
        let hint = "starts; remove it for no limit of its own";
        number(source, "per_minute", self.per_minute.as_ref(), 1..=BOUND_MAX, hint)
    }
}

/// Reads `[groups]`.
pub(super) fn groups(
    source: &DeclarationSource<'_>,
    value: Spanned<DeValue<'_>>,
) -> Result<Groups, ConfigError> {
    source
        .table(&value, "groups")?
        .clone()
        .into_iter()
        .map(|(name, value)| group(source, name, value))
        .collect()
}

fn group(
    source: &DeclarationSource<'_>,
    name: Spanned<Cow<'_, str>>,
    value: Spanned<DeValue<'_>>,
) -> Result<(String, Cap), ConfigError> {
    let table = source.table(&value, &format!("groups.{}", name.get_ref()))?;
    keys::check_bounds(source, table)?;
    if table.is_empty() {
        let message = format!(
            "the group `{}` bounds nothing; write running or per_minute, or remove it",
            name.get_ref()
        );
        return Err(source.value_error(name.span(), message));
    }
    let bounds =
        GroupBounds::deserialize(ValueDeserializer::from(value)).map_err(|error| source.rejected(error))?;
    let rate = bounds.per_minute(source)?.map(|count| Rate { count, period_us: MINUTE_MS * 1_000 });
    Ok((name.get_ref().to_string(), Cap { running_max: bounds.running(source)?, rate }))
}

fn unknown_property(name: &str, properties: &BTreeSet<String>) -> String {
    let hint = match nearest_name(name, properties.iter().map(String::as_str)) {
        Some(nearest) => format!("did you mean `{{{nearest}}}`?"),
        None if properties.is_empty() => "name it in `input`".to_string(),
        None => {
            let known: Vec<&str> = properties.iter().map(String::as_str).collect();
            format!("known are {}", known.join(", "))
        }
    };
    format!("`{{{name}}}` stands for no property of the input; {hint}")
}
