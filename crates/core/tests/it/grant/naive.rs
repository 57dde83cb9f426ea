//! A second implementation of "within" and "admits", written over the JSON of terms: slow and simple.

use serde_json::Value;
use windlass_core::grant::GrantTerms;

/// Whether `copy` has every restriction of `parent`, or a tighter one, and the same binding and retry rule.
pub(super) fn is_within(copy: &GrantTerms, parent: &GrantTerms) -> bool {
    let (copy, parent) = (json(copy), json(parent));
    for key in ["tool", "binding", "retry"] {
        if copy[key] != parent[key] {
            return false;
        }
    }
    for key in ["source", "contract"] {
        if !parent[key].is_null() && copy[key] != parent[key] {
            return false;
        }
    }
    for key in ["expires_at", "uses"] {
        if let Some(most) = parent[key].as_i64()
            && copy[key].as_i64().unwrap_or(i64::MAX) > most
        {
            return false;
        }
    }
    let texts = |terms: &Value| -> Vec<String> {
        terms["args"].as_array().into_iter().flatten().map(Value::to_string).collect()
    };
    let has = texts(&copy);
    texts(&parent).iter().all(|condition| has.contains(condition))
}

/// Whether a call of the tool `send`, with the id `mail.send`, is admitted.
pub(super) fn admits(terms: &GrantTerms, args: &Value, now: i64) -> bool {
    let terms = json(terms);
    let is_one = |key: &str, wanted: &str| terms[key].is_null() || terms[key] == wanted;
    let names_it = terms["tool"] == "send" || terms["tool"] == "mail.send";
    let is_live = terms["expires_at"].as_i64().is_none_or(|until| until > now);
    let conditions = terms["args"].as_array().cloned().unwrap_or_default();
    names_it
        && is_live
        && is_one("source", "registered")
        && is_one("contract", &"07".repeat(32))
        && conditions.iter().all(|condition| holds(condition, args))
}

fn holds(condition: &Value, args: &Value) -> bool {
    match args.pointer(condition["pointer"].as_str().unwrap()) {
        None => false,
        Some(Value::Array(items)) => !items.is_empty() && items.iter().all(|item| fits(condition, item)),
        Some(value) => fits(condition, value),
    }
}

fn fits(condition: &Value, value: &Value) -> bool {
    let text = value.as_str();
    if let Some(prefix) = condition["prefix"].as_str() {
        return text.is_some_and(|text| text.get(..prefix.len()) == Some(prefix));
    }
    match condition["glob"].as_str() {
        Some("a*") => return text.is_some_and(|text| text.starts_with('a')),
        Some("*b") => return text.is_some_and(|text| text.ends_with('b')),
        Some("?") => return text.is_some_and(|text| text.chars().count() == 1),
        Some(other) => panic!("{other}"),
        None => {}
    }
    if let Some(range) = condition["range"].as_object() {
        let bound = |key: &str, open: i64| range.get(key).and_then(Value::as_i64).unwrap_or(open);
        return value.as_i64().is_some_and(|n| bound("min", i64::MIN) <= n && n <= bound("max", i64::MAX));
    }
    match condition["one_of"].as_array() {
        Some(list) => list.contains(value),
        None => condition["equals"] == *value,
    }
}

fn json(terms: &GrantTerms) -> Value {
    serde_json::to_value(terms).unwrap()
}
