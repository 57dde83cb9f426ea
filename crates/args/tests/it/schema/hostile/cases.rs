//! The schemas and the values: the test judges the answers, the bench the time.

use serde_json::{Value, json};

/// `innermost`, wrapped `levels` times.
fn nested(levels: usize, innermost: Value, wrap: impl Fn(Value) -> Value) -> Value {
    (0..levels).fold(innermost, |inner, _| wrap(inner))
}

/// An object with one entry; `json!` would copy the value.
fn object(key: &str, value: Value) -> Value {
    Value::Object([(key.to_string(), value)].into_iter().collect())
}

/// Definitions d0 … dN, each referring to the next one twice under `keyword`.
fn doubled(levels: usize, keyword: &str) -> Value {
    let mut defs = serde_json::Map::new();
    for level in 0..levels {
        let next = json!({"$ref": format!("#/$defs/d{}", level + 1)});
        defs.insert(format!("d{level}"), json!({keyword: [next, next]}));
    }
    defs.insert(format!("d{levels}"), json!({"type": "string"}));
    json!({"$ref": "#/$defs/d0", "$defs": defs})
}

/// Schemas that must be refused, by name.
pub fn refused() -> Vec<(&'static str, Value)> {
    let mut cases = too_much();
    cases.extend(outside());
    cases.extend(wrong());
    cases
}

fn too_much() -> Vec<(&'static str, Value)> {
    vec![
        ("10,000 deep by not", nested(10_000, json!(true), |inner| object("not", inner))),
        ("100,000 deep arrays", nested(100_000, json!(1), |inner| Value::Array(vec![inner]))),
        (
            "10,000 deep properties",
            nested(5_000, json!(true), |inner| object("properties", object("a", inner))),
        ),
        (
            "10,000 deep in an enum",
            object("enum", nested(10_000, json!(1), |inner| Value::Array(vec![inner]))),
        ),
        (
            "10,000 deep under an unknown keyword",
            object("x", nested(10_000, json!(1), |inner| object("y", inner))),
        ),
        ("65 deep", nested(65, json!(true), |inner| object("not", inner))),
        ("28 doubled references in allOf", doubled(28, "allOf")),
        ("28 doubled references in anyOf", doubled(28, "anyOf")),
        ("1,000 doubled references in oneOf", doubled(1_000, "oneOf")),
        (
            "doubled by properties",
            json!({"$ref": "#/$defs/a0", "$defs": (0..40).map(|level| {
                let next = json!({"$ref": format!("#/$defs/a{}", (level + 1) % 41)});
                (format!("a{level}"), json!({"properties": {"x": next, "y": next}}))
            }).chain([("a40".to_string(), json!(true))]).collect::<serde_json::Map<_, _>>()}),
        ),
        ("huge description", json!({"description": "x".repeat(300_000)})),
        ("huge by escapes", json!({"description": "\u{1}".repeat(60_000)})),
        ("huge enum", json!({"enum": (0..20_000).collect::<Vec<_>>()})),
        ("too many subschemas", json!({"anyOf": vec![json!(true); 10_001]})),
        ("refers to itself", json!({"$ref": "#"})),
        ("refers to itself through allOf", json!({"allOf": [{"$ref": "#"}]})),
        (
            "two that refer to each other",
            json!({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"anyOf": [{"$ref": "#/$defs/a"}]}}}),
        ),
        ("refers to itself dynamically", json!({"$dynamicAnchor": "a", "not": {"$dynamicRef": "#a"}})),
    ]
}

fn outside() -> Vec<(&'static str, Value)> {
    vec![
        ("http", json!({"$ref": "http://example.com/schema.json"})),
        (
            "https, deep inside",
            json!({"properties": {"a/b": {"items": {"$ref": "https://example.com/s#/a"}}}}),
        ),
        ("file", json!({"$ref": "file:///etc/passwd"})),
        ("relative", json!({"$ref": "other.json"})),
        ("relative to its id", json!({"$id": "https://example.com/a.json", "$ref": "b.json"})),
        ("dynamic", json!({"$dynamicRef": "https://example.com/s#meta"})),
        ("the meta-schema", json!({"$ref": "https://json-schema.org/draft/2020-12/schema"})),
        ("in a definition that is used", json!({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "urn:x:y"}}})),
        ("behind an unknown keyword", json!({"$ref": "#/x/0", "x": [{"$ref": "http://example.com/"}]})),
        ("nowhere", json!({"$ref": "#/$defs/missing"})),
        ("no such anchor", json!({"$ref": "#missing"})),
        ("bad percent escape", json!({"$ref": "#/%zz"})),
        ("not a string", json!({"$ref": 7})),
        ("id is no URI", json!({"$id": "http://[::bad", "type": "object"})),
    ]
}

fn wrong() -> Vec<(&'static str, Value)> {
    vec![
        ("a string", json!("object")),
        ("a list", json!([{"type": "object"}])),
        ("null", json!(null)),
        ("draft 7", json!({"$schema": "http://json-schema.org/draft-07/schema#"})),
        (
            "another dialect inside",
            json!({"properties": {"a": {"$id": "x", "$schema": "http://json-schema.org/draft-04/schema#"}}}),
        ),
        ("unknown type", json!({"type": "objekt"})),
        ("type in a deep place", json!({"properties": {"a": {"items": {"type": "int"}}}})),
        ("properties as a list", json!({"properties": ["a", "b"]})),
        ("required as a boolean", json!({"properties": {"a": {"required": true}}})),
        ("minimum as text", json!({"minimum": "1"})),
        ("negative length", json!({"minLength": -1})),
        ("items as a list", json!({"items": [{"type": "string"}]})),
        ("enum as an object", json!({"enum": {"a": 1}})),
        ("allOf empty", json!({"allOf": []})),
        ("subschema as text", json!({"properties": {"a": "string"}})),
        ("bad pattern", json!({"properties": {"a": {"pattern": "("}}})),
        ("look-behind", json!({"pattern": "(?<=a)b"})),
        ("back-reference", json!({"pattern": "(a+)\\1"})),
        ("pattern too large to build", json!({"pattern": "((a{100}){100}){100}"})),
        ("bad property pattern", json!({"patternProperties": {"[": true}})),
    ]
}

