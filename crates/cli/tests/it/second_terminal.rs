//! Seeing and steering what another process runs, and what one left behind.

use crate::rig::{Ran, Rig, finish, kill, text, until};
use serde_json::Value;
use std::process::Child;

const TOOLS: &str = r#"
[tools.hold]
description = "Waits until the file `go` is there"
command = ["sh", "-c", "echo held >> held; while [ ! -e go ]; do sleep 0.01; done; echo '{\"went\": true}'"]
class = "once"

[tools.look]
description = "The same, and changes nothing"
command = ["sh", "-c", "echo held >> held; while [ ! -e go ]; do sleep 0.01; done"]
class = "read"
"#;

const BATCH: &str = r#"{"key": "k", "calls": [{"id": "a", "tool": "hold"}, {"id": "b", "tool": "hold"}]}"#;

fn rig() -> Rig {
    let rig = Rig::with(TOOLS);
    rig.write("batch.json", BATCH);
    rig
}

/// Starts the batch, and waits until a command of it runs.
fn start(rig: &Rig, args: &[&str]) -> Child {
    let before = rig.lines("held").len();
    let child = rig.start(args);
    until("a command runs", || rig.lines("held").len() > before);
    child
}

fn listed(rig: &Rig, args: &[&str]) -> Vec<Value> {
    let ran = rig.run(&[&["calls", "--json"], args].concat()).expect(0);
    ran.json()["items"].as_array().expect("items").clone()
}

fn handle(rig: &Rig, id: &str) -> String {
    let items = listed(rig, &[]);
    let call = items.iter().find(|call| call["id"] == id).unwrap_or_else(|| panic!("no {id} in {items:?}"));
    text(&call["call"])
}

fn told(rig: &Rig, ran: &Ran) -> String {
    rig.told(ran)
}

#[test]
fn a_running_call_is_cancelled_from_a_second_terminal() {
    let rig = rig();
    let first = start(&rig, &["run", "batch.json", "--json"]);
    let running = listed(&rig, &["--state", "running"]);
    assert_eq!((running.len(), text(&running[0]["id"])), (1, "a".into()));
    let waits = &listed(&rig, &["--state", "queued", "--tool", "hold", "--session", "default"])[0];
    let call = text(&running[0]["call"]);
    let why = format!("claim of {call} (hold)");
    assert_eq!((text(&waits["id"]), text(&waits["waiting_for"])), ("b".into(), why));
    let cancelled = rig.run(&["cancel", &call[..8], "--reason", "wrong customer"]).expect(0);
    insta::assert_snapshot!(cancelled.stdout.replace(&call[..8], "[call]"), @"the call was asked to stop; `windlass calls [call] --journal` shows how it ends");
    until("the next one runs", || rig.lines("held").len() == 2);
    assert_eq!(rig.run(&["cancel", "--batch", "k", "--json"]).expect(0).json()["asked"], 1);
    let ran = finish(first).expect(1);
    assert_eq!(ran.states(), ["a cancelled", "b cancelled"]);
    assert_eq!(ran.json()["calls"][0]["outcome"]["effect"], "unknown");
    let story = rig.run(&["calls", &call, "--journal"]).expect(0).stdout;
    assert!(story.contains("it was asked to stop: wrong customer"), "{story}");
    assert_eq!(rig.processes(), [0; 0]);

    // What is over stays as it is, with and without an owner; that is no failure.
    let again = rig.run(&["cancel", &call]).expect(0);
    assert_eq!(again.stdout, "the call is already over; nothing changed\n");
    let again = rig.run(&["cancel", "--session", "default", "--json"]).expect(0);
    assert_eq!((&again.json()["asked"], &again.json()["left_for_next_owner"]), (&0.into(), &false.into()));
}

