//! Texts for people: help, tables, and how both behave without a terminal.

use crate::rig::{Rig, finish};
use std::io::{BufRead, BufReader};

#[test]
fn help_is_worth_reading() {
    let rig = Rig::new();
    let mut told = String::new();
    for args in [
        &["help"][..],
        &["help", "dev"],
        &["help", "run"],
        &["help", "call"],
        &["help", "tools"],
        &["help", "calls"],
        &["help", "cancel"],
        &["help", "resolve"],
        &["help", "accept"],
        &["help", "complete"],
        &["help", "questions"],
        &["help", "answer"],
        &["help", "connections"],
        &["help", "backup"],
        &["help", "doctor"],
    ] {
        let ran = rig.run(args).expect(0);
        told.push_str(&format!("$ windlass {}\n{}\n", args.join(" "), ran.stdout));
    }
    insta::assert_snapshot!(told);
    assert!(!rig.path(".windlass").exists(), "help needs no folder");
}

#[test]
fn wrong_words_are_told() {
    let rig = Rig::new();
    let mut told = String::new();
    let cases = [
        &["rnu"][..],
        &["run"],
        &["run", "-", "--new", "--key", "k"],
        &["calls", "--journal"],
        &["calls", "--state", "opn"],
        &["calls", "--limit", "0"],
        &["calls", "x", "--state", "open"],
        &["cancel"],
        &["cancel", "x", "--batch", "k"],
        &["resolve", "x"],
        &["resolve", "x", "--did-not-happen", "--ask-tool"],
        &["accept"],
        &["complete", "x"],
        &["complete", "x", "--ok", "1", "--cancelled"],
        &["complete", "x", "--error", "c"],
        &["tools", "ech"],
    ];
    for args in cases {
        told.push_str(&rig.told(&rig.run(args).expect(2)));
    }
    insta::assert_snapshot!(told);
}

#[test]
fn tables_are_aligned_and_tools_cannot_move_the_cursor() {
    let rig = Rig::with(
        "[tools.evil]\ncommand = [\"printf\", '\\033[2J\\033[31mred\\nsecond line']\nclass = \"read\"\n",
    );
    let batch = r#"{"key": "k", "calls": [
        {"id": "a", "tool": "echo", "args": {"message": "hello"}},
        {"id": "longer", "tool": "evil"},
        {"id": "c", "tool": "ech", "args": {}}]}"#;
    let ran = rig.run_on(&["run", "-"], batch).expect(1);
    assert!(!ran.stdout.contains('\u{1b}'), "{ran}");
    let rows: Vec<Vec<&str>> = ran
        .stdout
        .lines()
        .map(|line| line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect())
        .collect();
    assert_eq!(rows[0], ["ID", "TOOL", "STATE", "RAN", "CALL", "ANSWER"]);
    assert_eq!(rows[2][..3], ["longer", "evil", "succeeded"]);
    assert_eq!(rows[2][5], r"\u{1b}[2J\u{1b}[31mred⏎second line");
    let listed = rig.run(&["calls"]).expect(0);
    assert_eq!(listed.stdout.lines().count(), 4);
    // The beginning of a handle, as the table shows it, is enough.
    let shown = rig.run(&["calls", rows[1][4], "--journal"]).expect(0);
    assert!(shown.stdout.contains("echo was asked for as a with"), "{shown}");
    let none = rig.run(&["calls", "zzzz"]).expect(2);
    assert_eq!(none.stderr, "windlass: no call begins with zzzz; `windlass calls` lists them\n");
}

#[test]
fn colours_are_never_written_where_nobody_sees_them() {
    let rig = Rig::new();
    for (name, value) in [("NO_COLOR", "1"), ("TERM", "xterm-256color")] {
        for args in [&["help"][..], &["rnu"], &["tools"], &["doctor"]] {
            let ran = finish(rig.command(args).env(name, value).spawn().expect("windlass starts"));
            assert!(!ran.stdout.contains('\u{1b}') && !ran.stderr.contains('\u{1b}'), "{args:?}: {ran}");
        }
    }
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let rig = Rig::new();
    let calls: Vec<String> = (0..256)
        .map(|n| {
            format!(r#"{{"id": "c{n}", "tool": "echo", "args": {{"message": "{}"}}}}"#, "x".repeat(2_000))
        })
        .collect();
    rig.write("batch.jsonl", calls.join("\n"));
    let mut child = rig.start(&["run", "batch.jsonl", "--json"]);
    let mut first = String::new();
    // Reads one line, as `head -1` would, and closes the pipe with most of it unread.
    BufReader::with_capacity(64, child.stdout.take().expect("a pipe")).read_line(&mut first).expect("a line");
    assert_eq!(first, "{\n");
    let ran = finish(child).expect(0);
    assert_eq!(ran.stderr, "");
}
