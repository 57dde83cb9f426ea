//! Claims: reading them, what covers and collides with what, and claims made from arguments.

use serde_json::{Value, json};
use windlass_core::claim::{Claim, ClaimTemplate, Claims};
use windlass_core::limits::CallLimits;
use windlass_core::tool::EffectClass;

fn claim(text: &str) -> Claim {
    Claim::parse(text, &CallLimits::default()).unwrap()
}

fn error(text: &str) -> String {
    Claim::parse(text, &CallLimits::default()).unwrap_err().to_string()
}

fn claims(texts: &[&str]) -> Claims {
    Claims::parse(texts.iter().copied(), &CallLimits::default()).unwrap()
}

#[test]
fn a_claim_is_read_and_written_as_text() {
    for text in
        ["read file:/src/a.rs", "write service:billing", "write global:deploy/eu", "read file:/a b.txt"]
    {
        assert_eq!(claim(text).to_string(), text);
    }
    assert_eq!(claim("write").to_string(), "write the session");
    assert_eq!(claim("read file:/src/a.rs").name.levels().collect::<Vec<_>>(), ["file:", "src", "a.rs"]);
}

#[test]
fn what_is_no_claim_is_refused_with_what_to_do() {
    let check = |text: &str, expected: &str| {
        let error = error(text);
        assert!(error.contains(expected), "{text:?}: {error}");
    };
    check("", "begins with `read` or `write`");
    check("delete file:/a", "begins with `read` or `write`");
    check("write ", "empty level");
    check("write /a", "empty level");
    check("write file:/", "to claim all of `file:`, name `file:`");
    check("write file:/a//b", "one `/` between levels");
    check("write file:/a/../b", "name the place itself");
    check("write file:/./b", "name the place itself");
    check("write a\u{7}", "printable");
    check(&format!("write {}", "a".repeat(1_025)), "bytes in a claim name up to 1024; this one has 1025");
    check(&format!("write a{}", "/a".repeat(32)), "levels in a claim name up to 32; this one has 33");
    let many: Vec<String> = (0..65).map(|n| format!("read n{n}")).collect();
    let many = Claims::parse(many.iter().map(String::as_str), &CallLimits::default());
    assert!(many.unwrap_err().to_string().contains("claims up to 64; this one has 65"));
    // Dots within a level are text.
    claim("write file:/a..b/...");
}

#[test]
fn a_name_covers_what_is_below_it() {
    let check = |upper: &str, lower: &str| claim(upper).covers(&claim(lower));
    for (upper, lower) in [
        ("write a", "write a"),
        ("write a", "write a/b"),
        ("write a", "read a/b/c"),
        ("read a", "read a/b"),
        ("write", "write a"),
        ("write", "read"),
        ("write global:a", "write global:a/b"),
    ] {
        assert!(check(upper, lower), "{upper} covers {lower}");
    }
    for (upper, lower) in [
        ("write a/b", "write a"),
        ("write a", "write ab"),
        ("read a", "write a"),
        ("write a", "write"),
        ("write", "read global:a"),
        ("write global:a", "read a"),
        ("write global:", "read global:a"),
    ] {
        assert!(!check(upper, lower), "{upper} does not cover {lower}");
    }
}

#[test]
fn claims_collide_where_one_writes_what_the_other_uses() {
    let check = |left: &str, right: &str| {
        let (left, right) = (claim(left), claim(right));
        assert_eq!(left.conflicts(&right), right.conflicts(&left));
        left.conflicts(&right)
    };
    assert!(check("write a", "read a/b") && check("read a", "write a/b") && check("write", "read a"));
    assert!(
        !check("read a", "read a/b") && !check("write a/b", "write a/c") && !check("write a", "write ab")
    );
    assert!(!check("write", "write global:a") && check("write global:a", "read global:a/b"));
}

#[test]
fn claims_are_kept_without_those_that_another_covers() {
    let check = |texts: &[&str], expected: &str| assert_eq!(format!("{:?}", claims(texts)), expected);
    check(&[], "[]");
    check(&["read a/b", "write a", "read a"], r#"["write a"]"#);
    check(&["write a/b", "read a"], r#"["read a", "write a/b"]"#);
    check(&["read b", "read a", "read b"], r#"["read a", "read b"]"#);
    check(&["read a", "write", "write global:x"], r#"["write the session", "write global:x"]"#);
    assert_eq!(claims(&["read"]), Claims::of(EffectClass::Read));
    assert_eq!(claims(&["write"]), Claims::of(EffectClass::Once));
    assert!(Claims::NONE.is_empty() && !Claims::of(EffectClass::Keyed).is_empty());
}

#[test]
fn what_lies_outside_the_claims_around_is_named() {
    let outer = claims(&["write a", "read b"]);
    let check = |texts: &[&str]| outer.uncovered(&claims(texts)).map(|claim| claim.to_string());
    assert_eq!(check(&["write a/x", "read b/y", "read a"]), None);
    assert_eq!(check(&["write a/x", "write b/y"]), Some("write b/y".to_string()));
    assert_eq!(check(&["read"]), Some("read the session".to_string()));
    assert!(outer.conflict(&claims(&["read a/x"])) && !outer.conflict(&claims(&["read b", "write c"])));
}

fn made(template: &str, args: Value) -> String {
    let limits = CallLimits::default();
    match ClaimTemplate::parse(template, &limits).unwrap().claim(&args, &limits) {
        Ok(claim) => claim.to_string(),
        Err(problem) => format!("refused: {problem}"),
    }
}

#[test]
fn a_template_is_filled_from_the_arguments() {
    let check = |template: &str, args: Value, expected: &str| assert_eq!(made(template, args), expected);
    check("write service:{service}", json!({"service": "billing"}), "write service:billing");
    check("write service:{service}", json!({"service": "a/b%"}), "write service:a%2Fb%25");
    check("read n:{n}-{b}", json!({"n": 7, "b": true}), "read n:7-true");
    check("write", json!({}), "write the session");
    check("read file:/{path}", json!({"path": "src/a.rs"}), "read file:/src/a.rs");
    check("read file:/{path}", json!({"path": "/src//./x/../a.rs/"}), "read file:/src/a.rs");
    check("read file:/{path}", json!({"path": "."}), "read file:");
    check("read file:/{dir}/{file}", json!({"dir": "a/b", "file": "c"}), "read file:/a/b/c");
    check("write {not a property}/{}", json!({}), "write {not a property}/{}");
    check("write a{{x}}", json!({"x": 1}), "write a{1}");
}

#[test]
fn arguments_that_name_nothing_are_refused() {
    let check = |template: &str, args: Value, expected: &str| {
        let made = made(template, args);
        assert!(made.starts_with("refused: ") && made.contains(expected), "{made}");
    };
    check("write s:{x}", json!({}), "needs the argument `x`");
    check("write s:{x}", json!({"x": null}), "needs the argument `x`");
    check("write s:{x}", json!({"x": ["a"]}), "not a list or an object");
    check("write file:/{x}", json!({"x": "../etc"}), "leads out");
    check("write file:/{x}", json!({"x": "a/../../etc"}), "leads out");
    check("write {x}", json!({"x": ""}), "is not one");
    check("write {x}", json!({"x": "a\u{0}"}), "is not one");
    let bad = |text| ClaimTemplate::parse(text, &CallLimits::default()).is_err();
    assert!(bad("write a//{x}") && bad("append {x}") && bad("write {x}/.."));
    let template = ClaimTemplate::parse("write a:{x}/{y}", &CallLimits::default()).unwrap();
    assert_eq!(template.properties().collect::<Vec<_>>(), ["x", "y"]);
}
