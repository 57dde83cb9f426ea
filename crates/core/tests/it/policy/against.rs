//! The compiled policy against the second evaluator, and any JSON against the parser.

use super::{Case, judge, policy, second};
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use serde_json::{Map, Value, json};
use windlass_core::limits::CallLimits;
use windlass_core::policy::{Exposure, Policy};
use windlass_core::tool::{EffectClass, Hints, ToolSource};

/// Texts from few letters, so that globs and prefixes often match.
fn text() -> impl Strategy<Value = String> + Clone {
    select(vec!["a", "b", "ab", "ba", "aab", "abc", ""]).prop_map(str::to_string)
}

fn glob() -> impl Strategy<Value = String> + Clone {
    select(vec!["a", "a*", "*b", "?", "a?", "*", "*a*", "abc", "zz"]).prop_map(str::to_string)
}

fn number() -> impl Strategy<Value = Value> + Clone {
    select(vec![
        json!(0),
        json!(1),
        json!(1.0),
        json!(1.5),
        json!(-2),
        json!(9_007_199_254_740_992_u64),
        json!(9_007_199_254_740_993_u64),
        json!(9_007_199_254_740_992.0),
        json!(u64::MAX),
    ])
}

fn scalar() -> impl Strategy<Value = Value> + Clone {
    prop_oneof![text().prop_map(Value::from), number(), any::<bool>().prop_map(Value::from)]
}

fn value() -> impl Strategy<Value = Value> {
    let one = prop_oneof![4 => scalar(), 1 => Just(Value::Null), 1 => Just(json!({"x": 1})), 1 => Just(json!(["a"]))];
    prop_oneof![3 => one.clone(), 2 => prop::collection::vec(one, 0..4).prop_map(Value::from)]
}

fn one_or_more(one: impl Strategy<Value = String> + Clone) -> impl Strategy<Value = Value> {
    prop_oneof![one.clone().prop_map(Value::from), prop::collection::vec(one, 1..3).prop_map(Value::from)]
}

fn words(known: Vec<&'static str>) -> impl Strategy<Value = Value> {
    let count = known.len();
    subsequence(known, 1..=count).prop_map(|words| json!(words))
}

fn argument() -> impl Strategy<Value = Value> {
    let pointer = select(vec!["/x", "/y", "/y/0", "/z/x"]);
    let range = prop_oneof![
        number().prop_map(|min| json!({ "min": min })),
        number().prop_map(|max| json!({ "max": max })),
        (select(vec![-2, 0, 1]), select(vec![1, 2, 9]))
            .prop_map(|(min, max)| json!({"min": min, "max": max})),
    ];
    let test = prop_oneof![
        scalar().prop_map(|value| ("equals", value)),
        prop::collection::vec(scalar(), 1..3).prop_map(|values| ("one_of", json!(values))),
        text().prop_map(|text| ("prefix", json!(text))),
        glob().prop_map(|glob| ("glob", json!(glob))),
        range.prop_map(|range| ("range", range)),
    ];
    (pointer, test).prop_map(|(pointer, (key, value))| json!({"pointer": pointer, key: value}))
}

fn condition() -> impl Strategy<Value = (&'static str, Value)> {
    let hint = select(vec!["sends_out", "destructive"]);
    let sources = ToolSource::ALL.iter().map(|source| source.as_str()).collect();
    let classes = EffectClass::ALL.iter().map(|class| class.as_str()).collect();
    prop_oneof![
        2 => one_or_more(glob()).prop_map(|globs| ("tool", globs)),
        1 => words(sources).prop_map(|words| ("source", words)),
        1 => one_or_more(glob()).prop_map(|globs| ("server", globs)),
        1 => words(classes).prop_map(|words| ("class", words)),
        1 => (hint, any::<bool>()).prop_map(|(hint, wanted)| ("hints", json!({hint: wanted}))),
        1 => one_or_more(glob()).prop_map(|globs| ("principal", globs)),
        1 => (select(vec!["l", "m"]), one_or_more(glob())).prop_map(|(label, globs)| ("labels", json!({label: globs}))),
        1 => one_or_more(glob()).prop_map(|globs| ("turn", globs)),
        1 => any::<bool>().prop_map(|exposed| ("exposed", json!(exposed))),
        4 => prop::collection::vec(argument(), 1..3).prop_map(|args| ("args", json!(args))),
    ]
}

