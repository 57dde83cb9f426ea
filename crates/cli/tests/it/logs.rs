//! The log on standard error: who finds what under the reference that the model was told, and what the log never does.

use crate::rig::{Rig, finish, text, until};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Child;

/// A server that logs, and where it is.
fn serve(rig: &Rig, args: &[&str]) -> (Child, String) {
    let mut command = rig.command(&[&["serve", "--listen", "127.0.0.1:0"], args].concat());
    let mut child = command.env_remove("WINDLASS_LOG").spawn().expect("windlass starts");
    let mut line = String::new();
    let mut greeting = BufReader::new(child.stdout.take().expect("a pipe"));
    greeting.read_line(&mut line).expect("it says where");
    let at = line.trim().rsplit("http://").next().expect("an address").to_string();
    // Whatever else it says is not waited for: it must not stand still because nobody reads.
    std::thread::spawn(move || std::io::copy(&mut greeting, &mut std::io::sink()));
    (child, at)
}

fn ask(rig: &Rig, at: &str, method: &str, path: &str, body: &Value) -> (u16, String) {
    let mut token = String::new();
    until("there is a token", || {
        token = std::fs::read_to_string(rig.path(".windlass/token")).unwrap_or_default();
        !token.is_empty()
    });
    let (token, body) = (token.trim(), body.to_string());
    let mut stream = TcpStream::connect(at).expect("it is served");
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nauthorization: Bearer {token}\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    )
    .expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("answered");
    let (head, body) = answer.split_once("\r\n\r\n").expect("an answer");
    (head.split(' ').nth(1).expect("a status").parse().expect("a number"), body.to_string())
}

/// Stops it in good order, and returns its log.
fn stop(child: Child) -> String {
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it is ours");
    finish(child).expect(0).stderr
}

/// The reference in a sentence that tells of an internal error, if that is all it says.
fn reference(told: &str) -> String {
    let told = told.strip_prefix("An internal error occurred; the operator finds it under reference ");
    let told = told.unwrap_or_else(|| panic!("not the fixed sentence: {told:?}"));
    told.split('.').next().expect("a reference").to_string()
}

fn batch(kind: &str, message: &str) -> Value {
    json!({"calls": [{"id": kind, "tool": "fail", "args": {"message": message, "kind": kind}}]})
}

const HIDDEN: &str = "no room on /dev/secret\nINFO forged: all is well \u{202e}txet\u{1b}[31m";

#[test]
fn the_model_is_told_a_reference_and_the_log_has_the_whole_cause_under_it() {
    for format in ["text", "json"] {
        let rig = Rig::new();
        let (child, at) = serve(&rig, &["--log", format]);
        let mut told = Vec::new();
        for kind in ["internal", "panic"] {
            let (status, body) = ask(&rig, &at, "POST", "/v1/sessions/s/batches", &batch(kind, HIDDEN));
            assert_eq!(status, 200, "{body}");
            assert!(!body.contains("secret"), "the model must not see it: {body}");
            let call = serde_json::from_str::<Value>(&body).expect("JSON")["calls"][0].clone();
            told.push(reference(&text(&call["outcome"]["failure"]["message"])));
        }
        let log = stop(child);
        for reference in told {
            let line = log.lines().find(|line| line.contains(&reference) && line.contains("ERROR"));
            let line = line.unwrap_or_else(|| panic!("{reference} is not in the log: {log}"));
            let whole = match format {
                "json" => text(&serde_json::from_str::<Value>(line).expect("JSON")["detail"]),
                _ => line.to_string(),
            };
            assert!(whole.contains("no room on /dev/secret") && whole.contains("all is well"), "{line}");
        }
        assert!(!log.contains(['\u{202e}', '\u{1b}']), "what hides text is escaped: {log:?}");
        assert!(!log.lines().any(|line| line.starts_with("INFO forged")), "no line is forged: {log}");
        if format == "json" {
            for line in log.lines() {
                serde_json::from_str::<Value>(line).unwrap_or_else(|error| panic!("{error}: {line}"));
            }
        }
        assert!(log.contains("the server has started"), "{log}");
    }
}

#[test]
fn a_request_that_fails_inside_shows_no_cause_and_the_log_has_it() {
    let rig = Rig::new();
    let (child, at) = serve(&rig, &["--log", "json"]);
    ask(&rig, &at, "POST", "/v1/sessions/s/batches", &batch("error", "x"));
    stop(child);
    rig.write(".windlass/files", "a file where a folder must be");
    let (child, at) = serve(&rig, &["--log", "json"]);
    let (status, body) = ask(&rig, &at, "PUT", "/v1/sessions/s/files/a", &json!(1));
    let log = stop(child);
    assert_eq!(status, 500, "{body}");
    let problem: Value = serde_json::from_str(&body).expect("a problem");
    let reference = reference(&text(&problem["detail"]));
    assert!(!body.contains("exists"), "no cause: {body}");
    let line = log.lines().find(|line| line.contains(&reference)).unwrap_or_else(|| panic!("{log}"));
    assert!(line.contains("File exists"), "the cause: {line}");
}

#[test]
fn the_level_is_chosen_and_other_commands_log_errors_only() {
    let rig = Rig::new();
    let (child, at) = serve(&rig, &["--log-level", "off"]);
    ask(&rig, &at, "POST", "/v1/sessions/s/batches", &batch("internal", "secret"));
    let log = stop(child);
    assert!(!log.contains("secret") && !log.contains("has started"), "{log}");
    let ran = rig.run(&["serve", "--log-level", "s=="]).expect(2);
    assert!(ran.stderr.contains("--log-level takes"), "{ran}");
    let call = ["call", "fail", r#"{"message": "secret", "kind": "internal"}"#];
    let plain = finish(rig.command(&call).env_remove("WINDLASS_LOG").spawn().expect("it starts")).expect(1);
    let line = plain.stderr.lines().find(|line| line.contains("secret")).expect("it is logged");
    assert!(line.contains("ERROR"), "{line}");
    assert!(!plain.stderr.contains("INFO") && !plain.stdout.contains("secret"), "{plain}");
    let told = finish(rig.command(&call).env("WINDLASS_LOG", "nonsense=x=y").spawn().expect("it starts"));
    assert!(told.expect(2).stderr.contains("WINDLASS_LOG takes"));
}

#[test]
fn a_log_that_nobody_reads_holds_nothing_up() {
    let rig = Rig::new();
    let (mut child, at) = serve(&rig, &["--log-level", "debug"]);
    // Far more than a pipe holds, and nobody takes any of it.
    let message = "x".repeat(40 << 10);
    for n in 0..64 {
        let call = json!({"calls": [{"id": n.to_string(), "tool": "fail", "args": {"message": message, "kind": "internal"}}]});
        let (status, body) = ask(&rig, &at, "POST", &format!("/v1/sessions/s{n}/batches"), &call);
        assert_eq!(status, 200, "{body}");
    }
    child.kill().expect("it is ours");
    child.wait().expect("it ends");
}
