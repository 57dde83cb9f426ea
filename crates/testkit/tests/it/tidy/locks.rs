//! The locks of the runtime: each has a rank of its own, and docs/decisions/locks.md lists all of them in their order.

use super::rust::{lines, word_at};
use super::{Problems, files, root, text};
use std::collections::BTreeMap;

/// Where the runtime is, and the one file of it that knows the locks of `std`.
const RUNTIME: &str = "crates/runtime/src/";
const TABLE: &str = "crates/runtime/src/api/locks.rs";
const PAGE: &str = "docs/decisions/locks.md";

/// The header of the table of ranks, which is the end of the page.
const HEADER: &str = "| rank | guards, and why it stands there |\n|---|---|\n";

/// Refuses a lock without a rank.
fn ranked(path: &str, text: &str, problems: &mut Problems) {
    if !path.starts_with(RUNTIME) || path == TABLE {
        return;
    }
    for (at, line) in lines(text).iter().enumerate() {
        for name in ["Mutex", "RwLock", "Condvar"] {
            let plain = |at: usize| {
                !line.code[..at].ends_with("tokio::sync::") && !line.code[..at].ends_with("Ordered")
            };
            if word_at(&line.code, name).any(plain) || line.code.contains("std::sync::*") {
                problems.add(
                    format!("{path}:{}", at + 1),
                    format!("`{name}` has no rank: use `api::locks`, or write `tokio::sync::{name}` if it is held over awaits"),
                );
            }
        }
    }
}

/// The ranks of the table, each with what it says.
fn ranks(table: &str) -> Vec<(String, String)> {
    let variants = table.split_once("enum LockRank {\n").map_or("", |(_, rest)| rest);
    let (mut found, mut said) = (Vec::new(), Vec::new());
    for line in variants.lines().map(str::trim).take_while(|line| *line != "}") {
        match line.strip_prefix("///") {
            Some(text) => said.push(text.trim().to_string()),
            None => {
                let name = line.trim_end_matches(',').to_string();
                found.push((name, std::mem::take(&mut said).join(" ")));
            }
        }
    }
    found
}

/// Refuses a rank that says nothing, that no lock has, or that several have.
fn used_once(ranks: &[(String, String)], sources: &[(String, String)], problems: &mut Problems) {
    let mut used: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (path, text) in sources.iter().filter(|(path, _)| path.starts_with(RUNTIME) && path != TABLE) {
        for part in text.split("LockRank::").skip(1) {
            if let Some((name, _)) = part.split_once(" as u8") {
                used.entry(name).or_default().push(path);
            }
        }
    }
    for (name, said) in ranks {
        if said.is_empty() {
            problems.add(TABLE, format!("`{name}` does not say what it guards and why it stands there"));
        }
        match used.get(name.as_str()).map_or(&[][..], Vec::as_slice) {
            [_] => {}
            [] => problems.add(TABLE, format!("no lock is a `{name}`: remove it")),
            [_, second, ..] => {
                problems.add(second, format!("another lock is a `{name}` too: give it a rank of its own"))
            }
        }
    }
}

/// Refuses a lock of `tokio` in a file that the page does not name.
fn held_over_awaits(page: &str, sources: &[(String, String)], problems: &mut Problems) {
    for (path, text) in sources {
        let Some(short) = path.strip_prefix(RUNTIME).filter(|_| path != TABLE) else { continue };
        let locks = ["tokio::sync::Mutex<", "tokio::sync::RwLock<"];
        if lines(text).iter().any(|line| locks.iter().any(|lock| line.code.contains(lock)))
            && !page.contains(&format!("`{short}`"))
        {
            problems.add(path, format!("has a lock of tokio that {PAGE} does not list: add a row"));
        }
    }
}

/// The table of ranks, as the page has it.
fn rows(ranks: &[(String, String)]) -> String {
    ranks.iter().map(|(name, said)| format!("| `{name}` | {said} |\n")).collect()
}

fn sources() -> Vec<(String, String)> {
    let rust = files().into_iter().filter(|path| path.starts_with(RUNTIME) && path.ends_with(".rs"));
    rust.map(|path| (path.clone(), text(&path).unwrap_or_else(|| panic!("{path} is not UTF-8")))).collect()
}

fn table() -> Vec<(String, String)> {
    let ranks = ranks(&text(TABLE).expect("the table of ranks is text"));
    assert!(ranks.len() > 20, "the table is not where it was: {} ranks", ranks.len());
    ranks
}

#[test]
fn every_lock_of_the_runtime_has_a_rank() {
    let mut problems = Problems::default();
    let path = "crates/runtime/src/a.rs";
    ranked(path, "state: std::sync::Mutex<A>,", &mut problems);
    ranked(path, "\nuse std::sync::{Arc, RwLock};", &mut problems);
    ranked(path, "use tokio::sync::{Mutex, Notify};", &mut problems);
    problems.are(&["a.rs:1: `Mutex` has no rank", "a.rs:2: `RwLock`", "a.rs:1: `Mutex`"]);
    let mut problems = Problems::default();
    ranked(path, "a: tokio::sync::Mutex<A>, b: OrderedMutex<B, 1>, // Mutex", &mut problems);
    ranked("crates/store/src/a.rs", "state: Mutex<A>,", &mut problems);
    ranked(TABLE, "Mutex<T>", &mut problems);
    sources().iter().for_each(|(path, text)| ranked(path, text, &mut problems));
    problems.none();
}

#[test]
fn every_rank_is_of_one_lock() {
    let sample =
        ranks("enum LockRank {\n    /// A\n    /// b.\n    One,\n    Two,\n    /// C.\n    Three,\n}\n");
    let named = |name: &str, said: &str| (name.to_string(), said.to_string());
    assert_eq!(sample, [named("One", "A b."), named("Two", ""), named("Three", "C.")]);
    let file = |name: &str, text: &str| named(&format!("{RUNTIME}{name}.rs"), text);
    let locks = [file("a", "{ LockRank::One as u8 }"), file("b", "LockRank::Two as u8 LockRank::Two as u8")];
    let mut problems = Problems::default();
    used_once(&sample, &locks, &mut problems);
    problems.are(&["`Two` does not say", "b.rs: another lock is a `Two` too", "no lock is a `Three`"]);
    let mut problems = Problems::default();
    used_once(&table(), &sources(), &mut problems);
    problems.none();
}

#[test]
fn the_page_of_locks_is_the_table() {
    let locks = [(format!("{RUNTIME}x/a.rs"), "a: tokio::sync::Mutex<()>".to_string())];
    let mut problems = Problems::default();
    held_over_awaits("| `x/b.rs` |", &locks, &mut problems);
    problems.are(&["x/a.rs: has a lock of tokio"]);
    let mut problems = Problems::default();
    held_over_awaits("| `x/a.rs` |", &locks, &mut problems);
    let page = text(PAGE).expect("the page is text");
    held_over_awaits(&page, &sources(), &mut problems);
    problems.none();
    let (before, found) = page.split_once(HEADER).expect("the page has the table of ranks");
    let expected = rows(&table());
    if found != expected && std::env::var_os("UPDATE").is_some() {
        std::fs::write(root().join(PAGE), format!("{before}{HEADER}{expected}"))
            .expect("the page is written");
        return;
    }
    assert_eq!(found, expected, "{PAGE} lists other ranks than {TABLE}: update it as it says");
}