#[test]
fn what_waits_is_listed_with_what_it_waits_for() {
    let flaky = "[tools.flaky]\ncommand = [\"sh\", \"-c\", \"exit 75\"]\nclass = \"keyed\"\nclaims = []\n\
                 retry = { attempts = 2, base_ms = 600000, cap_ms = 600000 }\n";
    let rig = Rig::with(&format!("{TOOLS}{flaky}"));
    rig.write(
        "three.json",
        r#"{"calls": [{"id": "a", "tool": "hold"}, {"id": "b", "tool": "hold"}, {"id": "c", "tool": "flaky"}]}"#,
    );
    let first = start(&rig, &["run", "three.json"]);
    until("two of them wait", || listed(&rig, &["--waiting"]).len() == 2);
    let held_by = handle(&rig, "a");
    let whys = |waiting: &[Value]| {
        let mut whys: Vec<String> = waiting
            .iter()
            .map(|call| format!("{} {}", text(&call["id"]), text(&call["waiting_for"])))
            .collect();
        whys.sort();
        whys
    };
    let waiting = whys(&listed(&rig, &["--waiting"]));
    assert_eq!(waiting[0], format!("b claim of {held_by} (hold)"));
    assert!(waiting[1].starts_with("c retry until 2"), "{waiting:?}");
    let table = rig.run(&["calls", "--waiting"]).expect(0).stdout;
    let lines: Vec<&str> = table.lines().collect();
    let at = lines[0].find("WAITS FOR").expect("a column");
    assert!(
        lines.len() == 3 && lines.iter().skip(1).any(|line| line[at..].starts_with("claim of ")),
        "{table}"
    );
    assert!(lines.iter().skip(1).any(|line| line[at..].starts_with("retry until ")), "{table}");

    // Where nobody owns the folder, its journals say what they can.
    kill(first);
    let left = whys(&listed(&rig, &["--waiting"]));
    let nobody = "owner (nobody drives it)";
    assert_eq!(left, [format!("a {nobody}"), format!("b {nobody}"), waiting[1].clone()]);
    assert!(rig.run(&["calls", "--waiting", "--tool", "look"]).expect(0).stdout.lines().count() <= 1);
}

#[test]
fn a_call_that_is_not_recorded_yet_is_seen_and_cancelled() {
    let rig = rig();
    let first = start(&rig, &["call", "look", "--json"]);
    let call = handle(&rig, "call-1");
    let shown = rig.run(&["calls", &call[..6]]).expect(0);
    assert!(shown.stdout.contains("running") && shown.stdout.ends_with("The call is running.\n"), "{shown}");
    let story = rig.run(&["calls", &call[..6], "--journal"]).expect(0);
    assert!(story.stdout.starts_with("nothing is recorded yet"), "{story}");
    rig.run(&["cancel", &call[..6]]).expect(0);
    let ran = finish(first).expect(1);
    assert_eq!(ran.json()["outcome"]["effect"], "none");
}

/// Runs the batch, kills it in the middle of `a`, and brings it to its end: `a` is unknown.
fn unknown(rig: &Rig) -> String {
    kill(start(rig, &["run", "batch.json"]));
    until("all commands are gone", || rig.processes().is_empty());
    assert!(rig.path(".windlass/control.sock").exists(), "a killed owner leaves its socket");
    let left = listed(rig, &["--state", "open"]);
    assert!(
        left.iter().all(|call| call["waiting_for"] == "owner (nobody drives it)") && left.len() == 2,
        "{left:?}"
    );
    rig.write("go", "");
    rig.run(&["run", "batch.json"]).expect(3);
    assert!(
        !rig.path(".windlass/control.sock").exists(),
        "a stale socket is replaced, and goes with its owner"
    );
    std::fs::remove_file(rig.path("go")).expect("it was there");
    handle(rig, "a")
}

