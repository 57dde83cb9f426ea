//! Definitions of tools as their servers give them, and what is made of them here.
//!
//! A definition is raw JSON and is compared as such. Nothing in it decides what a call may do: the class, the claims and the
//! approval come from the entry of the server.

use super::wire::UNREADABLE;
use crate::param_headers::ParamHeader;
use serde_json::Value;
use std::collections::BTreeMap;
use windlass::policy::ApprovalRule;
use windlass::tool::ToolSource;
use windlass::{Deadlines, EffectClass, Flags, Limits, ToolSpec};
use windlass_tools::declared::McpServer;

/// The tools of a server, by their names there.
#[derive(Clone, Debug, Default)]
pub(super) struct RawTools {
    pub(super) tools: BTreeMap<String, Value>,
    /// Those that cannot be offered, with the reason.
    pub(super) bad: Vec<(String, String)>,
    /// How many there were too many.
    pub(super) left_out: usize,
}

impl RawTools {
    pub(super) fn len(&self) -> usize {
        self.tools.len() + self.bad.len()
    }

    /// Adds a definition. One that cannot be used hides no other.
    pub(super) fn add(&mut self, definition: Value, bytes_max: usize) {
        let name = definition["name"].as_str().unwrap_or_default().to_string();
        match problem(&definition, &name, bytes_max) {
            Some(problem) => self.bad.push((escaped(&name), problem)),
            None if self.tools.contains_key(&name) => {
                self.bad.push((escaped(&name), "another tool has the same name".to_string()));
            }
            None => {
                self.tools.insert(name, definition);
            }
        }
    }
}

/// Why a definition cannot be used.
fn problem(definition: &Value, name: &str, bytes_max: usize) -> Option<String> {
    if name.is_empty() || name.chars().count() > 128 {
        return Some("its name is not 1 to 128 characters".to_string());
    }
    if let Some(problem) = entry_problem(definition, bytes_max) {
        return Some(problem);
    }
    match definition.get("inputSchema") {
        Some(Value::Object(schema)) if schema.get("type").is_none_or(|kind| kind == "object") => {
            ParamHeader::of_schema(&definition["inputSchema"]).err()
        }
        Some(_) | None => Some("its inputSchema is not that of an object".to_string()),
    }
}

/// Why an entry of any list of a server cannot be used.
pub(super) fn entry_problem(entry: &Value, bytes_max: usize) -> Option<String> {
    if let Some(why) = entry.get(UNREADABLE) {
        return Some(format!("its definition cannot be read: {}", why.as_str().unwrap_or_default()));
    }
    if entry.to_string().len() > bytes_max {
        return Some(format!("its definition has more than {bytes_max} bytes"));
    }
    let hidden = hidden_char(entry)?;
    Some(format!("its definition has the invisible character U+{:04X}", u32::from(hidden)))
}

/// A character that a person who accepts the definition does not see.
fn hidden_char(value: &Value) -> Option<char> {
    let is_hidden = |c: &char| {
        c.is_control() && !matches!(c, '\n' | '\t' | '\r')
            || matches!(u32::from(*c), 0xad | 0x61c | 0x200b..=0x200f | 0x202a..=0x202e | 0x2060..=0x2069 | 0xfeff | 0xe0000..=0xe007f)
    };
    match value {
        Value::String(text) => text.chars().find(is_hidden),
        Value::Array(values) => values.iter().find_map(hidden_char),
        Value::Object(fields) => fields
            .iter()
            .find_map(|(name, value)| name.chars().find(is_hidden).or_else(|| hidden_char(value))),
        Value::Null | Value::Bool(_) | Value::Number(_) => None,
    }
}

/// Text of others, as people may see it.
pub(super) fn escaped(text: &str) -> String {
    let short: String = text.chars().take(128).collect();
    short.escape_debug().to_string()
}

/// The digest of a definition.
pub(super) fn digest(definition: &Value) -> String {
    // Objects are sorted by their keys.
    blake3::hash(definition.to_string().as_bytes()).to_hex().to_string()
}

