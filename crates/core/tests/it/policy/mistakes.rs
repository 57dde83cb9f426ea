//! Messages about mistakes in a policy: the place, what is wrong, and what to write instead.

use serde_json::{Value, json};
use windlass_core::limits::CallLimits;
use windlass_core::policy::Policy;

fn problem(policy: Value) -> String {
    Policy::parse(&policy, &CallLimits::default()).expect_err("a mistake").to_string()
}

/// A policy whose second rule has these keys beside a name and a ruling.
fn in_rule(ruling: &str, mut keys: Value) -> String {
    keys["name"] = json!("second");
    keys["ruling"] = json!(ruling);
    problem(json!({"rules": [{"name": "first", "ruling": "allow"}, keys]}))
}

#[test]
fn every_mistake_names_its_place_and_what_to_write() {
    let when = |when: Value| in_rule("ask", json!({ "when": when }));
    let arg = |condition: Value| when(json!({"args": [{"pointer": "/a", "equals": 1}, condition]}));
    let problems = [
        problem(json!([])),
        problem(json!({"rule": []})),
        problem(json!({"rules": {}})),
        problem(json!({"rules": ["deny"]})),
        problem(json!({"rules": [{"ruling": "deny"}]})),
        problem(json!({"rules": [{"name": "x"}]})),
        problem(json!({"rules": [{"name": " ", "ruling": "deny"}]})),
        problem(json!({"rules": [{"name": "a\nb", "ruling": "deny"}]})),
        problem(json!({"rules": [{"name": "x", "ruling": "block"}]})),
        problem(json!({"rules": [{"name": "x", "ruling": "deny"}, {"name": "x", "ruling": "ask"}]})),
        in_rule("deny", json!({"four_eyes": true})),
        in_rule("ask", json!({"four_eyes": true, "on_expiry": "allow"})),
        in_rule("ask", json!({"on_expiry": "ask"})),
        in_rule("ask", json!({"expires_ms": 0})),
        in_rule("ask", json!({"expires_ms": 1.5})),
        in_rule("ask", json!({"resaon": "typo"})),
        in_rule("ask", json!({"reason": "x".repeat(2000)})),
        when(json!({"tools": "x"})),
        when(json!({"tool": 7})),
        when(json!({"tool": []})),
        when(json!({"tool": ["a", 7]})),
        when(json!({"source": ["mcp", "MCP"]})),
        when(json!({"class": "write"})),
        when(json!({"hints": {"destructive": "yes"}})),
        when(json!({"hints": {"colour": true}})),
        when(json!({"hints": {}})),
        when(json!({"labels": {"env": 1}})),
        when(json!({"exposed": "true"})),
        when(json!({"args": {"pointer": "/x"}})),
        arg(json!({"equals": 1})),
        arg(json!({"pointer": "path", "equals": 1})),
        arg(json!({"pointer": "", "equals": 1})),
        arg(json!({"pointer": "/x"})),
        arg(json!({"pointer": "/x", "equals": 1, "prefix": "a"})),
        arg(json!({"pointer": "/x", "equals": null})),
        arg(json!({"pointer": "/x", "one_of": ["a", {}]})),
        arg(json!({"pointer": "/x", "prefix": 1})),
        arg(json!({"pointer": "/x", "range": {"min": "1"}})),
        arg(json!({"pointer": "/x", "range": {"min": 2, "max": 1}})),
        arg(json!({"pointer": "/x", "range": {}})),
    ];
    insta::assert_snapshot!(problems.join("\n"));
}

#[test]
fn limits_hold_and_are_named() {
    let limits = CallLimits {
        policy_rules_max: 2,
        policy_conditions_max: 2,
        policy_values_max: 2,
        policy_text_bytes_max: 5,
        policy_ask_ms_max: 10,
        ..CallLimits::default()
    };
    let rule = |name: &str| json!({"name": name, "ruling": "ask"});
    let with = |when: Value| json!({"rules": [{"name": "r", "ruling": "ask", "when": when}]});
    let condition = json!({"pointer": "/x", "equals": 1});
    for (fits, exceeds, limit) in [
        (
            json!({"rules": [rule("a"), rule("b")]}),
            json!({"rules": [rule("a"), rule("b"), rule("c")]}),
            "policy_rules_max",
        ),
        (
            with(json!({"args": [condition, condition]})),
            with(json!({"tool": "x", "args": [condition, condition]})),
            "policy_conditions_max",
        ),
        (
            with(json!({"tool": "x", "labels": {"a": "x"}})),
            with(json!({"labels": {"a": "x", "b": "x", "c": "x"}})),
            "policy_conditions_max",
        ),
        (with(json!({"tool": ["a", "b"]})), with(json!({"tool": ["a", "b", "c"]})), "policy_values_max"),
        (with(json!({"tool": "abcde"})), with(json!({"tool": "abcdef"})), "policy_text_bytes_max"),
        (
            with(json!({"labels": {"abcde": "x"}})),
            with(json!({"labels": {"abcdef": "x"}})),
            "policy_text_bytes_max",
        ),
        (
            json!({"rules": [{"name": "r", "ruling": "ask", "expires_ms": 10}]}),
            json!({"rules": [{"name": "r", "ruling": "ask", "expires_ms": 11}]}),
            "policy_ask_ms_max",
        ),
    ] {
        assert!(Policy::parse(&fits, &limits).is_ok(), "{fits}");
        let problem = Policy::parse(&exceeds, &limits).expect_err("too much").to_string();
        assert!(problem.contains(limit), "{problem}");
    }
}
