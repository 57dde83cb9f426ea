//! The ruling of a policy on a call: conditions, the strictest ruling, and what is not known.

mod against;
mod mistakes;
#[path = "../../../testkit/src/hostile/second.rs"]
mod second;

use second::PolicyCase as Case;
use serde_json::{Value, json};
use windlass_core::limits::CallLimits;
use windlass_core::policy::{CallFacts, DecidedBy, Exposure, Finding, Judgement, Policy, Ruling, ToolFacts};
use windlass_core::tool::{Hints, ToolSource};

impl Case {
    fn with_args(args: Value) -> Case {
        Case { args, ..Case::default() }
    }

    fn tool(&self) -> ToolFacts<'_> {
        ToolFacts {
            name: &self.name,
            id: &self.id,
            source: self.source,
            server: self.server.as_deref(),
            class: self.class,
            hints: &self.hints,
            asks: self.asks,
        }
    }

    fn call(&self) -> CallFacts<'_> {
        CallFacts {
            principal: self.principal.as_deref(),
            labels: &self.labels,
            turn: self.turn.as_deref(),
            args: &self.args,
            exposure: self.exposure,
            tool_asks: self.tool_asks,
        }
    }
}

fn policy(rules: Value) -> Policy {
    Policy::parse(&json!({ "rules": rules }), &CallLimits::default())
        .unwrap_or_else(|problem| panic!("{problem}"))
}

fn judge(policy: &Policy, case: &Case) -> Judgement {
    policy.for_tool(&case.tool()).judge(&case.call())
}

/// Whether a rule with these conditions matches, for each ruling: `a`llow, as`k`, `d`eny.
fn matching(when: &Value, case: &Case) -> String {
    let of = |(ruling, letter): &(Ruling, char)| {
        let policy = policy(json!([{"name": "r", "ruling": ruling.as_str(), "when": when}]));
        let matched = policy.explain(&case.tool(), &case.call())[0].matched;
        let decided = judge(&policy, case).by.iter().any(|by| by.to_string() == "r");
        assert_eq!(matched, decided, "{when} {case:?}: what is explained is what is decided");
        matched.then_some(*letter)
    };
    [(Ruling::Allow, 'a'), (Ruling::Ask, 'k'), (Ruling::Deny, 'd')].iter().filter_map(of).collect()
}

/// `akd` matches every rule, `kd` is not known, and an empty text matches none.
#[test]
fn each_condition_on_an_argument_with_each_kind_of_value() {
    let kinds = [
        // condition, matching, not matching, wrongly typed
        (json!({"equals": "x"}), json!("x"), json!("y"), json!(1)),
        (json!({"equals": 7}), json!(7.0), json!(8), json!("7")),
        (json!({"equals": true}), json!(true), json!(false), json!("true")),
        (json!({"one_of": ["x", 7]}), json!(7), json!("y"), json!(false)),
        (json!({"prefix": "/etc/"}), json!("/etc/passwd"), json!("/etc"), json!(["/etc/x"])),
        (json!({"glob": "*.ex?"}), json!("a/b.exe"), json!("a.ex"), json!({"a": 1})),
        (json!({"range": {"min": 1, "max": 9.5}}), json!(9.5), json!(9.6), json!("5")),
        (json!({"range": {"min": 1}}), json!(1), json!(0.9), json!(true)),
        (
            json!({"range": {"max": 9_007_199_254_740_992_u64}}),
            json!(1),
            json!(9_007_199_254_740_993_u64),
            json!("1"),
        ),
    ];
    for (mut condition, yes, no, mistyped) in kinds {
        condition["pointer"] = json!("/v");
        let when = json!({ "args": [condition] });
        for (name, args, expected) in [
            ("matching", json!({"v": yes}), "akd"),
            ("not matching", json!({"v": no}), ""),
            ("absent", json!({"w": yes}), "kd"),
            ("absent in null", json!(null), "kd"),
            ("null", json!({"v": null}), "kd"),
            ("wrongly typed in an array", json!({"v": [mistyped]}), "kd"),
            ("an object", json!({"v": {"v": yes}}), "kd"),
            ("all of an array", json!({"v": [yes, yes]}), "akd"),
            ("one of an array", json!({"v": [no, yes]}), "kd"),
            ("none of an array", json!({"v": [no, no]}), ""),
            ("an empty array", json!({"v": []}), ""),
            ("one of an array is mistyped", json!({"v": [yes, mistyped]}), "kd"),
            ("one of an array is null", json!({"v": [no, null]}), "kd"),
        ] {
            assert_eq!(matching(&when, &Case::with_args(args)), expected, "{name}: {when}");
        }
        if !mistyped.is_array() {
            assert_eq!(
                matching(&when, &Case::with_args(json!({"v": mistyped}))),
                "kd",
                "wrongly typed: {when}"
            );
        }
    }
}

