//! Declared commands as calls: how they fail, what they write, and that none outlives its owner.

use crate::rig::{Rig, kill, stands_still, until};
use rustix::process::{Pid, Signal, kill_process};

const TOOLS: &str = r#"
[tools.missing]
command = ["./no-such-program"]

[tools.not_executable]
command = ["./windlass.toml"]

[tools.busy]
command = ["sh", "-c", "echo 'come back later' >&2; exit 75"]

[tools.broken]
title = "Broken thing"
command = ["sh", "-c", "echo 'first' >&2; echo 'the disk is on fire' >&2; exit 3"]

[tools.signalled]
command = ["sh", "-c", "kill -15 $$"]
class = "read"
retry = { attempts = 1 }

[tools.bytes]
command = ["printf", 'a\377\376b']

[tools.chatty]
command = ["sh", "-c", "yes 'a line of the log' | head -c 20000000 >&2; echo 'last words' >&2; exit 1"]

[tools.words]
command = ["printf", "%s|", "{text}", "--flag={flag}", "{other}"]
input = { type = "object", properties = { text = { type = "string" }, flag = { type = "boolean" } } }

[tools.stdin]
command = ["cat"]
"#;

#[test]
fn failures_are_told_to_the_model() {
    let rig = Rig::with(TOOLS);
    let mut told = String::new();
    for tool in ["missing", "not_executable", "busy", "broken", "signalled"] {
        let ran = rig.run(&["call", tool, "--json"]).expect(1);
        let failure = &ran.json()["outcome"]["failure"];
        let text = serde_json::to_string_pretty(failure).expect("JSON");
        told.push_str(&format!("{tool} {}\n", rig.redact(&text)));
        // Paths are for operators, not for the model.
        let is_unstartable = ["missing", "not_executable"].contains(&tool);
        assert_eq!(ran.stderr.contains("could not be started"), is_unstartable, "{ran}");
    }
    insta::assert_snapshot!(told);
}

