//! Repair, beyond the cases that the corpus holds: it is never needed by what fits, and never makes it worse.

use serde_json::{Value, json};
use windlass_args::arguments::{Arguments, Given};
use windlass_args::limits::ArgLimits;
use windlass_args::repair::{ArgumentContract, Fit, Repair, RepairKind, Unfit, fit, repaired};
use windlass_args::schema::{Schema, SchemaRole};

fn compile(schema: &Value) -> Schema {
    Schema::compile(schema, SchemaRole::Input, "t", &ArgLimits::default()).unwrap()
}

fn text(text: &str) -> Arguments {
    Arguments { given: Given::Text, text: text.into() }
}

fn fitted(schema: &Value, args: &str) -> Result<Fit, Unfit> {
    let (schema, limits) = (compile(schema), ArgLimits::default());
    fit(&text(args), &ArgumentContract { schema: Some(&schema), takes_cut_off: false, limits: &limits })
}

/// The arguments that run, or `None` if they cannot be repaired.
fn run(schema: Value, args: &str) -> Option<Value> {
    fitted(&schema, args).ok().map(|fit| fit.value)
}

#[test]
fn what_fits_is_left_alone() {
    let schema = compile(&json!({"properties": {"n": {"type": ["string", "integer"]}}, "type": "object"}));
    let limits = ArgLimits::default();
    let wanted = ArgumentContract { schema: Some(&schema), takes_cut_off: true, limits: &limits };
    for args in [r#"{"n": "5"}"#, r#"{"N": "5"}"#, "", "null", r#"{"m": null}"#] {
        assert_eq!(repaired(&text(args), &wanted), None, "{args}");
        assert_eq!(fit(&text(args), &wanted).unwrap().repairs, [], "{args}");
    }
}

