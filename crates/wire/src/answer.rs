//! The schema of a model's answer, as the field of a request that asks for it.
//!
//! Here a provider may be asked for less than the schema allows: every answer that it gives still fits. Where a provider
//! cannot be held to a schema at all, there is no format, and the model is to be told in words.

use crate::schema;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// The value of `response_format` in OpenAI's Chat Completions: strict where the provider can hold the model to exactly this
/// schema, else as advice.
pub fn openai_chat_format(schema: &Value) -> Value {
    let (schema, is_strict) = match schema::strict_as_it_is(schema) {
        Some(strict) => (strict, true),
        None => (schema.clone(), false),
    };
    json!({"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": is_strict}})
}

/// The value of `output_config.format` in Anthropic's Messages. Objects are closed, since the provider takes no others, and
/// constraints that it does not know are moved to descriptions. None for what it cannot be held to: recursive schemas, maps with
/// free keys, values of any type.
pub fn anthropic_format(schema: &Value) -> Option<Value> {
    let definitions = schema.get("$defs").and_then(Value::as_object);
    if definitions.is_some_and(has_cycle) {
        return None;
    }
    Some(json!({"type": "json_schema", "schema": closed(schema)?}))
}

/// Keywords that say nothing about the answer's shape.
const LEFT_OUT: [&str; 8] =
    ["$schema", "$id", "$comment", "default", "examples", "deprecated", "readOnly", "writeOnly"];

/// Formats of text that Anthropic knows.
const FORMATS: [&str; 10] =
    ["date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"];

/// A schema in Anthropic's subset.
fn closed(schema: &Value) -> Option<Value> {
    let fields = schema.as_object()?;
    let mut kept = Map::new();
    if let Some(definitions) = fields.get("$defs") {
        kept.insert("$defs".to_owned(), closed_each(definitions.as_object()?)?);
    }
    if let Some(to) = fields.get("$ref") {
        to.as_str().filter(|to| to.starts_with("#/$defs/"))?;
        kept.insert("$ref".to_owned(), to.clone());
        return Some(Value::Object(kept));
    }
    let mut told = Vec::new();
    for (keyword, value) in fields {
        let value = match keyword.as_str() {
            keyword if LEFT_OUT.contains(&keyword) => continue,
            "$defs" | "additionalProperties" | "unevaluatedProperties" => continue,
            "type" | "description" | "title" | "required" => value.clone(),
            "enum" => value.as_array().filter(|values| values.iter().all(is_plain)).map(|_| value.clone())?,
            "const" => Some(value).filter(|value| is_plain(value)).cloned()?,
            "properties" => closed_each(value.as_object()?)?,
            "items" => closed(value)?,
            "anyOf" | "oneOf" => value.as_array()?.iter().map(closed).collect::<Option<_>>()?,
            "allOf" if !refers(value) => value.as_array()?.iter().map(closed).collect::<Option<_>>()?,
            "allOf" => return None,
            "format" if value.as_str().is_some_and(|format| FORMATS.contains(&format)) => value.clone(),
            "minItems" if value.as_u64().is_some_and(|count| count <= 1) => value.clone(),
            _ => {
                told.push(format!("{keyword}: {value}"));
                continue;
            }
        };
        let keyword = if keyword == "oneOf" { "anyOf" } else { keyword };
        if kept.insert(keyword.to_owned(), value).is_some() {
            return None;
        }
    }
    close(fields, &mut kept)?;
    if !told.is_empty() {
        let before = kept.get("description").and_then(Value::as_str).map(|text| format!("{text}\n\n"));
        let text = format!("{}{{{}}}", before.unwrap_or_default(), told.join(", "));
        kept.insert("description".to_owned(), text.into());
    }
    Some(Value::Object(kept))
}

/// Closes the schema if it is one of objects. None if something in it may be anything.
fn close(fields: &Map<String, Value>, kept: &mut Map<String, Value>) -> Option<()> {
    let has = |name: &str| match fields.get("type") {
        Some(Value::String(kind)) => kind == name,
        Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == name),
        _ => false,
    };
    let says = ["type", "anyOf", "oneOf", "allOf", "enum", "const"];
    if !says.iter().any(|keyword| fields.contains_key(*keyword))
        || (has("array") && !kept.contains_key("items"))
    {
        return None;
    }
    if has("object") {
        let names_some =
            fields.get("properties").and_then(Value::as_object).is_some_and(|named| !named.is_empty());
        let is_empty = fields.get("additionalProperties") == Some(&Value::Bool(false));
        if !(names_some || is_empty) {
            return None;
        }
        kept.entry("properties").or_insert_with(|| json!({}));
        kept.insert("additionalProperties".to_owned(), false.into());
    }
    Some(())
}

fn closed_each(schemas: &Map<String, Value>) -> Option<Value> {
    let each = schemas.iter().map(|(name, schema)| Some((name.clone(), closed(schema)?)));
    each.collect::<Option<Map<_, _>>>().map(Value::Object)
}

fn is_plain(value: &Value) -> bool {
    !value.is_object() && !value.is_array()
}

/// Whether a schema in the list refers to a definition.
fn refers(schemas: &Value) -> bool {
    schemas.as_array().is_some_and(|schemas| schemas.iter().any(|schema| schema.get("$ref").is_some()))
}

/// Whether a definition leads back to itself.
fn has_cycle(definitions: &Map<String, Value>) -> bool {
    definitions.keys().any(|name| {
        let (mut seen, mut next) = (BTreeSet::new(), vec![name.as_str()]);
        while let Some(at) = next.pop() {
            let mut to = Vec::new();
            references(definitions.get(at).unwrap_or(&Value::Null), &mut to);
            if to.contains(&name.as_str()) {
                return true;
            }
            next.extend(to.into_iter().filter(|to| seen.insert(*to)));
        }
        false
    })
}

/// The names of the definitions that a schema refers to.
fn references<'a>(schema: &'a Value, to: &mut Vec<&'a str>) {
    match schema {
        Value::Object(fields) => {
            for (keyword, value) in fields {
                let name =
                    value.as_str().filter(|_| keyword == "$ref").and_then(|to| to.strip_prefix("#/$defs/"));
                to.extend(name);
                references(value, to);
            }
        }
        Value::Array(values) => values.iter().for_each(|value| references(value, to)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
