//! `windlass dev`: what it prints is pasted, as its readers would, and the client in Python runs against it.

use crate::rig::{Ran, Rig, finish, kill, repository, text, until};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

const DATA: [&str; 2] = ["--data", ".windlass-dev"];
const ENDED: [&str; 7] = [
    "greet succeeded",
    "when succeeded",
    "sum succeeded",
    "slow succeeded",
    "impossible failed",
    "space succeeded",
    "approval succeeded",
];

/// A `windlass dev` that runs, and what it printed.
fn dev(rig: &Rig) -> (Child, String) {
    let mut child = rig.start(&["dev", "--listen", "127.0.0.1:0"]);
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let mut told = String::new();
    while !told.contains("Ctrl-C stops this") {
        let line = lines.next().and_then(Result::ok);
        told.push_str(&line.unwrap_or_else(|| panic!("it ended early: {told}")));
        told.push('\n');
    }
    (child, told)
}

fn is_there(program: &str) -> bool {
    let asked = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    let there = asked.is_ok_and(|status| status.success());
    if !there {
        eprintln!("SKIPPED: there is no {program} on this machine, so what needs it was not run");
    }
    there
}

/// Runs lines in a shell that finds windlass, in the folder of the rig.
fn paste(rig: &Rig, lines: &str) -> Ran {
    let binaries = Path::new(env!("CARGO_BIN_EXE_windlass")).parent().expect("it is in a folder");
    let path = format!("{}:{}", binaries.display(), std::env::var("PATH").unwrap_or_default());
    let mut shell = Command::new("sh");
    shell.args(["-c", lines]).env("PATH", path).current_dir(rig.path("."));
    shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    finish(shell.spawn().expect("there is a shell"))
}

fn calls(rig: &Rig, state: &[&str]) -> Vec<String> {
    let args = [&["calls", "--json", "--session", "demo"], state, &DATA].concat();
    let listed = rig.run(&args).expect(0).json();
    let items = listed["items"].as_array().expect("items").iter();
    items.map(|call| format!("{} {}", text(&call["id"]), text(&call["state"]))).collect()
}

#[test]
fn what_dev_prints_can_be_pasted_and_its_batch_ends() {
    let rig = Rig::new();
    let (server, told) = dev(&rig);
    assert!(!told.contains('\u{1b}'), "{told}");
    assert!(told.contains(&format!("kill -9 {}.", server.id())), "{told}");
    assert!(!rig.path(".windlass").exists(), "it has a folder of its own");
    until("only the approval is open", || {
        calls(&rig, &["--state", "open"]) == ["approval awaiting_completion"]
    });
    let complete = told.lines().find(|line| line.starts_with("windlass complete")).expect("how to answer");
    paste(&rig, complete).expect(0);
    until("the batch ends", || calls(&rig, &["--state", "open"]).is_empty());
    assert_eq!(calls(&rig, &[]), ENDED);
    for (title, program) in [("# curl\n", "curl"), ("# Python\n", "python3"), ("# TypeScript\n", "node")] {
        let snippet = told.split(title).nth(1).and_then(|rest| rest.split("\n\n").next()).expect("a snippet");
        if is_there(program) {
            let answered = paste(&rig, snippet).expect(0);
            assert!(answered.stdout.contains("42"), "{answered}");
        }
    }
    // What is recorded is not run again, and what was changed in the folder stays.
    let (before, tools) = (calls(&rig, &[]), rig.path(".windlass-dev/windlass.toml"));
    let changed = std::fs::read_to_string(&tools).expect("it wrote its tools") + "\n# mine\n";
    std::fs::write(&tools, &changed).expect("it is ours");
    kill(server);
    let (again, _) = dev(&rig);
    assert_eq!(calls(&rig, &[]), before);
    assert_eq!(std::fs::read_to_string(&tools).expect("it is there"), changed);
    kill(again);
}

#[test]
fn a_call_that_waits_is_there_after_a_kill() {
    let rig = Rig::new();
    let (server, _) = dev(&rig);
    until("it waits", || {
        calls(&rig, &["--state", "open"]).contains(&"approval awaiting_completion".to_string())
    });
    kill(server);
    let (server, told) = dev(&rig);
    let complete = told.lines().find(|line| line.starts_with("windlass complete")).expect("how to answer");
    paste(&rig, complete).expect(0);
    until("the batch ends", || calls(&rig, &["--state", "open"]).is_empty());
    assert_eq!(calls(&rig, &[]), ENDED);
    kill(server);
}

#[test]
fn a_port_that_is_taken_is_told_with_the_way_out() {
    let rig = Rig::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = taken.local_addr().expect("an address").to_string();
    let refused = rig.run(&["dev", "--listen", &at]).expect(2);
    assert!(refused.stderr.contains(&format!("could not listen on {at}")), "{refused}");
    assert!(refused.stderr.contains("let --listen 127.0.0.1:0 find a free port"), "{refused}");
    let elsewhere = Rig::new();
    elsewhere.run(&["--server", "http://127.0.0.1:1", "dev"]).expect(2);
    assert!(!elsewhere.path(".windlass-dev").exists(), "what is refused writes nothing");
}

#[test]
fn the_client_in_python_runs_as_it_is_documented() {
    let script = repository().join("examples/python/batch.py");
    let source = std::fs::read_to_string(&script).expect("the example");
    let page = std::fs::read_to_string(repository().join("docs/python.md")).expect("the page");
    assert!(
        page.contains(&format!("```python\n{source}```\n")),
        "docs/python.md must quote examples/python/batch.py"
    );
    if !is_there("python3") {
        return;
    }
    let rig = Rig::new();
    let (server, told) = dev(&rig);
    let url = told.split_whitespace().find(|word| word.starts_with("http://")).expect("a URL");
    let run = || paste(&rig, &format!("python3 '{}' {url}", script.display())).expect(0);
    let first = run();
    let ends = "sum succeeded {\"result\": 42}\nslow succeeded {\"slept_ms\": 500}\napproval succeeded {\"approved\": true}\n";
    assert!(first.stdout.contains("suspended approval Waiting for approval of order-8\n"), "{first}");
    assert!(first.stdout.ends_with(ends), "{first}");
    assert_eq!(run().stdout, ends, "the second time all is on record");
    kill(server);
}

#[test]
fn dev_starts_again_after_the_session_of_its_examples_was_deleted() {
    if !is_there("curl") {
        return;
    }
    let rig = Rig::new();
    let (server, told) = dev(&rig);
    let url = told.split_whitespace().find(|word| word.starts_with("http://")).expect("an address");
    let delete = format!(
        "curl -s -X DELETE -H \"Authorization: Bearer $(cat .windlass-dev/token)\" {url}/v1/sessions/demo"
    );
    assert!(paste(&rig, &delete).expect(0).stdout.contains("deleted"));
    kill(server);
    let (server, told) = dev(&rig);
    assert!(told.contains("windlass watch demo"), "it serves its tools: {told}");
    kill(server);
}
