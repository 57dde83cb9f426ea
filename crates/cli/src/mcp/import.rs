//! `windlass mcp import`: the servers in the configuration files of other clients, as entries for windlass.toml.

use super::entry::McpEntry;
use crate::args::McpImportArgs;
use crate::exit::Usage;
use crate::{logs, show};
use anyhow::Context;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The files of known clients: those of the project first, then the user's.
const CLIENTS: [(&str, &[&str]); 9] = [
    ("claude-code", &[".mcp.json", "~/.claude.json"]),
    (
        "claude-desktop",
        &[
            "~/.config/Claude/claude_desktop_config.json",
            "~/Library/Application Support/Claude/claude_desktop_config.json",
        ],
    ),
    ("codex", &["~/.codex/config.toml"]),
    ("cursor", &[".cursor/mcp.json", "~/.cursor/mcp.json"]),
    ("gemini", &[".gemini/settings.json", "~/.gemini/settings.json"]),
    ("opencode", &["opencode.json", "opencode.jsonc", "~/.config/opencode/opencode.json"]),
    ("vscode", &[".vscode/mcp.json", "~/.config/Code/User/mcp.json"]),
    ("windsurf", &["~/.codeium/windsurf/mcp_config.json"]),
    ("zed", &[".zed/settings.json", "~/.config/zed/settings.json"]),
];

pub fn import(args: &McpImportArgs) -> anyhow::Result<ExitCode> {
    let (mut printed, mut names) = (Vec::new(), BTreeSet::new());
    for file in files(&args.file)? {
        for (name, server) in servers(&file)? {
            if server["enabled"] == false || server["disabled"] == true {
                logs::tell!("left out: {name:?} is switched off in {}", file.display());
                continue;
            }
            let (entry, secrets) = imported(&name, &server);
            if entry.url.is_none() && entry.command.is_empty() {
                logs::tell!("left out: {name:?} has neither a command nor a url");
                continue;
            }
            if !names.insert(entry.name.clone()) {
                logs::tell!("left out: there are several servers {:?}", entry.name);
                continue;
            }
            for secret in secrets {
                logs::tell!("store the secret with `windlass secrets set {secret}`");
            }
            printed.push(entry.toml());
        }
    }
    show::text(printed.join("\n").trim_end())?;
    Ok(ExitCode::SUCCESS)
}

/// The file that is meant, or those of the client of this name.
fn files(asked: &Path) -> Result<Vec<PathBuf>, Usage> {
    let known = CLIENTS.into_iter().find(|(client, _)| asked.as_os_str() == *client);
    let Some((client, files)) = known.filter(|_| !asked.exists()) else {
        return Ok(vec![asked.to_path_buf()]);
    };
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let place = |file: &&str| match file.strip_prefix("~/") {
        Some(rest) => home.join(rest),
        None => PathBuf::from(file),
    };
    let found: Vec<PathBuf> = files.iter().map(place).filter(|file| file.exists()).collect();
    match found.is_empty() {
        true => Err(Usage(format!("there is no file of {client}: none of {}", files.join(", ")))),
        false => Ok(found),
    }
}

/// The servers of a file, with their names there.
fn servers(file: &Path) -> anyhow::Result<Vec<(String, Value)>> {
    let name = file.display();
    let text = std::fs::read_to_string(file).with_context(|| Usage(format!("could not read {name}")))?;
    let json = serde_json::from_str(&text).or_else(|_| serde_json::from_str(&without_comments(&text)));
    let whole: Value = match json {
        Ok(whole) => whole,
        Err(_) => toml::from_str(&text).map_err(|_| Usage(format!("{name} is neither JSON nor TOML")))?,
    };
    let mut tables: Vec<&Map<String, Value>> = ["mcpServers", "servers", "mcp_servers", "context_servers"]
        .into_iter()
        .filter_map(|key| whole[key].as_object())
        .collect();
    // VS Code has them one level deeper in its settings, opencode not.
    tables.extend(whole["mcp"]["servers"].as_object().or(whole["mcp"].as_object()));
    let projects = whole["projects"].as_object().into_iter().flatten();
    tables.extend(projects.filter_map(|(_, project)| project["mcpServers"].as_object()));
    if tables.is_empty() {
        return Err(Usage(format!(
            "{name} has none of mcpServers, servers, mcp_servers, context_servers and mcp"
        ))
        .into());
    }
    Ok(tables.into_iter().flatten().map(|(name, server)| (name.clone(), server.clone())).collect())
}

