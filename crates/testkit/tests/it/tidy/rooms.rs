//! The rooms of the runtime: which folder of `crates/runtime/src` may import which.

use super::rust::{Line, is_word, lines, word_at};
use super::{Problems, files, text};
use std::collections::{BTreeMap, BTreeSet};

/// Where the rooms are.
const SRC: &str = "crates/runtime/src/";

/// Each room with the rooms that it may import. A room comes behind all that it imports, so there is no cycle.
const ROOMS: [(&str, &[&str]); 9] = [
    ("api", &[]),
    ("tools", &["api"]),
    ("session", &["api", "tools"]),
    ("read", &["api", "tools", "session"]),
    ("attempt", &["api", "tools", "session"]),
    ("path", &["api", "tools", "session", "attempt"]),
    ("mailbox", &["api", "tools", "session", "path"]),
    ("features", &["api", "tools", "session", "read", "attempt", "path", "mailbox"]),
    ("runtime", &["api", "tools", "session", "read", "attempt", "path", "mailbox", "features"]),
];

/// Imports against the direction: the room, what it imports, and why that stays.
const BACK: [(&str, &str, &str); 2] = [
    (
        "tools",
        "session::cx::Cx",
        "`Tool::run` takes the context of an attempt, which holds its call, which holds its tool: one of the three must name a \
         type above it, and this is the one that tool authors write down",
    ),
    (
        "tools",
        "session::cx::CallPlace",
        "`Tool::prepare` and hooks see the session, the turn and the calls around theirs, as `Tool::run` does",
    ),
];

/// Modules that belong to no room.
const ROOMLESS: [&str; 2] = ["lib", "points"];

/// An import of another room: where it stands, from which room, and of what.
#[derive(Debug, PartialEq)]
struct Import {
    place: String,
    from: String,
    of: String,
}

/// The imports of one file. Tests may import what they like.
fn imports(path: &str, text: &str, problems: &mut Problems) -> Vec<Import> {
    let Some(module) = path.strip_prefix(SRC).and_then(|path| path.strip_suffix(".rs")) else {
        return Vec::new();
    };
    let module: Vec<&str> = module.split('/').collect();
    if ROOMLESS.contains(&module[0]) || module.last() == Some(&"tests") {
        return Vec::new();
    }
    if !ROOMS.iter().any(|(room, _)| *room == module[0]) {
        problems.add(path, "lies in no room: put it into one, or add the room to tidy/rooms.rs");
        return Vec::new();
    }
    let lines = lines(text);
    let tests = lines.iter().position(|line| line.code.trim() == "#[cfg(test)]").unwrap_or(lines.len());
    let code: Vec<&str> = lines[..tests].iter().map(|line: &Line| line.code.as_str()).collect();
    let code = code.join("\n");
    let mut found = Vec::new();
    for at in
        word_at(&code, "crate").filter(|at| code[at + 5..].starts_with("::") && !code[..*at].ends_with('$'))
    {
        let line = code[..at].matches('\n').count() + 1;
        for of in paths(&code[at + 7..]) {
            let room = of.split("::").next().unwrap_or_default();
            if room == module[0] || ROOMLESS.contains(&room) {
                continue;
            }
            let place = format!("{path}:{line}");
            if ROOMS.iter().any(|(known, _)| *known == room) {
                found.push(Import { place, from: module[0].to_string(), of });
            } else {
                problems.add(place, format!("`crate::{of}` is imported from the root: name its room"));
            }
        }
    }
    let up = format!("{}::", vec!["super"; module.len()].join("::"));
    for at in
        word_at(&code, "super").filter(|at| code[*at..].starts_with(&up) && !code[..*at].ends_with("::"))
    {
        let line = code[..at].matches('\n').count() + 1;
        problems.add(format!("{path}:{line}"), format!("`{up}` leaves the room: write `crate::`"));
    }
    found
}

/// The paths of a use tree, or the path that the code begins with.
fn paths(code: &str) -> Vec<String> {
    let end = code.find(|c| !is_word(c) && c != ':').unwrap_or(code.len());
    let path = &code[..end];
    let Some(inner) = code[end..].strip_prefix('{') else { return vec![path.to_string()] };
    let (mut depth, mut begins, mut found) = (0, 0, Vec::new());
    for (at, c) in inner.char_indices() {
        match c {
            '{' => depth += 1,
            '}' | ',' if depth == 0 => {
                let part = inner[begins..at].trim();
                if !part.is_empty() {
                    found.extend(paths(part).iter().map(|part| format!("{path}{part}")));
                }
                begins = at + 1;
                if c == '}' {
                    break;
                }
            }
            '}' => depth -= 1,
            _ => {}
        }
    }
    found
}

