//! No secret is shown to people, wherever a model puts it.

use super::*;
use serde_json::json;

/// Stands for every secret here.
const SECRET: &str = "hunter2-hunter2";

fn shown(args: &Value, schema: Option<&Value>) -> String {
    RedactedArgs::of(args.clone(), &SecretNames::of(schema)).value().to_string()
}

#[test]
fn what_is_named_like_a_secret_is_masked_in_every_spelling_and_depth() {
    for name in [
        "password",
        "Password",
        "user_password",
        "userPassword",
        "token",
        "accessToken",
        "refresh-token",
        "api_key",
        "apiKey",
        "API-KEY",
        "x-api-key",
        "apikey",
        "authorization",
        "Authorization",
        "secret",
        "client_secret",
        "passphrase",
        "pwd",
        "db_pwd",
        "private_key",
        "credentials",
        "auth",
        "pin",
        "session_cookie",
        "passwort",
        "set-cookie",
        "jwt",
    ] {
        for args in [
            json!({name: SECRET}),
            json!({"login": {name: SECRET}}),
            json!({"logins": [{"a": {name: [SECRET]}}]}),
            json!({"headers": [{"name": name, "value": SECRET}]}),
            json!({"headers": [[name, SECRET]]}),
            json!({"argv": ["tool", format!("--{name}"), SECRET]}),
            json!({"argv": ["tool", format!("--{name}={SECRET}")]}),
            json!({"body": json!({name: SECRET}).to_string()}),
            json!(json!({name: SECRET}).to_string()),
            json!({"url": format!("https://example.com/a?x=1&{name}={SECRET}&y=2")}),
            json!({"line": format!("curl -H '{name}: Bearer {SECRET}' https://example.com")}),
        ] {
            let shown = shown(&args, None);
            assert!(!shown.contains("hunter2"), "{name}: {args} is shown as {shown}");
            assert!(shown.contains(MASK), "{name}: {shown}");
        }
    }
    for args in [
        json!({"url": format!("postgres://ann:{SECRET}@db.example.com/orders")}),
        json!({"note": format!("use Bearer {SECRET} there")}),
    ] {
        assert!(!shown(&args, None).contains("hunter2"), "{args}");
    }
}

#[test]
fn what_is_no_secret_stays_as_it_is() {
    for args in [
        json!({"message": "hello", "to": "ann@example.com", "path": "src/main.rs", "n": 3}),
        json!({"max_tokens": 100, "tokenizer": "bpe", "password_required": true, "author": "ann", "key": "a"}),
        json!({"url": "https://example.com/a?page=2#top", "note": "a bearer of bad news"}),
        json!({"body": "{\"a\": 1}", "argv": ["ls", "-l", "--color=auto"]}),
        json!({"compass": "north", "spin": 2, "passenger": "bob", "cupwdrawer": 1}),
        Value::Null,
    ] {
        let redacted = RedactedArgs::of(args.clone(), &SecretNames::default());
        assert_eq!(redacted.value(), &args);
    }
}

#[test]
fn what_the_schema_declares_as_secret_is_masked() {
    let declared = [
        json!({"properties": {"code": {"writeOnly": true}}}),
        json!({"properties": {"code": {"type": "string", "format": "password"}}}),
        json!({"properties": {"code": {"description": "The password of the account."}}}),
        json!({"properties": {"code": {"$ref": "#/$defs/hidden"}}, "$defs": {"hidden": {"writeOnly": true}}}),
        json!({"properties": {"code": {"anyOf": [{"type": "null"}, {"format": "password"}]}}}),
        json!({"properties": {"code": {"items": {"format": "password"}}}}),
        json!({"anyOf": [{"properties": {"code": {"writeOnly": true}}}]}),
        json!({"additionalProperties": {"writeOnly": true}}),
        json!({"patternProperties": {"^c": {"format": "password"}}}),
    ];
    for schema in declared {
        for args in [json!({"code": SECRET}), json!({"Code": SECRET}), json!({"code": [SECRET]})] {
            let shown = shown(&args, Some(&schema));
            assert!(!shown.contains("hunter2"), "{schema}: {shown}");
        }
    }
    let plain = json!({"properties": {"code": {"description": "A postal code."}, "a": {"$ref": "#"}}});
    assert_eq!(shown(&json!({"code": "12345"}), Some(&plain)), json!({"code": "12345"}).to_string());
}

#[test]
fn a_text_that_is_no_json_is_masked_whole_if_it_may_hold_a_secret() {
    let names = SecretNames::of(Some(&json!({"properties": {"code": {"writeOnly": true}}})));
    for text in [
        "{\"password\": \"hunter2-hunter2\",}",
        "```json\n{\"api-key\": \"hunter2-hunter2\"}\n```",
        "{\"c\\u006fde\": \"hunter2-hunter2\"",
        "{'code': 'hunter2-hunter2'}",
        "{\"pin\": hunter2",
    ] {
        let redacted = RedactedArgs::of_text(text, &names);
        assert!(redacted.is_masked() && !redacted.value().to_string().contains("hunter2"), "{text}");
    }
    let broken = RedactedArgs::of_text("{\"password\": \"hunter2-hunter2\",}", &names);
    assert_eq!(broken.scrub("no hunter2-hunter2"), "no [redacted]", "nor is it told by anybody else");
    assert_eq!(RedactedArgs::of_text("{\"n\": 1,}", &names).value(), &json!("{\"n\": 1,}"));
    // Of two fields with one name the last one counts, and the first one was written all the same.
    let twice = RedactedArgs::of_text(r#"{"password": "hunter2", "password": null}"#, &names);
    assert!(twice.is_masked() && !twice.value().to_string().contains("hunter2"));
}

#[test]
fn a_secret_is_masked_in_the_messages_of_its_call_too() {
    let args = json!({"password": SECRET, "pin": 12345, "cvv": "1"});
    let redacted = RedactedArgs::of(args, &SecretNames::default());
    let message = format!("/password: {SECRET:?} is too short; 12345 is 1 of 2");
    assert_eq!(redacted.scrub(&message), "/password: \"[redacted]\" is too short; [redacted] is 1 of 2");
    let mut value = json!({"message": format!("no {SECRET}"), "more": [SECRET]});
    redacted.scrub_value(&mut value);
    assert!(!value.to_string().contains("hunter2"), "{value}");
}

#[test]
fn schemas_that_refer_in_circles_are_looked_through_once() {
    let circle = json!({
        "properties": {"a": {"$ref": "#/$defs/a"}},
        "$defs": {"a": {"allOf": [{"$ref": "#/$defs/b"}]}, "b": {"anyOf": [{"$ref": "#/$defs/a"}]}},
    });
    assert!(!SecretNames::of(Some(&circle)).has("a"));
    let many: Vec<Value> = (0..100).map(|_| json!({"$ref": "#/$defs/a"})).collect();
    let wide = json!({"properties": {"a": {"anyOf": many.clone()}}, "$defs": {"a": {"anyOf": many}}});
    assert!(!SecretNames::of(Some(&wide)).has("a"));
    let anchored =
        json!({"properties": {"a": {"$ref": "#x"}}, "$defs": {"x": {"$anchor": "x", "writeOnly": true}}});
    assert!(SecretNames::of(Some(&anchored)).has("a"));
    let tree = json!({"properties": {"child": {"$ref": "#"}, "name": {"type": "string"}}});
    assert!(!SecretNames::of(Some(&tree)).has("name"));
}
