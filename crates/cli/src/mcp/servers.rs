//! `windlass mcp ls`, `test`, `accept` and `add`: the MCP servers of others.

use super::entry::{McpEntry, ToolProposal};
use super::operator::{Operator, ProposalDecision};
use crate::args::{McpAcceptArgs, McpAddArgs, McpLsArgs, McpTestArgs};
use crate::door::At;
use crate::exit::Usage;
use crate::{exit, folder, logs, serve, show};
use anyhow::Context;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use windlass::{EffectClass, Limits};
use windlass_core::visible::line;
use windlass_mcp::upstream::{McpLook, McpPins, offered};
use windlass_tools::declared::{McpPlace, McpServer};
use windlass_tools::{Declared, Launcher, load};

/// The servers of a configuration, and the accepted tools.
struct KnownServers {
    file: PathBuf,
    declared: Declared,
    pins: McpPins,
}

impl KnownServers {
    fn read(at: &At) -> anyhow::Result<KnownServers> {
        serve::on_a_folder(at)?;
        let configured = folder::configured(at)?;
        let Some(file) = configured.file else {
            return Err(Usage(
                "there is no windlass.toml with [mcp.NAME]; `windlass mcp add` writes one".into(),
            )
            .into());
        };
        let pins = McpPins::read(&McpPins::beside(&file)).map_err(Usage)?;
        Ok(KnownServers { file, declared: configured.declared, pins })
    }

    fn server(&self, name: &str) -> anyhow::Result<&McpServer> {
        let found = self.declared.mcp.iter().find(|server| server.name == name);
        let known: Vec<&str> = self.declared.mcp.iter().map(|server| server.name.as_str()).collect();
        let told = || {
            Usage(format!(
                "there is no [mcp.{name}] in {}; there is {}",
                self.file.display(),
                known.join(", ")
            ))
        };
        Ok(found.ok_or_else(told)?)
    }

    async fn look(&self, at: &At, server: &McpServer) -> Result<McpLook, String> {
        let runtime = folder::reading(at, &self.declared).await.map_err(|error| format!("{error:#}"))?;
        let launcher = Launcher::this_binary().map_err(|error| error.to_string())?;
        McpLook::at(server, &runtime, &launcher).await
    }
}

