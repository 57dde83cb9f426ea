//! The data folder: owned by one, read by all, and refused with a reason when it is not what it should be.

use crate::rig::{Rig, finish, until};
use std::path::Path;

const HOLD: &str = r#"
[tools.hold]
description = "Waits until the file `go` is there"
command = ["sh", "-c", "echo held >> held; while [ ! -e go ]; do sleep 0.01; done"]
"#;

#[test]
fn a_folder_that_is_owned_is_asked_for_through_its_owner_and_readers_are_welcome() {
    let rig = Rig::with(HOLD);
    let first = rig.start(&["call", "hold"]);
    until("the first one is in the middle", || rig.lines("held").len() == 1);
    let second = rig.run(&["call", "add", "--session", "other", r#"{"a": 1, "b": 2}"#]).expect(0);
    assert_eq!(second.json()["result"], 3);
    let calls = rig.run(&["calls", "--json", "--state", "open"]).expect(0);
    assert_eq!(calls.json()["items"][0]["state"], "running");
    let doctor = rig.run(&["doctor", "--json"]).expect(0);
    assert_eq!(doctor.json()["sessions"][0]["open_batches"], 1);
    rig.run(&["tools"]).expect(0);
    rig.write("go", "");
    finish(first).expect(0);
    rig.run(&["call", "add", r#"{"a": 1, "b": 2}"#]).expect(0);
}

#[test]
fn a_second_owner_is_told_who_the_first_is() {
    let rig = Rig::with(HOLD);
    let first = rig.start(&["call", "hold"]);
    until("the first one is in the middle", || rig.lines("held").len() == 1);
    let second = rig.run(&["serve", "--listen", "127.0.0.1:0"]).expect(6);
    let told = rig.told(&second).replace(&first.id().to_string(), "[pid]");
    let (before, after) = told.split_once(" since ").expect("it says since when");
    let (since, after) = after.split_once(';').expect("it says what to do");
    assert!(since.ends_with(" UTC") && since.len() == 23, "{since}");
    let told = format!("{before} since [time];{after}");
    insta::assert_snapshot!(told.replace(env!("CARGO_BIN_EXE_windlass"), "windlass"));
    rig.write("go", "");
    finish(first).expect(0);
}

/// A rig whose store has something in it, with the write-ahead log brought home.
fn used() -> Rig {
    let rig = Rig::new();
    for session in ["hurt", "whole"] {
        rig.run(&say(session, "x")).expect(0);
    }
    rig
}

/// A call of this session and id, which leaves a text to be found in the file.
fn say<'a>(session: &'a str, id: &'a str) -> [&'a str; 7] {
    let message =
        if session == "hurt" { r#"{"message": "said in hurt"}"# } else { r#"{"message": "said in whole"}"# };
    ["call", "echo", message, "--session", session, "--id", id]
}

fn change(file: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = std::fs::read(file).expect("it is there");
    change(&mut bytes);
    std::fs::write(file, bytes).expect("it can be written");
}

#[test]
fn files_that_are_no_store_of_ours_are_refused_and_left_alone() {
    let mut told = String::new();
    type Damage = fn(&mut Vec<u8>);
    let cases: [(&str, Damage); 7] = [
        // No format is older than the first, so a file that says it is has been damaged.
        ("older", |bytes| bytes[63] = 0),
        ("empty", Vec::clear),
        ("truncated", |bytes| bytes.truncate(bytes.len() / 2)),
        ("no database", |bytes| bytes[..16].copy_from_slice(b"hello, world....")),
        ("of another program", |bytes| bytes[68..72].copy_from_slice(&[0, 0, 0, 9])),
        ("newer", |bytes| bytes[63] = 200),
        ("damaged", |bytes| bytes[4096..].fill(0xA5)),
    ];
    for (name, how) in cases {
        let rig = used();
        for log in ["windlass.db-wal", "windlass.db-shm"] {
            drop(std::fs::remove_file(rig.path(".windlass").join(log)));
        }
        change(&rig.database(), how);
        let before = std::fs::read(rig.database()).expect("it is there");
        for args in [&["call", "add", r#"{"a": 1, "b": 2}"#][..], &["calls"], &["doctor"]] {
            let ran = rig.run(args).expect(6);
            told.push_str(&format!("# {name}, {}: {}", args[0], rig.told(&ran)));
        }
        assert_eq!(std::fs::read(rig.database()).expect("it is there"), before, "{name}: it was changed");
    }
    insta::assert_snapshot!(told);
}

#[test]
fn a_flipped_bit_stops_one_session_and_is_named() {
    let rig = used();
    change(&rig.database(), |bytes| {
        let needle = b"said in hurt";
        let at = bytes.windows(needle.len()).position(|part| part == needle).expect("the row is there");
        bytes[at] ^= 1;
    });
    let doctor = rig.run(&["doctor"]).expect(6);
    let rows = doctor.stdout.lines().filter(|line| line.starts_with("hurt") || line.starts_with("whole"));
    let mut told = format!("# doctor\n{}\n", rows.collect::<Vec<_>>().join("\n"));
    // Its record cannot be answered from, so it is not answered; the other session goes on, old and new.
    let hurt = rig.run(&say("hurt", "x")).expect(6);
    told.push_str(&format!("# the hurt session\n{}", rig.told(&hurt)));
    let whole = rig.run(&say("whole", "x")).expect(0);
    assert!(whole.stderr.contains("was recorded"), "{whole}");
    rig.run(&say("whole", "y")).expect(0);
    let calls = rig.run(&["calls", "--json"]).expect(6);
    assert_eq!(
        calls.json()["items"].as_array().expect("items").len(),
        2,
        "those of the whole session are listed"
    );
    told.push_str(&format!("# calls\n{}", calls.stderr));
    insta::assert_snapshot!(told);
}

#[test]
fn a_folder_that_cannot_be_had_is_told() {
    let rig = Rig::new();
    rig.write("file", "");
    let mut told = String::new();
    for args in [&["calls"][..], &["--data", "file", "call", "add"], &["--data", "file/below", "call", "add"]]
    {
        told.push_str(&rig.told(&rig.run(args).expect(6)));
    }
    insta::assert_snapshot!(told);
}