/// The declaration of a tool here.
pub(super) fn spec(server: &McpServer, tool: &str, definition: &Value, limits: &Limits) -> ToolSpec {
    let rules = server.rules_of(tool);
    let class = rules.class.unwrap_or(EffectClass::Once);
    let access = if class == EffectClass::Read { "read" } else { "write" };
    let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
    let title = match text(&definition["title"]) {
        title if title.is_empty() => text(&definition["annotations"]["title"]),
        title => title,
    };
    let attempt_ms = rules.timeout_ms.unwrap_or(limits.task_attempt_ms);
    ToolSpec {
        name: server.offered_name(tool),
        title,
        description: text(&definition["description"]),
        input_schema: definition.get("inputSchema").cloned().map(current_schema),
        class: Some(class),
        claims: Some(rules.claims.unwrap_or_else(|| vec![format!("{access} mcp:{}", server.name)])),
        // It only waits for its server. Asking that again how far it is is no loop.
        flags: Flags {
            quick: true,
            polls: class == EffectClass::Read,
            stays_direct: !server.detaches,
            ..Flags::default()
        },
        output_schema: definition
            .get("outputSchema")
            .filter(|schema| !server.detaches && schema.is_object())
            .cloned()
            .map(current_schema),
        deadlines: Deadlines {
            attempt_ms: Some(attempt_ms),
            total_ms: Some(limits.task_total_ms.max(attempt_ms)),
            ..Deadlines::default()
        },
        approval: if server.asks(tool) { ApprovalRule::Ask } else { ApprovalRule::Never },
        version: digest(definition),
        source: ToolSource::Mcp,
        server: server.name.clone(),
        ..ToolSpec::default()
    }
}

/// A schema as draft 2020-12 has it: many servers still write an older draft, which differs in tuples only as far as they use it.
fn current_schema(mut schema: Value) -> Value {
    let draft = schema["$schema"].as_str().unwrap_or_default();
    if !draft.contains("json-schema.org/draft-0") && !draft.contains("json-schema.org/draft/2019-09") {
        return schema;
    }
    if let Some(fields) = schema.as_object_mut() {
        fields.remove("$schema");
    }
    convert_tuples(&mut schema);
    schema
}

fn convert_tuples(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            if fields.get("items").is_some_and(Value::is_array) {
                let first = fields.remove("items").unwrap_or_default();
                fields.insert("prefixItems".to_string(), first);
                if let Some(others) = fields.remove("additionalItems") {
                    fields.insert("items".to_string(), others);
                }
            }
            fields.values_mut().for_each(convert_tuples);
        }
        Value::Array(values) => values.iter_mut().for_each(convert_tuples),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn one_bad_definition_hides_no_other() {
        let mut tools = RawTools::default();
        let good = |name: &str| json!({"name": name, "inputSchema": {"type": "object"}, "x-vendor": 1});
        for definition in [
            good("a"),
            good("a"),
            good(""),
            json!({"name": "b"}),
            json!({"name": "c", "inputSchema": {"type": "array"}}),
            json!({"name": "d", "inputSchema": {}, "description": "safe\u{202e}"}),
            json!({"name": "e", "inputSchema": {"properties": {"x\u{200b}": {}}}}),
            json!({"name": "f", "inputSchema": {}, "description": "x".repeat(2_000)}),
            json!("no object"),
            good("g"),
        ] {
            tools.add(definition, 1_000);
        }
        assert_eq!(tools.tools.keys().collect::<Vec<_>>(), ["a", "g"]);
        assert_eq!(tools.bad.len(), 8);
        assert_eq!(tools.tools["a"]["x-vendor"], 1, "unknown fields stay");
    }

    #[test]
    fn older_drafts_are_understood() {
        let old = json!({
            "$schema": "http://json-schema.org/draft-07/schema#",
            "type": "object",
            "properties": {"pair": {"type": "array", "items": [{"type": "string"}], "additionalItems": false}},
        });
        let now = json!({
            "type": "object",
            "properties": {"pair": {"type": "array", "prefixItems": [{"type": "string"}], "items": false}},
        });
        assert_eq!(current_schema(old), now);
        let new = json!({"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object"});
        assert_eq!(current_schema(new.clone()), new);
    }
}
