//! Rules about what people read: pages that exist, codes and limits that are all explained, nothing of one machine.

use super::{Problems, files, root, text};
use std::fmt::Write;
use windlass_core::code::Code;
use windlass_core::limits::Limits;

/// The pages somebody who is new looks for.
const PAGES: [&str; 5] = ["README.md", "ARCHITECTURE.md", "CHANGELOG.md", "LICENSE-MIT", "LICENSE-APACHE"];

/// Folders of the machines this was written on.
const MACHINE_FOLDERS: [&str; 3] = ["/work/", "/root/", "/farm/"];

/// Where packages came from on such a machine; a checkout takes them from where its own cargo says.
const PACKAGE_HOSTS: [&str; 7] =
    ["artifactory", "jfrog", "verdaccio", "devpi", "replace-with", "index.crates.io", "static.crates.io"];

/// This file holds both lists.
const LISTS: &str = "crates/testkit/tests/it/tidy/docs.rs";

fn pages(files: &[String], problems: &mut Problems) {
    for page in PAGES {
        if !files.iter().any(|path| path == page) {
            problems.add(page, "is missing: write it");
        }
    }
}

fn codes(page: &str, codes: &[&str], problems: &mut Problems) {
    let sections: Vec<(&str, &str)> =
        page.split("\n### `").skip(1).filter_map(|section| section.split_once('`')).collect();
    for code in codes {
        let explained = sections.iter().find(|(name, _)| name == code).map(|(_, rest)| {
            let body = rest.split("\n#").next().unwrap_or_default();
            !body.trim().is_empty()
        });
        match explained {
            None => problems.add("docs/codes.md", format!("add a section ### `{code}` with a paragraph")),
            Some(false) => problems.add("docs/codes.md", format!("### `{code}` has no paragraph: write one")),
            Some(true) => {}
        }
    }
    for (name, _) in &sections {
        if !codes.contains(name) {
            problems.add("docs/codes.md", format!("there is no code `{name}`: remove its section"));
        }
    }
}

/// The page of limits, from the table in core.
fn limits_page() -> String {
    let mut page = String::from(
        "# Limits\n\n\
         Every queue, buffer, page, text and count has a named maximum with a reason. Each may be set in `windlass.toml`\n\
         under `[limits]`.\n\n\
         <!-- Written by `UPDATE=1 cargo test -p windlass-testkit --test it every_limit`; change crates/core/src/limits.rs. -->\n\n\
         | limit | default | why |\n|---|---:|---|\n",
    );
    for (name, value, reason) in Limits::default().table() {
        let value = if name.contains("bytes") { bytes(value) } else { value.to_string() };
        writeln!(page, "| `{name}` | {value} | {reason} |").expect("a string takes what is written");
    }
    page
}

fn bytes(value: u64) -> String {
    let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    match units.iter().find(|(shift, _)| value >= 1 << shift && value.trailing_zeros() >= *shift) {
        Some((shift, unit)) => format!("{} {unit}", value >> shift),
        None => format!("{value} B"),
    }
}

fn machines(path: &str, text: &str, problems: &mut Problems) {
    for (index, line) in text.lines().enumerate() {
        let place = format!("{path}:{}", index + 1);
        for folder in MACHINE_FOLDERS {
            // `crates/work/a.rs` is no path of a machine, `file:/work/a.rs` is.
            let begins = |at: usize| {
                !line[..at].ends_with(|c: char| c.is_alphanumeric() || ['_', '-', '.', '/', '}'].contains(&c))
            };
            if line.match_indices(folder).any(|(at, _)| begins(at)) {
                problems.add(&place, format!("`{folder}` is a folder of one machine: use a relative path"));
            }
        }
        for host in PACKAGE_HOSTS {
            if line.contains(host) {
                problems.add(&place, format!("`{host}` is where one machine gets packages: leave it out"));
            }
        }
    }
}

#[test]
fn the_pages_are_there() {
    let mut problems = Problems::default();
    pages(&PAGES[1..].iter().map(|&page| page.to_owned()).collect::<Vec<_>>(), &mut problems);
    problems.are(&["README.md: is missing"]);

    let mut problems = Problems::default();
    pages(&files(), &mut problems);
    problems.none();
}

#[test]
fn every_code_is_explained() {
    let mut problems = Problems::default();
    codes("\n### `a`\n\nA.\n\n### `b`\n\n## C\n\n### `d`\n\nD.\n", &["a", "b", "c"], &mut problems);
    problems.are(&["### `b` has no paragraph", "add a section ### `c`", "there is no code `d`"]);

    let mut problems = Problems::default();
    let page = text("docs/codes.md").expect("docs/codes.md is text");
    codes(&page, &Code::ALL.iter().map(|code| code.as_str()).collect::<Vec<_>>(), &mut problems);
    problems.none();
}

#[test]
fn every_limit_is_listed() {
    let (path, page) = (root().join("docs/limits.md"), limits_page());
    if std::env::var_os("UPDATE").is_some_and(|value| value == "1") {
        std::fs::write(&path, &page).expect("docs/limits.md can be written");
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == page,
        "docs/limits.md is not what crates/core/src/limits.rs says: run \
         `UPDATE=1 cargo test -p windlass-testkit --test it every_limit`"
    );
}

#[test]
fn bytes_are_written_in_the_largest_whole_unit() {
    assert_eq!([bytes(2 << 30), bytes(50 << 10), bytes(1_025)], ["2 GiB", "50 KiB", "1025 B"]);
}

#[test]
fn nothing_of_one_machine() {
    let mut problems = Problems::default();
    machines("a.md", "see crates/work/a.rs\nin /work/a\n`file:/root/b`\njfrog.example", &mut problems);
    problems.are(&["a.md:2: `/work/`", "a.md:3: `/root/`", "a.md:4: `jfrog`"]);

    let mut problems = Problems::default();
    for path in files().iter().filter(|path| *path != LISTS) {
        if let Some(text) = text(path) {
            machines(path, &text, &mut problems);
        }
    }
    problems.none();
}
