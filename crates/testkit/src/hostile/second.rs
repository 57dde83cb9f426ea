//! A second evaluator of policies, written from the text of the specification over the uncompiled JSON: slow and simple.
//!
//! The tests of `core` compare the compiled policy with it, and the hostile model judges by it. It is included there by its path, so
//! that the tests of `core` need nothing of the testkit.

use serde_json::Value;
use std::collections::BTreeMap;
use windlass_core::policy::{Exposure, Ruling};
use windlass_core::tool::{EffectClass, Hints, ToolSource};

/// A call, with all that rules look at; `Default` is a call of the registered tool `send` without anything else.
#[derive(Clone, Debug)]
pub struct PolicyCase {
    /// The tool's name.
    pub name: String,
    /// Its stable id.
    pub id: String,
    /// Its origin.
    pub source: ToolSource,
    /// The MCP server or toolbox it comes from.
    pub server: Option<String>,
    /// Its class.
    pub class: EffectClass,
    /// Its hints.
    pub hints: Hints,
    /// Whether it asks about every call.
    pub asks: bool,
    /// The requesting principal.
    pub principal: Option<String>,
    /// The labels of the session.
    pub labels: BTreeMap<String, String>,
    /// The turn of the batch.
    pub turn: Option<String>,
    /// The arguments that run.
    pub args: Value,
    /// The content the session has read.
    pub exposure: Exposure,
    /// Whether the tool asks about these arguments.
    pub tool_asks: bool,
}

impl Default for PolicyCase {
    fn default() -> PolicyCase {
        PolicyCase {
            name: "send".to_string(),
            id: "mail.send".to_string(),
            source: ToolSource::Registered,
            server: None,
            class: EffectClass::Once,
            hints: Hints::default(),
            asks: false,
            principal: None,
            labels: BTreeMap::new(),
            turn: None,
            args: Value::Object(serde_json::Map::new()),
            exposure: Exposure::default(),
            tool_asks: false,
        }
    }
}

/// The source of an ask of the tool itself, and of the default for tools of MCP servers.
pub const BY_TOOL: &str = "the tool asks";
/// See above.
pub const BY_DEFAULT: &str = "the default for tools of MCP servers";

/// The ruling of these rules on a call, and the sorted names of what decided.
pub fn ruling(rules: &[Value], case: &PolicyCase) -> (Ruling, Vec<String>) {
    let mut votes: Vec<(Ruling, String)> = Vec::new();
    for rule in rules {
        let ruling = match rule["ruling"].as_str() {
            Some("allow") => Ruling::Allow,
            Some("ask") => Ruling::Ask,
            Some("deny") => Ruling::Deny,
            other => panic!("a ruling that is none: {other:?}"),
        };
        if is_matched(&rule["when"], ruling == Ruling::Allow, case) {
            votes.push((ruling, text(&rule["name"]).to_string()));
        }
    }
    if case.asks || case.tool_asks {
        votes.push((Ruling::Ask, BY_TOOL.to_string()));
    }
    let Some(strictest) = votes.iter().map(|(ruling, _)| *ruling).max() else {
        return match case.source.as_str() {
            "mcp" => (Ruling::Ask, vec![BY_DEFAULT.to_string()]),
            _ => (Ruling::Allow, vec![]),
        };
    };
    let mut names: Vec<String> =
        votes.into_iter().filter(|(r, _)| *r == strictest).map(|(_, name)| name).collect();
    names.sort();
    (strictest, names)
}

