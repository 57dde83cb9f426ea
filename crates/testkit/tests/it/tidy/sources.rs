//! Rules about Rust files: how long, how begun, what must not stand in them.

use super::rust::{Line, is_word, lines, word_at};
use super::{Problems, files, text};

/// STYLE: small enough to hold.
const LINES_MAX: usize = 600;

/// Names that say nothing about what is inside.
const EMPTY_NAMES: [&str; 4] = ["utils", "helpers", "common", "misc"];

struct Source {
    path: String,
    text: String,
    lines: Vec<Line>,
}

impl Source {
    fn new(path: &str, text: &str) -> Source {
        Source { path: path.into(), text: text.into(), lines: lines(text) }
    }

    /// Each line with its place, `path:number`.
    fn placed(&self) -> impl Iterator<Item = (String, &Line)> {
        self.lines.iter().enumerate().map(|(index, line)| (format!("{}:{}", self.path, index + 1), line))
    }

    fn lies_in(&self, folders: &[&str]) -> bool {
        folders.iter().any(|folder| self.path.starts_with(folder))
    }

    fn is_test(&self) -> bool {
        self.path.split('/').any(|part| part == "tests")
    }
}

fn length(source: &Source, problems: &mut Problems) {
    let count = source.text.lines().count();
    if count > LINES_MAX {
        problems.add(&source.path, format!("{count} lines, at most {LINES_MAX}: split it by topic"));
    }
}

fn module_doc(source: &Source, problems: &mut Problems) {
    if !source.text.trim_start().starts_with("//!") {
        problems
            .add(format!("{}:1", source.path), "begin with a `//!` sentence that says what the file is for");
    }
}

fn names(source: &Source, problems: &mut Problems) {
    for part in source.path.trim_end_matches(".rs").split('/') {
        if EMPTY_NAMES.contains(&part) {
            problems.add(&source.path, format!("`{part}` says nothing: name it after what is in it"));
        }
        if part.ends_with("_v2") {
            problems.add(&source.path, "replace the first version instead of adding a second");
        }
    }
}

fn leftovers(source: &Source, problems: &mut Problems) {
    for (place, line) in source.placed() {
        for name in ["todo", "unimplemented"] {
            if word_at(&line.code, name).any(|at| line.code[at + name.len()..].starts_with('!')) {
                problems.add(&place, format!("`{name}!` panics at run time: write it, or leave it out"));
            }
        }
        for mark in ["FIXME", "XXX"] {
            if word_at(&line.comment, mark).next().is_some() {
                problems
                    .add(&place, format!("`{mark}`: settle it now, or say in a sentence what is so and why"));
            }
        }
        if line.code.contains("#[ignore") {
            problems.add(&place, "an ignored test proves nothing: repair it or remove it");
        }
        let second = line.code.split(|c| !is_word(c)).find(|word| word.ends_with("_v2"));
        if let Some(word) = second {
            problems.add(&place, format!("`{word}`: replace the first version instead of adding a second"));
        }
    }
}

fn reasons(source: &Source, problems: &mut Problems) {
    let code: Vec<&str> = source.lines.iter().map(|line| line.code.as_str()).collect();
    let code = code.join("\n");
    for (at, _) in code.match_indices('#') {
        let inner = code[at + 1..].trim_start_matches('!');
        let Some(inner) = inner.strip_prefix('[') else { continue };
        let mut depth = 1;
        let end = inner.find(|c| {
            depth += i32::from(c == '[') - i32::from(c == ']');
            depth == 0
        });
        let attribute = &inner[..end.unwrap_or(inner.len())];
        let direct = attribute.starts_with("expect(") || attribute.starts_with("allow(");
        let nested = attribute.starts_with("cfg_attr(")
            && ["expect(", "allow("].iter().any(|lint| attribute.contains(lint));
        if (direct || nested) && word_at(attribute, "reason").next().is_none() {
            let line = code[..at].matches('\n').count() + 1;
            problems.add(
                format!("{}:{line}", source.path),
                format!(
                    "`#[{}…` carries no reason: add `reason = \"…\"`",
                    &attribute[..attribute.len().min(30)]
                ),
            );
        }
    }
}

