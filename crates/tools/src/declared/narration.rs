//! The sentences for people about a tool's calls: `narration = { started = "Deploying {service}" }`, and in
//! other languages `narration.de = { started = "Liefert {service} aus" }`.

use super::keys;
use super::place::{ConfigError, DeclarationSource};
use std::collections::BTreeSet;
use toml::Spanned;
use toml::de::{DeTable, DeValue};
use windlass::narration::{KNOWN, Locale, Narration, Phase, names};

/// Parses it. Every argument it takes must be declared.
pub(super) fn read(
    source: &DeclarationSource<'_>,
    given: Spanned<DeValue<'_>>,
    properties: &BTreeSet<String>,
) -> Result<Vec<Narration>, ConfigError> {
    let table = source.table(&given, "narration")?;
    keys::check_narration(source, table)?;
    let mut narrations =
        vec![Narration { locale: Locale::English, sentences: sentences(source, table, properties)? }];
    for (name, said) in table.iter() {
        let DeValue::Table(said) = said.get_ref() else { continue };
        let locale = Locale::of(name.get_ref());
        if narrations.iter().skip(1).any(|known| known.locale == locale) {
            let message = format!(
                "`narration` has the language {locale} twice; regions have no sentences of their own"
            );
            return Err(source.value_error(name.span(), message));
        }
        keys::check_phases(source, said)?;
        narrations.push(Narration { locale, sentences: sentences(source, said, properties)? });
    }
    // Sentences given for English by name come before those without a language.
    if let Some(place) = narrations.iter().skip(1).position(|known| known.locale == Locale::English) {
        let named = narrations.remove(place + 1);
        narrations.insert(0, named);
    }
    Ok(narrations)
}

/// The sentences of one language, by phase.
fn sentences(
    source: &DeclarationSource<'_>,
    table: &DeTable<'_>,
    properties: &BTreeSet<String>,
) -> Result<Vec<(Phase, String)>, ConfigError> {
    let mut sentences = Vec::new();
    for &phase in Phase::ALL {
        let Some(given) = table.get(phase.as_str()) else { continue };
        let DeValue::String(sentence) = given.get_ref() else {
            let message = format!("`narration.{phase}` takes a text, such as \"Deploying {{service}}\"");
            return Err(source.value_error(given.span(), message));
        };
        let is_known = |name: &str| match name.strip_prefix('$') {
            Some(ours) => KNOWN.contains(&ours),
            None => properties.contains(name),
        };
        if let Some(unknown) = names(sentence).find(|name| !is_known(name)) {
            let there: Vec<String> =
                properties.iter().cloned().chain(KNOWN.iter().map(|ours| format!("${ours}"))).collect();
            let message = format!(
                "`narration` names `{unknown}`, and that is no property of `input` and nothing of ours; there are: {}",
                there.join(", ")
            );
            return Err(source.value_error(given.span(), message));
        }
        sentences.push((phase, sentence.to_string()));
    }
    Ok(sentences)
}
