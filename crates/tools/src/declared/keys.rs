//! The keys there are, in which table, and the ones that come with a later version.

use super::place::{ConfigError, Problem, Source};
use toml::de::DeTable;
use windlass::core::limits::Limits;
use windlass::core::narration::Phase;
use windlass::core::tool::{Hints, nearest_name};

/// The keys of one table.
pub(super) struct Keys {
    place: &'static str,
    known: &'static [&'static str],
    later: &'static [&'static str],
}

/// The file itself.
pub(super) const FILE: Keys = Keys {
    place: "the file",
    known: &["durability", "groups", "limits", "server", "tools", "traces"],
    later: &["mcp"],
};

/// The server.
pub(super) const SERVER: Keys = Keys { place: "the server", known: &["hosts", "origins"], later: &[] };

/// A tool.
pub(super) const TOOL: Keys = Keys {
    place: "a tool",
    known: &[
        "background",
        "background_only",
        "claims",
        "class",
        "command",
        "completion",
        "completion_ms",
        "cwd",
        "dedupe",
        "description",
        "emits",
        "env",
        "grace_ms",
        "groups",
        "hints",
        "inline_ms",
        "input",
        "limits",
        "narration",
        "output",
        "persist_output",
        "polls",
        "queue_ms",
        "reconcile",
        "retry",
        "silence_ms",
        "stays_direct",
        "timeout_ms",
        "title",
        "total_ms",
        "version",
    ],
    later: &["approval", "http", "mcp"],
};

/// Refuses keys that nothing reads.
pub(super) fn check(source: &Source<'_>, table: &DeTable<'_>, keys: &Keys) -> Result<(), ConfigError> {
    if let Some(key) = table.keys().find(|key| keys.later.contains(&key.get_ref().as_ref())) {
        let problem = Problem::NotYet { key: key.get_ref().to_string(), place: keys.place };
        return Err(source.error(key.span(), problem));
    }
    check_names(source, table, keys.place, keys.known)
}

/// Refuses limits that are none.
pub(super) fn check_limits(source: &Source<'_>, table: &DeTable<'_>) -> Result<(), ConfigError> {
    let known: Vec<&'static str> = Limits::default().table().into_iter().map(|(name, ..)| name).collect();
    check_names(source, table, "[limits]", &known)
}

/// Refuses bounds of a tool or a group that are none.
pub(super) fn check_bounds(source: &Source<'_>, table: &DeTable<'_>) -> Result<(), ConfigError> {
    check_names(source, table, "the limits of tools", &["per_minute", "running"])
}

/// Refuses parts of a retry rule that are none.
pub(super) fn check_retry(source: &Source<'_>, table: &DeTable<'_>) -> Result<(), ConfigError> {
    check_names(source, table, "retry", &["attempts", "base_ms", "cap_ms"])
}

/// Refuses parts of a dedupe key that are none.
pub(super) fn check_dedupe(source: &Source<'_>, table: &DeTable<'_>) -> Result<(), ConfigError> {
    check_names(source, table, "dedupe", &["key", "for_ms"])
}

/// Refuses phases that are none.
pub(super) fn check_narration(source: &Source<'_>, table: &DeTable<'_>) -> Result<(), ConfigError> {
    let known: Vec<&'static str> = Phase::ALL.iter().map(|phase| phase.as_str()).collect();
    check_names(source, table, "narration", &known)
}

/// Refuses keys of `[traces]` that are none.
pub(super) fn check_traces(source: &Source<'_>, table: &DeTable<'_>) -> Result<(), ConfigError> {
    check_names(source, table, "[traces]", &["contents", "endpoint"])
}

/// Refuses hints that are none.
pub(super) fn check_hints(source: &Source<'_>, table: &DeTable<'_>) -> Result<(), ConfigError> {
    let known = Hints::default().table().map(|(name, _)| name);
    check_names(source, table, "hints", &known)
}

fn check_names(
    source: &Source<'_>,
    table: &DeTable<'_>,
    place: &'static str,
    known: &[&'static str],
) -> Result<(), ConfigError> {
    let Some(key) = table.keys().find(|key| !known.contains(&key.get_ref().as_ref())) else { return Ok(()) };
    let name = key.get_ref().as_ref();
    let nearest = nearest_name(name, known.iter().copied());
    let problem = Problem::UnknownKey { key: name.to_string(), place, nearest, known: known.into() };
    Err(source.error(key.span(), problem))
}
