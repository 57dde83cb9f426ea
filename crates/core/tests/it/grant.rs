//! Grants: which calls are within their terms, and copies that are never wider, against a second implementation.

mod naive;

use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};
use windlass_core::attempt::{RetryRule, Rules};
use windlass_core::grant::{
    GrantCheck, GrantId, GrantMismatch, GrantNarrowing, GrantProblem, GrantTerms, GrantToken, GrantedTool,
};
use windlass_core::limits::CallLimits;
use windlass_core::time::Timestamp;
use windlass_core::tool::{Digest, EffectClass, ToolSource};

fn check(terms: GrantTerms) -> GrantCheck {
    GrantCheck::new(terms, &CallLimits::default()).unwrap()
}

fn terms(tool: &str, args: Value) -> GrantTerms {
    let args = args.as_array().unwrap().clone();
    GrantTerms { tool: tool.into(), args, ..GrantTerms::default() }
}

const CONTRACT: Digest = Digest([7; 32]);

fn send() -> GrantedTool<'static> {
    GrantedTool { name: "send", id: "mail.send", source: ToolSource::Registered, contract: &CONTRACT }
}

#[test]
fn a_call_is_within_the_terms_by_tool_source_contract_and_arguments() {
    let args = json!([{"pointer": "/to", "prefix": "a"}, {"pointer": "/n", "range": {"max": 3}}]);
    let permits = |terms: GrantTerms, args: Value| check(terms).permits(&send(), &args);
    let fits = json!({"to": ["ann", "al"], "n": 3});
    assert_eq!(permits(terms("send", args.clone()), fits.clone()), Ok(()));
    assert_eq!(permits(terms("mail.send", args.clone()), fits.clone()), Ok(()));
    assert_eq!(permits(terms("Send", args.clone()), fits.clone()), Err(GrantMismatch::Tool));
    for (given, condition) in [
        (json!({"to": ["ann", "bob"], "n": 3}), "the argument \"/to\" begins with \"a\""),
        (json!({"to": [], "n": 3}), "the argument \"/to\" begins with \"a\""),
        (json!({"n": 3}), "the argument \"/to\" begins with \"a\""),
        (json!({"to": "ann", "n": "3"}), "the argument \"/n\" is at most 3"),
    ] {
        let condition = condition.to_string();
        assert_eq!(permits(terms("send", args.clone()), given), Err(GrantMismatch::Argument { condition }));
    }
    let with = |source: Option<&str>, contract: Option<String>| GrantTerms {
        source: source.map(Into::into),
        contract,
        ..terms("send", json!([]))
    };
    assert_eq!(permits(with(Some("registered"), Some(CONTRACT.whole())), json!({})), Ok(()));
    assert_eq!(permits(with(Some("mcp"), None), json!({})), Err(GrantMismatch::Changed));
    assert_eq!(permits(with(None, Some(Digest([8; 32]).whole())), json!({})), Err(GrantMismatch::Changed));
}

#[test]
fn an_id_is_a_hash_of_the_token_and_a_token_is_not_shown() {
    let token = GrantToken::new(&[3; 32]);
    let id = GrantId::of(&token);
    assert_eq!(GrantId::parse(&id.to_string()), Some(id));
    assert_eq!(GrantId::of(&GrantToken::given(token.reveal())), id);
    assert_ne!(GrantId::of(&GrantToken::given(id.to_string())), id);
    assert_eq!(format!("{token:?}"), "GrantToken(…)");
    for bad in ["", "0", &"g".repeat(32), &"+1".repeat(16), &"é".repeat(16)] {
        assert_eq!(GrantId::parse(bad), None, "{bad}");
    }
}

#[test]
fn a_grant_expires_and_has_its_own_retry_rule() {
    let retry = Some(RetryRule { attempts: Some(7), base_ms: Some(90_000), cap_ms: None });
    let grant = check(GrantTerms { expires_at: Some(10), retry, ..terms("send", json!([])) });
    assert!(!grant.has_expired(Timestamp(9)) && grant.has_expired(Timestamp(10)));
    let of_tool = Rules::unsaid(EffectClass::Keyed);
    let rules = grant.rules(of_tool);
    assert_eq!(rules, Rules { attempts: 7, base_ms: 90_000, cap_ms: 90_000, ..of_tool });
    assert_eq!(check(terms("send", json!([]))).rules(of_tool), of_tool);
}

#[test]
fn terms_that_cannot_be_are_refused() {
    let limits = CallLimits::default();
    let refused = |terms: GrantTerms| GrantCheck::new(terms, &limits).unwrap_err();
    let plain = || terms("send", json!([]));
    assert!(matches!(refused(terms(" ", json!([]))), GrantProblem::Tool { .. }));
    assert!(matches!(refused(terms(&"x".repeat(2_000), json!([]))), GrantProblem::Tool { .. }));
    assert!(matches!(refused(terms("send", json!([{"pointer": "x"}]))), GrantProblem::Args(_)));
    for uses in [0, 10_001] {
        assert!(matches!(refused(GrantTerms { uses: Some(uses), ..plain() }), GrantProblem::Uses { .. }));
    }
    let never = Some(RetryRule { attempts: Some(0), ..RetryRule::default() });
    assert_eq!(refused(GrantTerms { retry: never, ..plain() }), GrantProblem::Retry);
    assert_eq!(refused(GrantTerms { contract: Some("z".repeat(64)), ..plain() }), GrantProblem::Contract);
}

