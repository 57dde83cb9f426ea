//! The keys there are, in which table, and the ones that come with a later version.

use super::place::{ConfigError, Problem, Source};
use toml::de::DeTable;
use windlass::core::limits::Limits;
use windlass::core::tool::{Hints, nearest_name};

/// The keys of one table.
pub(super) struct Keys {
    place: &'static str,
    known: &'static [&'static str],
    later: &'static [&'static str],
}

/// The file itself.
pub(super) const FILE: Keys = Keys { place: "the file", known: &["limits", "tools"], later: &["mcp"] };

/// A tool.
pub(super) const TOOL: Keys = Keys {
    place: "a tool",
    known: &[
        "class",
        "command",
        "cwd",
        "description",
        "env",
        "hints",
        "input",
        "output",
        "persist_output",
        "title",
        "version",
    ],
    later: &[
        "approval",
        "background",
        "background_only",
        "claims",
        "completion",
        "grace_ms",
        "http",
        "inline_ms",
        "limits",
        "mcp",
        "queue_ms",
        "retry",
        "silence_ms",
        "stays_direct",
        "timeout_ms",
        "total_ms",
    ],
};

/// Refuses keys that nothing reads.
pub(super) fn check(source: &Source<'_>, table: &DeTable<'_>, keys: &Keys) -> Result<(), ConfigError> {
    for key in table.keys() {
        let name = key.get_ref().as_ref();
        if keys.known.contains(&name) {
            continue;
        }
        let (key_name, place) = (name.to_string(), keys.place.to_string());
        let problem = if keys.later.contains(&name) {
            Problem::NotYet { key: key_name, place }
        } else {
            let nearest = nearest_name(name, keys.known.iter().copied()).map(str::to_string);
            Problem::UnknownKey { key: key_name, place, nearest, known: keys.known.to_vec() }
        };
        return Err(source.error(key.span(), problem));
    }
    Ok(())
}

/// Refuses limits that are none.
pub(super) fn check_limits(source: &Source<'_>, table: &DeTable<'_>) -> Result<(), ConfigError> {
    let known: Vec<&'static str> = Limits::default().table().into_iter().map(|(name, ..)| name).collect();
    check_names(source, table, "[limits]", known)
}

/// Refuses hints that are none.
pub(super) fn check_hints(source: &Source<'_>, table: &DeTable<'_>) -> Result<(), ConfigError> {
    let known = Hints::default().table().into_iter().map(|(name, _)| name).collect();
    check_names(source, table, "hints", known)
}

fn check_names(
    source: &Source<'_>,
    table: &DeTable<'_>,
    place: &str,
    known: Vec<&'static str>,
) -> Result<(), ConfigError> {
    let Some(key) = table.keys().find(|key| !known.contains(&key.get_ref().as_ref())) else { return Ok(()) };
    let name = key.get_ref().as_ref();
    let nearest = nearest_name(name, known.iter().copied()).map(str::to_string);
    let problem = Problem::UnknownKey { key: name.to_string(), place: place.to_string(), nearest, known };
    Err(source.error(key.span(), problem))
}
