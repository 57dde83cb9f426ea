//! `[mcp.NAME]`: an MCP server of others, whose tools are offered here.
//!
//! Only this file says what such a tool may do: the class, the claims and the approval of a tool are never taken from the server.

use super::place::{ConfigError, DeclarationSource};
use super::rules::{WAIT_MS_MAX, number};
use super::tool::{effect_class, environment};
use super::{http, keys};
use crate::command::Variable;
use crate::http::{RequestTemplate, WrittenRequest};
use serde::Deserialize;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;
use toml::Spanned;
use toml::de::{DeValue, ValueDeserializer};
use windlass::sessions::check_session_name;
use windlass::tool::ClaimTemplate;
use windlass::{EffectClass, Limits};
use windlass_http::{HttpClient, HttpConfig, Method};

/// An MCP server of others.
#[derive(Clone, Debug)]
pub struct McpServer {
    /// Its name here.
    pub name: String,
    /// Stands before the names of its tools.
    pub prefix: String,
    /// How it is reached.
    pub place: McpPlace,
    /// Whether new and changed tools are offered without being accepted.
    pub is_trusted: bool,
    /// Whether a call may be answered before it has ended. If not, its tools keep their output schemas.
    pub detaches: bool,
    /// The kinds of entries beside its tools that clients of the MCP door get.
    pub forwards: McpForwards,
    /// The rules of its tools without rules of their own.
    pub rules: McpToolRules,
    /// The rules of some tools, by the pattern of their names at the server.
    pub tools: Vec<(String, McpToolRules)>,
    /// The entry as it is declared, with the names of secrets: an approval covers it.
    pub declared: Value,
}

/// How a server is reached.
#[derive(Clone, Debug)]
pub enum McpPlace {
    /// A process that is started, on its pipes.
    Command {
        /// The program and its arguments.
        words: Vec<String>,
        /// Its environment, in addition to `PATH`.
        env: Vec<(String, Variable)>,
        /// The folder it is started in.
        cwd: PathBuf,
    },
    /// A URL.
    Url {
        /// The request of a message, without its body.
        request: RequestTemplate,
        /// The client that sends it.
        client: HttpClient,
    },
}

/// The kinds of entries, beside its tools, that are passed on to clients of the MCP door: none, unless its entry says so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct McpForwards {
    /// Its prompts, and completions of their arguments.
    pub prompts: bool,
    /// Its resources and their templates, and completions of these.
    pub resources: bool,
}

impl McpForwards {
    /// Whether anything is passed on.
    pub fn any(self) -> bool {
        self.prompts || self.resources
    }
}

/// The rules of a tool of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct McpToolRules {
    /// The effect class: `once` if nothing is declared.
    pub class: Option<EffectClass>,
    /// The claims of its calls: the server as a whole if nothing is declared.
    pub claims: Option<Vec<String>>,
    /// Whether a person is asked before each call, unless the policy says otherwise.
    pub asks: Option<bool>,
    /// How long an attempt may take.
    pub timeout_ms: Option<u64>,
    /// Whether it is left out.
    pub is_hidden: Option<bool>,
}

impl McpServer {
    /// The rules of the tool of this name at the server: its own, those of the longest pattern that fits, those of the server.
    pub fn rules_of(&self, tool: &str) -> McpToolRules {
        let mut fitting: Vec<&(String, McpToolRules)> =
            self.tools.iter().filter(|(pattern, _)| fits(pattern, tool)).collect();
        fitting.sort_by_key(|(pattern, _)| (!pattern.contains('*'), pattern.len()));
        let mut rules = self.rules.clone();
        for (_, own) in fitting {
            let own = own.clone();
            rules = McpToolRules {
                class: own.class.or(rules.class),
                claims: own.claims.or(rules.claims),
                asks: own.asks.or(rules.asks),
                timeout_ms: own.timeout_ms.or(rules.timeout_ms),
                is_hidden: own.is_hidden.or(rules.is_hidden),
            };
        }
        rules
    }

