//! Makes the description one that generators of clients accept: no schema is a boolean, unions have named members, and
//! those with a tag say so.

use serde_json::{Map, Value, json};

const SCHEMAS: &str = "#/components/schemas/";

/// Refines a whole description.
pub(super) fn refine(document: &mut Value) {
    walk(document);
    let Some(Value::Object(schemas)) = document.pointer_mut("/components/schemas") else { return };
    let names: Vec<String> = schemas.keys().cloned().collect();
    for name in names {
        let Some(mut schema) = schemas.remove(&name) else { continue };
        let members = name_members(&name, &mut schema);
        schemas.insert(name, schema);
        for (name, member) in members {
            schemas.entry(name).or_insert(member);
        }
    }
}

/// Refines a value and everything in it.
fn walk(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(walk),
        Value::Object(fields) => {
            for keyword in ["schema", "items"] {
                fields.get_mut(keyword).into_iter().for_each(open);
            }
            if let Some(Value::Object(properties)) = fields.get_mut("properties") {
                properties.values_mut().for_each(open);
            }
            fields.values_mut().for_each(walk);
            for keyword in ["anyOf", "oneOf"] {
                flatten(fields, keyword);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// `true` allows everything, as an empty schema does.
fn open(schema: &mut Value) {
    if *schema == Value::Bool(true) {
        *schema = json!({});
    }
}

/// Takes unions out of a union, and makes one `enum` of all its constant texts.
fn flatten(fields: &mut Map<String, Value>, keyword: &str) {
    let Some(Value::Array(members)) = fields.remove(keyword) else { return };
    let mut flat: Vec<Value> = Vec::with_capacity(members.len());
    for member in members {
        let inner = ["anyOf", "oneOf"].into_iter().find_map(|keyword| member.get(keyword)?.as_array());
        match inner {
            Some(inner) => flat.extend(inner.iter().cloned()),
            None => flat.push(member),
        }
    }
    let texts = |member: &Value| -> Option<Vec<Value>> {
        let is_text = member.get("type").is_some_and(|kind| kind == "string");
        let one = member.get("const").filter(|_| is_text).map(|text| vec![text.clone()]);
        one.or_else(|| member.get("enum").filter(|_| is_text)?.as_array().cloned())
    };
    let (words, mut others): (Vec<Value>, Vec<Value>) =
        flat.into_iter().partition(|member| texts(member).is_some());
    let words: Vec<Value> = words.iter().filter_map(texts).flatten().collect();
    if others.is_empty() && !words.is_empty() {
        fields.insert("type".into(), "string".into());
        fields.insert("enum".into(), words.into());
        return;
    }
    if !words.is_empty() {
        others.insert(0, json!({"type": "string", "enum": words}));
    }
    fields.insert(keyword.into(), others.into());
}

/// Gives the object members of a union names of their own, and returns them. A union whose members all have a `type` of
/// their own is a tagged one.
fn name_members(name: &str, schema: &mut Value) -> Vec<(String, Value)> {
    let Some(fields) = schema.as_object_mut() else { return Vec::new() };
    let Some(keyword) = ["oneOf", "anyOf"].into_iter().find(|keyword| fields.contains_key(*keyword)) else {
        return Vec::new();
    };
    let (mut named, mut mapping, mut all_tagged) = (Vec::new(), Map::new(), true);
    for member in fields.get_mut(keyword).and_then(Value::as_array_mut).into_iter().flatten() {
        let tag = member.pointer("/properties/type/const").and_then(Value::as_str).map(str::to_owned);
        let Some(properties) = member.get("properties").and_then(Value::as_object) else {
            all_tagged = false;
            continue;
        };
        let called = match (&tag, properties.keys().next()) {
            (Some(tag), _) => tag.clone(),
            (None, Some(first)) => first.clone(),
            (None, None) => continue,
        };
        let called = format!("{name}{}", pascal(&called));
        let to = format!("{SCHEMAS}{called}");
        match tag {
            Some(tag) => _ = mapping.insert(tag, to.clone().into()),
            None => all_tagged = false,
        }
        named.push((called, std::mem::replace(member, json!({ "$ref": to }))));
    }
    if all_tagged && !mapping.is_empty() {
        fields.insert("discriminator".into(), json!({"propertyName": "type", "mapping": mapping}));
    }
    named
}

fn pascal(text: &str) -> String {
    let word = |word: &str| {
        let mut letters = word.chars();
        letters
            .next()
            .map(|first| first.to_uppercase().chain(letters).collect::<String>())
            .unwrap_or_default()
    };
    text.split('_').map(word).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unions_have_named_members_and_tagged_ones_say_so() {
        let tagged = |tag: &str| json!({"type": "object", "properties": {"type": {"const": tag, "type": "string"}, "x": true}});
        let mut document = json!({"components": {"schemas": {
            "Part": {"oneOf": [tagged("text"), tagged("big_image")]},
            "Retry": {"anyOf": [
                {"oneOf": [{"const": "never", "type": "string"}, {"const": "safe", "type": "string"}]},
                {"type": "object", "properties": {"safe": {"type": "object"}}}]},
            "Word": {"oneOf": [{"const": "a", "type": "string", "description": "A."}, {"enum": ["b"], "type": "string"}]},
        }}});
        refine(&mut document);
        let schemas = &document["components"]["schemas"];
        assert_eq!(schemas["Word"], json!({"type": "string", "enum": ["a", "b"]}));
        assert_eq!(
            schemas["Retry"]["anyOf"],
            json!([{"type": "string", "enum": ["never", "safe"]}, {"$ref": "#/components/schemas/RetrySafe"}])
        );
        assert_eq!(
            schemas["Part"]["discriminator"]["mapping"]["big_image"],
            "#/components/schemas/PartBigImage"
        );
        assert_eq!(schemas["PartText"]["properties"]["x"], json!({}), "no schema is a boolean");
    }
}