#[test]
fn pointers_reach_into_objects_and_arrays() {
    let when = |pointer: &str| json!({"args": [{"pointer": pointer, "equals": 1}]});
    let args = json!({"a": {"b/c": {"~": 1}}, "list": [{"n": 2}, {"n": 1}], "": 1});
    for (pointer, expected) in [
        ("/a/b~1c/~0", "akd"),
        ("/list/1/n", "akd"),
        ("/list/0/n", ""),
        ("/list/01/n", "kd"),
        ("/list/+1/n", "kd"),
        ("/list/-/n", "kd"),
        ("/list/2/n", "kd"),
        ("/", "akd"),
        ("/a/b~1c/~0/x", "kd"),
    ] {
        assert_eq!(matching(&when(pointer), &Case::with_args(args.clone())), expected, "{pointer}");
    }
}

#[test]
fn conditions_on_the_tool() {
    let of = |when: Value, case: &Case| matching(&when, case);
    let case = Case { server: Some("github".to_string()), source: ToolSource::Mcp, ..Case::default() };
    for (when, expected) in [
        (json!({"tool": "send"}), "akd"),
        (json!({"tool": "mail.*"}), "akd"),
        (json!({"tool": ["read", "se?d"]}), "akd"),
        (json!({"tool": "Send"}), ""),
        (json!({"source": "mcp"}), "akd"),
        (json!({"source": ["built_in", "toolbox"]}), ""),
        (json!({"server": "git*"}), "akd"),
        (json!({"server": "gitlab"}), ""),
        (json!({"class": ["once", "keyed"]}), "akd"),
        (json!({"class": "read"}), ""),
        (json!({"tool": "send", "class": "read"}), ""),
        (json!({}), "akd"),
    ] {
        assert_eq!(of(when.clone(), &case), expected, "{when}");
    }
    let local = Case::default();
    assert_eq!(of(json!({"server": "*"}), &local), "", "a tool of no server is certainly not of this one");
}

#[test]
fn conditions_on_hints_treat_unset_as_unknown() {
    for name in Hints::default().table().map(|(name, _)| name) {
        let with = |value: Option<bool>| {
            let mut hints = Hints::default();
            *match name {
                "read_only" => &mut hints.read_only,
                "destructive" => &mut hints.destructive,
                "idempotent" => &mut hints.idempotent,
                "open_world" => &mut hints.open_world,
                "requires_secrets" => &mut hints.requires_secrets,
                "long_running" => &mut hints.long_running,
                "reads_private" => &mut hints.reads_private,
                "ingests_untrusted" => &mut hints.ingests_untrusted,
                "sends_out" => &mut hints.sends_out,
                other => panic!("the hint {other} is not tested"),
            } = value;
            Case { hints, ..Case::default() }
        };
        for (wanted, stated, expected) in [
            (true, Some(true), "akd"),
            (true, Some(false), ""),
            (true, None, "kd"),
            (false, Some(true), ""),
            (false, Some(false), "akd"),
            (false, None, "kd"),
        ] {
            let when = json!({"hints": {name: wanted}});
            assert_eq!(matching(&when, &with(stated)), expected, "{when} {stated:?}");
        }
    }
}

#[test]
fn conditions_on_the_caller_and_the_session() {
    let unknown = Case::default();
    let known = Case {
        principal: Some("alice".to_string()),
        labels: [("env".to_string(), "prod-eu".to_string())].into(),
        turn: Some("t-9".to_string()),
        ..Case::default()
    };
    for (when, of_known) in [
        (json!({"principal": ["bob", "al*"]}), "akd"),
        (json!({"principal": "bob"}), ""),
        (json!({"labels": {"env": "prod-*"}}), "akd"),
        (json!({"labels": {"env": ["dev", "test"]}}), ""),
        (json!({"labels": {"env": "prod-*", "team": "x"}}), "kd"),
        (json!({"turn": "t-?"}), "akd"),
        (json!({"turn": "t"}), ""),
    ] {
        assert_eq!(matching(&when, &known), of_known, "{when}");
        assert_eq!(matching(&when, &unknown), "kd", "{when}");
    }
    for (private, untrusted) in [(false, false), (true, false), (false, true), (true, true)] {
        let case = Case { exposure: Exposure { private, untrusted }, ..Case::default() };
        let both = private && untrusted;
        assert_eq!(matching(&json!({"exposed": true}), &case), if both { "akd" } else { "" });
        assert_eq!(matching(&json!({"exposed": false}), &case), if both { "" } else { "akd" });
    }
}