pub fn ls(at: &At, args: &McpLsArgs) -> anyhow::Result<ExitCode> {
    let known = KnownServers::read(at)?;
    let mut rows = Vec::new();
    for server in &known.declared.mcp {
        for (tool, definition) in known.pins.of(&server.name) {
            let spec = offered(server, &tool, &definition, &known.declared.limits);
            let claims = spec.claims.clone().unwrap_or_default().join(", ");
            let asks = match server.rules_of(&tool).asks {
                Some(false) => "never",
                Some(true) | None if server.asks(&tool) => "ask",
                Some(true) | None => "policy",
            };
            rows.push([
                server.name.clone(),
                tool,
                spec.name.clone(),
                class(&spec).to_string(),
                claims,
                asks.to_string(),
            ]);
        }
    }
    if args.json {
        let tools: Vec<Value> = rows
            .iter()
            .map(|[server, tool, name, class, claims, approval]| {
                json!({"server": server, "tool": tool, "name": name, "class": class, "claims": claims, "approval": approval})
            })
            .collect();
        let servers: Vec<Value> = known
            .declared
            .mcp
            .iter()
            .map(|server| json!({"name": server.name, "at": place(server)}))
            .collect();
        show::json(&json!({"servers": servers, "tools": tools}))?;
        return Ok(ExitCode::SUCCESS);
    }
    let servers = known.declared.mcp.iter().map(|server| {
        let count = known.pins.of(&server.name).len().to_string();
        vec![server.name.clone(), count, line(&place(server)).to_string()]
    });
    show::table(&["SERVER", "ACCEPTED", "AT"], servers)?;
    if !rows.is_empty() {
        show::blank()?;
        let shown = rows.into_iter().map(|row| row.iter().map(|cell| line(cell).to_string()).collect());
        show::table(&["SERVER", "TOOL", "OFFERED AS", "CLASS", "CLAIMS", "APPROVAL"], shown)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn class(spec: &windlass::ToolSpec) -> EffectClass {
    spec.class.unwrap_or(EffectClass::Once)
}

fn place(server: &McpServer) -> String {
    match &server.place {
        McpPlace::Command { words, .. } => words.join(" "),
        McpPlace::Url { .. } => server.declared["url"].as_str().unwrap_or_default().to_string(),
    }
}

pub async fn test(at: &At, args: &McpTestArgs) -> anyhow::Result<ExitCode> {
    let known = KnownServers::read(at)?;
    let server = known.server(&args.name)?;
    let look = match known.look(at, server).await {
        Ok(look) => look,
        Err(why) => {
            logs::tell!("the MCP server {} cannot be used: {why}", server.name);
            return Ok(exit::folder());
        }
    };
    let difference = look.difference(&known.pins.of(&server.name));
    let is_same = difference.to_string().is_empty();
    if args.json {
        let bad: BTreeMap<&String, &String> = difference.bad.iter().map(|(name, why)| (name, why)).collect();
        show::json(&json!({
            "server": look.server, "version": look.version, "tools": look.tools.len(),
            "new": difference.new, "changed": difference.changed, "gone": difference.gone, "unusable": bad,
        }))?;
    } else {
        let name = look.server["name"].as_str().unwrap_or("a server without a name");
        let own = look.server["version"].as_str().unwrap_or_default();
        show::text(&format!(
            "{} {} speaks {} and has {} tools",
            line(name),
            line(own),
            line(&look.version),
            look.tools.len()
        ))?;
        if !is_same {
            show::text(&format!("not as accepted: {}", line(&difference.to_string())))?;
            show::text(&format!("`windlass mcp accept {}` shows what is new and changed", server.name))?;
        }
    }
    Ok(if is_same { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

pub async fn accept(at: &At, args: &McpAcceptArgs) -> anyhow::Result<ExitCode> {
    let known = KnownServers::read(at)?;
    let server = known.server(&args.name)?;
    let look = known.look(at, server).await;
    let look = look.map_err(|why| anyhow::anyhow!("the MCP server {} cannot be used: {why}", server.name))?;
    let mut accepted = known.pins.of(&server.name);
    if let Some(missing) = args.tools.iter().find(|tool| !look.tools.contains_key(*tool)) {
        return Err(Usage(format!("the server {} has no usable tool {missing:?}", server.name)).into());
    }
    let is_meant = |tool: &String| args.tools.is_empty() || args.tools.contains(tool);
    let mut count = 0;
    for (tool, definition) in look.tools.iter().filter(|(tool, _)| is_meant(tool)) {
        let before = accepted.insert(tool.clone(), definition.clone());
        if before.as_ref() != Some(definition) {
            show_change(tool, before.as_ref(), definition)?;
            count += 1;
        }
    }
    if args.tools.is_empty() {
        let gone: Vec<String> =
            accepted.keys().filter(|tool| !look.tools.contains_key(*tool)).cloned().collect();
        for tool in gone {
            accepted.remove(&tool);
            show::text(&format!("gone: {}", line(&tool)))?;
            count += 1;
        }
    }
    tell_bad(&look)?;
    if count == 0 {
        show::text("nothing is new or changed")?;
        return Ok(ExitCode::SUCCESS);
    }
    if !args.yes && !confirmed("Accept?")? {
        show::text("nothing was accepted; --yes accepts without asking")?;
        return Ok(ExitCode::FAILURE);
    }
    write_pins(&known.file, known.pins.clone(), &server.name, accepted)?;
    show::text(&format!("accepted: {count}"))?;
    Ok(ExitCode::SUCCESS)
}

fn write_pins(
    config: &std::path::Path,
    mut pins: McpPins,
    server: &str,
    accepted: BTreeMap<String, Value>,
) -> anyhow::Result<()> {
    pins.servers.insert(server.to_string(), accepted);
    let file = McpPins::beside(config);
    pins.write(&file).with_context(|| format!("could not write {}", file.display()))
}

fn tell_bad(look: &McpLook) -> anyhow::Result<()> {
    for (tool, why) in &look.bad {
        show::text(&format!("cannot be offered: {tool}: {why}"))?;
    }
    if look.left_out > 0 {
        show::text(&format!("too many tools: {} are left out", look.left_out))?;
    }
    Ok(())
}

/// Shows a definition whole, or the fields that differ, with everything that a person would not see escaped.
fn show_change(tool: &str, before: Option<&Value>, now: &Value) -> anyhow::Result<()> {
    show::text(&format!("{}: {}", if before.is_some() { "changed" } else { "new" }, line(tool)))?;
    let fields = |value: &Value| value.as_object().cloned().unwrap_or_default();
    let (old, new) = (before.map(fields).unwrap_or_default(), fields(now));
    let names: std::collections::BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    for name in names {
        let (was, is) = (old.get(name), new.get(name));
        if was == is {
            continue;
        }
        for (sign, value) in [("-", was), ("+", is)] {
            if let Some(value) = value {
                show::text(&format!("  {sign} {}: {}", line(name), line(&value.to_string())))?;
            }
        }
    }
    Ok(())
}

/// Asks the person at the terminal. Nobody there: no.
fn confirmed(question: &str) -> anyhow::Result<bool> {
    Ok(match Operator::at_terminal() {
        Some(mut operator) => operator.agrees(question)?,
        None => false,
    })
}

/// Shows each tool with its proposal, and asks about it if somebody is there; `None`: nothing is to be written.
fn decided(
    server: &str,
    look: &McpLook,
    yes: bool,
    limits: &Limits,
) -> anyhow::Result<Option<Vec<ToolProposal>>> {
    let mut operator = if yes { None } else { Operator::at_terminal() };
    let mut taken = Vec::with_capacity(look.tools.len());
    for (tool, definition) in &look.tools {
        let mut proposal = ToolProposal::of(server, tool, definition);
        show_change(tool, None, definition)?;
        show::text(&format!("  {proposal}"))?;
        let decision = match &mut operator {
            Some(operator) => operator.decide(&mut proposal, limits)?,
            None => ProposalDecision::Accept,
        };
        match decision {
            ProposalDecision::Accept => taken.push(proposal),
            ProposalDecision::AcceptAll => {
                taken.push(proposal);
                operator = None;
            }
            ProposalDecision::LeaveOut => {}
            ProposalDecision::Quit => return Ok(None),
        }
    }
    show::text("What a tool claims of itself is not checked: the terms below hold, whatever it claims.")?;
    Ok(Some(taken))
}

pub async fn add(at: &At, args: McpAddArgs) -> anyhow::Result<ExitCode> {
    serve::on_a_folder(at)?;
    let configured = folder::configured(at)?;
    if configured.declared.mcp.iter().any(|server| server.name == args.name) {
        return Err(Usage(format!(
            "there is an [mcp.{}] already; edit it, or choose another name",
            args.name
        ))
        .into());
    }
    let file = configured
        .file
        .unwrap_or_else(|| if at.is_named { at.data.join("windlass.toml") } else { "windlass.toml".into() });
    let (name, yes) = (args.name.clone(), args.yes);
    let entry = McpEntry::of_args(args)?;
    let before = if file.exists() { std::fs::read_to_string(&file)? } else { String::new() };
    let parse = |entry: &McpEntry| {
        load(&format!("{before}\n{}", entry.toml()), &file, Launcher::this_binary()?)
            .map_err(anyhow::Error::from)
    };
    let declared = parse(&entry)?;
    let known = KnownServers {
        file: file.clone(),
        pins: McpPins::read(&McpPins::beside(&file)).map_err(Usage)?,
        declared,
    };
    let server = known.server(&name)?;
    let look = known.look(at, server).await;
    let look = look.map_err(|why| anyhow::anyhow!("the MCP server cannot be used: {why}"))?;
    tell_bad(&look)?;
    let Some(proposals) = decided(&name, &look, yes, &known.declared.limits)? else {
        show::text("nothing was written")?;
        return Ok(ExitCode::FAILURE);
    };
    let mut accepted = look.tools;
    accepted.retain(|tool, _| proposals.iter().any(|proposal| proposal.tool == *tool));
    let entry = McpEntry { proposals, ..entry };
    parse(&entry)?;
    show::blank()?;
    show::text(entry.toml().trim_end())?;
    if !yes && !confirmed(&format!("Write this into {} and accept these tools?", file.display()))? {
        show::text("nothing was written; --yes writes without asking")?;
        return Ok(ExitCode::FAILURE);
    }
    let separator = if before.is_empty() { "" } else { "\n" };
    if let Some(folder) = file.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder)?;
    }
    let mut opened = std::fs::OpenOptions::new().create(true).append(true).open(&file)?;
    opened.write_all(format!("{separator}{}", entry.toml()).as_bytes())?;
    write_pins(&file, known.pins.clone(), &name, accepted)?;
    show::text(&format!("wrote [mcp.{name}] into {}; an owner that runs must be restarted", file.display()))?;
    Ok(ExitCode::SUCCESS)
}
