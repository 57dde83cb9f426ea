//! Rules about what others call: parameters of functions, and public errors.

use super::rust::{lines, word_at};
use super::{Problems, files, text};

/// Crates whose signatures are still to be changed.
const TUPLES_ALLOWED: [&str; 0] = [];

/// Crates whose errors users match on.
const MATCHED: [&str; 5] =
    ["crates/args/src/", "crates/core/src/", "crates/runtime/src/", "crates/store/src/", "crates/wire/src/"];

/// The code of a file without comments and the contents of strings.
fn code_of(text: &str) -> String {
    lines(text).iter().map(|line| line.code.as_str()).collect::<Vec<_>>().join("\n")
}

/// Parameters that take a tuple apart: several arguments that were packed because there were too many.
fn tuples(path: &str, text: &str, problems: &mut Problems) {
    let code = code_of(text);
    for at in word_at(&code, "fn") {
        let Some((name, parameters)) = signature(&code[at + 2..]) else { continue };
        for parameter in apart(parameters) {
            let pattern = parameter.trim_start().trim_start_matches("mut ");
            if pattern.starts_with('(') {
                let line = code[..at].matches('\n').count() + 1;
                problems.add(
                    format!("{path}:{line}"),
                    format!(
                        "`{name}` takes a tuple apart: name each parameter, give them a struct that is named after what \
                         they are, or move the function to the type that holds them"
                    ),
                );
            }
        }
    }
}

/// The name of a function and the text between its parentheses; `code` begins behind `fn`. `None` for a type such as `fn(u8)`.
fn signature(code: &str) -> Option<(&str, &str)> {
    let rest = code.strip_prefix(' ')?;
    let name = &rest[..rest.find(|c: char| !c.is_alphanumeric() && c != '_')?];
    let rest = &rest[name.len()..];
    let (mut depth, mut before) = (0, ' ');
    let opens = rest.find(|c| {
        depth += i32::from(c == '<') - i32::from(c == '>' && before != '-');
        before = c;
        c == '(' && depth == 0
    })?;
    let mut depth = 0;
    let length = rest[opens..].find(|c| {
        depth += i32::from("([{".contains(c)) - i32::from(")]}".contains(c));
        depth == 0
    })?;
    Some((name, &rest[opens + 1..opens + length]))
}

/// The parameters, one by one.
fn apart(parameters: &str) -> Vec<&str> {
    let (mut found, mut from, mut depth, mut before) = (Vec::new(), 0, 0, ' ');
    for (at, c) in parameters.char_indices() {
        let closes = ")]}".contains(c) || (c == '>' && before != '-');
        depth += i32::from("([{<".contains(c)) - i32::from(closes);
        if c == ',' && depth == 0 {
            found.push(&parameters[from..at]);
            from = at + 1;
        }
        before = c;
    }
    found.push(&parameters[from..]);
    found
}

/// Public errors may get new variants in any release: whoever matches on one has an arm for the rest.
fn growing_errors(path: &str, text: &str, problems: &mut Problems) {
    if !MATCHED.iter().any(|folder| path.starts_with(folder)) {
        return;
    }
    let mut attributes = String::new();
    for (at, line) in lines(text).iter().enumerate() {
        let code = line.code.trim();
        if let Some(rest) = code.strip_prefix("pub enum ") {
            let name = rest.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
            let is_error = name.ends_with("Error") || attributes.contains("thiserror::Error");
            if is_error && !attributes.contains("#[non_exhaustive]") {
                problems.add(
                    format!("{path}:{}", at + 1),
                    format!("`{name}` is an error that users match on: add #[non_exhaustive]"),
                );
            }
        }
        // What stands before an item belongs to it.
        match code.starts_with('#') {
            true => attributes.push_str(code),
            false if code.is_empty() => {}
            false => attributes.clear(),
        }
    }
}

fn sources() -> impl Iterator<Item = (String, String)> {
    let rust = files().into_iter().filter(|path| path.starts_with("crates/") && path.ends_with(".rs"));
    rust.map(|path| {
        let text = text(&path).unwrap_or_else(|| panic!("{path} is not UTF-8"));
        (path, text)
    })
}

#[test]
fn no_parameter_takes_a_tuple_apart() {
    let mut problems = Problems::default();
    let mut allowed = Problems::default();
    for (path, text) in sources() {
        let is_allowed = TUPLES_ALLOWED.iter().any(|folder| path.starts_with(folder));
        tuples(&path, &text, if is_allowed { &mut allowed } else { &mut problems });
    }
    for folder in TUPLES_ALLOWED {
        if !allowed.0.iter().any(|problem| problem.starts_with(folder)) {
            problems.add("tidy/signatures.rs", format!("{folder} has none any more: take it off the list"));
        }
    }
    problems.none();
}

#[test]
fn tuples_in_signatures_are_seen() {
    let sample = |text: &str, expected: &[&str]| {
        let mut problems = Problems::default();
        tuples("crates/x/src/a.rs", text, &mut problems);
        problems.are(expected);
    };
    sample("fn f(a: (u8, u8), b: impl Fn((u8, u8))) -> (u8, u8) {}", &[]);
    sample("fn f() { let g = |(a, b): (u8, u8)| a; }", &[]);
    sample("// fn f((a, b): (u8, u8))\ntype F = fn((u8, u8));", &[]);
    sample("fn f(Point { x, y }: Point, Pair(a, b): Pair, [c, d]: [u8; 2]) {}", &[]);
    sample("\nfn f((a, b): (u8, u8)) {}", &["a.rs:2: `f` takes a tuple apart"]);
    sample("fn f<T: Fn() -> u8>(\n    &self,\n    mut (a, b): (u8, u8),\n) {}", &["a.rs:1: `f`"]);
    sample("async fn f(a: A<u8, u8>, (b, c): P, (d, e): P) {}", &["`f`", "`f`"]);
}

#[test]
fn public_errors_may_grow() {
    let mut problems = Problems::default();
    sources().for_each(|(path, text)| growing_errors(&path, &text, &mut problems));
    problems.none();
}

#[test]
fn errors_that_cannot_grow_are_seen() {
    let sample = |path: &str, text: &str, expected: &[&str]| {
        let mut problems = Problems::default();
        growing_errors(path, text, &mut problems);
        problems.are(expected);
    };
    let path = "crates/store/src/a.rs";
    sample(path, "#[derive(Debug)]\n#[non_exhaustive]\npub enum AError {}\npub enum Kind {}", &[]);
    sample(
        path,
        "#[non_exhaustive]\npub enum AError {}\n\n/// B.\npub enum BError {}",
        &["a.rs:5: `BError`"],
    );
    sample(path, "#[derive(thiserror::Error)]\npub enum Refused {}", &["a.rs:2: `Refused`"]);
    sample(path, "pub(crate) enum AError {}\nenum BError {}", &[]);
    sample("crates/cli/src/a.rs", "pub enum AError {}", &[]);
}
