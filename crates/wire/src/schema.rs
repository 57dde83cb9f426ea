//! Input schemas as providers accept them. Windlass validates with the tool's own schema, so what is offered may be
//! looser than it, and never forbids what the tool takes.

use serde_json::{Map, Value, json};

/// Whether the provider holds the model to the schema while it writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Strictness {
    /// It does.
    Strict,
    /// The schema is advice.
    Advice,
}

/// How deep objects may lie in each other in a strict schema.
const STRICT_DEPTH_MAX: usize = 10;
/// How many properties a strict schema may have in all.
const STRICT_PROPERTIES_MAX: usize = 5_000;
/// How many values one `enum` of a strict schema may have.
const STRICT_VALUES_MAX: usize = 1_000;
/// How many references from one definition to the next are followed.
const REFERENCES_MAX: usize = 8;

/// A schema whose root is an object without alternatives, which is all that some providers take there.
pub(crate) fn object_at_root(schema: Option<&Value>) -> Value {
    let mut root = schema.map_or_else(Map::new, |schema| resolved(schema, schema));
    for key in ["$schema", "$id"] {
        root.remove(key);
    }
    let whole = schema.unwrap_or(&Value::Null);
    for (keyword, is_each) in [("allOf", true), ("anyOf", false), ("oneOf", false)] {
        if let Some(Value::Array(branches)) = root.remove(keyword) {
            for branch in &branches {
                merge(&mut root, &resolved(branch, whole), is_each);
            }
        }
    }
    // Where definitions are used, they stay where the references look for them.
    if let Some(definitions) = whole.get("$defs") {
        root.entry("$defs").or_insert_with(|| definitions.clone());
    }
    root.insert("type".to_owned(), "object".into());
    root.entry("properties").or_insert_with(|| json!({}));
    Value::Object(root)
}

/// The schema behind a reference within `whole`; a schema that is no object allows everything.
fn resolved(schema: &Value, whole: &Value) -> Map<String, Value> {
    let mut schema = schema;
    for _ in 0..REFERENCES_MAX {
        let Some(pointer) = schema.get("$ref").and_then(Value::as_str).and_then(|to| to.strip_prefix('#'))
        else {
            break;
        };
        let Some(target) = whole.pointer(pointer) else { break };
        schema = target;
    }
    let mut map = schema.as_object().cloned().unwrap_or_default();
    map.remove("$ref");
    map
}

/// Adds the properties of an alternative; what it requires is required only if all alternatives hold.
fn merge(root: &mut Map<String, Value>, branch: &Map<String, Value>, is_each: bool) {
    if let Some(Value::Object(properties)) = branch.get("properties") {
        let known = root.entry("properties").or_insert_with(|| json!({}));
        if let Some(known) = known.as_object_mut() {
            for (name, schema) in properties {
                match known.get_mut(name) {
                    Some(other) if other != schema => *other = json!({"anyOf": [other.clone(), schema]}),
                    Some(_) => {}
                    None => _ = known.insert(name.clone(), schema.clone()),
                }
            }
        }
    }
    if is_each && let Some(Value::Array(required)) = branch.get("required") {
        let known = root.entry("required").or_insert_with(|| json!([]));
        if let Some(known) = known.as_array_mut() {
            known.extend(required.iter().filter(|name| !known.contains(name)).cloned().collect::<Vec<_>>());
        }
    }
    // A branch may take what the root does not name.
    root.remove("additionalProperties");
    root.remove("unevaluatedProperties");
}

/// The schema in OpenAI's strict subset where that forbids nothing that the tool takes, else as it is.
pub(crate) fn openai(schema: Option<&Value>) -> (Value, Strictness) {
    let root = object_at_root(schema);
    match Subset::default().object(&root, 0) {
        Some(strict) => (strict, Strictness::Strict),
        None => (root, Strictness::Advice),
    }
}

/// The schema in OpenAI's strict subset if that allows exactly the same values: an object in which every property is required.
pub(crate) fn strict_as_it_is(schema: &Value) -> Option<Value> {
    let mut root = schema.as_object()?.clone();
    root.retain(|keyword, _| !matches!(keyword.as_str(), "$schema" | "$id"));
    root.get("type").filter(|kind| *kind == "object")?;
    let mut subset = Subset::default();
    let strict = subset.object(&Value::Object(root), 0)?;
    (subset.made_nullable == 0).then_some(strict)
}

/// Keywords of the strict subset that are taken as they are.
const KEPT: [&str; 12] = [
    "description",
    "const",
    "pattern",
    "format",
    "multipleOf",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "minItems",
    "maxItems",
    "type",
];

/// Keywords that only say more: left out, the model may write more than the tool takes, never less.
const LEFT_OUT: [&str; 14] = [
    "title",
    "default",
    "examples",
    "deprecated",
    "readOnly",
    "writeOnly",
    "$comment",
    "minLength",
    "maxLength",
    "uniqueItems",
    "minProperties",
    "maxProperties",
    "contentEncoding",
    "contentMediaType",
];

