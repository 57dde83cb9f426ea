//! Calls that wait for the world outside, and how it answers from another terminal or where nobody owns the folder.

use crate::rig::{Rig, finish, kill, text, until};
use serde_json::Value;
use std::io::{BufRead, BufReader};

/// Asks somebody by writing its key to a file.
const TOOLS: &str = r#"
[tools.ask]
description = "Asks a person"
command = ["sh", "-c", "echo ran >> ran; echo $WINDLASS_COMPLETION_KEY >> keys; exit 73"]
completion = true
completion_ms = 3600000
output = { type = "object" }

[tools.keyless]
command = ["sh", "-c", "echo ${WINDLASS_COMPLETION_KEY:-none} >> keys; exit 73"]

[tools.hasty]
command = ["sh", "-c", "echo $WINDLASS_COMPLETION_KEY >> keys; exit 73"]
completion = true
completion_ms = 1
"#;

const BATCH: &str = r#"{"key": "k", "calls": [{"id": "a", "tool": "ask"}]}"#;

fn rig() -> Rig {
    let rig = Rig::with(TOOLS);
    rig.write("batch.json", BATCH);
    rig
}

fn listed(rig: &Rig, args: &[&str]) -> Vec<Value> {
    let ran = rig.run(&[&["calls", "--json"], args].concat()).expect(0);
    ran.json()["items"].as_array().expect("items").clone()
}

/// Starts the batch, waits until its call waits, and returns the key.
fn start(rig: &Rig) -> (std::process::Child, String) {
    let before = rig.lines("keys").len();
    let child = rig.start(&["run", "batch.json", "--json"]);
    until("it has its key", || rig.lines("keys").len() > before);
    until("it waits", || listed(rig, &["--state", "awaiting_completion"]).len() == 1);
    (child, rig.lines("keys").last().expect("a key").clone())
}

#[test]
fn a_second_terminal_answers_and_the_first_prints_it() {
    let rig = rig();
    let (mut first, key) = start(&rig);
    let mut told = String::new();
    BufReader::new(first.stderr.take().expect("piped")).read_line(&mut told).expect("it is told");
    let (waits, how) = told.split_once(" until ").expect("until when");
    assert_eq!(waits, "windlass: a (ask) waits for completion");
    let complete = "whoever has the key that its tool gave out answers: windlass complete KEY --ok JSON\n";
    assert!(how.ends_with(complete), "{told}");
    let waits = &listed(&rig, &["--waiting"])[0];
    assert!(text(&waits["waiting_for"]).starts_with("completion until 2"), "{waits}");
    let answered = rig.run(&["complete", &key, "--ok", r#"{"approved": true}"#]).expect(0);
    assert_eq!(answered.stdout, "answered; the call goes on\n");
    let ran = finish(first).expect(0);
    assert_eq!(ran.json()["calls"][0]["outcome"]["value"]["approved"], true);
    assert!(!format!("{ran}{told}").contains(&key), "the key is told to nobody: {ran}");

    // The first answer stands, the same again is fine; nobody owns the folder now.
    rig.run(&["complete", &key, "--ok", r#"{"approved": true}"#]).expect(0);
    let other = rig.run(&["complete", &key, "--cancelled"]).expect(4);
    assert_eq!(other.stderr, "windlass: it was answered before, and otherwise; the first answer stands\n");
}

#[test]
fn an_answer_without_an_owner_waits_for_the_next_one_and_nothing_runs_twice() {
    let rig = rig();
    let (first, key) = start(&rig);
    kill(first);
    assert_eq!(listed(&rig, &["--state", "awaiting_completion"]).len(), 1);
    let left = rig.run(&["complete", &key, "--ok", r#"{"approved": true}"#, "--json"]).expect(0);
    assert_eq!(left.json()["left_for_next_owner"], true);
    let ran = rig.run(&["run", "batch.json", "--json"]).expect(0);
    assert_eq!(ran.json()["calls"][0]["outcome"]["value"]["approved"], true);
    assert_eq!(rig.lines("ran").len(), 1);
}

#[test]
fn an_error_a_cancel_and_nobody_end_the_call() {
    let rig = rig();
    let (first, key) = start(&rig);
    rig.run(&["complete", &key, "--error", "busy", "--message", "Ann is busy."]).expect(0);
    let failure = &finish(first).expect(1).json()["calls"][0]["outcome"]["failure"];
    assert_eq!(
        (text(&failure["tool_code"]), text(&failure["message"])),
        ("busy".into(), "Ann is busy.".into())
    );

    rig.write("batch.json", BATCH.replace(r#""k""#, r#""k2""#));
    let (first, key) = start(&rig);
    rig.run(&["complete", &key, "--cancelled"]).expect(0);
    assert_eq!(finish(first).expect(1).states(), ["a cancelled"]);

    let late = rig.run(&["call", "hasty", "--json"]).expect(1);
    assert_eq!(late.json()["outcome"]["failure"]["code"], "timeout");
    let key = rig.lines("keys").last().expect("a key").clone();
    let over = rig.run(&["complete", &key, "--ok", "1"]).expect(4);
    assert_eq!(over.stderr, "windlass: what this key is for is over: its deadline has passed\n");
}

#[test]
fn pending_without_a_key_fails() {
    let rig = rig();
    let ran = rig.run(&["call", "keyless", "--json"]).expect(1);
    assert_eq!(ran.json()["outcome"]["failure"]["code"], "pending_without_key");
    assert!(ran.stderr.contains("`completion = true` in windlass.toml"), "{ran}");
    assert_eq!(rig.lines("keys"), ["none"]);
}

#[test]
fn wrong_answers_are_told_alike_with_and_without_an_owner() {
    let rig = rig();
    let (first, key) = start(&rig);
    let forged = format!("{}{}", &key[..51], if key.ends_with('0') { '1' } else { '0' });
    let ask = || {
        let mut all = String::new();
        for words in [
            &["complete", &forged, "--ok", "1"][..],
            &["complete", "nonsense", "--cancelled"],
            &["complete", &key, "--ok", "done"],
            &["complete", &key, "--error", "", "--message", "m"],
        ] {
            let shown = words.join(" ").replace(&forged, "FORGED").replace(&key, "KEY");
            all.push_str(&format!("$ windlass {shown}\n{}\n", rig.told(&rig.run(words))));
        }
        all
    };
    let with = ask();
    insta::assert_snapshot!(with);
    kill(first);
    assert_eq!(ask(), with);
}