#[test]
fn the_strictest_wins_in_any_order() {
    let rule = |name: &str, ruling: &str| json!({"name": name, "ruling": ruling});
    let (allow, ask, ask_too, deny) =
        (rule("a", "allow"), rule("k", "ask"), rule("l", "ask"), rule("d", "deny"));
    for (rules, ruling, by) in [
        (vec![&allow], Ruling::Allow, "a"),
        (vec![&allow, &ask], Ruling::Ask, "k"),
        (vec![&ask, &allow, &ask_too], Ruling::Ask, "k l"),
        (vec![&ask, &deny, &allow], Ruling::Deny, "d"),
    ] {
        for shift in 0..rules.len() {
            let mut order = rules.clone();
            order.rotate_left(shift);
            let judgement = judge(&policy(json!(order)), &Case::default());
            let mut names: Vec<String> = judgement.by.iter().map(DecidedBy::to_string).collect();
            names.sort();
            assert_eq!((judgement.ruling, names.join(" ").as_str()), (ruling, by));
        }
    }
}

#[test]
fn without_a_matching_rule_only_tools_of_mcp_servers_ask() {
    let nothing = policy(json!([{"name": "other", "ruling": "deny", "when": {"tool": "other"}}]));
    for source in ToolSource::ALL {
        let judgement = judge(&nothing, &Case { source: *source, ..Case::default() });
        if *source == ToolSource::Mcp {
            assert_eq!((judgement.ruling, judgement.by), (Ruling::Ask, vec![DecidedBy::Default]));
            assert_eq!(judgement.on_expiry, Ruling::Deny);
        } else {
            assert_eq!((judgement.ruling, judgement.by), (Ruling::Allow, vec![]), "{source}");
        }
    }
    let allowed = policy(json!([{"name": "mine", "ruling": "allow", "when": {"server": "github"}}]));
    let case = Case { source: ToolSource::Mcp, server: Some("github".to_string()), ..Case::default() };
    assert_eq!(judge(&allowed, &case).ruling, Ruling::Allow, "a rule replaces the default");
}

#[test]
fn the_tool_itself_is_one_more_rule_that_asks() {
    let (always, now) = (Case { asks: true, ..Case::default() }, Case { tool_asks: true, ..Case::default() });
    for case in [always, now] {
        let with = |rules| judge(&policy(rules), &case);
        assert_eq!((with(json!([])).ruling, with(json!([])).by), (Ruling::Ask, vec![DecidedBy::Tool]));
        let allowed = with(json!([{"name": "a", "ruling": "allow"}]));
        assert_eq!(
            (allowed.ruling, allowed.by),
            (Ruling::Ask, vec![DecidedBy::Tool]),
            "no rule answers for a person"
        );
        let lenient = with(json!([{"name": "k", "ruling": "ask", "on_expiry": "allow"}]));
        assert_eq!((lenient.by.len(), lenient.on_expiry), (2, Ruling::Deny), "the tool did not say allow");
        let denied = with(json!([{"name": "d", "ruling": "deny"}]));
        assert_eq!((denied.ruling, denied.by.len()), (Ruling::Deny, 1));
        assert_eq!(denied.by[0].to_string(), "d");
    }
}

