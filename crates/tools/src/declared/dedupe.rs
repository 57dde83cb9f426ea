//! The dedupe key of a tool: `dedupe = "{order}"`, or with a validity.

use super::keys;
use super::place::{ConfigError, DeclarationSource};
use super::rules::{WAIT_MS_MAX, number};
use serde::Deserialize;
use std::collections::BTreeSet;
use toml::Spanned;
use toml::de::{DeValue, ValueDeserializer};
use windlass::tool::{Dedupe, KeyTemplate};

/// The key of a tool's table; its other keys are read elsewhere.
#[derive(Deserialize)]
struct DedupeTable {
    key: Option<Spanned<String>>,
    for_ms: Option<Spanned<i64>>,
}

/// Parses it. Every argument it takes must be declared.
pub(super) fn read(
    source: &DeclarationSource<'_>,
    given: Spanned<DeValue<'_>>,
    properties: &BTreeSet<String>,
) -> Result<Dedupe, ConfigError> {
    let span = given.span();
    let table = match given.get_ref().as_str() {
        Some(text) => DedupeTable { key: Some(Spanned::new(span.clone(), text.to_string())), for_ms: None },
        None if !given.get_ref().is_table() => {
            let message = "`dedupe` is a text such as \"{order}\", or a table with `key` and `for_ms`";
            return Err(source.value_error(span, message));
        }
        None => {
            keys::check_dedupe(source, source.table(&given, "dedupe")?)?;
            DedupeTable::deserialize(ValueDeserializer::from(given))
                .map_err(|error| source.rejected(error))?
        }
    };
    let hint = "milliseconds; remove it for as long as the session is there";
    let for_ms = number(source, "dedupe.for_ms", table.for_ms.as_ref(), 1..=WAIT_MS_MAX, hint)?;
    let key = table.key.ok_or_else(|| {
        source.value_error(
            span,
            "`dedupe` has no `key`; write what makes two calls the same, as in \"{order}\"",
        )
    })?;
    let refused = |message: String| source.value_error(key.span(), message);
    let template =
        KeyTemplate::parse(key.get_ref()).map_err(|error| refused(format!("`dedupe`: {error}")))?;
    if let Some(unknown) = template.properties().find(|name| !properties.contains(*name)) {
        let known: Vec<&str> = properties.iter().map(String::as_str).collect();
        let known = if known.is_empty() { "none".to_string() } else { known.join(", ") };
        return Err(refused(format!(
            "`dedupe` takes `{unknown}` from the arguments, and that is no property of `input`; there are: {known}"
        )));
    }
    Ok(Dedupe { key: key.into_inner(), for_ms })
}
