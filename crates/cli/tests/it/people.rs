//! Terminal output for people: no secrets, no text that draws over other lines, commands that can be pasted, and the same with
//! and without a process that owns the folder.

use crate::rig::{Rig, finish, kill, text, until};
use std::process::Stdio;

/// Turns the direction of what follows, as a name of a file might to look like another.
const TURNED: &str = "\u{202e}\u{2066}";

const TOOLS: &str = r#"
[tools.log_in]
title = "Log in"
description = "Logs in"
command = ["true"]
class = "keyed"
input = { type = "object", properties = { user = { type = "string" }, api_key = { type = "string" }, code = { type = "string", writeOnly = true } } }
narration = { completed = "Logged in {user} with {code}", fr = { completed = "Connecté {user}" } }

[tools.deploy]
description = "Deploys, and never twice"
command = ["sh", "-c", "echo held >> held; while [ ! -e go ]; do sleep 0.01; done"]

[tools.look]
description = "Looks until the file `go` is there"
command = ["sh", "-c", "echo held >> held; while [ ! -e go ]; do sleep 0.01; done; echo '{\"seen\": true}'"]
class = "read"
"#;

/// The output of each read-only command in this folder.
fn shown(rig: &Rig, call: &str) -> Vec<(String, String)> {
    let commands: [&[&str]; 12] = [
        &["watch", "--until-idle", "--after", "0"],
        &["watch", "--until-idle", "--after", "0", "--json"],
        &["watch", "--until-idle", "--after", "0", "--locale", "fr-CA"],
        &["calls"],
        &["calls", "--state", "open"],
        &["calls", call],
        &["calls", call, "--journal"],
        &["sessions"],
        &["tasks"],
        &["questions"],
        &["schedules", "list"],
        &["triggers", "list"],
    ];
    commands.iter().map(|args| (args.join(" "), rig.run(args).expect(0).stdout)).collect()
}

#[test]
fn people_see_no_secrets_and_the_same_with_and_without_an_owner() {
    let rig = Rig::with(TOOLS);
    let args = r#"{"user": "ann", "api_key": "sk-live-123", "code": "hunter2-hunter2"}"#;
    rig.run(&["call", "log_in", args, "--id", "c1"]).expect(0);
    let call = text(&rig.run(&["calls", "--json"]).expect(0).json()["items"][0]["call"]);
    let alone = shown(&rig, &call);
    let server = rig.start(&["serve", "--listen", "127.0.0.1:0"]);
    until("the server is there", || rig.path(".windlass/control.sock").exists());
    until("it answers", || rig.run(&["calls"]).code == Some(0));
    let owned = shown(&rig, &call);
    kill(server);
    for ((command, alone), (_, owned)) in alone.iter().zip(&owned) {
        assert_eq!(alone, owned, "`windlass {command}` differs without an owner");
        for secret in ["sk-live", "hunter2"] {
            assert!(!alone.contains(secret), "`windlass {command}` shows {secret}: {alone}");
        }
    }
    assert!(alone[0].1.contains("Logged in ann with [redacted]"), "{}", alone[0].1);
    assert!(alone[2].1.contains("Connecté ann"), "{}", alone[2].1);
    // Programs get what was given.
    let whole = rig.run(&["calls", &call, "--json"]).expect(0).json();
    assert!(text(&whole["args"]).contains("hunter2-hunter2"), "{whole}");
}

