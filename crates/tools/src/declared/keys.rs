//! The known keys of each table, and those of a later version.

use super::place::{ConfigError, DeclarationProblem, DeclarationSource};
use toml::Spanned;
use toml::de::{DeString, DeTable};
use windlass::Limits;
use windlass::narration::{Locale, Phase};
use windlass::tool::{Hints, nearest_name};

/// The keys of one table.
pub(super) struct TableKeys {
    place: &'static str,
    known: &'static [&'static str],
    later: &'static [&'static str],
}

/// The file itself.
pub(super) const FILE: TableKeys = TableKeys {
    place: "the file",
    known: &[
        "builtin",
        "durability",
        "files",
        "groups",
        "limits",
        "mcp",
        "policy",
        "retention",
        "run_command",
        "server",
        "store",
        "toolboxes",
        "tools",
        "traces",
    ],
    later: &[],
};

/// An MCP server.
pub(super) const MCP: TableKeys = TableKeys {
    place: "an MCP server",
    known: &[
        "approval",
        "claims",
        "class",
        "command",
        "cwd",
        "detach",
        "env",
        "forward",
        "headers",
        "hidden",
        "internal",
        "prefix",
        "timeout_ms",
        "tools",
        "trust",
        "url",
    ],
    later: &[],
};

/// A tool of an MCP server.
pub(super) const MCP_TOOL: TableKeys = TableKeys {
    place: "a tool of an MCP server",
    known: &["approval", "claims", "class", "hidden", "timeout_ms"],
    later: &[],
};

/// The server.
pub(super) const SERVER: TableKeys =
    TableKeys { place: "the server", known: &["advertise", "hosts", "mcp_list", "origins"], later: &[] };

/// The store that several workers share.
pub(super) const STORE: TableKeys =
    TableKeys { place: "the store", known: &["direct", "files", "readers", "url", "writers"], later: &[] };

/// A toolbox.
pub(super) const TOOLBOX: TableKeys = TableKeys { place: "a toolbox", known: &["secrets"], later: &[] };

/// The files of sessions.
pub(super) const FILES: TableKeys = TableKeys { place: "[files]", known: &["allow"], later: &[] };

/// A tool.
pub(super) const TOOL: TableKeys = TableKeys {
    place: "a tool",
    known: &[
        "answer_bytes_max",
        "answer_lines_max",
        "approval",
        "background",
        "background_only",
        "category",
        "claims",
        "class",
        "client",
        "client_ms",
        "command",
        "completion",
        "completion_ms",
        "cwd",
        "dedupe",
        "deferral",
        "description",
        "emits",
        "env",
        "grace_ms",
        "groups",
        "hints",
        "http",
        "inline_ms",
        "input",
        "limits",
        "narration",
        "output",
        "output_media_type",
        "persist_output",
        "polls",
        "queue_ms",
        "reconcile",
        "retry",
        "sandbox",
        "silence_ms",
        "stays_direct",
        "tags",
        "timeout_ms",
        "title",
        "total_ms",
        "version",
    ],
    later: &["mcp"],
};

/// Refuses unknown keys.
pub(super) fn check(
    source: &DeclarationSource<'_>,
    table: &DeTable<'_>,
    keys: &TableKeys,
) -> Result<(), ConfigError> {
    if let Some(key) = table.keys().find(|key| keys.later.contains(&key.get_ref().as_ref())) {
        let problem = DeclarationProblem::NotYet { key: key.get_ref().to_string(), place: keys.place };
        return Err(source.error(key.span(), problem));
    }
    check_names(source, table, keys.place, keys.known)
}

/// Refuses unknown limits.
pub(super) fn check_limits(source: &DeclarationSource<'_>, table: &DeTable<'_>) -> Result<(), ConfigError> {
    let known: Vec<&'static str> = Limits::default().table().into_iter().map(|limit| limit.name).collect();
    check_names(source, table, "[limits]", &known)
}