/// Schemas that are accepted, with a value to try and whether it fits.
pub fn harmless() -> Vec<(&'static str, Value, Value, bool)> {
    let mut cases = odd();
    cases.extend(problematic());
    cases
}

fn odd() -> Vec<(&'static str, Value, Value, bool)> {
    let list_of_itself = json!({"$ref": "#/$defs/a", "$defs": {"a": {"type": "array", "allOf": [
        {"items": {"$ref": "#/$defs/a"}}, {"items": {"$ref": "#/$defs/a"}}]}}});
    let either_of_itself = json!({"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [
        {"type": "array", "items": {"$ref": "#/$defs/a"}}, {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/a"}}]}}});
    let deep = |innermost| nested(60, innermost, |inner| json!([inner]));
    let many = json!({"anyOf": vec![json!({"type": "string"}); 4_000]});
    let keys = object(&"k".repeat(500_000), json!(vec![0; 20_000]));
    vec![
        (
            "exponential pattern",
            json!({"pattern": "^(a+)+$"}),
            json!(format!("{}!", "a".repeat(100_000))),
            false,
        ),
        ("overlapping pattern", json!({"pattern": "^(a|aa)+(.*b){20}$"}), json!("ab".repeat(20_000)), true),
        ("doubling with depth, fits", list_of_itself.clone(), deep(json!([])), true),
        ("doubling with depth, fails", list_of_itself, deep(json!(1)), false),
        ("alternatives with depth, fits", either_of_itself.clone(), deep(json!([])), true),
        ("alternatives with depth, fails", either_of_itself, deep(json!(1)), false),
        ("many alternatives of a large value", many, json!(["x".repeat(500_000)]), false),
        (
            "many problems under a long key",
            json!({"additionalProperties": {"items": {"type": "string"}}}),
            keys,
            false,
        ),
        (
            "many unknown properties",
            json!({"additionalProperties": false}),
            (0..20_000).map(|n| (format!("p{n}"), json!(1))).collect(),
            false,
        ),
        (
            "long unknown names",
            json!({"properties": {"name": true}, "additionalProperties": false}),
            object(&"n".repeat(200_000), json!(1)),
            false,
        ),
        (
            "a property called __proto__",
            json!({"properties": {"__proto__": {"type": "string"}}}),
            json!({"__proto__": 1}),
            false,
        ),
        (
            "the id of the meta-schema",
            json!({"$id": "https://json-schema.org/draft/2020-12/schema", "type": "object"}),
            json!(1),
            false,
        ),
        (
            "an unused outside definition is not fetched",
            json!({"$defs": {"a": {"type": "object"}}}),
            json!(1),
            true,
        ),
        ("unique items", json!({"uniqueItems": true}), json!((0..50_000).collect::<Vec<_>>()), true),
    ]
}

/// Values with so many problems that a search for all of them would take long.
fn problematic() -> Vec<(&'static str, Value, Value, bool)> {
    vec![
        ("many problems", json!({"items": {"type": "string"}}), json!(vec![0; 200_000]), false),
        ("as many problems as fit", json!({"items": {"type": "string"}}), json!(vec![0; 500_000]), false),
        (
            "as many problems as fit among those that are right",
            json!({"items": {"items": {"type": "integer", "minimum": 5}}}),
            json!(vec![[7, 8, 1]; 100_000]),
            false,
        ),
        (
            "one problem behind much that is right",
            json!({"items": {"type": "integer", "minimum": 0}}),
            (0..400_000).map(|n| json!(if n == 399_999 { -1 } else { 1 })).collect(),
            false,
        ),
        (
            "many problems of each value",
            json!({"items": {"allOf": vec![json!({"type": "string", "const": "a", "enum": ["b"], "minimum": 9}); 400]}}),
            json!(vec![0; 2_000]),
            false,
        ),
        (
            "many problems in many alternatives",
            json!({"anyOf": vec![json!({"items": {"type": "string"}}); 60]}),
            json!(vec![0; 30_000]),
            false,
        ),
        (
            "many large values in alternatives",
            json!({"anyOf": vec![json!({"type": "string"}); 400]}),
            json!(vec![0; 19_000]),
            false,
        ),
        (
            "alternatives of many values",
            json!({"items": {"anyOf": vec![json!({"type": "string"}); 8]}}),
            json!(vec![0; 19_000]),
            false,
        ),
        (
            "many near names",
            json!({"items": {"enum": (0..4_000).map(|n| format!("name_{n:055}")).collect::<Vec<_>>()}}),
            json!(vec![format!("nane_{}", "1".repeat(55)); 500]),
            false,
        ),
        (
            "long pointers of many values",
            object("properties", json!({"k": {"additionalProperties": {"type": "string"}}})),
            json!({"k": (0..15_000).map(|n| (format!("{}{n}", "k".repeat(50)), json!(1))).collect::<serde_json::Map<_, _>>()}),
            false,
        ),
    ]
}