    /// The name under which a tool of the server is offered.
    pub fn offered_name(&self, tool: &str) -> String {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        let plain: String = tool.chars().map(|c| if is_plain(c) { c } else { '_' }).collect();
        let name = format!("{}{plain}", self.prefix);
        if name.len() <= OFFERED_CHARS_MAX && plain == tool {
            return name;
        }
        // Two tools that differ only in what was replaced or cut stay apart.
        let hash = blake3::hash(tool.as_bytes()).to_hex();
        let kept = name.len().min(OFFERED_CHARS_MAX - HASH_CHARS - 1);
        format!("{}_{}", &name[..kept], &hash[..HASH_CHARS])
    }

    /// Whether the tool itself asks a person before each call: where its rules say so, and where a rule of the policy that stands for
    /// the rules of other tools would allow it, since names are changed where they do not fit.
    pub fn asks(&self, tool: &str) -> bool {
        match self.rules_of(tool).asks {
            Some(asks) => asks,
            None => {
                let offered = self.offered_name(tool);
                let allowing = self.tools.iter().filter(|(_, own)| own.asks == Some(false));
                allowing.map(|(pattern, _)| self.offered_pattern(pattern)).any(|known| fits(&known, &offered))
            }
        }
    }

    /// A pattern of names at the server, as the tools are named here.
    fn offered_pattern(&self, pattern: &str) -> String {
        if !pattern.contains('*') {
            return self.offered_name(pattern);
        }
        let plain = |c: char| if c.is_ascii_alphanumeric() || "_-*".contains(c) { c } else { '_' };
        format!("{}{}", self.prefix, pattern.chars().map(plain).collect::<String>())
    }

    /// The names of the secrets that reaching it needs.
    pub fn secrets(&self) -> Vec<String> {
        match &self.place {
            McpPlace::Command { env, .. } => env
                .iter()
                .filter_map(|(_, value)| match value {
                    Variable::Secret(name) => Some(name.clone()),
                    Variable::Plain(_) => None,
                })
                .collect(),
            McpPlace::Url { request, .. } => request.secrets().into_iter().map(str::to_string).collect(),
        }
    }
}

/// Whether a name fits a pattern, in which `*` stands for any text.
fn fits(pattern: &str, name: &str) -> bool {
    let mut pieces = pattern.split('*');
    let first = pieces.next().unwrap_or_default();
    let Some(mut rest) = name.strip_prefix(first) else { return false };
    let pieces: Vec<&str> = pieces.collect();
    let Some((last, middle)) = pieces.split_last() else { return rest.is_empty() };
    for piece in middle {
        let Some(at) = rest.find(piece) else { return false };
        rest = &rest[at + piece.len()..];
    }
    rest.ends_with(last)
}

/// The table as written; its keys are checked before.
#[derive(Deserialize)]
struct McpTable {
    command: Option<Spanned<Vec<String>>>,
    url: Option<Spanned<String>>,
    #[serde(default)]
    env: BTreeMap<String, Spanned<String>>,
    cwd: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, Spanned<String>>,
    #[serde(default)]
    internal: bool,
    prefix: Option<Spanned<String>>,
    #[serde(default)]
    trust: bool,
    detach: Option<bool>,
    #[serde(default)]
    forward: Vec<Spanned<String>>,
}

/// The rules as written.
#[derive(Deserialize)]
struct McpRulesTable {
    class: Option<Spanned<String>>,
    claims: Option<Vec<Spanned<String>>>,
    approval: Option<Spanned<String>>,
    timeout_ms: Option<Spanned<i64>>,
    hidden: Option<bool>,
}

/// Reads `[mcp]`.
pub(super) fn read(
    source: &DeclarationSource<'_>,
    value: Spanned<DeValue<'_>>,
    limits: &Limits,
) -> Result<Vec<McpServer>, ConfigError> {
    let folder = source.folder()?;
    let mut servers: Vec<McpServer> = Vec::new();
    for (name, table) in source.table(&value, "mcp")?.clone() {
        servers.push(server(source, &name, table, &folder, limits)?);
    }
    Ok(servers)
}