/// JSON without the comments and the commas before a closing bracket that some clients allow.
fn without_comments(text: &str) -> String {
    let (mut kept, mut rest, mut in_text) = (String::with_capacity(text.len()), text, false);
    while let Some(letter) = rest.chars().next() {
        if !in_text && (rest.starts_with("//") || rest.starts_with("/*")) {
            let end = if rest.starts_with("//") { rest.find('\n') } else { rest.find("*/").map(|at| at + 2) };
            rest = &rest[end.unwrap_or(rest.len())..];
            continue;
        }
        let taken = if in_text && letter == '\\' {
            rest.chars().take(2).map(char::len_utf8).sum()
        } else {
            letter.len_utf8()
        };
        in_text ^= letter == '"';
        if !in_text && matches!(letter, '}' | ']') && kept.trim_end().ends_with(',') {
            kept.truncate(kept.trim_end().len() - 1);
        }
        kept.push_str(&rest[..taken]);
        rest = &rest[taken..];
    }
    kept
}

/// The entry of a server in another client's file, and the names of its secrets.
fn imported(name: &str, server: &Value) -> (McpEntry, Vec<String>) {
    let plain: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' }).take(32).collect();
    let text = |value: &Value| value.as_str().map(str::to_string);
    let url = ["url", "serverUrl", "httpUrl"].into_iter().find_map(|key| text(&server[key]));
    // Zed writes a table, opencode a list.
    let table = if server["command"].is_object() { &server["command"] } else { server };
    let program = text(&table["path"]).or_else(|| text(&table["command"]));
    let listed = server["command"].as_array().into_iter().flatten().filter_map(text);
    let args = table["args"].as_array().into_iter().flatten().filter_map(text);
    let command: Vec<String> = program.into_iter().chain(listed).chain(args).collect();
    let tables = if url.is_some() { ["headers", "http_headers"] } else { ["env", "environment"] };
    let mut given: BTreeMap<String, String> = BTreeMap::new();
    for key in tables {
        let pairs = table[key].as_object().into_iter().flatten();
        given.extend(pairs.map(|(name, value)| (name.clone(), text(value).unwrap_or_default())));
    }
    if server["bearer_token_env_var"].is_string() {
        given.insert("Authorization".to_string(), "Bearer ".to_string());
    }
    let (mut pairs, mut secrets) = (BTreeMap::new(), Vec::new());
    for (variable, value) in given {
        let secret = format!("{plain}_{}", variable.to_ascii_lowercase().replace('-', "_"));
        let written = match (looks_secret(&variable), url.is_some()) {
            (false, _) => value,
            (true, false) => format!("secret:{secret}"),
            (true, true) if value.starts_with("Bearer ") => format!("Bearer {{secret:{secret}}}"),
            (true, true) => format!("{{secret:{secret}}}"),
        };
        if looks_secret(&variable) {
            secrets.push(secret);
        }
        pairs.insert(variable, written);
    }
    let command = if url.is_some() { Vec::new() } else { command };
    (McpEntry { name: plain, command, url, pairs, proposals: Vec::new() }, secrets)
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
    }

    #[test]
    fn each_client_has_its_own_way_to_write_them() {
        let shown = |server: Value| {
            let (entry, _) = imported("x", &server);
            (entry.command.join(" "), entry.url.unwrap_or_default(), entry.pairs)
        };
        let none = BTreeMap::new;
        let bearer =
            || BTreeMap::from([("Authorization".to_string(), "Bearer {secret:x_authorization}".to_string())]);
        let url = || "https://a.example/mcp".to_string();
        for (client, server, expected) in [
            ("cursor", json!({"command": "a", "args": ["b"]}), ("a b".to_string(), String::new(), none())),
            (
                "opencode",
                json!({"type": "local", "command": ["a", "b"], "environment": {"X": "1"}}),
                ("a b".to_string(), String::new(), BTreeMap::from([("X".to_string(), "1".to_string())])),
            ),
            (
                "zed",
                json!({"command": {"path": "a", "args": ["b"]}}),
                ("a b".to_string(), String::new(), none()),
            ),
            (
                "gemini",
                json!({"httpUrl": url(), "headers": {"Authorization": "Bearer s"}}),
                (String::new(), url(), bearer()),
            ),
            ("windsurf", json!({"serverUrl": url()}), (String::new(), url(), none())),
            ("codex", json!({"url": url(), "bearer_token_env_var": "T"}), (String::new(), url(), bearer())),
        ] {
            assert_eq!(shown(server), expected, "{client}");
        }
    }

    #[test]
    fn comments_and_last_commas_are_left_out() {
        let text = "{ // one\n \"a\": \"//no \\\" comment, ]\", /* two\n */ \"b\": [1, 2, ],\n}";
        let read: Value = serde_json::from_str(&without_comments(text)).expect("JSON");
        assert_eq!(read, json!({"a": "//no \" comment, ]", "b": [1, 2]}));
    }
}
