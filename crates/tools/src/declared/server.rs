//! Access to the server, beyond this machine.

use super::keys;
use super::place::{ConfigError, DeclarationSource};
use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeValue, ValueDeserializer};

/// The tools that the MCP door lists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum McpListing {
    /// All of the session.
    #[default]
    All,
    /// `search_tools` and `call_tool`, by which all others are found and called.
    Search,
}

/// Access to the server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Served {
    /// Accepted host names, without a port.
    pub hosts: Vec<String>,
    /// Origins of pages that may send requests, like `https://ui.example`.
    pub origins: Vec<String>,
    /// The tools that the MCP door lists for clients that do not say what they want.
    pub mcp_list: McpListing,
    /// The address at which the other workers of a shared store reach this one, like `http://worker-1.example.com:7420`.
    pub advertise: Option<String>,
}

/// Parses it from its table.
pub(super) fn read(
    source: &DeclarationSource<'_>,
    value: Spanned<DeValue<'_>>,
) -> Result<Served, ConfigError> {
    let (span, table) = (value.span(), source.table(&value, "server")?.clone());
    keys::check(source, &table, &keys::SERVER)?;
    let served =
        Served::deserialize(ValueDeserializer::from(value)).map_err(|error| source.rejected(error))?;
    let has_port = |host: &&String| host.is_empty() || host.contains(['/', ':', '*']) && !host.contains("::");
    if let Some(host) = served.hosts.iter().find(has_port) {
        let told = format!("`hosts` lists names without a port, and {host:?} is none; there is no wildcard");
        return Err(source.value_error(span, told));
    }
    let is_no_origin = |origin: &&String| {
        !origin.split_once("://").is_some_and(|(_, host)| !host.is_empty() && !host.contains(['/', '*']))
    };
    if let Some(origin) = served.origins.iter().find(is_no_origin) {
        let told = format!("`origins` lists origins like \"https://ui.example\", and {origin:?} is none");
        return Err(source.value_error(span, told));
    }
    Ok(served)
}
