//! Schemas as they are offered: never narrower than what the tool takes, and strict only where nothing is lost.

use serde_json::{Value, json};
use windlass_wire::{ToolOffer, Wire, anthropic_format, openai_chat_format};

fn offered(wire: Wire, schema: Value) -> Value {
    let offer = ToolOffer { name: "a".into(), description: String::new(), input_schema: Some(schema) };
    let mut tools = wire.tools(&[offer]);
    match wire {
        Wire::OpenaiChat => tools[0]["function"].take(),
        Wire::Gemini => tools[0]["functionDeclarations"][0]["parametersJsonSchema"].take(),
        Wire::Anthropic => tools[0]["input_schema"].take(),
        _ => tools[0].take(),
    }
}

#[test]
fn schemas_are_strict_where_the_subset_has_all_that_matters() {
    let strict = |schema: Value| offered(Wire::OpenaiResponses, schema)["strict"].as_bool().unwrap();
    let with = |property: Value| json!({"type": "object", "properties": {"x": property}});
    let string = json!({"type": "string"});
    for fits in [
        with(string.clone()),
        with(json!({"type": ["string", "null"], "format": "date", "default": null})),
        with(json!({"type": "array", "items": {"type": "object", "properties": {"y": {"const": 1}}}})),
        with(json!({"oneOf": [{"type": "string"}, {"enum": [1, 2]}]})),
        with(json!({"$ref": "#/$defs/a"})),
        json!({"type": "object", "properties": {}, "additionalProperties": false}),
        json!({"type": "object", "properties": {"x": {"$ref": "#/$defs/a"}}, "$defs": {"a": string}}),
    ] {
        assert!(strict(fits.clone()), "{fits}");
    }
    for lost in [
        json!({"type": "object"}),
        json!({"type": "object", "properties": {"x": string}, "additionalProperties": true}),
        json!({"type": "object", "properties": {"x": string}, "patternProperties": {"^y": string}}),
        json!({"type": "object", "properties": {"x": string}, "required": ["z"]}),
        json!({"type": "object", "properties": {"x": string}, "if": {"required": ["x"]}}),
        with(json!({})),
        with(json!(true)),
        with(json!({"type": "object"})),
        with(json!({"type": "object", "additionalProperties": {"type": "string"}})),
        with(json!({"allOf": [{"type": "string"}]})),
        with(json!({"not": {"type": "string"}})),
        with(json!({"enum": (0..1_001).collect::<Vec<_>>()})),
        with(json!({"$ref": "other.json"})),
    ] {
        assert!(!strict(lost.clone()), "{lost}");
    }
    let deep = (0..12).fold(json!({"type": "string"}), |inner, _| with(inner));
    assert!(!strict(deep));
}

#[test]
fn optional_properties_become_nullable_in_strict_schemas() {
    let schema = json!({"type": "object", "required": ["a"], "properties": {
        "a": {"type": "string"},
        "b": {"type": "integer", "description": "B."},
        "c": {"type": "string", "enum": ["x"], "description": "C."},
        "d": {"type": ["null", "number"]},
    }});
    let strict = &offered(Wire::OpenaiChat, schema)["parameters"];
    assert_eq!(strict["required"], json!(["a", "b", "c", "d"]));
    assert_eq!(strict["properties"]["a"], json!({"type": "string"}));
    assert_eq!(strict["properties"]["b"], json!({"type": ["integer", "null"], "description": "B."}));
    let either = json!({"anyOf": [{"type": "string", "enum": ["x"]}, {"type": "null"}], "description": "C."});
    assert_eq!(strict["properties"]["c"], either);
    assert_eq!(strict["properties"]["d"], json!({"type": ["null", "number"]}));
}

#[test]
fn alternatives_at_the_root_become_one_open_object() {
    let schema = json!({
        "$id": "x", "description": "Either.",
        "oneOf": [
            {"$ref": "#/$defs/a"},
            {"type": "object", "properties": {"y": {"type": "string"}, "kind": {"const": "b"}}, "required": ["y"]},
        ],
        "$defs": {"a": {"type": "object", "properties": {"x": {"type": "integer"}, "kind": {"const": "a"}}, "required": ["x"], "additionalProperties": false}},
    });
    for wire in [Wire::Anthropic, Wire::Gemini] {
        let flat = offered(wire, schema.clone());
        let kinds = json!({"anyOf": [{"const": "a"}, {"const": "b"}]});
        assert_eq!(
            flat["properties"],
            json!({"x": {"type": "integer"}, "y": {"type": "string"}, "kind": kinds})
        );
        assert_eq!(
            (&flat["type"], &flat["required"], &flat["$id"]),
            (&json!("object"), &Value::Null, &Value::Null)
        );
        assert_eq!(
            flat["additionalProperties"],
            Value::Null,
            "an alternative takes what the other does not name"
        );
        assert_eq!(flat["description"], "Either.");
    }
    let all = json!({"allOf": [{"properties": {"x": {}}, "required": ["x"]}, {"required": ["x", "y"]}]});
    assert_eq!(offered(Wire::Anthropic, all)["required"], json!(["x", "y"]));
}

