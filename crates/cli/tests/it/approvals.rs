//! Approvals as a new user tries them: docs/approvals.md, command by command, against a real server.

use crate::rig::{Rig, kill, text, until};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command};

const DOCS: &str = include_str!("../../../../docs/approvals.md");

/// A server in the rig's folder; dropping it kills it.
struct DocsServer {
    child: Option<Child>,
    address: String,
}

impl DocsServer {
    fn start(rig: &Rig) -> DocsServer {
        let mut child = rig.start(&["serve", "--listen", "127.0.0.1:0"]);
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let first = lines.next().expect("a line").expect("text");
        let address = first.split("http://").nth(1).unwrap_or_else(|| panic!("{first}")).to_string();
        std::thread::spawn(move || lines.for_each(drop));
        until("the server answers", || rig.run(&["calls"]).code == Some(0));
        DocsServer { child: Some(child), address }
    }
}

impl Drop for DocsServer {
    fn drop(&mut self) {
        if let Some(child) = self.child.take() {
            kill(child);
        }
    }
}

/// The words of a text without what differs from run to run. `ids` are ids of the docs with those that stand for them here.
fn plain(printed: &str, ids: &BTreeMap<String, String>) -> Vec<String> {
    let is_handle = |word: &str| {
        word.len() == 8
            && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
            && word.bytes().any(|byte| byte.is_ascii_digit())
    };
    let is_time = |word: &str| word.starts_with("20") && word.ends_with('Z');
    let word = |word: &str| match word {
        word if ids.contains_key(word) => ids[word].clone(),
        word if ids.values().any(|id| id == word) => word.to_string(),
        word if is_handle(word) => "HANDLE".to_string(),
        word if is_time(word) => "TIME".to_string(),
        word if word.ends_with("-end") => "NOTICE".to_string(),
        word if word.parse::<u64>().is_ok() => "NUMBER".to_string(),
        word => word.to_string(),
    };
    printed.split_whitespace().map(word).collect()
}

/// The ids that a text tells to approve.
fn told_ids(printed: &str) -> Vec<String> {
    let told = printed.split("windlass approve ").skip(1);
    told.filter_map(|rest| rest.split_whitespace().next()).map(str::to_string).collect()
}

#[test]
fn the_docs_show_what_a_new_user_sees() {
    let rig = Rig::new();
    let bin = std::path::Path::new(env!("CARGO_BIN_EXE_windlass")).parent().expect("a folder");
    let (mut server, mut ran) = (None::<DocsServer>, 0);
    let mut ids: BTreeMap<String, String> = BTreeMap::new();
    // Text and blocks take turns.
    for (language, block) in DOCS.split("```").skip(1).step_by(2).filter_map(|block| block.split_once('\n')) {
        match language {
            "toml" => drop(rig.write("windlass.toml", block)),
            "json" => drop(rig.write("release.json", block)),
            "sh" => drop(rig.script("deploy.sh", block.trim_start_matches("#!/bin/sh\n"))),
            "console" if block == "$ windlass serve\n" => {
                drop(server.take());
                server = Some(DocsServer::start(&rig));
            }
            "console" => {
                let lines = || block.lines();
                let mut script: String = lines()
                    .filter_map(|line| line.strip_prefix("$ "))
                    .map(|line| format!("{line}\n"))
                    .collect();
                let printed: String =
                    lines().filter(|line| !line.starts_with("$ ")).map(|line| format!("{line}\n")).collect();
                let address = &server.as_ref().expect("a server runs").address;
                script = script.replace("127.0.0.1:7420", address);
                for (shown, real) in &ids {
                    script = script.replace(shown, real);
                }
                let mut shell = Command::new("sh");
                shell.args(["-c", &script]).current_dir(rig.path("")).env("WINDLASS_LOG", "off");
                shell.env("PATH", format!("{}:/usr/bin:/bin", bin.display()));
                let said = shell.output().expect("sh runs");
                let said = String::from_utf8([said.stdout, said.stderr].concat()).expect("text");
                ids.extend(told_ids(&printed).into_iter().zip(told_ids(&said)));
                assert_eq!(plain(&said, &ids), plain(&printed, &ids), "{script}\n{said}");
                ran += script.lines().count();
            }
            other => panic!("a block of {other}"),
        }
    }
    assert_eq!((ran, ids.len()), (15, 2), "every command was run");
    check_answers(&rig);
}