#[test]
fn given_as_json_is_repaired_like_text_but_never_cut() {
    let schema = compile(&json!({"type": "object", "properties": {"n": {"type": "integer"}}}));
    let limits = ArgLimits::default();
    let wanted = ArgumentContract { schema: Some(&schema), takes_cut_off: true, limits: &limits };
    let as_json = |args: &str| fit(&Arguments { given: Given::Json, text: args.into() }, &wanted);
    let repairs = as_json(r#"{"n":"5"}"#).unwrap().repairs;
    assert_eq!(repairs, [Repair { kind: RepairKind::Number, at: "/n".into(), was: None }]);
    assert_eq!(as_json(r#""{\"n\":5}""#).unwrap().value, json!({"n": 5}));
    assert!(as_json(r#"{"n":5,"m":"#).is_err(), "what was given as JSON was not cut off by a model");
}

#[test]
fn the_original_problem_is_told() {
    let schema =
        json!({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}});
    let told = fitted(&schema, r#"{"a": "1", "b": "x"}"#).unwrap_err().to_string();
    assert_eq!(
        told,
        "/a: expected an integer, found the string \"1\"\n/b: expected an integer, found the string \"x\"",
        "the repair of /a is not kept, and not told"
    );
}

#[test]
fn a_string_is_not_read_where_a_string_may_be_meant() {
    let either = json!({"type": ["string", "object"], "maxLength": 3});
    assert_eq!(run(either, r#""{\"a\": 1}""#), None, "it is a string that is too long, or an object");
    let object = json!({"type": "object", "maxLength": 3});
    assert_eq!(run(object, r#""{\"a\": 1}""#), Some(json!({"a": 1})));
}

#[test]
fn references_are_followed_as_the_schema_means_them() {
    let by_id = json!({
        "$id": "https://example.com/root", "type": "object",
        "properties": {"n": {"$ref": "item"}, "m": {"$ref": "#here"}, "r": {"$ref": "#/$defs/p%61rt"}},
        "$defs": {
            "item": {"$id": "item", "$ref": "#/$defs/inner", "$defs": {"inner": {"type": "integer"}}},
            "inner": {"type": "string"},
            "anchored": {"$anchor": "here", "type": "boolean"},
            "part": {"type": "number"},
        },
    });
    let fitted = run(by_id, r#"{"n": "1", "m": "true", "r": "0.5"}"#);
    assert_eq!(fitted, Some(json!({"n": 1, "m": true, "r": 0.5})));
}

#[test]
fn every_conjunct_counts() {
    let all = json!({"type": "object", "allOf": [
        {"properties": {"n": {"type": ["integer", "string"]}}},
        {"properties": {"n": {"type": ["integer", "boolean"]}}},
    ]});
    assert_eq!(run(all, r#"{"n": "5"}"#), Some(json!({"n": 5})), "only an integer fits both");
    let contradicting = json!({"type": "object", "properties": {"n": {"type": "integer", "enum": ["5"]}}});
    assert_eq!(run(contradicting, r#"{"n": "5"}"#), None);
    let nullable = json!({"type": "object", "properties": {"n": {"allOf": [{"type": ["integer", "null"]}, {"minimum": 0}]}}});
    assert_eq!(run(nullable, r#"{"n": null}"#), Some(json!({"n": null})));
}

#[test]
fn alternatives_are_followed_only_where_one_is_left() {
    let nested = json!({"type": "object", "properties": {"v": {"anyOf": [
        {"type": "null"},
        {"anyOf": [{"type": "string"}, {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}]},
    ]}}});
    assert_eq!(run(nested.clone(), r#"{"v": {"n": "5"}}"#), Some(json!({"v": {"n": 5}})));
    assert_eq!(run(nested, r#"{"v": {"N": 5}}"#), Some(json!({"v": {"n": 5}})));
    let conditional = json!({"type": "object", "if": {"required": ["n"]}, "then": {"properties": {"n": {"type": "integer"}}}});
    assert_eq!(run(conditional, r#"{"n": "5"}"#), None, "a condition is not decided");
    let negated = json!({"type": "object", "properties": {"n": {"not": {"type": "string"}}}});
    assert_eq!(run(negated, r#"{"n": "5"}"#), None, "what must not be says nothing of what should be");
}

#[test]
fn a_name_that_must_not_be_there_is_not_meant() {
    let schema = json!({"type": "object", "properties": {"user_id": {"type": "string"}, "userId": false}, "additionalProperties": false});
    assert_eq!(run(schema, r#"{"USER_ID": "a"}"#), Some(json!({"user_id": "a"})));
}

#[test]
fn limits_hold() {
    let schema = compile(&json!({"type": "object", "additionalProperties": {"type": "integer"}}));
    let repairs = |count: usize, limits: &ArgLimits| {
        let args: serde_json::Map<String, Value> =
            (0..count).map(|n| (format!("k{n}"), json!("1"))).collect();
        let wanted = ArgumentContract { schema: Some(&schema), takes_cut_off: false, limits };
        fit(&text(&Value::Object(args).to_string()), &wanted).ok().map(|fit| fit.repairs.len())
    };
    let limits = ArgLimits { repairs_max: 3, ..ArgLimits::default() };
    assert_eq!((repairs(3, &limits), repairs(4, &limits)), (Some(3), None));
    let limits = ArgLimits { validation_work_max: 7, ..ArgLimits::default() };
    assert_eq!(repairs(9, &limits), None, "the work of a repair has the bound of a validation");
    let long = "k".repeat(40_000);
    let under = |items: usize| {
        let schema =
            compile(&json!({"type": "object", "additionalProperties": {"items": {"type": "integer"}}}));
        let limits = ArgLimits::default();
        let wanted = ArgumentContract { schema: Some(&schema), takes_cut_off: false, limits: &limits };
        fit(&text(&json!({ &*long: vec!["1"; items] }).to_string()), &wanted).is_ok()
    };
    assert_eq!((under(1), under(2)), (true, false), "places of repairs take no more than arguments do");
}

#[test]
fn kinds_are_read_back() {
    for &kind in RepairKind::ALL {
        assert_eq!(RepairKind::parse(kind.as_str()), Some(kind));
        let line = Repair { kind, at: "/a\nb".into(), was: Some("c\nd".into()) }.to_string();
        assert_eq!(line.lines().count(), 1, "{line}");
    }
}

mod properties {
    use super::*;
    use proptest::prelude::*;

    /// Values for [`SCHEMA`], right.
    fn right() -> impl Strategy<Value = Value> {
        let item = (any::<i32>(), any::<bool>(), "[a-z ]{0,5}")
            .prop_map(|(count, is_on, name)| json!({"item_count": count, "is_on": is_on, "name": name}));
        (any::<i32>(), prop::collection::vec(item, 0..4), prop::option::of(0.0..1e6)).prop_map(
            |(id, items, score)| match score {
                Some(score) => json!({"user_id": id, "line_items": items, "score": score}),
                None => json!({"user_id": id, "line_items": items}),
            },
        )
    }

    fn schema() -> Schema {
        compile(&json!({
            "type": "object",
            "properties": {
                "user_id": {"type": "integer"},
                "line_items": {"type": "array", "items": {"$ref": "#/$defs/item"}},
                "score": {"type": "number"},
            },
            "required": ["line_items"],
            "additionalProperties": false,
            "$defs": {"item": {
                "type": "object",
                "properties": {"item_count": {"type": "integer"}, "is_on": {"type": "boolean"}, "name": {"type": "string"}},
                "required": ["is_on"],
                "additionalProperties": false,
            }},
        }))
    }

    /// Makes the mistakes that can be repaired, by the bits of `which`.
    fn wrong(value: &Value, which: u64) -> String {
        fn name(key: &str, which: u64) -> String {
            match which % 4 {
                0 => key.to_string(),
                1 => key.to_uppercase(),
                2 => key.replace('_', "-"),
                _ => {
                    key.split('_').map(|word| format!("{}{}", word[..1].to_uppercase(), &word[1..])).collect()
                }
            }
        }
        fn spoilt(value: &Value, which: u64) -> Value {
            let next = |n: usize| which.rotate_left(7 * (n as u32 + 1)) ^ n as u64;
            match value {
                Value::Number(_) | Value::Bool(_) if which & 16 != 0 => json!(value.to_string()),
                Value::Array(items) if items.len() == 1 && which & 32 != 0 => spoilt(&items[0], next(9)),
                Value::Array(items) => {
                    items.iter().enumerate().map(|(n, item)| spoilt(item, next(n))).collect()
                }
                Value::Object(map) => map
                    .iter()
                    .enumerate()
                    .map(|(n, (key, item))| (name(key, next(n)), spoilt(item, next(n + 3))))
                    .collect(),
                other => other.clone(),
            }
        }
        let mut value = spoilt(value, which);
        if which & 64 != 0
            && value.get("score").is_none()
            && value.get("Score").is_none()
            && value.get("SCORE").is_none()
        {
            value["score"] = Value::Null;
        }
        let mut text = value.to_string();
        if which & 128 != 0 {
            text = text.replace('}', ",}").replace("{,}", "{}");
        }
        if which & 256 != 0 {
            text = format!("```json\n{text}\n```");
        }
        if which & 512 != 0 {
            text = Value::String(text).to_string();
        }
        text
    }

    proptest! {
        #[test]
        fn what_was_meant_is_what_runs(value in right(), which in any::<u64>()) {
            let (schema, limits) = (schema(), ArgLimits::default());
            let wanted = ArgumentContract { schema: Some(&schema), takes_cut_off: false, limits: &limits };
            let args = wrong(&value, which);
            let fit = fit(&text(&args), &wanted);
            prop_assert_eq!(fit.map(|fit| fit.value).map_err(|unfit| unfit.to_string()), Ok(value), "{}", args);
        }

        #[test]
        fn what_was_cut_off_is_part_of_what_was_meant(value in right(), at in any::<prop::sample::Index>()) {
            let (schema, limits) = (schema(), ArgLimits::default());
            let whole = value.to_string();
            let cut = &whole[..at.index(whole.len())];
            let wanted = |takes_cut_off| ArgumentContract { schema: Some(&schema), takes_cut_off, limits: &limits };
            prop_assert!(fit(&text(cut), &wanted(false)).is_err());
            if let Ok(fit) = fit(&text(cut), &wanted(true)) {
                prop_assert_eq!(fit.repairs[0].kind, RepairKind::CutOff);
                let mut pending = vec![(&fit.value, &value)];
                while let Some((part, whole)) = pending.pop() {
                    match (part, whole) {
                        (Value::Object(part), Value::Object(whole)) => {
                            pending.extend(part.iter().map(|(key, item)| (item, &whole[key])));
                        }
                        (Value::Array(part), Value::Array(whole)) => pending.extend(part.iter().zip(whole)),
                        (part, whole) => prop_assert_eq!(part, whole, "{}", cut),
                    }
                }
            }
        }
    }
}