#[test]
fn a_root_that_refers_to_a_definition_is_followed() {
    let schema = json!({"$ref": "#/$defs/node", "$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}}});
    let root = offered(Wire::Anthropic, schema);
    assert_eq!(root["properties"], json!({"next": {"$ref": "#/$defs/node"}}));
    assert!(root["$defs"]["node"].is_object(), "references still find their target");
    let endless = json!({"$ref": "#"});
    assert_eq!(offered(Wire::Anthropic, endless)["type"], "object");
    assert_eq!(offered(Wire::Anthropic, json!(true))["type"], "object");
}

#[test]
fn an_answer_is_strict_where_every_property_is_required() {
    let object = |required: Value| json!({"$schema": "x", "type": "object", "properties": {"a": {"type": "string", "minLength": 1}}, "required": required});
    let strict = openai_chat_format(&object(json!(["a"])));
    let expected = json!({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": false});
    assert_eq!(
        strict,
        json!({"type": "json_schema", "json_schema": {"name": "answer", "schema": expected, "strict": true}})
    );
    let inner = json!({"type": "object", "properties": {"o": object(json!([]))}, "required": ["o"]});
    for advice in
        [object(json!([])), inner, json!({"type": "object"}), json!({"type": "string"}), json!(true)]
    {
        let format = openai_chat_format(&advice);
        assert_eq!(
            (&format["json_schema"]["strict"], &format["json_schema"]["schema"]),
            (&json!(false), &advice)
        );
    }
}

#[test]
fn anthropic_is_held_to_closed_objects_and_told_of_the_rest() {
    let schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Report",
        "type": "object", "required": ["n"], "properties": {
            "n": {"type": "integer", "minimum": 1, "description": "How many."},
            "when": {"type": ["string", "null"], "format": "date"},
            "ip": {"type": "string", "format": "regex"},
            "list": {"type": "array", "items": {"$ref": "#/$defs/item"}, "minItems": 1, "maxItems": 9},
            "either": {"oneOf": [{"type": "null"}, {"enum": ["a", 1]}], "default": null},
            "none": {"type": "object", "additionalProperties": false},
        },
        "$defs": {"item": {"type": "object", "properties": {"x": {"const": true}}}},
    });
    let expected = json!({"type": "json_schema", "schema": {
        "title": "Report", "type": "object", "required": ["n"], "additionalProperties": false, "properties": {
            "n": {"type": "integer", "description": "How many.\n\n{minimum: 1}"},
            "when": {"type": ["string", "null"], "format": "date"},
            "ip": {"type": "string", "description": "{format: \"regex\"}"},
            "list": {"type": "array", "items": {"$ref": "#/$defs/item"}, "minItems": 1, "description": "{maxItems: 9}"},
            "either": {"anyOf": [{"type": "null"}, {"enum": ["a", 1]}]},
            "none": {"type": "object", "properties": {}, "additionalProperties": false},
        },
        "$defs": {"item": {"type": "object", "properties": {"x": {"const": true}}, "additionalProperties": false}},
    }});
    assert_eq!(anthropic_format(&schema), Some(expected));
}

#[test]
fn anthropic_has_no_format_for_what_it_cannot_be_held_to() {
    let with = |property: Value| json!({"type": "object", "properties": {"x": property}});
    let list = json!({"type": "object", "properties": {"next": {"$ref": "#/$defs/list"}}});
    let there = json!({"type": "array", "items": {"$ref": "#/$defs/b"}});
    let back = json!({"anyOf": [{"$ref": "#/$defs/a"}, {"type": "null"}]});
    for free in [
        json!(true),
        json!({}),
        json!({"type": "object"}),
        with(json!({})),
        with(json!({"type": "object", "additionalProperties": {"type": "string"}})),
        with(json!({"type": "array"})),
        with(json!({"enum": [{"a": 1}]})),
        with(json!({"const": [1]})),
        with(json!({"$ref": "#"})),
        with(json!({"$ref": "other.json"})),
        with(json!({"allOf": [{"$ref": "#/$defs/a"}]})),
        json!({"$ref": "#/$defs/list", "$defs": {"list": list}}),
        json!({"$ref": "#/$defs/a", "$defs": {"a": there, "b": back}}),
    ] {
        assert_eq!(anthropic_format(&free), None, "{free}");
    }
    let twice = json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/p"}, "b": {"$ref": "#/$defs/p"}},
        "$defs": {"p": {"type": "string"}}});
    assert!(anthropic_format(&twice).is_some(), "used twice is not recursive");
    let open =
        json!({"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": true});
    let format = anthropic_format(&open).unwrap();
    assert_eq!(
        format["schema"]["additionalProperties"],
        json!(false),
        "an answer with the named ones alone fits"
    );
}