fn sleeps(source: &Source, problems: &mut Problems) {
    if !source.is_test() {
        return;
    }
    for (place, line) in source.placed() {
        let sleeps = ["sleep", "sleep_until"].iter().any(|name| {
            word_at(&line.code, name).any(|at| {
                let before = line.code[..at].trim_end();
                let called = line.code[at + name.len()..].starts_with('(');
                called && !before.ends_with('.') && !before.ends_with("fn")
            })
        });
        let excused = line.comment.split_once("tidy:").is_some_and(|(_, reason)| !reason.trim().is_empty());
        if sleeps && !excused {
            problems.add(
                place,
                "sleeps make tests slow and flaky: pause the clock, wait on a channel, or say why on the line: \
                 `// tidy: …`",
            );
        }
    }
}

fn sql(source: &Source, problems: &mut Problems) {
    // The testkit looks into stores from outside; the floors are bare SQLite by definition.
    if source.lies_in(&["crates/store/", "crates/testkit/", "crates/bench/", "peers/"]) {
        return;
    }
    for (place, line) in source.placed() {
        let words = ["SELECT ", "INSERT INTO", "DELETE FROM", "CREATE TABLE"];
        if let Some(word) = words.iter().find(|word| line.strings.contains(**word)) {
            problems.add(place, format!("`{}`: only crates/store knows SQL: ask the Store", word.trim()));
        }
    }
}

fn printing(source: &Source, problems: &mut Problems) {
    let speaks = ["crates/cli/", "crates/bench/", "crates/testkit/", "benches/", "examples/", "peers/"];
    let shows = source.path.contains("/examples/");
    if source.lies_in(&speaks) || shows || source.is_test() || source.path.ends_with("build.rs") {
        return;
    }
    for (place, line) in source.placed() {
        for name in ["println", "print", "eprintln", "eprint"] {
            if word_at(&line.code, name).any(|at| line.code[at + name.len()..].starts_with('!')) {
                problems.add(&place, format!("`{name}!` in a library: return it, or use `tracing`"));
            }
        }
    }
}

fn safe(source: &Source, problems: &mut Problems) {
    for (place, line) in source.placed() {
        if word_at(&line.code, "unsafe").next().is_some() {
            problems.add(place, "`unsafe` is forbidden: use a crate that has it behind a safe interface");
        }
    }
}

type Rule = fn(&Source, &mut Problems);

/// Applies one rule to every Rust file of the project.
#[track_caller]
fn everywhere(rule: Rule) {
    let mut problems = Problems::default();
    for path in files().iter().filter(|path| path.ends_with(".rs")) {
        let text = text(path).unwrap_or_else(|| panic!("{path} is not UTF-8"));
        rule(&Source::new(path, &text), &mut problems);
    }
    problems.none();
}

/// Shows a rule failing, or not, on a sample.
#[track_caller]
fn sample(rule: Rule, path: &str, text: &str, expected: &[&str]) {
    let mut problems = Problems::default();
    rule(&Source::new(path, text), &mut problems);
    problems.are(expected);
}

#[test]
fn files_are_small_enough_to_hold() {
    sample(length, "a.rs", &"\n".repeat(600), &[]);
    sample(length, "a.rs", &"\n".repeat(601), &["a.rs: 601 lines"]);
    everywhere(length);
}

#[test]
fn modules_say_what_they_are_for() {
    sample(module_doc, "a.rs", "//! A.\n", &[]);
    sample(module_doc, "a.rs", "// A.\n", &["a.rs:1: begin with"]);
    everywhere(module_doc);
}