/// Formats that the strict subset knows.
const FORMATS: [&str; 9] =
    ["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"];

/// A schema on its way into the strict subset.
#[derive(Default)]
struct Subset {
    properties: usize,
    /// How many properties may be left out, and are `null` in the subset.
    made_nullable: usize,
}

impl Subset {
    /// A closed object in which every property is required, optional ones as `null`. Windlass removes those nulls.
    fn object(&mut self, schema: &Value, depth: usize) -> Option<Value> {
        let fields = schema.as_object()?;
        // An object without named properties is a map, which the subset has not.
        let properties = fields.get("properties")?.as_object()?;
        let is_closed = matches!(fields.get("additionalProperties"), None | Some(Value::Bool(false)));
        self.properties += properties.len();
        let fits = depth <= STRICT_DEPTH_MAX && self.properties <= STRICT_PROPERTIES_MAX && is_closed;
        if !fits || (properties.is_empty() && fields.get("additionalProperties").is_none()) {
            return None;
        }
        let required = fields.get("required").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let mut strict = Map::new();
        for (name, property) in properties {
            let is_required = required.iter().any(|required| required == name.as_str());
            let property = self.value(property, depth + 1)?;
            self.made_nullable += usize::from(!is_required);
            strict.insert(name.clone(), if is_required { property } else { nullable(property) });
        }
        if required.iter().any(|name| name.as_str().is_none_or(|name| !properties.contains_key(name))) {
            return None;
        }
        let mut object = self.rest(fields, &["properties", "required", "additionalProperties"], depth)?;
        object.insert("required".to_owned(), strict.keys().cloned().collect());
        object.insert("properties".to_owned(), Value::Object(strict));
        object.insert("additionalProperties".to_owned(), false.into());
        Some(Value::Object(object))
    }

    /// Any schema.
    fn value(&mut self, schema: &Value, depth: usize) -> Option<Value> {
        let fields = schema.as_object()?;
        let is_object = match fields.get("type") {
            Some(Value::String(name)) => name == "object",
            Some(Value::Array(names)) if names.iter().any(|name| name == "object") => return None,
            Some(_) => false,
            // Without a type the value must be named otherwise: the subset has no "anything".
            None => {
                let says = ["$ref", "anyOf", "oneOf", "enum", "const"];
                if !says.iter().any(|keyword| fields.contains_key(*keyword)) {
                    return None;
                }
                false
            }
        };
        if is_object { self.object(schema, depth) } else { self.rest(fields, &[], depth).map(Value::Object) }
    }

    /// The fields of a schema but for those that are known.
    fn rest(
        &mut self,
        fields: &Map<String, Value>,
        known: &[&str],
        depth: usize,
    ) -> Option<Map<String, Value>> {
        let mut strict = Map::new();
        for (keyword, value) in fields {
            let kept = match keyword.as_str() {
                keyword if known.contains(&keyword) || LEFT_OUT.contains(&keyword) => continue,
                "format" if !value.as_str().is_some_and(|format| FORMATS.contains(&format)) => continue,
                keyword if KEPT.contains(&keyword) => value.clone(),
                "enum" => value.as_array().filter(|values| values.len() <= STRICT_VALUES_MAX)?.clone().into(),
                "$ref" => value.as_str().filter(|to| *to == "#" || to.starts_with("#/$defs/"))?.into(),
                "items" => self.value(value, depth + 1)?,
                "anyOf" | "oneOf" => self.each(value.as_array()?, depth)?,
                "$defs" => self.definitions(value.as_object()?)?,
                _ => return None,
            };
            let keyword = if keyword == "oneOf" { "anyOf" } else { keyword };
            if strict.insert(keyword.to_owned(), kept).is_some() {
                return None;
            }
        }
        Some(strict)
    }

    fn each(&mut self, schemas: &[Value], depth: usize) -> Option<Value> {
        schemas.iter().map(|schema| self.value(schema, depth)).collect()
    }

    fn definitions(&mut self, definitions: &Map<String, Value>) -> Option<Value> {
        let strict = definitions.iter().map(|(name, schema)| Some((name.clone(), self.value(schema, 0)?)));
        strict.collect::<Option<Map<_, _>>>().map(Value::Object)
    }
}

/// The schema, or `null`.
fn nullable(mut schema: Value) -> Value {
    let has_values = schema.get("enum").or(schema.get("const")).is_some();
    match schema.get_mut("type") {
        Some(Value::String(name)) if !has_values => {
            schema["type"] = json!([name.clone(), "null"]);
            schema
        }
        Some(Value::Array(names)) if !has_values => {
            if !names.iter().any(|name| name == "null") {
                names.push("null".into());
            }
            schema
        }
        Some(_) | None => {
            // What people are told of the property stays on the outside.
            let description = schema.as_object_mut().and_then(|fields| fields.remove("description"));
            let mut either = json!({"anyOf": [schema, {"type": "null"}]});
            if let Some(description) = description {
                either["description"] = description;
            }
            either
        }
    }
}
