//! The names of types: each says by itself what it is, so none is defined twice in `crates/*/src`.

use super::rust::{is_word, lines};
use super::{Problems, files, text};
use std::collections::{BTreeMap, BTreeSet};

/// Names that are defined more than once, and why that stays.
const SHARED: [(&str, &str); 0] = [];

/// The words that define a type.
const DEFINES: [&str; 5] = ["struct", "enum", "union", "trait", "type"];

/// The types that a file defines: the line of each, and its name. Tests may name theirs as they like, and associated types are named by
/// their trait.
fn types(path: &str, text: &str) -> Vec<(usize, String)> {
    let in_src = path.strip_prefix("crates/").and_then(|path| path.split_once('/'));
    if !in_src.is_some_and(|(_, path)| path.starts_with("src/")) || path.ends_with("/tests.rs") {
        return Vec::new();
    }
    let lines = lines(text);
    // What is for tests comes last, but for a single item among others.
    let tests = lines
        .windows(2)
        .position(|pair| pair[0].code == "#[cfg(test)]" && pair[1].code.starts_with("mod "))
        .unwrap_or(lines.len());
    let mut found = Vec::new();
    for (at, line) in lines[..tests].iter().enumerate() {
        if at > 0 && lines[at - 1].code.trim() == "#[cfg(test)]" {
            continue;
        }
        if let Some(name) = defined(&line.code) {
            found.push((at + 1, name.to_string()));
        }
    }
    found
}

/// The type that a line of code defines.
fn defined(code: &str) -> Option<&str> {
    let mut rest = code.trim_start();
    if let Some(public) = rest.strip_prefix("pub") {
        rest = match public.strip_prefix('(') {
            Some(to) => to.split_once(')')?.1,
            None => public,
        };
    }
    let (word, rest) = rest.trim_start().split_once(' ')?;
    if !DEFINES.contains(&word) || (word == "type" && code.starts_with(' ')) {
        return None;
    }
    let rest = rest.trim_start();
    let name = &rest[..rest.find(|c| !is_word(c)).unwrap_or(rest.len())];
    (!name.is_empty()).then_some(name)
}

/// Adds every name that is defined twice, but for those that are listed with a reason; and those of the list that are not any more.
fn judge(found: &BTreeMap<String, Vec<String>>, shared: &[(&str, &str)], problems: &mut Problems) {
    let listed: BTreeSet<&str> = shared.iter().map(|(name, _)| *name).collect();
    for (name, places) in
        found.iter().filter(|(name, places)| places.len() > 1 && !listed.contains(name.as_str()))
    {
        problems.add(
            &places[1],
            format!("`{name}` is defined at {} already: say in the name which of them it is", places[0]),
        );
    }
    for (name, reason) in shared {
        if found.get(*name).is_none_or(|places| places.len() < 2) {
            problems.add(
                "tidy/names.rs",
                format!("`{name}` is not defined twice any more: take it off the list"),
            );
        }
        if reason.trim().is_empty() {
            problems.add("tidy/names.rs", format!("`{name}` is defined twice without a reason"));
        }
    }
}

#[test]
fn a_type_name_is_defined_once() {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for path in files().iter().filter(|path| path.starts_with("crates/") && path.ends_with(".rs")) {
        let text = text(path).unwrap_or_else(|| panic!("{path} is not UTF-8"));
        for (line, name) in types(path, &text) {
            found.entry(name).or_default().push(format!("{path}:{line}"));
        }
    }
    assert!(found.len() > 500, "the types are not where they were: {} names", found.len());
    let mut problems = Problems::default();
    judge(&found, &SHARED, &mut problems);
    problems.none();
}

#[test]
fn names_of_types_are_seen() {
    let sample = |path: &str, text: &str, expected: &[(usize, &str)]| {
        let expected: Vec<_> = expected.iter().map(|(line, name)| (*line, name.to_string())).collect();
        assert_eq!(types(path, text), expected, "{path}: {text}");
    };
    let path = "crates/core/src/a.rs";
    sample(path, "struct A;\npub enum B<T> {}\npub(crate) struct C(u8);", &[(1, "A"), (2, "B"), (3, "C")]);
    sample(path, "pub(super) trait D: E {}\ntype F = u8;\nunion G {}", &[(1, "D"), (2, "F"), (3, "G")]);
    sample(path, "fn f() {\n    struct A;\n}", &[(2, "A")]);
    sample(path, "impl D for A {\n    type F = u8;\n}", &[]);
    sample(path, "// struct A;\nlet a = \"struct A;\"; structure A", &[]);
    sample(path, "struct A;\n#[cfg(test)]\nstruct B;\nstruct C;", &[(1, "A"), (4, "C")]);
    sample(path, "struct A;\n#[cfg(test)]\nmod tests {\n    struct B;\n}", &[(1, "A")]);
    sample("crates/core/src/a/tests.rs", "struct A;", &[]);
    sample("crates/core/tests/it/a.rs", "struct A;", &[]);
    let places = |places: &[&str]| places.iter().map(|place| place.to_string()).collect();
    let found: BTreeMap<String, Vec<String>> = [
        ("Once".to_string(), places(&["a.rs:1"])),
        ("Twice".to_string(), places(&["a.rs:2", "b.rs:1"])),
        ("Listed".to_string(), places(&["a.rs:3", "b.rs:2"])),
    ]
    .into();
    let mut problems = Problems::default();
    judge(&found, &[("Listed", "it must"), ("Once", " ")], &mut problems);
    problems.are(&[
        "b.rs:1: `Twice` is defined at a.rs:2",
        "`Once` is not defined twice any more",
        "without a reason",
    ]);
}
