//! An entry `[mcp.NAME]` as text.

use crate::args::McpAddArgs;
use crate::exit::Usage;
use serde_json::Value;
use std::collections::BTreeMap;

/// An entry for windlass.toml.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct McpEntry {
    pub name: String,
    pub command: Vec<String>,
    pub url: Option<String>,
    /// `env` of a command, `headers` of a URL.
    pub pairs: BTreeMap<String, String>,
    /// The terms of its tools.
    pub proposals: Vec<ToolProposal>,
}

/// The terms of a tool that are proposed, by what the tool claims of itself: whoever confirms them decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolProposal {
    pub tool: String,
    pub class: &'static str,
    pub claims: Vec<String>,
    pub approval: ToolApproval,
    /// The claims of the tool about itself, which nobody has checked.
    claimed: String,
}

/// The person who is asked before a call of the tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolApproval {
    /// Nobody.
    Never,
    /// A person, unless a rule of the policy allows the call.
    Policy,
    /// A person, whatever the policy says.
    Ask,
}

impl ToolApproval {
    pub fn as_str(self) -> &'static str {
        match self {
            ToolApproval::Never => "never",
            ToolApproval::Policy => "policy",
            ToolApproval::Ask => "ask",
        }
    }

    pub fn parse(text: &str) -> Result<ToolApproval, String> {
        let known = [ToolApproval::Never, ToolApproval::Policy, ToolApproval::Ask];
        let found = known.into_iter().find(|approval| approval.as_str() == text);
        found.ok_or_else(|| "it is never, policy or ask".to_string())
    }
}

impl ToolProposal {
    /// A tool that claims only to read is proposed as `read`, without approval. Every other one asks, unless the policy allows it.
    pub fn of(server: &str, tool: &str, definition: &Value) -> ToolProposal {
        let hints = &definition["annotations"];
        let class = match (hints["readOnlyHint"] == true, hints["idempotentHint"] == true) {
            (true, _) => "read",
            (false, true) => "keyed",
            (false, false) => "once",
        };
        let names = ["readOnlyHint", "idempotentHint", "destructiveHint", "openWorldHint"];
        let claimed = names.iter().filter_map(|name| Some(format!("{name} {}", hints[*name].as_bool()?)));
        let claimed: Vec<String> = claimed.collect();
        let claimed = if claimed.is_empty() { "nothing".to_string() } else { claimed.join(", ") };
        let (access, approval) = match class {
            "read" => ("read", ToolApproval::Never),
            _ => ("write", ToolApproval::Policy),
        };
        let claims = vec![format!("{access} mcp:{server}")];
        ToolProposal { tool: tool.to_string(), class, claims, approval, claimed }
    }

    /// Its table in the entry.
    fn toml(&self, server: &str) -> String {
        let claims: Vec<String> = self.claims.iter().map(|claim| quoted(claim)).collect();
        let mut text = format!("\n# It claims of itself: {}.\n", self.claimed);
        text += &format!("[mcp.{}.tools.{}]\n", key(server), key(&self.tool));
        text += &format!("class = \"{}\"\nclaims = [{}]\n", self.class, claims.join(", "));
        match self.approval {
            // Without the key the policy decides, and asks where it says nothing.
            ToolApproval::Policy => {}
            ToolApproval::Never | ToolApproval::Ask => {
                text += &format!("approval = \"{}\"\n", self.approval.as_str());
            }
        }
        text
    }
}

impl std::fmt::Display for ToolProposal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let claims = if self.claims.is_empty() { "none".to_string() } else { self.claims.join(", ") };
        let ToolProposal { class, approval, claimed, .. } = self;
        let approval = approval.as_str();
        write!(
            f,
            "it claims of itself: {claimed}. Proposed: class {class}; claims {claims}; approval {approval}"
        )
    }
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
        Ok(McpEntry { name: args.name, command: args.command, url: args.url, pairs, proposals: Vec::new() })
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
        text.extend(self.proposals.iter().map(|proposal| proposal.toml(&self.name)));
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
