//! An entry `[mcp.NAME]` as text, and `windlass mcp import`.

use crate::args::{McpAddArgs, McpImportArgs};
use crate::exit::Usage;
use crate::{logs, show};
use anyhow::Context;
use serde_json::Value;
use std::collections::BTreeMap;
use std::process::ExitCode;

/// An entry for windlass.toml.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct McpEntry {
    name: String,
    command: Vec<String>,
    url: Option<String>,
    /// `env` of a command, `headers` of a URL.
    pairs: BTreeMap<String, String>,
    /// Tools that the server says only read.
    reads: Vec<String>,
}

impl McpEntry {
    pub fn of_args(args: McpAddArgs) -> Result<McpEntry, Usage> {
        let given = if args.url.is_some() { args.header } else { args.env };
        let mut pairs = BTreeMap::new();
        for pair in given {
            let Some((name, value)) = pair.split_once('=') else {
                return Err(Usage(format!("{pair:?} must be NAME=VALUE")));
            };
            pairs.insert(name.to_string(), value.to_string());
        }
        if args.url.is_none() && args.command.is_empty() {
            return Err(Usage("say how the server is reached: --url URL, or -- COMMAND".to_string()));
        }
        Ok(McpEntry { name: args.name, command: args.command, url: args.url, pairs, reads: Vec::new() })
    }

    /// With the class `read` for tools that say of themselves that they only read: whoever confirms it decides.
    pub fn with_proposals(self, tools: &BTreeMap<String, Value>) -> McpEntry {
        let claims_to_read = |definition: &Value| definition["annotations"]["readOnlyHint"] == true;
        let reads =
            tools.iter().filter(|(_, definition)| claims_to_read(definition)).map(|(name, _)| name.clone());
        McpEntry { reads: reads.collect(), ..self }
    }

    /// The entry as TOML.
    pub fn toml(&self) -> String {
        let mut text = format!("[mcp.{}]\n", key(&self.name));
        if let Some(url) = &self.url {
            text += &format!("url = {}\n", quoted(url));
            if url.starts_with("http://") {
                text += "internal = true\n";
            }
        } else {
            let words: Vec<String> = self.command.iter().map(|word| quoted(word)).collect();
            text += &format!("command = [{}]\n", words.join(", "));
        }
        if !self.pairs.is_empty() {
            let pairs: Vec<String> =
                self.pairs.iter().map(|(name, value)| format!("{} = {}", key(name), quoted(value))).collect();
            let table = if self.url.is_some() { "headers" } else { "env" };
            text += &format!("{table} = {{ {} }}\n", pairs.join(", "));
        }
        for tool in &self.reads {
            text += &format!("\n[mcp.{}.tools.{}]\nclass = \"read\"\n", key(&self.name), key(tool));
        }
        text
    }
}

fn key(name: &str) -> String {
    let is_bare =
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
    if is_bare { name.to_string() } else { quoted(name) }
}

fn quoted(text: &str) -> String {
    // The escapes of JSON are those of TOML.
    Value::from(text).to_string()
}

pub fn import(args: &McpImportArgs) -> anyhow::Result<ExitCode> {
    let file = args.file.display();
    let text =
        std::fs::read_to_string(&args.file).with_context(|| Usage(format!("could not read {file}")))?;
    let whole: Value = match serde_json::from_str(&text) {
        Ok(whole) => whole,
        Err(_) => toml::from_str(&text).map_err(|_| Usage(format!("{file} is neither JSON nor TOML")))?,
    };
    let servers =
        ["mcpServers", "servers", "mcp_servers"].into_iter().find_map(|name| whole[name].as_object());
    let Some(servers) = servers else {
        return Err(Usage(format!("{file} has no mcpServers, servers or mcp_servers")).into());
    };
    let mut printed = Vec::new();
    for (name, server) in servers {
        let (entry, secrets) = imported(name, server);
        if entry.url.is_none() && entry.command.is_empty() {
            logs::tell!("left out: {name:?} has neither a command nor a url");
            continue;
        }
        for secret in secrets {
            logs::tell!("store the secret with `windlass secrets set {secret}`");
        }
        printed.push(entry.toml());
    }
    show::text(printed.join("\n").trim_end())?;
    Ok(ExitCode::SUCCESS)
}

/// The entry of a server in another client's file, and the names of its secrets.
fn imported(name: &str, server: &Value) -> (McpEntry, Vec<String>) {
    let plain: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' }).take(32).collect();
    let text = |value: &Value| value.as_str().map(str::to_string);
    let url = text(&server["url"]).or_else(|| text(&server["serverUrl"]));
    let args = server["args"].as_array().into_iter().flatten().filter_map(text);
    let command: Vec<String> = text(&server["command"]).into_iter().chain(args).collect();
    let given = if url.is_some() { &server["headers"] } else { &server["env"] };
    let (mut pairs, mut secrets) = (BTreeMap::new(), Vec::new());
    for (variable, value) in given.as_object().into_iter().flatten() {
        let value = value.as_str().unwrap_or_default();
        let secret = format!("{plain}_{}", variable.to_ascii_lowercase().replace('-', "_"));
        let written = match (looks_secret(variable), url.is_some()) {
            (false, _) => value.to_string(),
            (true, false) => format!("secret:{secret}"),
            (true, true) => match value.strip_prefix("Bearer ") {
                Some(_) => format!("Bearer {{secret:{secret}}}"),
                None => format!("{{secret:{secret}}}"),
            },
        };
        if looks_secret(variable) {
            secrets.push(secret);
        }
        pairs.insert(variable.clone(), written);
    }
    let command = if url.is_some() { Vec::new() } else { command };
    (McpEntry { name: plain, command, url, pairs, reads: Vec::new() }, secrets)
}

fn looks_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ["token", "key", "secret", "password", "authorization", "cookie", "credential"]
        .iter()
        .any(|word| name.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn servers_of_other_clients_become_entries_without_their_secrets() {
        let (entry, secrets) = imported(
            "git hub",
            &json!({"command": "npx", "args": ["-y", "x@1"], "env": {"GITHUB_TOKEN": "ghp_1", "MODE": "a\"b"}}),
        );
        assert_eq!(
            entry.toml(),
            "[mcp.git_hub]\ncommand = [\"npx\", \"-y\", \"x@1\"]\nenv = { GITHUB_TOKEN = \"secret:git_hub_github_token\", MODE = \"a\\\"b\" }\n"
        );
        assert_eq!(secrets, ["git_hub_github_token"]);
        let (entry, secrets) = imported(
            "x",
            &json!({"url": "http://localhost:1/mcp", "headers": {"Authorization": "Bearer s"}}),
        );
        assert_eq!(
            entry.toml(),
            "[mcp.x]\nurl = \"http://localhost:1/mcp\"\ninternal = true\nheaders = { Authorization = \"Bearer {secret:x_authorization}\" }\n"
        );
        assert_eq!(secrets, ["x_authorization"]);
    }
}