fn server(
    source: &DeclarationSource<'_>,
    name: &Spanned<Cow<'_, str>>,
    value: Spanned<DeValue<'_>>,
    folder: &Path,
    limits: &Limits,
) -> Result<McpServer, ConfigError> {
    let refused = |message: String| source.value_error(name.span(), message);
    let is_name = |text: &str| {
        text.len() <= NAME_CHARS_MAX
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
    };
    if name.get_ref().is_empty() || !is_name(name.get_ref()) {
        return Err(refused(format!(
            "{:?} cannot be the name of an MCP server: it has 1 to {NAME_CHARS_MAX} of a-z, A-Z, 0-9, _ and -",
            name.get_ref()
        )));
    }
    let table = source.table(&value, &format!("mcp.{}", name.get_ref()))?.clone();
    keys::check(source, &table, &keys::MCP)?;
    let own = table.get("tools").cloned();
    let rules = rules(source, value.clone(), limits)?;
    let declared =
        Value::deserialize(ValueDeserializer::from(value.clone())).map_err(|error| source.rejected(error))?;
    let written =
        McpTable::deserialize(ValueDeserializer::from(value)).map_err(|error| source.rejected(error))?;
    let prefix = match &written.prefix {
        Some(given) if !is_name(given.get_ref()) => {
            let told = format!("`prefix` has at most {NAME_CHARS_MAX} of a-z, A-Z, 0-9, _ and -");
            return Err(source.value_error(given.span(), told));
        }
        Some(given) => given.get_ref().clone(),
        None => format!("{}_", name.get_ref()),
    };
    let place = place(source, name, &written, folder, limits)?;
    let mut tools = Vec::new();
    if let Some(own) = own {
        for (pattern, table) in source.table(&own, "tools")?.clone() {
            keys::check(source, source.table(&table, "a tool of an MCP server")?, &keys::MCP_TOOL)?;
            tools.push((pattern.get_ref().to_string(), self::rules(source, table, limits)?));
        }
    }
    let server = McpServer {
        name: name.get_ref().to_string(),
        prefix,
        place,
        is_trusted: written.trust,
        detaches: written.detach.unwrap_or(true),
        forwards: forwards(source, &written.forward)?,
        rules,
        tools,
        declared,
    };
    // The rules of session names.
    match server.secrets().into_iter().find(|secret| check_session_name(secret).is_err()) {
        Some(bad) => Err(refused(format!(
            "{bad:?} cannot be the name of a secret: it has 1 to 64 of a-z, A-Z, 0-9, _, . and -"
        ))),
        None => Ok(server),
    }
}

fn forwards(source: &DeclarationSource<'_>, written: &[Spanned<String>]) -> Result<McpForwards, ConfigError> {
    let mut forwards = McpForwards::default();
    for what in written {
        match what.get_ref().as_str() {
            "prompts" => forwards.prompts = true,
            "resources" => forwards.resources = true,
            other => {
                let told = format!("`forward` is a list of \"prompts\" and \"resources\", not {other:?}");
                return Err(source.value_error(what.span(), told));
            }
        }
    }
    Ok(forwards)
}

/// How the server is reached: by one of the two ways.
fn place(
    source: &DeclarationSource<'_>,
    name: &Spanned<Cow<'_, str>>,
    written: &McpTable,
    folder: &Path,
    limits: &Limits,
) -> Result<McpPlace, ConfigError> {
    match (&written.command, &written.url) {
        (Some(words), None) => match written.headers.values().next() {
            Some(header) => {
                let told = "`headers` are of a server with a `url`; a command has `env`";
                Err(source.value_error(header.span(), told))
            }
            None => command(source, words.clone(), written.env.clone(), written.cwd.clone(), folder),
        },
        (None, Some(url)) => match written.env.values().next() {
            Some(variable) => {
                let told = "`env` is of a server with a `command`; a url has `headers`";
                Err(source.value_error(variable.span(), told))
            }
            None => address(source, url.clone(), written.headers.clone(), written.internal, limits),
        },
        (None, None) | (Some(_), Some(_)) => {
            let told = format!(
                "the MCP server `{}` has either `command = [\"…\"]` or `url = \"https://…\"`",
                name.get_ref()
            );
            Err(source.value_error(name.span(), told))
        }
    }
}