#[test]
fn an_ask_is_as_strict_as_its_strictest_rule() {
    let plain =
        json!({"name": "plain", "ruling": "ask", "expires_ms": 500, "on_expiry": "allow", "reason": "first"});
    let careful =
        json!({"name": "careful", "ruling": "ask", "expires_ms": 100, "four_eyes": true, "reason": "second"});
    let exposed =
        json!({"name": "exposed", "ruling": "ask", "when": {"exposed": true}, "on_expiry": "allow"});
    let allowed = json!({"name": "allowed", "ruling": "allow", "reason": "never shown"});
    let case = Case { exposure: Exposure { private: true, untrusted: true }, ..Case::default() };
    let of = |rules: &[&Value]| {
        let judgement = judge(&policy(json!(rules)), &case);
        assert_eq!(judgement.ruling, Ruling::Ask);
        (
            judgement.four_eyes,
            judgement.untrusted,
            judgement.expires_ms,
            judgement.on_expiry,
            judgement.reason,
        )
    };
    let text = |text: &str| Some(text.to_string());
    assert_eq!(of(&[&allowed, &plain]), (false, false, Some(500), Ruling::Allow, text("first")));
    assert_eq!(of(&[&plain, &careful]), (true, false, Some(100), Ruling::Deny, text("first")));
    assert_eq!(of(&[&careful, &plain, &exposed]), (true, true, Some(100), Ruling::Deny, text("second")));
    assert_eq!(of(&[&exposed]), (false, true, None, Ruling::Allow, None));
    let denied = json!({"name": "no", "ruling": "deny", "reason": "never"});
    let judgement = judge(&policy(json!([plain, careful, denied])), &case);
    assert_eq!((judgement.ruling, judgement.reason), (Ruling::Deny, text("never")));
    assert!(!judgement.four_eyes && judgement.expires_ms.is_none(), "nobody is asked");
}

#[test]
fn what_a_session_has_read_decides_before_something_leaves() {
    let template = policy(json!([
        {"name": "nothing private leaves", "ruling": "ask", "when": {"exposed": true, "hints": {"sends_out": true}}}
    ]));
    let case = |sends_out, private, untrusted| Case {
        hints: Hints { sends_out, ..Hints::default() },
        exposure: Exposure { private, untrusted },
        ..Case::default()
    };
    for (case, asks) in [
        (case(Some(true), true, true), true),
        (case(None, true, true), true),
        (case(Some(false), true, true), false),
        (case(Some(true), true, false), false),
        (case(Some(true), false, true), false),
    ] {
        let judgement = judge(&template, &case);
        assert_eq!((judgement.ruling == Ruling::Ask, judgement.untrusted), (asks, asks), "{case:?}");
    }
}

#[test]
fn an_explanation_names_each_condition_and_never_the_arguments() {
    let policy = policy(json!([
        {"name": "no secrets", "ruling": "deny", "when": {"tool": ["send", "post"], "hints": {"sends_out": true},
            "labels": {"env": "prod"}, "args": [{"pointer": "/to", "prefix": "evil"}, {"pointer": "/n", "range": {"min": 2}}]}},
        {"name": "all", "ruling": "allow"},
    ]));
    let case = Case {
        labels: [("env".to_string(), "dev".to_string())].into(),
        ..Case::with_args(json!({"to": 5, "n": 2}))
    };
    let reports = policy.explain(&case.tool(), &case.call());
    let lines: Vec<String> = reports[0]
        .conditions
        .iter()
        .map(|c| format!("{} | {} | {} | {}", c.place, c.condition, c.finding, c.holds))
        .collect();
    assert_eq!(
        lines,
        [
            r#"when.tool | the tool is "send" or "post" | matches | true"#,
            "when.hints.sends_out | the tool's hint sends_out is true | absent | true",
            r#"when.labels.env | the session's label "env" is "prod" | differs | false"#,
            r#"when.args[0] | the argument "/to" begins with "evil" | mistyped | true"#,
            r#"when.args[1] | the argument "/n" is at least 2 | matches | true"#,
        ]
    );
    assert!(!reports[0].matched && reports[1].matched && reports[1].conditions.is_empty());
    assert!(Finding::Absent.holds(Ruling::Ask) && !Finding::Absent.holds(Ruling::Allow));
}

#[test]
fn a_policy_is_written_as_it_was_read() {
    let written = json!({"rules": [
        {"name": "a", "ruling": "allow", "when": {"tool": "x", "args": [{"pointer": "/n", "range": {"min": 18_446_744_073_709_551_615_u64}}]}},
        {"name": "b", "ruling": "ask", "four_eyes": true, "expires_ms": 5, "reason": "r", "on_expiry": "deny"},
    ]});
    let policy = Policy::parse(&written, &CallLimits::default()).unwrap();
    assert_eq!(policy.to_json(), written);
    assert_eq!(Policy::parse(&policy.to_json(), &CallLimits::default()).unwrap(), policy);
    assert!(Policy::parse(&json!({}), &CallLimits::default()).unwrap().is_empty());
    let both = Policy::joined([&policy, &policy]);
    assert_eq!(both.rules().map(|rule| &*rule.name).collect::<Vec<_>>(), ["a", "b", "a", "b"]);
    let digests: Vec<_> = policy.rules().map(|rule| rule.digest).collect();
    assert_ne!(digests[0], digests[1]);
}