/// Refuses unknown bounds of a tool or a group.
pub(super) fn check_bounds(source: &DeclarationSource<'_>, table: &DeTable<'_>) -> Result<(), ConfigError> {
    check_names(source, table, "the limits of tools", &["per_minute", "running"])
}

/// Refuses unknown parts of a request.
pub(super) fn check_http(source: &DeclarationSource<'_>, table: &DeTable<'_>) -> Result<(), ConfigError> {
    check_names(source, table, "http", &["body", "headers", "internal", "method", "url"])
}

/// Refuses unknown parts of a retry rule.
pub(super) fn check_retry(source: &DeclarationSource<'_>, table: &DeTable<'_>) -> Result<(), ConfigError> {
    check_names(source, table, "retry", &["attempts", "base_ms", "cap_ms"])
}

/// Refuses unknown rules of a sandbox.
pub(super) fn check_sandbox(source: &DeclarationSource<'_>, table: &DeTable<'_>) -> Result<(), ConfigError> {
    let known = ["cpu_ms", "file_bytes", "memory_bytes", "network", "processes", "read", "write"];
    check_names(source, table, "a sandbox", &known)
}

/// Refuses unknown parts of a dedupe key.
pub(super) fn check_dedupe(source: &DeclarationSource<'_>, table: &DeTable<'_>) -> Result<(), ConfigError> {
    check_names(source, table, "dedupe", &["key", "for_ms"])
}

/// Refuses keys of a narration that are neither a phase nor a language with sentences of its own.
pub(super) fn check_narration(
    source: &DeclarationSource<'_>,
    table: &DeTable<'_>,
) -> Result<(), ConfigError> {
    let is_language = |name: &str| {
        let language = name.split(['-', '_']).next().unwrap_or_default();
        Locale::of(name).as_str().eq_ignore_ascii_case(language)
    };
    let said =
        table.iter().filter(|(name, value)| !(value.get_ref().is_table() && is_language(name.get_ref())));
    check_key(source, said.map(|(name, _)| name), "narration", &phases())
}

/// Refuses unknown phases.
pub(super) fn check_phases(source: &DeclarationSource<'_>, table: &DeTable<'_>) -> Result<(), ConfigError> {
    check_names(source, table, "a language of narration", &phases())
}

fn phases() -> Vec<&'static str> {
    Phase::ALL.iter().map(|phase| phase.as_str()).collect()
}

/// Refuses unknown keys of `[traces]`.
pub(super) fn check_traces(source: &DeclarationSource<'_>, table: &DeTable<'_>) -> Result<(), ConfigError> {
    check_names(source, table, "[traces]", &["contents", "endpoint"])
}

/// Refuses unknown keys of `[retention]`.
pub(super) fn check_retention(
    source: &DeclarationSource<'_>,
    table: &DeTable<'_>,
) -> Result<(), ConfigError> {
    check_names(source, table, "[retention]", &["age_ms", "session_bytes", "store_bytes", "unknown_too"])
}

/// Refuses unknown hints.
pub(super) fn check_hints(source: &DeclarationSource<'_>, table: &DeTable<'_>) -> Result<(), ConfigError> {
    let known = Hints::default().table().map(|(name, _)| name);
    check_names(source, table, "hints", &known)
}

fn check_names(
    source: &DeclarationSource<'_>,
    table: &DeTable<'_>,
    place: &'static str,
    known: &[&'static str],
) -> Result<(), ConfigError> {
    check_key(source, table.keys(), place, known)
}

/// Refuses the first of these keys that is not known.
fn check_key<'a>(
    source: &DeclarationSource<'_>,
    mut keys: impl Iterator<Item = &'a Spanned<DeString<'a>>>,
    place: &'static str,
    known: &[&'static str],
) -> Result<(), ConfigError> {
    let Some(key) = keys.find(|key| !known.contains(&key.get_ref().as_ref())) else { return Ok(()) };
    let name = key.get_ref().as_ref();
    let nearest = nearest_name(name, known.iter().copied());
    let problem =
        DeclarationProblem::UnknownKey { key: name.to_string(), place, nearest, known: known.into() };
    Err(source.error(key.span(), problem))
}