#[test]
fn output_that_is_no_text_is_kept_as_it_is() {
    let rig = Rig::with(TOOLS);
    let ran = rig.run(&["call", "bytes", "--json"]).expect(0);
    let part = &ran.json()["outcome"]["parts"][0];
    assert_eq!((&part["type"], &part["bytes"]), (&"file".into(), &4.into()), "{ran}");
    assert_eq!(part["media_type"], "application/octet-stream");
    let read = format!(r#"{{"artifact": {}}}"#, part["artifact"]);
    let read = rig.run(&["call", "read_artifact", &read]).expect(0);
    assert_eq!(
        read.stdout,
        "{\"lossy\":true,\"next_offset\":null,\"offset\":0,\"text\":\"a\u{fffd}\u{fffd}b\"}\n"
    );
    // For people, the answer names what was kept.
    let shown = rig.run(&["call", "bytes"]).expect(0);
    insta::assert_snapshot!(rig.told(&shown));
}

#[test]
fn of_a_huge_log_the_last_lines_are_told() {
    let rig = Rig::with(TOOLS);
    let ran = rig.run(&["call", "chatty"]).expect(1);
    assert!(ran.stdout.len() < 10_000, "{} bytes", ran.stdout.len());
    assert!(ran.stdout.contains("last words"), "{ran}");
}

#[test]
fn arguments_become_words_and_standard_input() {
    let rig = Rig::with(TOOLS);
    let ran = rig.run(&["call", "words", r#"{"text": "two words; $(date) {flag}", "flag": true}"#]).expect(0);
    assert_eq!(ran.stdout, "two words; $(date) {flag}|--flag=true|{other}|\n");
    let ran = rig.run(&["call", "words", r#"{"text": "x"}"#]).expect(0);
    assert_eq!(ran.stdout, "x|{other}|\n");
    let ran = rig.run(&["call", "stdin", r#"{"a": [1, "ü"]}"#]).expect(0);
    assert_eq!(ran.stdout, "{\"a\":[1,\"ü\"]}\n");
    // A command without arguments is given an empty object.
    assert_eq!(rig.run(&["call", "stdin"]).expect(0).stdout, "{}\n");
    assert_eq!(
        rig.run_on(&["run", "-", "--json"], r#"{"tool": "stdin"}"#).expect(0).states(),
        ["call-1 succeeded"]
    );
}

#[test]
fn a_tool_that_panics_harms_nobody_else() {
    let rig = Rig::new();
    let batch = r#"{"calls": [
        {"id": "a", "tool": "add", "args": {"a": 1, "b": 2}},
        {"id": "b", "tool": "fail", "args": {"message": "secret reason", "kind": "panic"}},
        {"id": "c", "tool": "fail", "args": {"message": "secret database", "kind": "internal"}},
        {"id": "d", "tool": "sleep", "args": {"ms": 1}}]}"#;
    let ran = rig.run_on(&["run", "-", "--json"], batch).expect(1);
    assert_eq!(ran.states(), ["a succeeded", "b failed", "c failed", "d succeeded"]);
    assert!(!ran.stdout.contains("secret"), "the model sees what only operators may: {ran}");
    let json = ran.json();
    for (call, code) in [(&json["calls"][1], "tool_panicked"), (&json["calls"][2], "internal")] {
        let handle = call["call"].as_str().expect("a handle");
        let told = call["model"]["parts"][0]["text"].as_str().expect("text");
        assert_eq!(
            told,
            format!(
                r#"{{"error":"An internal error occurred; the operator finds it under reference {handle}.","code":"{code}"}}"#
            )
        );
        let shown = rig.run(&["calls", handle]).expect(0);
        assert!(shown.stdout.contains("failed inside") && shown.stdout.contains("secret"), "{shown}");
    }
    let line = ran.stderr.split(".rs:").nth(1).and_then(|rest| rest.split(": ").next()).expect("a place");
    insta::assert_snapshot!(rig.redact(&ran.stderr.replace(line, "[line]")));
}

#[test]
fn no_command_outlives_a_killed_owner() {
    let rig = Rig::with("[tools.stubborn]\ncommand = [\"./stubborn.sh\"]\n");
    // It ignores what can be ignored, and so do its children, some of which leave the process group or lose their
    // parent, and one its environment.
    rig.script(
        "stubborn.sh",
        "trap '' TERM INT HUP PIPE\n\
         endless='trap \"\" TERM INT HUP PIPE; echo up >> up; while :; do sleep 1; done'\n\
         sh -c \"$endless\" &\n\
         setsid sh -c \"$endless\" &\n\
         (setsid sh -c \"$endless\" &)\n\
         env -i PATH=\"$PATH\" setsid sh -c \"$endless\" &\n\
         wait",
    );
    let owner = rig.start(&["call", "stubborn"]);
    until("all are up", || rig.lines("up").len() == 4);
    assert!(rig.processes().len() >= 6, "{:?}", rig.processes());
    kill(owner);
    until("none is left", || rig.processes().is_empty());
    let next = rig.run(&["calls", "--json"]).expect(0);
    assert_eq!(next.json()["items"][0]["state"], "running");
    // The next owner finds nothing to kill, and brings the call to its end.
    let next = rig.run(&["call", "add", r#"{"a": 1, "b": 2}"#]).expect(0);
    assert!(!next.stderr.contains("left behind"), "{next}");
    assert_eq!(rig.run(&["calls", "--json"]).expect(0).json()["items"][1]["state"], "unknown");
}

#[test]
fn survivors_of_a_killed_launcher_are_ended_by_the_next_owner() {
    let rig = Rig::with("[tools.stubborn]\ncommand = [\"./stubborn.sh\"]\n");
    rig.script("stubborn.sh", "trap '' TERM INT HUP\necho up >> up\nwhile :; do sleep 1; done");
    let mut owner = rig.start(&["call", "stubborn"]);
    until("it is up", || rig.lines("up").len() == 1);
    // Owner and launcher die at the same moment, so nobody is left who knows the command.
    let launcher = rig.processes().into_iter().find(|pid| {
        let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.contains("stubborn.sh") && line.starts_with("windlass\0")
    });
    let launcher = launcher.and_then(Pid::from_raw).expect("a launcher");
    // The owner is the one that is stopped: a launcher that is stopped when its owner dies is woken by the kernel
    // (SIGHUP and SIGCONT to a group that becomes orphaned), and may still end the command before it dies.
    let stopped = Pid::from_child(&owner);
    kill_process(stopped, Signal::STOP).expect("it is ours");
    until("every thread of the owner is stopped", || stands_still(stopped.as_raw_nonzero().get()));
    kill_process(launcher, Signal::KILL).expect("it is ours");
    let launcher = launcher.as_raw_nonzero().get();
    until("the launcher is gone", || !rig.processes().contains(&launcher));
    owner.kill().expect("it can be killed");
    owner.wait().expect("our child");
    assert!(!rig.processes().is_empty(), "the command should be an orphan now");
    let next = rig.run(&["call", "add", r#"{"a": 1, "b": 2}"#]).expect(0);
    assert!(next.stderr.contains("processes that the last owner's commands left behind"), "{next}");
    assert_eq!(rig.processes(), [0; 0]);
}
