//! Following a session from a second terminal, with an owner, without one, and from one to the next.

use crate::rig::{Rig, finish, kill, until};
use serde_json::Value;

const TOOLS: &str = r#"
[tools.hold]
description = "Waits until the file `go` is there"
command = ["sh", "-c", "echo held >> held; while [ ! -e go ]; do sleep 0.01; done; echo '{\"went\": true}'"]
class = "keyed"
"#;

fn rig() -> Rig {
    let rig = Rig::with(TOOLS);
    rig.write(
        "batch.json",
        r#"{"key": "k", "calls": [{"id": "a", "tool": "hold"}, {"id": "b", "tool": "hold"}]}"#,
    );
    rig
}

fn events(lines: &str) -> Vec<Value> {
    lines.lines().map(|line| serde_json::from_str(line).expect("a JSON line")).collect()
}

/// `kind id` of each event, without what running calls say.
fn told(events: &[Value]) -> Vec<String> {
    let recorded = events.iter().filter(|event| event["cursor"].is_number());
    recorded.map(|event| format!("{} {}", event["kind"], event["id"]).replace('"', "")).collect()
}

#[test]
fn what_is_recorded_is_shown_in_lines() {
    let rig = Rig::new();
    rig.run(&["call", "add", r#"{"a": 2, "b": 3}"#, "--id", "sum"]).expect(0);
    rig.run(&["call", "divide", r#"{"a": 2, "b": 0}"#, "--id", "none"]).expect(1);
    let shown = rig.run(&["watch", "--until-idle"]).expect(0).stdout;
    let all = events(&rig.run(&["watch", "--until-idle", "--json", "--after", "0"]).expect(0).stdout);
    // Neither times nor handles are the same twice.
    let lines = shown.lines().map(|line| {
        let (time, rest) = line.split_at(12);
        assert!(time.chars().filter(char::is_ascii_digit).count() == 9, "{line}");
        let handle = |event: &Value| event["call"].as_str().expect("a handle")[..8].to_string();
        let end = all.iter().find_map(|event| rest.find(&handle(event))).expect("the call is named");
        rest[..end].split_whitespace().collect::<Vec<_>>().join(" ")
    });
    insta::assert_snapshot!(lines.collect::<Vec<_>>().join("\n"));
    let german = rig.run(&["watch", "--until-idle", "--after", "0", "--locale", "de-AT"]).expect(0).stdout;
    assert!(german.contains("2 und 3 addiert"), "{german}");
    let cursor = all[1]["cursor"].to_string();
    let rest = rig.run(&["watch", "--until-idle", "--json", "--after", &cursor]).expect(0).stdout;
    assert_eq!(events(&rest), all[2..]);
    assert_eq!(rig.run(&["watch", "nobody", "--until-idle"]).expect(0).stdout, "");
}

#[test]
fn a_run_is_followed_to_its_end() {
    let rig = rig();
    let first = rig.start(&["run", "batch.json", "--json"]);
    until("a command runs", || rig.lines("held").len() == 1);
    let watching = rig.start(&["watch", "--json", "--after", "0"]);
    rig.write("go", "");
    finish(first).expect(0);
    // It goes on watching when the owner is gone; the record has the same.
    let recorded =
        told(&events(&rig.run(&["watch", "--json", "--after", "0", "--until-idle"]).expect(0).stdout));
    assert_eq!(recorded.iter().filter(|told| told.starts_with("ended")).count(), 2);
    let pid = rustix::process::Pid::from_child(&watching);
    let mut child = watching;
    let mut stdout = std::io::BufReader::new(child.stdout.take().expect("a pipe"));
    let mut lines = String::new();
    while told(&events(&lines)).len() < recorded.len() {
        assert!(
            std::io::BufRead::read_line(&mut stdout, &mut lines).expect("readable") > 0,
            "it ended: {lines}"
        );
    }
    assert_eq!(told(&events(&lines)), recorded);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it runs");
    assert_eq!(finish(child).code, Some(0), "Ctrl-C is no failure");
}

#[test]
fn the_next_owner_is_followed_too() {
    let rig = rig();
    let first = rig.start(&["run", "batch.json", "--json"]);
    until("a command runs", || rig.lines("held").len() == 1);
    let mut watching = rig.start(&["watch", "--json", "--after", "0"]);
    let mut stdout = std::io::BufReader::new(watching.stdout.take().expect("a pipe"));
    let mut lines = String::new();
    let mut hear = |wanted: &str, count: usize| {
        while told(&events(&lines)).iter().filter(|told| told.starts_with(wanted)).count() < count {
            assert!(std::io::BufRead::read_line(&mut stdout, &mut lines).expect("readable") > 0, "it ended");
        }
        lines.clone()
    };
    hear("started a", 1);
    kill(first);
    rig.write("go", "");
    rig.run(&["run", "batch.json", "--json"]).expect(0);
    let heard = told(&events(&hear("ended", 2)));
    for id in ["a", "b"] {
        for kind in ["opened", "ended"] {
            assert_eq!(heard.iter().filter(|told| **told == format!("{kind} {id}")).count(), 1, "{heard:?}");
        }
    }
    assert!(heard.contains(&"lost a".to_string()), "{heard:?}");
    kill(watching);
}

/// The body of a request, which is answered as collectors do.
fn collected(stream: std::net::TcpStream) -> String {
    use std::io::{BufRead, BufReader, Read, Write};
    let mut reader = BufReader::new(stream);
    let mut bytes = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).expect("readable");
        assert!(!line.is_empty(), "it ended in the middle");
        let line = line.trim_end().to_ascii_lowercase();
        if let Some(length) = line.strip_prefix("content-length:") {
            bytes = length.trim().parse().expect("a number");
        } else if line.is_empty() {
            break;
        }
    }
    let mut body = vec![0; bytes];
    reader.read_exact(&mut body).expect("all of it");
    let answer = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
    reader.get_mut().write_all(answer).expect("sent");
    String::from_utf8_lossy(&body).into_owned()
}

#[test]
fn spans_of_a_command_reach_the_collector_before_it_ends() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let toml = format!("[traces]\nendpoint = \"http://{}\"\n", listener.local_addr().expect("an address"));
    let collecting = std::thread::spawn(move || {
        // The span of the attempt may come in a request of its own, before that of the call.
        let mut told = String::new();
        while !told.contains("execute_tool add") {
            let (stream, _) = listener.accept().expect("it connects");
            told.push_str(&collected(stream));
        }
    });
    let rig = Rig::with(&toml);
    rig.run(&["call", "add", r#"{"a": 2, "b": 3}"#]).expect(0);
    collecting.join().expect("it got the span");
    // An address that is none is told before anything runs.
    rig.write("windlass.toml", "[traces]\nendpoint = \"127.0.0.1\"\n");
    let refused = rig.run(&["call", "add", r#"{"a": 2, "b": 3}"#]).expect(2);
    assert!(
        refused.stderr.contains("[traces] of windlass.toml: \"127.0.0.1\" is not the address of a collector"),
        "{refused}"
    );
}
