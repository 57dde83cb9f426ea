//! What people are told of a tool's calls: `narration = { started = "Deploying {service}" }`.

use super::keys;
use super::place::{ConfigError, Source};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use toml::Spanned;
use toml::de::{DeValue, ValueDeserializer};
use windlass::core::narration::{KNOWN, Locale, Narration, Phase, names};

/// Reads it. Whatever it takes from the arguments must be there to be taken.
pub(super) fn read(
    source: &Source<'_>,
    given: Spanned<DeValue<'_>>,
    properties: &BTreeSet<String>,
) -> Result<Vec<Narration>, ConfigError> {
    keys::check_narration(source, source.table(&given, "narration")?)?;
    let table = BTreeMap::<String, Spanned<String>>::deserialize(ValueDeserializer::from(given))
        .map_err(|error| source.rejected(error))?;
    let mut sentences = Vec::new();
    for &phase in Phase::ALL {
        let Some(sentence) = table.get(phase.as_str()) else { continue };
        let is_known = |name: &str| match name.strip_prefix('$') {
            Some(ours) => KNOWN.contains(&ours),
            None => properties.contains(name),
        };
        if let Some(unknown) = names(sentence.get_ref()).find(|name| !is_known(name)) {
            let there: Vec<String> =
                properties.iter().cloned().chain(KNOWN.iter().map(|ours| format!("${ours}"))).collect();
            let message = format!(
                "`narration` names `{unknown}`, and that is no property of `input` and nothing of ours; there are: {}",
                there.join(", ")
            );
            return Err(source.value_error(sentence.span(), message));
        }
        sentences.push((phase, sentence.get_ref().clone()));
    }
    Ok(vec![Narration { locale: Locale::English, sentences }])
}