/// Every key of `when` is looked at by itself; what is not known counts against the call.
fn is_matched(when: &Value, allows: bool, case: &PolicyCase) -> bool {
    let Some(when) = when.as_object() else { return true };
    when.iter().all(|(key, wanted)| match key.as_str() {
        "tool" => is_listed(&case.name, wanted) || is_listed(&case.id, wanted),
        "source" => is_listed(case.source.as_str(), wanted),
        "server" => case.server.as_deref().is_some_and(|server| is_listed(server, wanted)),
        "class" => is_listed(case.class.as_str(), wanted),
        "principal" => case.principal.as_deref().map_or(!allows, |principal| is_listed(principal, wanted)),
        "turn" => case.turn.as_deref().map_or(!allows, |turn| is_listed(turn, wanted)),
        "exposed" => wanted.as_bool() == Some(case.exposure.private && case.exposure.untrusted),
        "hints" => pairs(wanted).all(|(hint, wanted)| {
            let stated = case.hints.table().into_iter().find(|(name, _)| name == hint);
            let stated = stated.and_then(|(_, stated)| stated);
            stated.map_or(!allows, |stated| wanted.as_bool() == Some(stated))
        }),
        "labels" => pairs(wanted)
            .all(|(label, wanted)| case.labels.get(label).map_or(!allows, |value| is_listed(value, wanted))),
        "args" => {
            items(wanted).iter().all(|condition| match case.args.pointer(text(&condition["pointer"])) {
                None => !allows,
                Some(Value::Array(items)) if items.is_empty() => false,
                Some(Value::Array(items)) if allows => {
                    items.iter().all(|item| compared(item, condition) == Some(true))
                }
                Some(Value::Array(items)) => {
                    items.iter().any(|item| compared(item, condition) != Some(false))
                }
                Some(value) => compared(value, condition).unwrap_or(!allows),
            })
        }
        other => panic!("a condition that is none: {other}"),
    })
}

/// `None` for a value of the wrong type.
fn compared(value: &Value, condition: &Value) -> Option<bool> {
    if let Some(prefix) = condition["prefix"].as_str() {
        return Some(value.as_str()?.strip_prefix(prefix).is_some());
    }
    if let Some(glob) = condition["glob"].as_str() {
        return Some(is_glob(glob, value.as_str()?));
    }
    if let Some(range) = condition["range"].as_object() {
        let number = value.as_number().map(|_| doubled(value))?;
        let above = range.get("min").is_none_or(|min| doubled(min) <= number);
        return Some(above && range.get("max").is_none_or(|max| number <= doubled(max)));
    }
    let wanted = match condition.get("one_of") {
        Some(list) => items(list).to_vec(),
        None => vec![condition["equals"].clone()],
    };
    let kind = |value: &Value| (value.is_string(), value.is_number(), value.is_boolean());
    let alike: Vec<&Value> = wanted
        .iter()
        .filter(|wanted| kind(wanted) == kind(value) && kind(value) != (false, false, false))
        .collect();
    if alike.is_empty() {
        return None;
    }
    let equals = |wanted: &&Value| {
        if value.is_number() { doubled(wanted) == doubled(value) } else { **wanted == *value }
    };
    Some(alike.iter().any(equals))
}

/// Twice a number: those that are generated are integers, halves, and at most one beyond all integers in each direction.
fn doubled(value: &Value) -> i128 {
    match (value.as_i64(), value.as_u64()) {
        (Some(integer), _) => i128::from(integer) * 2,
        (None, Some(integer)) => i128::from(integer) * 2,
        (None, None) => (value.as_f64().unwrap_or_default() * 2.0) as i128,
    }
}

fn is_listed(text: &str, wanted: &Value) -> bool {
    match wanted {
        Value::Array(items) => items.iter().any(|item| is_listed(text, item)),
        Value::String(glob) => is_glob(glob, text),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => false,
    }
}

/// By recursion over short texts without escapes.
fn is_glob(glob: &str, text: &str) -> bool {
    let mut left = text.chars();
    let mut rest = glob.chars();
    match rest.next() {
        None => text.is_empty(),
        Some('*') => {
            let ends = text.char_indices().map(|(at, _)| at).chain([text.len()]);
            ends.into_iter().any(|skipped| is_glob(rest.as_str(), &text[skipped..]))
        }
        Some(wanted) => {
            left.next().is_some_and(|found| wanted == '?' || wanted == found)
                && is_glob(rest.as_str(), left.as_str())
        }
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn pairs(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}