#[test]
fn what_turns_the_direction_of_text_is_escaped_wherever_people_read() {
    let rig = Rig::with(TOOLS);
    let args = format!(r#"{{"message": "in{TURNED}voice\u001b[2J"}}"#);
    let id = format!("c{TURNED}1");
    rig.run(&["call", "echo", &args, "--id", &id]).expect(0);
    rig.run(&["call", "fail", &format!(r#"{{"message": "no{TURNED}"}}"#), "--id", "f"]).expect(1);
    let calls = rig.run(&["calls", "--json"]).expect(0).json();
    for call in calls["items"].as_array().expect("calls") {
        for (command, told) in shown(&rig, &text(&call["call"])) {
            // Programs are given texts as they are.
            let is_whole = command.contains("--json") || command == format!("calls {}", text(&call["call"]));
            let tables = if is_whole { told.split("\n\n").next().unwrap_or_default() } else { &told };
            let raw = |letter: char| TURNED.contains(letter) || (letter.is_control() && letter != '\n');
            assert!(command.contains("--json") || !tables.contains(raw), "`windlass {command}`: {told:?}");
        }
    }
    rig.write("b.json", format!(r#"[{{"id": "{TURNED}", "tool": "x{TURNED}", "args": {{}}}}]"#));
    let ran = rig.run(&["run", "b.json"]);
    assert!(!ran.stdout.contains(TURNED) && !ran.stderr.contains(TURNED), "{ran}");
}

#[test]
fn what_it_tells_operators_to_do_can_be_pasted() {
    let rig = Rig::with(TOOLS);
    rig.write("batch.json", r#"{"key": "k", "calls": [{"id": "a", "tool": "deploy"}]}"#);
    let run = ["run", "batch.json", "--data", "my data"];
    let first = rig.start(&run);
    until("the command runs", || rig.lines("held").len() == 1);
    kill(first);
    let told = rig.run(&run).expect(3).stderr;
    let pasted: Vec<&str> =
        told.lines().map(str::trim).filter(|line| line.starts_with("windlass ")).collect();
    assert_eq!(pasted.len(), 3, "{told}");
    let path = std::path::Path::new(env!("CARGO_BIN_EXE_windlass")).parent().expect("a folder").to_path_buf();
    for line in [pasted[0], pasted[2]] {
        let mut shell = std::process::Command::new("sh");
        shell
            .args(["-c", line])
            .current_dir(rig.path(""))
            .env("PATH", format!("{}:/usr/bin:/bin", path.display()));
        let ran = shell.output().expect("a shell");
        assert!(ran.status.success(), "{line}: {}", String::from_utf8_lossy(&ran.stderr));
    }
    let answer = rig.run(&run).expect(0);
    assert!(answer.stdout.contains("succeeded"), "{answer}");
}

#[test]
fn a_running_read_is_seen_while_it_runs() {
    let rig = Rig::with(TOOLS);
    rig.write("batch.json", r#"{"key": "k", "calls": [{"id": "a", "tool": "look"}]}"#);
    let first = rig.start(&["run", "batch.json", "--json"]);
    until("the command runs", || rig.lines("held").len() == 1);
    let open = rig.run(&["calls", "--state", "open", "--json"]).expect(0).json();
    let call = &open["items"][0];
    assert_eq!((text(&call["state"]), &call["attempts"]), ("running".to_string(), &serde_json::json!(1)));
    let watching = rig.start(&["watch", "--after", "0", "--until-idle"]);
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new({
        let mut watching = watching;
        watching.stdout.take().expect("a pipe")
    }));
    let began = lines.next().expect("a line").expect("text");
    assert!(began.contains("▶ Running look") && !rig.path("go").exists(), "{began}");
    rig.write("go", "");
    finish(first).expect(0);
    let ended = lines.next().expect("a line").expect("text");
    assert!(ended.contains("✓ Ran look"), "its start is told once: {ended}");
}

/// A slow `read` call is recorded after quicker ones that began later: people see them in the order in which they happened.
#[test]
fn watch_shows_times_in_their_order() {
    let rig = Rig::new();
    rig.write(
        "batch.json",
        r#"{"key": "k", "calls": [{"id": "slow", "tool": "sleep", "args": {"ms": 150}},
            {"id": "quick", "tool": "echo", "args": {"message": "a"}}, {"id": "sum", "tool": "add", "args": {"a": 1, "b": 2}}]}"#,
    );
    rig.run(&["run", "batch.json"]).expect(0);
    let shown = rig.run(&["watch", "--until-idle", "--after", "0"]).expect(0).stdout;
    let times: Vec<&str> = shown.lines().map(|line| &line[..12]).collect();
    assert_eq!(times.len(), 6, "{shown}");
    assert!(times.is_sorted(), "{shown}");
}

#[test]
fn a_reader_that_goes_away_ends_a_command_quietly() {
    let rig = Rig::new();
    let calls: Vec<String> = (0..100)
        .map(|n| format!(r#"{{"id": "c{n}", "tool": "echo", "args": {{"message": "{}"}}}}"#, "x".repeat(500)))
        .collect();
    rig.write("batch.json", calls.join("\n"));
    rig.run(&["run", "batch.json"]).expect(0);
    // It would wait for more, were somebody there to read it.
    let commands: [&[&str]; 5] = [
        &["watch", "--after", "0", "--json"],
        &["watch", "--after", "0"],
        &["calls", "--limit", "1000", "--json"],
        &["doctor"],
        &["run", "batch.json", "--new"],
    ];
    for args in commands {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        let child = rig.command(args).stdout(Stdio::from(writer)).spawn().expect("windlass starts");
        drop(reader);
        let ran = finish(child).expect(0);
        assert_eq!(ran.stderr, "", "windlass {}", args.join(" "));
    }
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let untold = rig.command(&["run", "batch.json"]).stderr(Stdio::from(writer)).spawn().expect("it starts");
    finish(untold).expect(0);
}

#[test]
fn help_shows_the_options_that_a_command_takes() {
    let rig = Rig::new();
    let help = |args: &[&str]| rig.run(args).expect(0).stdout;
    for (command, hidden) in [
        ("serve", &["--server", "--token-file"][..]),
        ("dev", &["--server", "--token-file"]),
        ("doctor", &["--server", "--token-file"]),
        ("bench", &["--data", "--server", "--token-file"]),
    ] {
        let told = [help(&["help", command]), help(&[command, "--help"])].concat();
        for option in hidden {
            assert!(!told.contains(option), "{command} refuses {option} and shows it: {told}");
            let refused = rig.run(&[command, option, "http://127.0.0.1:1"]);
            assert_eq!(refused.code, Some(2), "{command} {option}: {refused}");
        }
    }
    assert!(help(&["help", "calls"]).contains("--server"), "others take it");
    for verb in ["enable", "disable", "remove"] {
        let told = help(&["schedules", verb, "--help"]);
        assert!(told.contains(&format!("Example: windlass schedules {verb} nightly")), "{told}");
    }
    assert!(help(&["--version"]).starts_with("windlass 0."), "{}", help(&["--version"]));
}

#[test]
fn the_manual_has_a_section_for_each_command_and_names_no_other_page() {
    let rig = Rig::new();
    let page = rig.run(&["man"]).expect(0).stdout;
    let listed = rig.run(&["help"]).expect(0).stdout;
    let listed = listed.split("Commands:\n").nth(1).expect("a list").split("\n\n").next().expect("a list");
    let names: Vec<&str> = listed.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert!(names.contains(&"serve") && names.len() > 20, "{names:?}");
    for name in names.iter().filter(|name| **name != "help") {
        assert!(page.contains(&format!(".SH WINDLASS {}\n", name.to_uppercase())), "{name} has no section");
        assert!(page.contains(&format!("\nwindlass {name}\n")), "{name} is not in the list");
    }
    assert!(page.contains(".SH WINDLASS SCHEDULES ADD\n"), "commands below commands have sections");
    assert!(!page.contains("(1)"), "there is one page");
    let sections = page.lines().filter(|line| line.starts_with(".SH ")).map(|line| line.to_string());
    let known = ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "SUBCOMMANDS", "NOTES", "VERSION"];
    let others = sections.filter(|line| {
        !line.starts_with(".SH WINDLASS ") && !known.iter().any(|name| *line == format!(".SH {name}"))
    });
    assert_eq!(others.collect::<Vec<_>>(), [""; 0]);
    assert_eq!(page.matches("\n.SH OPTIONS\n").count(), 1, "those of a command are below it");
}

#[test]
fn a_bench_says_in_plain_words_what_it_measured() {
    let rig = Rig::new();
    let ran = rig.run(&["bench", "--part", "A", "--seconds", "0.01"]).expect(0);
    let told = [&*ran.stdout, &*ran.stderr].concat();
    assert!(ran.stderr.contains("debug build") == cfg!(debug_assertions), "{ran}");
    for word in [" bar ", "lean", "serde", "spawn", "lane", "planner"] {
        assert!(!told.contains(word), "{word} is a word of ours: {told}");
    }
}