fn rules() -> impl Strategy<Value = Vec<Value>> {
    let ruling = select(vec!["allow", "ask", "deny"]);
    let rule = (ruling, prop::collection::vec(condition(), 0..3)).prop_map(|(ruling, conditions)| {
        let when: Map<String, Value> =
            conditions.into_iter().map(|(key, value)| (key.to_string(), value)).collect();
        json!({"ruling": ruling, "when": when})
    });
    prop::collection::vec(rule, 0..5).prop_map(|mut rules| {
        for (index, rule) in rules.iter_mut().enumerate() {
            rule["name"] = json!(format!("rule {index}"));
        }
        rules
    })
}

fn case() -> impl Strategy<Value = Case> {
    let maybe = || prop::option::of(text());
    let tool = (text(), text(), select(ToolSource::ALL), maybe(), select(EffectClass::ALL));
    let hints = (any::<Option<bool>>(), any::<Option<bool>>());
    let labels = prop::collection::btree_map(select(vec!["l", "m"]).prop_map(str::to_string), text(), 0..3);
    let args =
        prop::collection::btree_map(select(vec!["x", "y", "z"]).prop_map(str::to_string), value(), 0..4);
    let asks = (prop::bool::weighted(0.1), prop::bool::weighted(0.1), any::<bool>(), any::<bool>());
    (tool, hints, (maybe(), labels, maybe(), args), asks).prop_map(|(tool, hints, call, asks)| Case {
        name: tool.0,
        id: tool.1,
        source: tool.2,
        server: tool.3,
        class: tool.4,
        hints: Hints { sends_out: hints.0, destructive: hints.1, ..Hints::default() },
        principal: call.0,
        labels: call.1,
        turn: call.2,
        args: json!(call.3),
        asks: asks.0,
        tool_asks: asks.1,
        exposure: Exposure { private: asks.2, untrusted: asks.3 },
    })
}

/// JSON made of the words of policies, so that many values get far into the parser.
fn any_json() -> impl Strategy<Value = Value> {
    let word = select(vec![
        "rules", "name", "ruling", "when", "args", "pointer", "equals", "range", "min", "hints", "tool",
        "ask", "/x", "",
    ]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        word.clone().prop_map(Value::from),
        ".{0,9}".prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 64, 6, move |inner| {
        let key = word.clone().prop_map(str::to_string);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(key, inner, 0..5).prop_map(|map| json!(map)),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    #[test]
    fn the_policy_rules_as_the_second_evaluator(rules in rules(), case in case(), turned in 0_usize..5) {
        let compiled = policy(json!(rules));
        let judgement = judge(&compiled, &case);
        let mut by: Vec<String> = judgement.by.iter().map(ToString::to_string).collect();
        by.sort();
        prop_assert_eq!((judgement.ruling, by), second::ruling(&rules, &case));
        let explained = compiled.explain(&case.tool(), &case.call());
        let matched = explained.iter().filter(|report| report.matched && report.ruling == judgement.ruling).count();
        let decided = judgement.by.iter().filter(|by| by.to_string().starts_with("rule ")).count();
        prop_assert_eq!(matched, decided);
        let mut order = rules.clone();
        order.rotate_left(turned.min(rules.len()));
        prop_assert_eq!(judge(&policy(json!(order)), &case).ruling, judgement.ruling);
    }

    #[test]
    fn no_json_makes_the_parser_panic(value in any_json(), rule in any_json(), when in any_json()) {
        let limits = CallLimits::default();
        let whole = [value, json!({"rules": [rule]}), json!({"rules": [{"name": "r", "ruling": "ask", "when": when}]})];
        for value in whole {
            match Policy::parse(&value, &limits) {
                Ok(policy) => prop_assert_eq!(Policy::parse(&policy.to_json(), &limits).unwrap(), policy),
                Err(problem) => prop_assert!(!problem.place.is_empty() && problem.to_string().len() < 600, "{problem}"),
            }
        }
    }
}