/// Leaves room for the names of tools.
const NAME_CHARS_MAX: usize = 32;
/// The maximum length of a tool's name for models.
const OFFERED_CHARS_MAX: usize = 64;
/// As much of a hash as tells names apart that were changed in the same way.
const HASH_CHARS: usize = 6;

fn command(
    source: &DeclarationSource<'_>,
    words: Spanned<Vec<String>>,
    env: BTreeMap<String, Spanned<String>>,
    cwd: Option<String>,
    folder: &Path,
) -> Result<McpPlace, ConfigError> {
    let span = words.span();
    let mut words = words.into_inner();
    let Some(program) = words.first_mut().filter(|program| !program.is_empty()) else {
        return Err(source.value_error(span, "`command` is a list of a program and its arguments"));
    };
    if program.contains('/') {
        *program = folder.join(&*program).to_string_lossy().into_owned();
    }
    let cwd = cwd.map_or_else(|| folder.to_path_buf(), |cwd| folder.join(cwd));
    Ok(McpPlace::Command { words, env: environment(source, env)?.into_iter().collect(), cwd })
}

fn address(
    source: &DeclarationSource<'_>,
    url: Spanned<String>,
    headers: BTreeMap<String, Spanned<String>>,
    internal: bool,
    limits: &Limits,
) -> Result<McpPlace, ConfigError> {
    let refused = |message: String| source.value_error(url.span(), message);
    if !internal && !url.get_ref().starts_with("https://") {
        let told = "the url does not begin with https://; only a server with internal = true may use http://";
        return Err(refused(told.into()));
    }
    let mut written = Vec::new();
    for (name, value) in headers {
        http::check_header(source, &name, &value)?;
        written.push((name, value.into_inner()));
    }
    let written =
        WrittenRequest { method: Method::POST, url: url.get_ref().clone(), headers: written, body: None };
    let request = RequestTemplate::new(&written, &BTreeSet::new()).map_err(refused)?;
    // A call may take as long as an attempt of its tool.
    let client = HttpClient::new(HttpConfig {
        timeout: Duration::from_millis(WAIT_MS_MAX.unsigned_abs()),
        body_bytes_max: limits.mcp_message_bytes_max,
        ..http::client_config(internal)
    });
    let client = client.map_err(|error| refused(windlass::error::chain(&error)))?;
    Ok(McpPlace::Url { request, client })
}

fn rules(
    source: &DeclarationSource<'_>,
    value: Spanned<DeValue<'_>>,
    limits: &Limits,
) -> Result<McpToolRules, ConfigError> {
    let table =
        McpRulesTable::deserialize(ValueDeserializer::from(value)).map_err(|error| source.rejected(error))?;
    for claim in table.claims.iter().flatten() {
        let template = ClaimTemplate::parse(claim.get_ref(), &limits.call());
        template.map_err(|problem| source.value_error(claim.span(), format!("`claims`: {problem}")))?;
    }
    let asks = table.approval.map(|given| match given.get_ref().as_str() {
        "ask" => Ok(true),
        "never" => Ok(false),
        _ => Err(source.value_error(given.span(), "`approval` is \"ask\" or \"never\"")),
    });
    let hint = "milliseconds; remove it for the default";
    Ok(McpToolRules {
        class: table.class.map(|class| effect_class(source, &class)).transpose()?,
        claims: table.claims.map(|claims| claims.into_iter().map(Spanned::into_inner).collect()),
        asks: asks.transpose()?,
        timeout_ms: number(source, "timeout_ms", table.timeout_ms.as_ref(), 1..=WAIT_MS_MAX, hint)?,
        is_hidden: table.hidden,
    })
}

