//! The mistakes models make, and what they are told: one snapshot to read.

use super::{compile, validate};
use serde_json::{Value, json};

#[test]
fn typical_mistakes() {
    let mut told = Vec::new();
    let mut count = 0;
    for (schema, values) in cases() {
        let compiled = compile(&schema).unwrap_or_else(|refused| panic!("{refused}"));
        told.push(format!("schema {schema}"));
        for value in values {
            count += 1;
            let invalid = validate(&compiled, &value).expect_err(&value.to_string());
            let lines: String = invalid.to_string().lines().map(|line| format!("\n      {line}")).collect();
            told.push(format!("  {value}{lines}"));
        }
    }
    assert!(count >= 40, "{count} cases");
    insta::assert_snapshot!(told.join("\n"));
}

fn cases() -> Vec<(Value, Vec<Value>)> {
    let mut all = scalars();
    all.extend(objects());
    all.extend(arrays());
    all.extend(alternatives());
    all
}

fn scalars() -> Vec<(Value, Vec<Value>)> {
    vec![
        (json!({"type": "object"}), vec![json!("{\"a\": 1}"), json!([]), json!(null)]),
        (
            json!({"properties": {"count": {"type": "integer"}}}),
            vec![json!({"count": "5"}), json!({"count": 1.5}), json!({"count": null})],
        ),
        (json!({"properties": {"on": {"type": "boolean"}}}), vec![json!({"on": "true"}), json!({"on": 1})]),
        (json!({"properties": {"id": {"type": ["string", "integer"]}}}), vec![json!({"id": []})]),
        (
            json!({"properties": {"level": {"enum": ["low", "medium", "high"]}}}),
            vec![
                json!({"level": "Medium"}),
                json!({"level": "hihg"}),
                json!({"level": "urgent"}),
                json!({"level": 2}),
            ],
        ),
        (
            json!({"properties": {"size": {"enum": [1, 10, 100]}}}),
            vec![json!({"size": 12}), json!({"size": "10"})],
        ),
        (
            json!({"properties": {"flag": {"enum": ["1", "true"]}}}),
            vec![json!({"flag": 1}), json!({"flag": true})],
        ),
        (
            json!({"properties": {"mode": {"enum": ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"]}}}),
            vec![json!({"mode": "mm"})],
        ),
        (json!({"properties": {"unit": {"const": "celsius"}}}), vec![json!({"unit": "celcius"})]),
        (
            json!({"properties": {"page": {"minimum": 1, "maximum": 100}}}),
            vec![json!({"page": 0}), json!({"page": 101})],
        ),
        (
            json!({"properties": {"p": {"exclusiveMinimum": 0, "exclusiveMaximum": 1}}}),
            vec![json!({"p": 0}), json!({"p": 1.0})],
        ),
        (json!({"properties": {"step": {"multipleOf": 5}}}), vec![json!({"step": 7})]),
        (
            json!({"properties": {"name": {"minLength": 2, "maxLength": 5}}}),
            vec![json!({"name": "a"}), json!({"name": "abcdefgh"})],
        ),
        (
            json!({"properties": {"date": {"pattern": "^\\d{4}-\\d{2}-\\d{2}$"}}}),
            vec![json!({"date": "3 May 2024"})],
        ),
        (json!({"properties": {"text": {"maxLength": 10}}}), vec![json!({"text": "long ".repeat(50)})]),
    ]
}

fn objects() -> Vec<(Value, Vec<Value>)> {
    vec![
        (
            json!({"properties": {"path": {"type": "string"}, "max_lines": {"type": "integer"}}, "required": ["path"], "additionalProperties": false}),
            vec![
                json!({}),
                json!({"file": "a"}),
                json!({"path": "a", "maxLines": 3}),
                json!({"path": "a", "max_line": 3, "verbose": true}),
                json!({"Path": "a"}),
                json!({"path": 1, "max_lines": "x", "extra": null}),
            ],
        ),
        (json!({"required": ["b", "a", "c"]}), vec![json!({"c": 1}), json!({})]),
        (json!({"additionalProperties": false}), vec![json!({"anything": 1})]),
        (json!({"minProperties": 1, "maxProperties": 2}), vec![json!({}), json!({"a": 1, "b": 2, "c": 3})]),
        (json!({"propertyNames": {"pattern": "^[a-z]+$"}}), vec![json!({"A1": 1})]),
        (json!({"dependentRequired": {"user": ["password"]}}), vec![json!({"user": "x"})]),
        (json!({"properties": {"old": false}}), vec![json!({"old": 1})]),
        (
            json!({"allOf": [{"properties": {"a": {"type": "string"}}}], "unevaluatedProperties": false}),
            vec![json!({"aa": 1})],
        ),
        (
            json!({"allOf": [{"$ref": "#/$defs/base"}], "properties": {"b": {"type": "string"}}, "unevaluatedProperties": false, "$defs": {"base": {"properties": {"a": {"type": "integer", "minimum": 1}}}}}),
            vec![json!({"a": 0}), json!({"a": "1", "b": 2}), json!({"A": 1}), json!({"a": 1, "c": 2})],
        ),
        (
            json!({"anyOf": [{"properties": {"a": true}, "required": ["x"]}, {"properties": {"b": true}}], "unevaluatedProperties": false}),
            vec![json!({"a": 1}), json!({"a": 1, "c": 1})],
        ),
        (
            json!({"properties": {"gone": false, "name": true}, "additionalProperties": false}),
            vec![json!({"gon": 1}), json!({"name\nis": 1})],
        ),
        (
            json!({"properties": {"options": {"type": "object", "additionalProperties": {"type": "integer"}}}}),
            vec![json!({"options": {"a/b": "1", "c~d": "2", "e\nf": "3"}}), json!({"options": [1, 2]})],
        ),
        (
            json!({"properties": {"from": {"type": "object", "properties": {"line": {"type": "integer"}}, "required": ["line"]}}, "required": ["from"]}),
            vec![json!({"from": 3}), json!({"from": {"Line": 3}}), json!({"line": 3})],
        ),
        (json!({"not": {"required": ["secret"]}}), vec![json!({"secret": 1})]),
        (
            json!({"if": {"properties": {"kind": {"const": "url"}}, "required": ["kind"]}, "then": {"required": ["href"]}}),
            vec![json!({"kind": "url"})],
        ),
        (
            json!({"properties": {"user": {"$ref": "#/$defs/user"}}, "$defs": {"user": {"type": "object", "properties": {"email": {"type": "string"}, "age": {"type": "integer", "minimum": 0}}, "required": ["email"], "additionalProperties": false}}}),
            vec![json!({"user": {"e-mail": "x", "age": -1}}), json!({"user": "bob"})],
        ),
    ]
}

fn arrays() -> Vec<(Value, Vec<Value>)> {
    vec![
        (
            json!({"properties": {"tags": {"type": "array", "items": {"type": "string"}}}}),
            vec![json!({"tags": "one"}), json!({"tags": ["a", 1, null]})],
        ),
        (
            json!({"properties": {"ids": {"minItems": 1, "maxItems": 2}}}),
            vec![json!({"ids": []}), json!({"ids": [1, 2, 3]})],
        ),
        (json!({"properties": {"set": {"uniqueItems": true}}}), vec![json!({"set": ["a", "b", "a"]})]),
        (
            json!({"prefixItems": [{"type": "number"}, {"type": "number"}], "items": false}),
            vec![json!([1, 2, 3]), json!([1, "2"])],
        ),
        (json!({"contains": {"const": "main"}}), vec![json!(["a", "b"])]),
        (
            json!({"properties": {"points": {"type": "array", "items": {"type": "array", "items": {"type": "number"}, "minItems": 2}}}}),
            vec![
                json!({"points": [1, 2]}),
                json!({"points": [[1], ["2", 3]]}),
                json!({"points": "[[1, 2]]"}),
            ],
        ),
        (
            json!({"properties": {"steps": {"items": {"enum": ["build", "test", "deploy"]}}}}),
            vec![json!({"steps": ["Build", "tests", "ship"]}), json!({"steps": [["build"]]})],
        ),
        (
            json!({"properties": {"edits": {"items": {"properties": {"range": {"properties": {"start": {"type": "integer"}}}}}}}}),
            vec![json!({"edits": [{"range": {"start": 1}}, {"range": {"start": "2"}}]})],
        ),
    ]
}

fn alternatives() -> Vec<(Value, Vec<Value>)> {
    let shapes = json!({"properties": {"shape": {"oneOf": [
        {"type": "object", "properties": {"kind": {"const": "circle"}, "radius": {"type": "number"}}, "required": ["kind", "radius"]},
        {"type": "object", "properties": {"kind": {"const": "square"}, "side": {"type": "number"}}, "required": ["kind", "side"]},
    ]}}});
    vec![
        (
            json!({"properties": {"v": {"anyOf": [{"type": "string"}, {"type": "integer"}]}}}),
            vec![json!({"v": true})],
        ),
        (
            json!({"properties": {"v": {"anyOf": [{"type": "object", "required": ["x"]}, {"type": "null"}]}}}),
            vec![json!({"v": {}}), json!({"v": 1})],
        ),
        (
            json!({"properties": {"v": {"anyOf": [{"const": "asc"}, {"const": "desc"}]}}}),
            vec![json!({"v": "ascending"}), json!({"v": "dsc"})],
        ),
        (
            json!({"properties": {"v": {"anyOf": [{"enum": ["red", "green"]}, {"type": "null"}]}}}),
            vec![json!({"v": "gren"})],
        ),
        (
            shapes,
            vec![
                json!({"shape": {"kind": "circle", "radius": "big"}}),
                json!({"shape": {"kind": "circel", "radius": 1}}),
                json!({"shape": {"radius": 1}}),
                json!({"shape": "circle"}),
            ],
        ),
        (
            json!({"oneOf": [{"required": ["a"]}, {"required": ["b"]}]}),
            vec![json!({"a": 1, "b": 2}), json!({})],
        ),
        (
            json!({"anyOf": [{"required": ["a", "b", "c"]}, {"required": ["d"], "properties": {"e": {"type": "string"}}}]}),
            vec![json!({"e": 1})],
        ),
    ]
}