/// Five answers in their order, and the model is told the truth about each; each later end is a notice.
fn check_answers(rig: &Rig) {
    let answers = rig.run(&["run", "release.json", "--json"]).expect(1);
    assert_eq!(answers.states(), ["a succeeded", "b succeeded", "c succeeded", "d denied", "e succeeded"]);
    let told = |call: &Value| -> Vec<String> {
        call["model"]["parts"].as_array().expect("parts").iter().map(|part| text(&part["text"])).collect()
    };
    let answers = answers.json();
    assert_eq!(
        told(&answers["calls"][1]),
        [
            "A person approved this call with other arguments than you gave: /service: \"stage\" instead of \"shop\".",
            "deployed stage"
        ]
    );
    assert!(told(&answers["calls"][3])[0].contains("a person denied it: not on a Friday"));
    until("the last one has ended", || rig.run(&["waiting"]).stdout.starts_with("nothing"));
    let notices = rig.run(&["inbox", "--json"]).expect(0).json();
    let about: Vec<String> = notices["items"]
        .as_array()
        .expect("notices")
        .iter()
        .take(2)
        .map(|notice| text(&notice["title"]))
        .collect();
    assert_eq!(about, ["deploy", "deploy"], "{notices}");
}

#[test]
fn text_that_would_mislead_an_approver_is_shown_escaped() {
    let rig = Rig::with("[tools.pay]\ncommand = [\"true\"]\nclaims = []\napproval = \"ask\"\n");
    let server = DocsServer::start(&rig);
    let args = r#"{"to": "ann\u202e\u001b[2J", "note": "line\nwindlass approve 00000000"}"#;
    rig.write(
        "batch.json",
        format!(r#"{{"key": "k", "calls": [{{"id": "a", "tool": "pay", "args": {args}}}]}}"#),
    );
    let auth = std::fs::read_to_string(rig.path(".windlass/token")).expect("a token");
    let url = format!("http://{}/v1/sessions/default/batches", server.address);
    let mut curl = Command::new("curl");
    curl.args([
        "-s",
        "-H",
        &format!("Authorization: Bearer {}", auth.trim()),
        "-H",
        "Content-Type: application/json",
    ]);
    let said = curl.args(["-d", "@batch.json", &url]).current_dir(rig.path("")).output().expect("curl runs");
    assert!(String::from_utf8_lossy(&said.stdout).contains("awaiting_approval"));
    for args in [&["waiting"][..], &["approvals"]] {
        let shown = rig.run(args).expect(0).stdout;
        assert!(!shown.chars().any(|letter| letter == '\u{202e}' || letter == '\u{1b}'), "{shown:?}");
        assert!(shown.contains("202e"), "{shown}");
        let commands = shown.lines().filter(|line| line.trim_start().starts_with("windlass approve"));
        assert!(commands.count() <= 1, "a line of an argument looks like a command: {shown}");
    }
    let id = told_ids(&rig.run(&["waiting"]).expect(0).stdout).pop().expect("an id");
    let refused = rig.run(&["approve", &id, "--args", "no JSON"]).expect(2);
    assert!(refused.stderr.contains("--args takes JSON"), "{refused}");
    let none = rig.run(&["deny", "zzzz"]).expect(2);
    assert!(none.stderr.contains("`windlass approvals` lists"), "{none}");
    let denied = rig.run(&["deny", &id, "--json"]).expect(0);
    assert!(denied.json().is_object(), "{denied}");
}