#[test]
fn names_say_what_is_inside() {
    sample(names, "crates/x/src/commonly.rs", "", &[]);
    sample(names, "crates/x/src/utils.rs", "", &["`utils` says nothing"]);
    sample(names, "crates/x/src/helpers/a.rs", "", &["`helpers` says nothing"]);
    sample(names, "crates/x/src/store_v2.rs", "", &["replace the first version"]);
    everywhere(names);
}

#[test]
fn nothing_is_left_for_later() {
    sample(leftovers, "a.rs", "let todo = \"FIXME todo!()\"; // todo", &[]);
    sample(leftovers, "a.rs", "\ntodo!()", &["a.rs:2: `todo!`"]);
    sample(leftovers, "a.rs", "unimplemented!(\"x\")", &["`unimplemented!`"]);
    sample(leftovers, "a.rs", "/// FIXME: y", &["`FIXME`"]);
    sample(leftovers, "a.rs", "a(); /* XXX */", &["`XXX`"]);
    sample(leftovers, "a.rs", "#[ignore = \"slow\"]", &["ignored test"]);
    sample(leftovers, "a.rs", "fn open_v2() {}", &["`open_v2`"]);
    everywhere(leftovers);
}

#[test]
fn exceptions_carry_a_reason() {
    sample(reasons, "a.rs", "#[expect(dead_code, reason = \"soon\")]\n#[derive(Debug)]", &[]);
    sample(reasons, "a.rs", "\n#[allow(dead_code)]", &["a.rs:2: `#[allow(dead_code)"]);
    sample(reasons, "a.rs", "#![expect(\n  dead_code,\n)]", &["a.rs:1"]);
    sample(reasons, "a.rs", "#[cfg_attr(test, allow(dead_code))]", &["a.rs:1"]);
    sample(reasons, "a.rs", "#[cfg_attr(test, allow(dead_code, reason = \"x\"))]", &[]);
    everywhere(reasons);
}

#[test]
fn tests_do_not_sleep() {
    let path = "crates/x/tests/it/a.rs";
    sample(sleeps, "crates/x/src/a.rs", "std::thread::sleep(d);", &[]);
    sample(sleeps, path, "cx.sleep(\"name\", d); fn sleep() {}", &[]);
    sample(sleeps, path, "thread::sleep(d); // tidy: the other process has no channel", &[]);
    sample(sleeps, path, "thread::sleep(d); // tidy:", &["a.rs:1: sleeps"]);
    sample(sleeps, path, "tokio::time::sleep(d).await;", &["a.rs:1: sleeps"]);
    sample(sleeps, path, "sleep_until(t).await;", &["a.rs:1: sleeps"]);
    everywhere(sleeps);
}

#[test]
fn only_the_store_knows_sql() {
    sample(sql, "crates/store/src/a.rs", "q(\"SELECT 1\")", &[]);
    sample(sql, "crates/runtime/src/a.rs", "// SELECT 1", &[]);
    sample(sql, "crates/runtime/src/a.rs", "q(\"\n  SELECT 1\")", &["a.rs:2: `SELECT`"]);
    sample(sql, "crates/cli/src/a.rs", "q(r#\"INSERT INTO t\"#)", &["a.rs:1: `INSERT INTO`"]);
    everywhere(sql);
}

#[test]
fn libraries_do_not_print() {
    sample(printing, "crates/cli/src/a.rs", "println!()", &[]);
    sample(printing, "crates/runtime/examples/a.rs", "println!()", &[]);
    sample(printing, "crates/core/src/a.rs", "/// println!()", &[]);
    sample(printing, "crates/core/src/a.rs", "println!()", &["a.rs:1: `println!`"]);
    sample(printing, "crates/core/src/a.rs", "std::eprint!()", &["a.rs:1: `eprint!`"]);
    everywhere(printing);
}

#[test]
fn nothing_is_unsafe() {
    sample(safe, "a.rs", "#![forbid(unsafe_code)] // unsafe", &[]);
    sample(safe, "a.rs", "\nunsafe impl Send for A {}", &["a.rs:2: `unsafe`"]);
    everywhere(safe);
}
