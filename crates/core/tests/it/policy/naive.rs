//! A second evaluator, written from the text of the specification over the uncompiled JSON: slow and simple.

use super::Case;
use serde_json::Value;
use windlass_core::policy::Ruling;

/// The ruling of these rules on a call, and the sorted names of what decided.
pub(super) fn ruling(rules: &[Value], case: &Case) -> (Ruling, Vec<String>) {
    let mut votes: Vec<(Ruling, String)> = Vec::new();
    for rule in rules {
        let ruling = match rule["ruling"].as_str() {
            Some("allow") => Ruling::Allow,
            Some("ask") => Ruling::Ask,
            Some("deny") => Ruling::Deny,
            other => panic!("{other:?}"),
        };
        if is_matched(&rule["when"], ruling == Ruling::Allow, case) {
            votes.push((ruling, rule["name"].as_str().unwrap().to_string()));
        }
    }
    if case.asks || case.tool_asks {
        votes.push((Ruling::Ask, "the tool asks".to_string()));
    }
    if votes.is_empty() {
        return match case.source.as_str() {
            "mcp" => (Ruling::Ask, vec!["the default for tools of MCP servers".to_string()]),
            _ => (Ruling::Allow, vec![]),
        };
    }
    let strictest = votes.iter().map(|(ruling, _)| *ruling).max().unwrap();
    let mut names: Vec<String> =
        votes.into_iter().filter(|(r, _)| *r == strictest).map(|(_, name)| name).collect();
    names.sort();
    (strictest, names)
}

/// Every key of `when` is looked at by itself; what is not known counts against the call.
fn is_matched(when: &Value, allows: bool, case: &Case) -> bool {
    let Some(when) = when.as_object() else { return true };
    when.iter().all(|(key, wanted)| match key.as_str() {
        "tool" => is_listed(&case.name, wanted) || is_listed(&case.id, wanted),
        "source" => is_listed(case.source.as_str(), wanted),
        "server" => case.server.as_deref().is_some_and(|server| is_listed(server, wanted)),
        "class" => is_listed(case.class.as_str(), wanted),
        "principal" => case.principal.as_deref().map_or(!allows, |principal| is_listed(principal, wanted)),
        "turn" => case.turn.as_deref().map_or(!allows, |turn| is_listed(turn, wanted)),
        "exposed" => wanted.as_bool() == Some(case.exposure.private && case.exposure.untrusted),
        "hints" => wanted.as_object().unwrap().iter().all(|(hint, wanted)| {
            let (_, stated) = case.hints.table().into_iter().find(|(name, _)| name == hint).unwrap();
            stated.map_or(!allows, |stated| wanted.as_bool() == Some(stated))
        }),
        "labels" => {
            wanted.as_object().unwrap().iter().all(|(label, wanted)| {
                case.labels.get(label).map_or(!allows, |value| is_listed(value, wanted))
            })
        }
        "args" => wanted.as_array().unwrap().iter().all(|condition| {
            match case.args.pointer(condition["pointer"].as_str().unwrap()) {
                None => !allows,
                Some(Value::Array(items)) if items.is_empty() => false,
                Some(Value::Array(items)) if allows => {
                    items.iter().all(|item| compared(item, condition) == Some(true))
                }
                Some(Value::Array(items)) => {
                    items.iter().any(|item| compared(item, condition) != Some(false))
                }
                Some(value) => compared(value, condition).unwrap_or(!allows),
            }
        }),
        other => panic!("{other}"),
    })
}

/// `None` for a value of the wrong type.
fn compared(value: &Value, condition: &Value) -> Option<bool> {
    if let Some(prefix) = condition["prefix"].as_str() {
        return Some(value.as_str()?.strip_prefix(prefix).is_some());
    }
    if let Some(glob) = condition["glob"].as_str() {
        return Some(is_glob(glob.as_bytes(), value.as_str()?.as_bytes()));
    }
    if let Some(range) = condition["range"].as_object() {
        let number = value.as_number().map(|_| exact(value))?;
        let above = range.get("min").is_none_or(|min| exact(min) <= number);
        return Some(above && range.get("max").is_none_or(|max| number <= exact(max)));
    }
    let wanted = match condition.get("one_of") {
        Some(list) => list.as_array().unwrap().clone(),
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
    Some(
        alike
            .iter()
            .any(|wanted| if value.is_number() { exact(wanted) == exact(value) } else { *wanted == value }),
    )
}

/// Halves as whole numbers: the generated numbers are integers and halves.
fn exact(value: &Value) -> i128 {
    match (value.as_i64(), value.as_u64()) {
        (Some(integer), _) => i128::from(integer) * 2,
        (None, Some(integer)) => i128::from(integer) * 2,
        (None, None) => (value.as_f64().unwrap() * 2.0) as i128,
    }
}

fn is_listed(text: &str, wanted: &Value) -> bool {
    match wanted {
        Value::Array(items) => items.iter().any(|item| is_listed(text, item)),
        wanted => is_glob(wanted.as_str().unwrap().as_bytes(), text.as_bytes()),
    }
}

/// By recursion over short ASCII texts.
fn is_glob(glob: &[u8], text: &[u8]) -> bool {
    match (glob.split_first(), text.split_first()) {
        (None, _) => text.is_empty(),
        (Some((b'*', rest)), _) => (0..=text.len()).any(|skipped| is_glob(rest, &text[skipped..])),
        (Some((b'?', rest)), Some((_, left))) => is_glob(rest, left),
        (Some((wanted, rest)), Some((found, left))) => wanted == found && is_glob(rest, left),
        (Some(_), None) => false,
    }
}
