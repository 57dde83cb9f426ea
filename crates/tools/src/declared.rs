//! `windlass.toml`: limits, commands and HTTP requests as tools, and MCP servers of others.
//!
//! Every key is known or an error, with the place and a suggestion: a setting that is silently ignored is
//! worse than none.

mod builtin;
mod dedupe;
mod flags;
mod http;
mod keys;
mod mcp;
mod narration;
mod place;
mod room;
mod rules;
mod sandbox;
mod server;
mod store;
mod tool;
mod toolboxes;

pub use mcp::{McpForwards, McpPlace, McpServer, McpToolRules};
pub use place::{ConfigError, DeclarationProblem};
pub use server::{McpListing, Served};
pub use store::SharedStore;

use crate::builtin::BuiltinGroup;
use crate::launcher::Launcher;
use crate::run_command::RunCommand;
use crate::sandbox::Sandbox;
use place::{DeclarationSource, key_span};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};
use windlass::limits::{Cap, NamedLimit, Retention};
use windlass::store::Durability;
use windlass::store::limits::BALLAST_BYTES_MAX;
use windlass::{Limits, Tool};

/// The content of a `windlass.toml`.
#[derive(Clone)]
pub struct Declared {
    /// The durability of an acknowledged commit: full by default.
    pub durability: Durability,
    /// The effective limits.
    pub limits: Limits,
    /// When records of calls expire.
    pub retention: Retention,
    /// The tools, by name.
    pub tools: Vec<Arc<dyn Tool>>,
    /// The MCP servers of others.
    pub mcp: Vec<McpServer>,
    /// The groups of built-in tools.
    pub builtin: Vec<BuiltinGroup>,
    /// Folders in which a session may be opened with a folder of its own.
    pub folders: Vec<PathBuf>,
    /// Limits shared by tools, by the name of their group.
    pub groups: Vec<(String, Cap)>,
    /// Access to the server.
    pub server: Served,
    /// The store that several workers share.
    pub store: SharedStore,
    /// The receiver of traces, if there is one.
    pub traces: Option<Traces>,
    /// The rules of `[[policy.rules]]` as JSON, unchecked: rules that cannot be used deny every call instead of keeping the
    /// server from starting. `None` without a file.
    pub policy: Option<serde_json::Value>,
    /// The secrets that each toolbox may read, by its name.
    pub toolbox_secrets: BTreeMap<String, Vec<String>>,
}

/// The receiver of traces.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Traces {
    /// The address of a collector, such as `http://127.0.0.1:4318`.
    pub endpoint: String,
    /// Whether they hold arguments and results.
    #[serde(default)]
    pub contents: bool,
}

/// Parses a `windlass.toml`. `file` is its path: paths in it are relative to its folder.
///
/// Schemas are checked when the tools are registered, like those of any tool.
pub fn load(text: &str, file: &Path, launcher: Launcher) -> Result<Declared, ConfigError> {
    let source = DeclarationSource { text, file };
    let mut root = DeTable::parse(text).map_err(|error| source.rejected(error))?.into_inner();
    keys::check(&source, &root, &keys::FILE)?;
    let mut declared = Declared { builtin: BuiltinGroup::WITH_FILE.to_vec(), ..Declared::default() };
    if let Some(value) = root.remove("builtin") {
        declared.builtin = builtin::groups(&source, &value)?;
    }
    if let Some(value) = root.remove("files") {
        declared.folders = builtin::folders(&source, value)?;
    }
    if let Some(value) = root.remove("durability") {
        declared.durability = durability(&source, &value)?;
    }
    // Tools last: they are checked against the limits, and name the groups.
    if let Some(value) = root.remove("limits") {
        declared.limits = limits(&source, value)?;
    }
    if let Some(value) = root.remove("retention") {
        keys::check_retention(&source, source.table(&value, "retention")?)?;
        let retention = Retention::deserialize(ValueDeserializer::from(value));
        declared.retention = retention.map_err(|error| source.rejected(error))?;
    }
    declared.policy = Some(match root.remove("policy") {
        Some(value) => policy(&source, value)?,
        None => serde_json::json!({ "rules": [] }),
    });
    if let Some(value) = root.remove("server") {
        declared.server = server::read(&source, value)?;
    }
    if let Some(value) = root.remove("store") {
        declared.store = store::read(&source, value)?;
    }
    if let Some(value) = root.remove("toolboxes") {
        declared.toolbox_secrets = toolboxes::read(&source, value)?;
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
        declared.tools = tools(&source, value, &declared, &launcher)?;
    }
    if let Some(value) = root.remove("mcp") {
        declared.mcp = mcp::read(&source, value, &declared.limits)?;
        add_rules(&mut declared);
    }
    if let Some(value) = root.remove("run_command") {
        let sandbox = Sandbox::new(sandbox::read(&source, "run_command", value)?, launcher.clone());
        declared.tools.push(Arc::new(RunCommand { launcher, sandbox }));
    }
    Ok(declared)
}

