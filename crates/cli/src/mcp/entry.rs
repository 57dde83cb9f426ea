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
    /// The proposals for its tools.
    pub proposals: Vec<ToolProposal>,
}

/// The class of a tool that is proposed, by what the tool claims of itself: whoever confirms it decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolProposal {
    tool: String,
    class: &'static str,
    /// The claims of the tool about itself.
    claimed: String,
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

    /// With a proposal for each tool.
    pub fn with_proposals(self, tools: &BTreeMap<String, Value>) -> McpEntry {
        let proposal = |(tool, definition): (&String, &Value)| {
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
            ToolProposal { tool: tool.clone(), class, claimed }
        };
        McpEntry { proposals: tools.iter().map(proposal).collect(), ..self }
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
        for ToolProposal { tool, class, claimed } in &self.proposals {
            let access = if *class == "read" { "read" } else { "write" };
            let claims = quoted(&format!("{access} mcp:{}", self.name));
            text += &format!(
                "\n# It claims of itself: {claimed}.\n[mcp.{}.tools.{}]\n",
                key(&self.name),
                key(tool)
            );
            text += &format!("class = \"{class}\"\nclaims = [{claims}]\napproval = \"ask\"\n");
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
