//! Schemas: which are refused, and what a model is told when its arguments do not fit.

mod hostile;
mod mistakes;

use serde_json::{Value, json};
use windlass_args::code::ArgumentCode;
use windlass_args::json::measure;
use windlass_args::limits::ArgLimits;
use windlass_args::schema::{Invalid, Schema, SchemaRefusal, SchemaRole};

/// Compiles with the default limits, as the input schema of the tool `t`.
fn compile(schema: &Value) -> Result<Schema, SchemaRefusal> {
    Schema::compile(schema, SchemaRole::Input, "t", &ArgLimits::default())
}

fn validate(schema: &Schema, value: &Value) -> Result<(), Invalid> {
    schema.validate(value, measure(value, &ArgLimits::default()).unwrap())
}

#[test]
fn what_fits_is_taken() {
    let tree = json!({
        "$ref": "#/$defs/node",
        "$defs": {"node": {
            "type": "object",
            "properties": {"name": {"type": "string"}, "children": {"type": "array", "items": {"$ref": "#/$defs/node"}}},
            "required": ["name"],
            "additionalProperties": false,
        }},
    });
    let with_ids = json!({
        "$id": "https://example.com/root.json",
        "$schema": "https://json-schema.org/draft/2020-12/schema#",
        "properties": {
            "by_id": {"$ref": "item.json"},
            "by_anchor": {"$ref": "#here"},
            "by_pointer": {"$ref": "#/$defs/b%61r"},
            "in_other": {"$ref": "item.json#/$defs/inner"},
            "$ref": {"const": "only the name of a property"},
        },
        "$defs": {
            "item": {"$id": "item.json", "type": "integer", "$defs": {"inner": {"type": "null"}}},
            "anchored": {"$anchor": "here", "type": "boolean"},
            "bar": {"type": "string"},
        },
    });
    let cases = [
        (json!(true), json!(1)),
        (json!({}), json!({"any": "thing"})),
        (tree, json!({"name": "a", "children": [{"name": "b", "children": []}]})),
        (
            with_ids,
            json!({"by_id": 1, "by_anchor": true, "by_pointer": "x", "in_other": null, "$ref": "only the name of a property"}),
        ),
        (
            json!({"enum": [{"$ref": "http://example.com/not-a-reference"}]}),
            json!({"$ref": "http://example.com/not-a-reference"}),
        ),
        (json!({"properties": {"a": {"default": {"$ref": "file:///etc/passwd"}}}}), json!({"a": 1})),
    ];
    for (schema, value) in cases {
        let compiled = compile(&schema).unwrap_or_else(|refused| panic!("{refused}"));
        validate(&compiled, &value).unwrap_or_else(|invalid| panic!("{schema}: {invalid}"));
    }
}

#[test]
fn references_are_followed_when_values_do_not_fit() {
    let schema = compile(&json!({
        "$id": "https://example.com/root.json",
        "properties": {"by_id": {"$ref": "item.json"}},
        "$defs": {"item": {"$id": "item.json", "type": "integer"}},
    }));
    let invalid = validate(&schema.unwrap(), &json!({"by_id": "x"})).unwrap_err();
    assert_eq!(invalid.to_string(), "/by_id: expected an integer, found the string \"x\"");
}

#[test]
fn an_output_is_called_a_result() {
    let schema =
        Schema::compile(&json!({"type": "object"}), SchemaRole::Output, "t", &ArgLimits::default()).unwrap();
    let invalid = validate(&schema, &json!(1)).unwrap_err();
    assert_eq!(
        (invalid.code(), invalid.to_string().as_str()),
        (ArgumentCode::InvalidOutput, "the result: expected an object, found the number 1")
    );
    let refused = Schema::compile(&json!(1), SchemaRole::Output, "t", &ArgLimits::default()).unwrap_err();
    assert!(
        refused.to_string().starts_with("the output schema of tool t is refused: a schema is"),
        "{refused}"
    );
}

#[test]
fn a_validation_has_a_bound() {
    let limits = ArgLimits { validation_work_max: 1_000, ..ArgLimits::default() };
    let schema = json!({"items": {"enum": (0..99).collect::<Vec<_>>()}});
    let schema = Schema::compile(&schema, SchemaRole::Input, "t", &limits).unwrap();
    assert_eq!(schema.nodes(), 101);
    let value = |items| json!(vec![0; items]);
    assert!(validate(&schema, &value(8)).is_ok());
    let invalid = validate(&schema, &value(9)).unwrap_err();
    assert_eq!(invalid.code(), ArgumentCode::TooLarge);
    assert_eq!(
        invalid.to_string(),
        "the arguments: 10 values are too many to check against a schema of 101 nodes; send at most 9 at once"
    );
}

#[test]
fn at_most_ten_lines_and_always_the_same() {
    let names: Vec<String> = (0..15).map(|number| format!("p{number:02}")).collect();
    let properties: serde_json::Map<String, Value> =
        names.iter().map(|name| (name.clone(), json!({"type": "string"}))).collect();
    let schema = compile(&json!({"properties": properties})).unwrap();
    let value = Value::Object(names.iter().map(|name| (name.clone(), json!(1))).collect());
    let told = validate(&schema, &value).unwrap_err().to_string();
    assert_eq!(told.lines().count(), 10);
    assert_eq!(told.lines().last(), Some("… and 6 more problems"));
    assert_eq!(told, validate(&schema, &value).unwrap_err().to_string());

    let schema = compile(&json!({"items": {"type": "string"}})).unwrap();
    let told = validate(&schema, &json!(vec![0; 12])).unwrap_err().to_string();
    assert!(told.starts_with("/0: ") && told.contains("\n/8: ") && !told.contains("/10"), "{told}");
}

#[test]
fn of_very_many_values_the_first_problem_is_told() {
    // The array counts, too.
    let limits = ArgLimits { explained_values_max: 13, ..ArgLimits::default() };
    let problems = |schema: Value, items: usize| {
        let schema = Schema::compile(&schema, SchemaRole::Input, "t", &limits).unwrap();
        let invalid = validate(&schema, &json!(vec![0; items])).unwrap_err();
        (invalid.problems.len() + invalid.more, invalid.problems[0].to_string())
    };
    let strings = || json!({"items": {"type": "string"}});
    assert_eq!(problems(strings(), 12).0, 12);
    assert_eq!(
        problems(strings(), 13),
        (1, "/0: expected a string, found the number 0; the value is too large to look for more".to_string())
    );
    // Each way to a value counts, and there are up to three: allOf, and the two in it.
    assert_eq!(problems(json!({"allOf": [strings(), strings()]}), 3).0, 3);
    assert_eq!(problems(json!({"allOf": [strings(), strings()]}), 4).0, 1);
    // Among alternatives the problems of all would be collected to tell one.
    let (told, what) = problems(json!({"anyOf": [strings(), {"items": {"type": "null"}}]}), 12);
    assert_eq!((told, what.contains("too large or too deeply nested to say where")), (1, true), "{what}");
}

#[test]
fn a_compiled_schema_can_be_shared() {
    fn shared<T: Send + Sync>() {}
    shared::<Schema>();
}