/// The policy rules that stand for `approval = "never"`, since tools of MCP servers ask where no rule says otherwise.
pub(super) fn policy_rules(servers: &[McpServer]) -> Vec<Value> {
    let mut rules = Vec::new();
    for server in servers {
        let whole = [("*".to_string(), server.rules.clone())];
        for (pattern, own) in whole.iter().chain(&server.tools) {
            let allow = json!({
                "name": format!("mcp.{}: {pattern} needs no approval", server.name),
                "ruling": "allow",
                "when": {"server": server.name, "tool": server.offered_pattern(pattern)},
            });
            if own.asks == Some(false) {
                rules.push(allow);
            }
        }
    }
    rules
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(toml: &str) -> McpServer {
        let text = format!("[mcp.x]\ncommand = [\"server\"]\n{toml}");
        let launcher = crate::Launcher::this_binary().expect("this test is a program");
        let declared = crate::load(&text, Path::new("/tmp/windlass.toml"), launcher).expect("it can be used");
        declared.mcp.into_iter().next().expect("a server")
    }

    #[test]
    fn names_fit_and_stay_apart() {
        let server = server("");
        assert_eq!(server.offered_name("status"), "x_status");
        let long = "a".repeat(80);
        for (one, other) in [("a.b", "a_b"), ("a.b", "a/b"), (long.as_str(), &format!("{long}b"))] {
            let (one, other) = (server.offered_name(one), server.offered_name(other));
            assert_ne!(one, other);
            assert!(windlass::tool::check_name(&one).is_ok() && windlass::tool::check_name(&other).is_ok());
        }
    }

    #[test]
    fn nothing_is_forwarded_unless_the_entry_says_so() {
        assert_eq!(server("").forwards, McpForwards::default());
        assert!(!server("forward = []").forwards.any());
        let both = McpForwards { prompts: true, resources: true };
        assert_eq!(server("forward = [\"resources\", \"prompts\"]").forwards, both);
        let text = "[mcp.x]\ncommand = [\"server\"]\nforward = [\"prompts\", \"samplings\"]\n";
        let launcher = crate::Launcher::this_binary().expect("this test is a program");
        let refused =
            crate::load(text, Path::new("/tmp/windlass.toml"), launcher).expect_err("no such thing");
        let told = refused.to_string();
        assert!(told.contains("\"samplings\"") && told.contains("\"prompts\" and \"resources\""), "{told}");
    }

    /// `approval = "never"` reaches the tools it names, whatever their names become here, and no others.
    #[test]
    fn what_needs_no_approval_is_named_exactly() {
        let server = server(
            "[mcp.x.tools.\"a.b\"]\napproval = \"never\"\n[mcp.x.tools.\"get_*\"]\napproval = \"never\"\n",
        );
        let rules = policy_rules(std::slice::from_ref(&server));
        let allowed = |tool: &str| {
            let offered = server.offered_name(tool);
            let allows = |rule: &Value| fits(rule["when"]["tool"].as_str().expect("a pattern"), &offered);
            rules.iter().any(allows) && !server.asks(tool)
        };
        for (tool, expected) in [
            ("a.b", true),
            ("a_b", false),
            ("a/b", false),
            ("get_x", true),
            ("get_x.y", true),
            ("get.x", false),
            ("get", false),
        ] {
            assert_eq!(allowed(tool), expected, "{tool} as {}", server.offered_name(tool));
        }
    }

    #[test]
    fn patterns() {
        for (pattern, name, expected) in [
            ("get", "get", true),
            ("get", "get_x", false),
            ("get_*", "get_x", true),
            ("*", "anything", true),
            ("*_x", "get_x", true),
            ("*_x", "get_x_y", false),
            ("a*b*c", "a1b2c", true),
            ("a*b*c", "acb", false),
            ("a*a", "a", false),
        ] {
            assert_eq!(fits(pattern, name), expected, "{pattern} {name}");
        }
    }
}