#[test]
fn an_unknown_call_is_resolved_for_the_next_owner() {
    let rig = rig();
    let call = unknown(&rig);
    let mut all = String::new();
    for words in [
        &["--landed", "done"][..],
        &["--ask-tool"],
        &["--landed", r#"{"went": "by hand"}"#],
        &["--landed", r#"{"went": "by hand"}"#],
        &["--did-not-happen"],
    ] {
        let ran = rig.run(&[&["resolve", &call[..8]], words].concat());
        all.push_str(&format!("$ windlass resolve CALL {}\n{}\n", words.join(" "), told(&rig, &ran)));
    }
    insta::assert_snapshot!(all);
    let ran = rig.run(&["run", "batch.json", "--json"]).expect(0);
    assert_eq!(ran.json()["calls"][0]["outcome"]["value"]["went"], "by hand");
    assert_eq!(rig.lines("held").len(), 2, "nothing ran again");
    let story = rig.run(&["calls", &call, "--journal"]).expect(0).stdout;
    assert!(story.contains(r#"an operator says that it took effect, with {"went":"by hand"}"#), "{story}");
    let late = rig.run(&["resolve", &call, "--did-not-happen"]).expect(4);
    assert_eq!(late.stderr, "windlass: the call was resolved differently before; that resolution stands\n");
}

#[test]
fn an_unknown_call_is_resolved_through_the_owner_at_once() {
    let rig = rig();
    let call = unknown(&rig);
    let owner = start(&rig, &["call", "hold", "--session", "other"]);
    let ran = rig.run(&["resolve", &call[..8], "--did-not-happen"]).expect(0);
    assert_eq!(ran.stdout, "the call is failed now; submitting it again returns that answer\n");
    assert_eq!(rig.run(&["resolve", &call, "--landed", "1"]).expect(4).stdout, "");
    assert_eq!(rig.run(&["resolve", &handle(&rig, "b"), "--landed", "1"]).expect(4).stdout, "");
    assert_eq!(listed(&rig, &["--state", "unknown"]).len(), 0);
    rig.write("go", "");
    finish(owner).expect(0);
    let ran = rig.run(&["run", "batch.json", "--json"]).expect(1);
    assert_eq!(ran.json()["calls"][0]["outcome"]["failure"]["code"], "did_not_happen");
}

#[test]
fn the_tool_is_asked_by_the_owner_or_by_whoever_becomes_it() {
    let rig = rig();
    let asked = "class = \"once\"\nreconcile = [\"sh\", \"-c\", \"cat landed\"]";
    rig.write("windlass.toml", TOOLS.replacen("class = \"once\"", asked, 1));
    let call = unknown(&rig);
    let ask = || rig.run(&["resolve", &call[..8], "--ask-tool"]);
    let cannot_tell = ask().expect(4).stderr;
    assert!(
        cannot_tell.starts_with("windlass: the tool could not be asked: The command exited with code 1"),
        "{cannot_tell}"
    );
    let owner = start(&rig, &["call", "hold", "--session", "other"]);
    assert_eq!(ask().expect(4).stderr, cannot_tell);
    rig.write("go", "");
    finish(owner).expect(0);

    rig.write("landed", r#"{"went": "it says"}"#);
    assert_eq!(
        ask().expect(0).stdout,
        "the call is succeeded now; submitting it again returns that answer\n"
    );
    let lock = std::fs::read_to_string(rig.path(".windlass/owner.lock")).expect("it is there");
    assert_eq!(lock.len(), 1, "the folder was given up in good order: {lock}");
    let ran = rig.run(&["run", "batch.json", "--json"]).expect(0);
    assert_eq!(ran.json()["calls"][0]["outcome"]["value"]["went"], "it says");
    let story = rig.run(&["calls", &call, "--journal"]).expect(0).stdout;
    assert!(story.contains("its tool, asked again, says that it took effect"), "{story}");
}

#[test]
fn a_cancel_is_left_for_the_next_owner() {
    let rig = rig();
    kill(start(&rig, &["run", "batch.json"]));
    let waiting = handle(&rig, "b");
    let ran = rig.run(&["cancel", &waiting[..8], "--reason", "not now"]).expect(0);
    insta::assert_snapshot!(told(&rig, &ran).replace(&waiting[..8], "[call]"));
    rig.write("go", "");
    let ran = rig.run(&["run", "batch.json", "--json"]).expect(3);
    assert_eq!(ran.states(), ["a unknown", "b cancelled"]);
    assert_eq!(rig.lines("held").len(), 1, "it did not run");
}

#[test]
fn a_call_whose_tool_has_changed_waits_until_it_is_accepted() {
    let rig = rig();
    let keyed = |input: &str| {
        let tools = TOOLS.replace(r#"class = "once""#, "class = \"keyed\"");
        tools.replacen("class = \"keyed\"", &format!("class = \"keyed\"\ninput = {input}"), 1)
    };
    rig.write("windlass.toml", keyed(r#"{ type = "object" }"#));
    kill(start(&rig, &["run", "batch.json"]));
    rig.write("windlass.toml", keyed(r#"{ type = "object", properties = { n = { type = "integer" } } }"#));
    rig.write("go", "");
    let waits = |rig: &Rig| {
        let open = listed(rig, &["--state", "open"]);
        open.iter().any(|call| call["id"] == "a" && call["waiting_for"] == "tool_changed")
    };
    let owner = rig.start(&["run", "batch.json", "--json"]);
    until("it waits", || waits(&rig));
    let call = handle(&rig, "a");
    let story = rig.run(&["calls", &call, "--journal"]).expect(0).stdout;
    assert!(story.contains("`windlass accept` lets it continue"), "{story}");
    assert_eq!(
        rig.run(&["accept", &call[..8]]).expect(0).stdout,
        "accepted; the call continues with the changed tool\n"
    );
    until("it goes on", || rig.lines("held").len() >= 2);
    let later = handle(&rig, "b");
    until("the next one waits or is over", || {
        let states = listed(&rig, &[]);
        states.iter().all(|call| {
            call["id"] != "b" || call["waiting_for"] == "tool_changed" || call["state"] == "succeeded"
        })
    });
    // It was prepared for the old tool only if it was prepared before.
    drop(rig.run(&["accept", &later]));
    let ran = finish(owner).expect(0);
    assert_eq!(ran.states(), ["a succeeded", "b succeeded"]);
    let not = rig.run(&["accept", &call]).expect(4);
    assert!(not.stderr.contains("only a call that waits because its tool has changed"), "{not}");
}

#[test]
fn what_is_not_there_and_wrong_words_are_told_alike_with_and_without_an_owner() {
    let rig = rig();
    rig.write("go", "").run(&["run", "batch.json"]).expect(0);
    std::fs::remove_file(rig.path("go")).expect("it was there");
    let forged = "0".repeat(26);
    let ended = handle(&rig, "a");
    let ask = || {
        let mut all = String::new();
        for words in [
            &["calls", &forged][..],
            &["calls", "zzzz"],
            &["calls", "--session", "nope"],
            &["cancel", &forged],
            &["cancel", "zzzz"],
            &["cancel", "--session", "nope"],
            &["cancel", "--batch", "nope"],
            &["resolve", &forged, "--did-not-happen"],
            &["resolve", &ended, "--did-not-happen"],
            &["resolve", &ended, "--ask-tool"],
            &["accept", &forged],
            &["accept", &ended],
        ] {
            let shown = words.join(" ").replace(&forged, "FORGED").replace(&ended, "ENDED");
            all.push_str(&format!("$ windlass {shown}\n{}\n", told(&rig, &rig.run(words))));
        }
        all
    };
    let without = ask();
    insta::assert_snapshot!(without);
    let owner = start(&rig, &["call", "hold", "--session", "other"]);
    assert_eq!(ask(), without);
    rig.write("go", "");
    finish(owner).expect(0);
}

#[test]
fn an_owner_without_a_socket_runs_and_is_told_of() {
    let rig = rig();
    rig.run(&["call", "add", r#"{"a": 1, "b": 2}"#]).expect(0);
    rig.write(".windlass/control.sock", "mine");
    let owner = start(&rig, &["run", "batch.json"]);
    // What is recorded can be read; to steer it needs the socket.
    assert_eq!(listed(&rig, &["--state", "open"]).len(), 2);
    let cancel = rig.run(&["cancel", "--batch", "k"]).expect(6);
    assert!(cancel.stderr.contains("it serves no control.sock"), "{cancel}");
    rig.write("go", "");
    let ran = finish(owner).expect(0);
    assert!(ran.stderr.contains("warning: other terminals cannot connect"), "{ran}");
    assert_eq!(rig.lines(".windlass/control.sock").len(), 0);
    assert_eq!(std::fs::read(rig.path(".windlass/control.sock")).expect("left alone"), b"mine");
}

#[test]
fn a_folder_with_a_long_path_is_reached_too() {
    let rig = rig();
    let data = ["a-rather-long-name-for-a-folder"; 6].join("/");
    let owner = start(&rig, &["--data", &data, "run", "batch.json"]);
    let ran = rig.run(&["--data", &data, "cancel", "--session", "default", "--json"]).expect(0);
    assert_eq!(ran.json()["asked"], 2);
    let ran = finish(owner).expect(1);
    assert!(!ran.stderr.contains("control.sock"), "{ran}");
}

#[test]
fn long_lists_come_in_full_and_say_what_they_leave_out() {
    let rig = Rig::new();
    let calls: Vec<String> = (0..230)
        .map(|n| format!(r#"{{"id": "c{n}", "tool": "echo", "args": {{"message": "x"}}}}"#))
        .collect();
    rig.run_on(&["run", "-"], calls.join("\n")).expect(0);
    assert_eq!(listed(&rig, &["--limit", "225"]).len(), 225);
    let page = rig.run(&["calls", "--json", "--limit", "225"]).expect(0).json();
    let after = text(&page["next"]);
    assert_eq!(listed(&rig, &["--after", &after]).len(), 5);
    let cut = rig.run(&["calls", "--limit", "2"]).expect(0);
    assert_eq!(cut.stdout.lines().count(), 3);
    assert_eq!(cut.stderr, "windlass: there are more calls; use --limit 8 to see more\n");
    assert_eq!(listed(&rig, &["--state", "failed"]).len(), 0);
}
