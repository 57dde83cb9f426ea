//! `windlass.toml`: limits, and commands as tools.
//!
//! Every key is known or an error, with the place and what was probably meant: a setting that is silently ignored
//! is worse than none.

mod dedupe;
mod flags;
mod keys;
mod narration;
mod place;
mod room;
mod rules;
mod server;
mod tool;

pub use place::{ConfigError, Problem};
pub use server::Served;

use crate::launcher::Launcher;
use place::{Source, key_span};
use serde::Deserialize;
use std::path::Path;
use std::sync::Arc;
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};
use windlass::core::limits::Limits;
use windlass::store::Durability;
use windlass::{Cap, Tool};

/// What a `windlass.toml` declares.
#[derive(Clone)]
pub struct Declared {
    /// What an acknowledged commit survives: everything, unless less is asked for.
    pub durability: Durability,
    /// The limits in force.
    pub limits: Limits,
    /// The tools, by name.
    pub tools: Vec<Arc<dyn Tool>>,
    /// What bounds tools together, by the name of their group.
    pub groups: Vec<(String, Cap)>,
    /// Who may ask the server.
    pub server: Served,
    /// Where traces are sent, if they are.
    pub traces: Option<Traces>,
}

/// Where traces are sent.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Traces {
    /// The address of a collector, such as `http://127.0.0.1:4318`.
    pub endpoint: String,
    /// Whether they hold arguments and results.
    #[serde(default)]
    pub contents: bool,
}

/// Reads the text of a `windlass.toml`. `file` says where it is: paths in it are relative to its folder.
///
/// Schemas are checked when the tools are registered, like those of any tool.
pub fn load(text: &str, file: &Path, launcher: Launcher) -> Result<Declared, ConfigError> {
    let source = Source { text, file };
    let mut root = DeTable::parse(text).map_err(|error| source.rejected(error))?.into_inner();
    keys::check(&source, &root, &keys::FILE)?;
    let mut declared = Declared::default();
    if let Some(value) = root.remove("durability") {
        declared.durability = durability(&source, &value)?;
    }
    // Tools last: they are read by the limits, and name the groups.
    if let Some(value) = root.remove("limits") {
        declared.limits = limits(&source, value)?;
    }
    if let Some(value) = root.remove("server") {
        declared.server = server::read(&source, value)?;
    }
    if let Some(value) = root.remove("groups") {
        declared.groups = room::groups(&source, value)?;
    }
    if let Some(value) = root.remove("traces") {
        keys::check_traces(&source, source.table(&value, "traces")?)?;
        let traces = Traces::deserialize(ValueDeserializer::from(value));
        declared.traces = Some(traces.map_err(|error| source.rejected(error))?);
    }
    if let Some(value) = root.remove("tools") {
        declared.tools = tools(&source, value, (&declared, &launcher))?;
    }
    Ok(declared)
}

impl Default for Declared {
    /// What is in force without a file.
    fn default() -> Declared {
        Declared {
            durability: Durability::Full,
            limits: Limits::default(),
            tools: Vec::new(),
            groups: Vec::new(),
            traces: None,
            server: Served::default(),
        }
    }
}

impl std::fmt::Debug for Declared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<String> = self.tools.iter().map(|tool| tool.spec().name).collect();
        f.debug_struct("Declared")
            .field("durability", &self.durability)
            .field("limits", &self.limits)
            .field("tools", &names)
            .field("groups", &self.groups)
            .field("traces", &self.traces)
            .field("server", &self.server)
            .finish()
    }
}

fn durability(source: &Source<'_>, value: &Spanned<DeValue<'_>>) -> Result<Durability, ConfigError> {
    match value.get_ref().as_str() {
        Some("full") => Ok(Durability::Full),
        Some("relaxed") => Ok(Durability::Relaxed),
        _ => Err(source.value_error(
            value.span(),
            "`durability` is \"full\", or \"relaxed\" if a power cut may lose what was acknowledged",
        )),
    }
}

fn limits(source: &Source<'_>, value: Spanned<DeValue<'_>>) -> Result<Limits, ConfigError> {
    let table = source.table(&value, "limits")?.clone();
    keys::check_limits(source, &table)?;
    let limits =
        Limits::deserialize(ValueDeserializer::from(value)).map_err(|error| source.rejected(error))?;
    // A maximum of nothing stops everything, mostly far from here.
    match limits.table().into_iter().find(|(_, max, _)| *max == 0) {
        Some((name, ..)) => Err(source.error(key_span(&table, name), Problem::Zero { limit: name })),
        None => Ok(limits),
    }
}

fn tools(
    source: &Source<'_>,
    value: Spanned<DeValue<'_>>,
    (declared, launcher): (&Declared, &Launcher),
) -> Result<Vec<Arc<dyn Tool>>, ConfigError> {
    let folder = source.folder()?;
    let mut tools: Vec<Arc<dyn Tool>> = Vec::new();
    let room = (&declared.limits, &declared.groups);
    for table in source.table(&value, "tools")?.clone() {
        tools.push(Arc::new(tool::read(source, table, room)?.into_tool(&folder, launcher)));
    }
    Ok(tools)
}