fn condition() -> impl Strategy<Value = Value> {
    let test = prop_oneof![
        select(vec!["a", "b", "ab"]).prop_map(|text| ("prefix", json!(text))),
        select(vec!["a*", "*b", "?"]).prop_map(|glob| ("glob", json!(glob))),
        select(vec![json!("a"), json!(1), json!(true)]).prop_map(|value| ("equals", value)),
        select(vec![json!(["a", "ab"]), json!([1, 2])]).prop_map(|values| ("one_of", values)),
        select(vec![json!({"min": 1}), json!({"max": 2}), json!({"min": 0, "max": 1})])
            .prop_map(|range| ("range", range)),
    ];
    let pointer = select(vec!["/x", "/y", "/y/0"]);
    (pointer, test).prop_map(|(pointer, (key, value))| json!({"pointer": pointer, key: value}))
}

fn any_terms() -> impl Strategy<Value = GrantTerms> {
    let maybe = |values: Vec<&'static str>| prop::option::of(select(values).prop_map(str::to_string));
    let numbers = (prop::option::of(0_i64..4), prop::option::of(1_u64..4));
    let contract = prop::option::of(select(vec![CONTRACT.whole(), Digest([8; 32]).whole()]));
    let binding = prop::option::of(select(vec![json!(1), json!("b")]));
    let retry =
        prop::option::of((1_u32..3).prop_map(|n| RetryRule { attempts: Some(n), ..RetryRule::default() }));
    let fixed =
        (select(vec!["send", "mail.send"]), maybe(vec!["registered", "mcp"]), contract, binding, retry);
    (fixed, prop::collection::vec(condition(), 0..3), numbers).prop_map(|(fixed, args, numbers)| GrantTerms {
        tool: fixed.0.into(),
        source: fixed.1,
        contract: fixed.2,
        binding: fixed.3,
        retry: fixed.4,
        args,
        expires_at: numbers.0,
        uses: numbers.1,
    })
}

fn any_args() -> impl Strategy<Value = Value> {
    let one = select(vec![json!("a"), json!("ab"), json!("b"), json!(1), json!(2), json!(true), Value::Null]);
    let value = prop_oneof![3 => one.clone(), 1 => prop::collection::vec(one, 0..3).prop_map(Value::from)];
    prop::collection::btree_map(select(vec!["x", "y"]), value, 0..3).prop_map(|map| json!(map))
}

/// A copy of a grant, or terms that have nothing to do with it.
fn pairs() -> impl Strategy<Value = (GrantTerms, GrantTerms)> {
    let mixed = (any_terms(), any_terms(), any::<[bool; 8]>()).prop_map(|(parent, other, own)| {
        let mut copy = parent.clone();
        let GrantTerms { tool, source, contract, binding, args, expires_at, uses, retry } = other;
        if own[0] {
            copy.tool = tool
        }
        if own[1] {
            copy.source = source
        }
        if own[2] {
            copy.contract = contract
        }
        if own[3] {
            copy.binding = binding
        }
        if own[4] {
            copy.args = args
        } else {
            copy.args.extend(args)
        }
        if own[5] {
            copy.expires_at = expires_at
        }
        if own[6] {
            copy.uses = uses
        }
        if own[7] {
            copy.retry = retry
        }
        (parent, copy)
    });
    prop_oneof![mixed, (any_terms(), any_terms())]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn within_is_what_the_second_implementation_says(pair in pairs(), args in any_args(), now in 0_i64..5) {
        let (parent, copy) = pair;
        let (outer, inner) = (check(parent.clone()), check(copy.clone()));
        let is_within = inner.is_within(&outer);
        prop_assert_eq!(is_within, naive::is_within(&copy, &parent));
        // Whatever a copy permits, its grant permits.
        let admits = |grant: &GrantCheck| {
            !grant.has_expired(Timestamp(now)) && grant.permits(&send(), &args).is_ok()
        };
        prop_assert_eq!(admits(&inner), naive::admits(&copy, &args, now));
        prop_assert!(!is_within || !admits(&inner) || admits(&outer), "{:?} allows more than {:?}", copy, parent);
    }

    #[test]
    fn a_narrowed_grant_is_within_what_it_was_made_of(
        parent in any_terms(),
        more in prop::collection::vec(condition(), 0..3),
        expires_at in prop::option::of(0_i64..5),
        uses in prop::option::of(1_u64..5),
        left in 0_u64..4,
    ) {
        let grant = check(parent.clone());
        let left = parent.uses.map(|uses| left.min(uses));
        let by = GrantNarrowing { args: more.clone(), expires_at, uses };
        match grant.narrowed(&by, left, &CallLimits::default()) {
            Ok(copy) => {
                prop_assert!(copy.is_within(&grant) && naive::is_within(copy.terms(), &parent));
                prop_assert!(more.iter().all(|condition| copy.terms().args.contains(condition)));
                prop_assert!(left.is_none_or(|left| copy.terms().uses.is_some_and(|uses| uses <= left)));
            }
            Err(GrantProblem::Later) => prop_assert!(expires_at > parent.expires_at && parent.expires_at.is_some()),
            Err(GrantProblem::MoreUses { left: most }) => {
                prop_assert!(Some(most) == left && uses.is_none_or(|uses| uses > most));
            }
            Err(problem) => prop_assert!(false, "{}", problem),
        }
    }
}