/// Adds every import against the direction, but for those that are listed with a reason; and those of the list that are gone.
fn judge(imports: &[Import], back: &[(&str, &str, &str)], problems: &mut Problems) {
    let mut needed = BTreeSet::new();
    for Import { place, from, of } in imports {
        let room = of.split("::").next().unwrap_or_default();
        let allowed = ROOMS.iter().find(|(known, _)| known == from).map_or(&[][..], |(_, allowed)| allowed);
        if allowed.contains(&room) {
            continue;
        }
        match back.iter().find(|(known, what, _)| known == from && what == of) {
            Some((_, what, _)) => _ = needed.insert(*what),
            None => problems.add(
                place,
                format!("`{from}` imports `{of}`, and may import {allowed:?}: move what is needed down, or return a value"),
            ),
        }
    }
    for (from, what, reason) in back {
        if !needed.contains(what) {
            problems.add(
                "tidy/rooms.rs",
                format!("`{from}` does not import `{what}` any more: take it off the list"),
            );
        }
        if reason.trim().is_empty() {
            problems.add("tidy/rooms.rs", format!("`{from}` imports `{what}` without a reason"));
        }
    }
}

/// The graph, one line for each room: what it imports, and how often.
fn graph(imports: &[Import]) -> String {
    let mut counts: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for Import { from, of, .. } in imports {
        *counts.entry((from, of.split("::").next().unwrap_or_default())).or_default() += 1;
    }
    let line = |from: &str| {
        let to = ROOMS.iter().filter_map(|(to, _)| Some(format!(" {to} {}", counts.get(&(from, *to))?)));
        format!("{from} →{}\n", to.collect::<Vec<_>>().join(","))
    };
    ROOMS.iter().map(|(room, _)| line(room)).collect()
}

#[test]
fn rooms_import_in_one_direction() {
    let place = |room: &str| ROOMS.iter().position(|(known, _)| *known == room);
    for (room, allowed) in &ROOMS {
        assert!(
            allowed.iter().all(|below| place(below) < place(room)),
            "{room} comes behind what it imports"
        );
    }
    let (mut problems, mut found) = (Problems::default(), Vec::new());
    for path in files().iter().filter(|path| path.starts_with(SRC) && path.ends_with(".rs")) {
        let text = text(path).unwrap_or_else(|| panic!("{path} is not UTF-8"));
        found.extend(imports(path, &text, &mut problems));
    }
    assert!(found.len() > 100, "the rooms are not where they were: {} imports", found.len());
    println!("{}", graph(&found));
    judge(&found, &BACK, &mut problems);
    problems.none();
}

#[test]
fn imports_of_rooms_are_seen() {
    let sample = |path: &str, text: &str, expected: &[&str]| {
        let mut problems = Problems::default();
        let found = imports(&format!("{SRC}{path}"), text, &mut problems);
        judge(&found, &[], &mut problems);
        problems.are(expected);
    };
    sample("path/a.rs", "use crate::session::held::{Held, Hold};\nuse crate::path::b;", &[]);
    sample("session/a.rs", "// crate::path::b\nuse crate::session::b;", &[]);
    sample(
        "session/a.rs",
        "\nfn f() { crate::path::b(\"crate::read\") }",
        &["a.rs:2: `session` imports `path::b`"],
    );
    sample(
        "api/a.rs",
        "use crate::{tools::b, session::{c, d::E}};",
        &["`tools::b`", "`session::c`", "`session::d::E`"],
    );
    sample("read/a/b.rs", "pub use crate::path::b as c;", &["b.rs:1: `read` imports `path::b`"]);
    sample("tools/a.rs", "use crate::Runtime;", &["`crate::Runtime` is imported from the root"]);
    sample("tools/a.rs", "#[cfg(test)]\nmod tests { use crate::Runtime; }", &[]);
    sample("tools/a/tests.rs", "use crate::Runtime;", &[]);
    sample("tools/a.rs", "use super::super::path;", &["`super::super::` leaves the room"]);
    sample("tools/a/b.rs", "use super::super::c; use super::d;", &[]);
    sample("alone.rs", "", &["alone.rs: lies in no room"]);
    let mut problems = Problems::default();
    let import = || Import { place: "a.rs:1".into(), from: "api".into(), of: "path::b".into() };
    judge(&[import()], &[("api", "path::b", "it must"), ("api", "path::c", " ")], &mut problems);
    problems.are(&["does not import `path::c` any more", "without a reason"]);
    assert_eq!(graph(&[import(), import()]).lines().next(), Some("api → path 2"));
}