impl Default for Declared {
    /// The defaults without a file.
    fn default() -> Declared {
        Declared {
            durability: Durability::Full,
            limits: Limits::default(),
            retention: Retention::default(),
            tools: Vec::new(),
            mcp: Vec::new(),
            builtin: BuiltinGroup::WITHOUT_FILE.to_vec(),
            folders: Vec::new(),
            groups: Vec::new(),
            traces: None,
            policy: None,
            toolbox_secrets: BTreeMap::new(),
            server: Served::default(),
            store: SharedStore::default(),
        }
    }
}

impl std::fmt::Debug for Declared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<String> = self.tools.iter().map(|tool| tool.spec().name).collect();
        f.debug_struct("Declared")
            .field("durability", &self.durability)
            .field("limits", &self.limits)
            .field("retention", &self.retention)
            .field("tools", &names)
            .field("mcp", &self.mcp)
            .field("builtin", &self.builtin)
            .field("folders", &self.folders)
            .field("groups", &self.groups)
            .field("traces", &self.traces)
            .field("policy", &self.policy)
            .field("toolbox_secrets", &self.toolbox_secrets)
            .field("server", &self.server)
            .finish()
    }
}

/// Adds the rules that stand for the approvals of MCP tools to those of the policy.
fn add_rules(declared: &mut Declared) {
    let own = mcp::policy_rules(&declared.mcp);
    // Rules that are no list are a mistake that is reported where the policy is read.
    let Some(policy) = declared.policy.as_mut().and_then(serde_json::Value::as_object_mut) else { return };
    if let Some(rules) = policy.entry("rules").or_insert_with(|| serde_json::json!([])).as_array_mut() {
        rules.extend(own);
    }
}

fn policy(
    source: &DeclarationSource<'_>,
    value: Spanned<DeValue<'_>>,
) -> Result<serde_json::Value, ConfigError> {
    serde_json::Value::deserialize(ValueDeserializer::from(value)).map_err(|error| source.rejected(error))
}

fn durability(
    source: &DeclarationSource<'_>,
    value: &Spanned<DeValue<'_>>,
) -> Result<Durability, ConfigError> {
    match value.get_ref().as_str() {
        Some("full") => Ok(Durability::Full),
        Some("relaxed") => Ok(Durability::Relaxed),
        _ => Err(source.value_error(
            value.span(),
            "`durability` is \"full\", or \"relaxed\" if a power cut may lose what was acknowledged",
        )),
    }
}

fn limits(source: &DeclarationSource<'_>, value: Spanned<DeValue<'_>>) -> Result<Limits, ConfigError> {
    let table = source.table(&value, "limits")?.clone();
    keys::check_limits(source, &table)?;
    let limits =
        Limits::deserialize(ValueDeserializer::from(value)).map_err(|error| source.rejected(error))?;
    if limits.ballast_bytes > BALLAST_BYTES_MAX {
        let told =
            format!("`ballast_bytes` is at most {BALLAST_BYTES_MAX} (1 GiB): it is kept from all others");
        return Err(source.value_error(key_span(&table, "ballast_bytes"), told));
    }
    // A maximum of zero stops everything, mostly far from here.
    match limits.table().into_iter().find(|limit| limit.value == 0) {
        Some(NamedLimit { name, .. }) => {
            Err(source.error(key_span(&table, name), DeclarationProblem::Zero { limit: name }))
        }
        None => Ok(limits),
    }
}

fn tools(
    source: &DeclarationSource<'_>,
    value: Spanned<DeValue<'_>>,
    declared: &Declared,
    launcher: &Launcher,
) -> Result<Vec<Arc<dyn Tool>>, ConfigError> {
    let folder = source.folder()?;
    let mut tools: Vec<Arc<dyn Tool>> = Vec::new();
    let Declared { limits, groups, .. } = declared;
    for (name, table) in source.table(&value, "tools")?.clone() {
        tools.push(tool::read(source, name, table, limits, groups)?.into_tool(&folder, launcher));
    }
    Ok(tools)
}
