//! Calls that wait for the world outside, and how it answers from another terminal or where nobody owns the folder.

use crate::rig::{Rig, finish, kill, text, until};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use windlass::store::StoreError;
use windlass::store::sqlite::{Options, SqliteStore};
use windlass::tool::client_tool;
use windlass::{
    BatchRequest, CallRequest, Config, Cx, EffectClass, Runtime, Tool, ToolError, ToolFuture, ToolSpec,
    tool_fn,
};
use windlass_server::control::Control;

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
    let complete = "answer with the key that its tool issued: windlass complete KEY --ok JSON\n";
    assert!(how.ends_with(complete), "{told}");
    let waits = &listed(&rig, &["--waiting"])[0];
    assert!(text(&waits["waiting_for"]).starts_with("completion until 2"), "{waits}");
    let answered = rig.run(&["complete", &key, "--ok", r#"{"approved": true}"#]).expect(0);
    assert_eq!(answered.stdout, "answered; the call continues\n");
    let ran = finish(first).expect(0);
    assert_eq!(ran.json()["calls"][0]["outcome"]["value"]["approved"], true);
    assert!(!format!("{ran}{told}").contains(&key), "the key is told to nobody: {ran}");

    // The first answer stands, the same again is fine; nobody owns the folder now.
    rig.run(&["complete", &key, "--ok", r#"{"approved": true}"#]).expect(0);
    let other = rig.run(&["complete", &key, "--cancelled"]).expect(4);
    assert_eq!(other.stderr, "windlass: it was answered differently before; the first answer stands\n");
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
    assert_eq!(over.stderr, "windlass: the wait for this answer is over: its deadline has passed\n");
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

/// A tool of a host that asks for a colour.
struct Painter;

impl Tool for Painter {
    fn spec(&self) -> ToolSpec {
        ToolSpec { name: "paint".into(), class: Some(EffectClass::Stepped), ..ToolSpec::default() }
    }

    fn run<'a>(&'a self, _: Value, cx: &'a Cx) -> ToolFuture<'a> {
        Box::pin(async move {
            let schema = serde_json::json!({"enum": ["red", "green"]});
            let colour = cx.ask("colour", "Which colour\nshall it have?", Some(schema)).await?;
            Ok(serde_json::json!({ "colour": colour }).into())
        })
    }
}

/// A host that owns the folder, as soon as whoever owned it has let go.
fn host(rig: &Rig) -> Runtime {
    loop {
        match SqliteStore::open(Options::new(rig.path(".windlass"))) {
            Ok(store) => {
                let runtime = Runtime::new(Config::new(store));
                runtime.register(Painter).expect("it fits");
                runtime.register(mail()).expect("it fits");
                let tab = ToolSpec { name: "tab".into(), ..ToolSpec::default() };
                runtime.register(client_tool(tab)).expect("it fits");
                return runtime;
            }
            Err(StoreError::Owned { .. }) => std::thread::yield_now(),
            Err(error) => panic!("{error}"),
        }
    }
}

/// A call that asks.
fn paint(key: &str) -> BatchRequest {
    let call = CallRequest { id: Some("c".into()), tool: "paint".into(), ..CallRequest::default() };
    BatchRequest { key: Some(key.into()), calls: vec![call], ..BatchRequest::default() }
}

/// Asks the question, and waits until that is recorded.
async fn asked(runtime: &Runtime, key: &str) -> windlass::Submitted {
    let submitted = runtime.submit("s", paint(key)).await.expect("it is taken");
    while runtime.open().await.expect("it can be read").iter().all(|call| call.state != "awaiting_input") {
        tokio::task::yield_now().await;
    }
    submitted
}

/// The output about the question and its answer, in words that are the same with and without an owner.
fn answer(rig: &Rig) -> String {
    let questions = rig.run(&["questions", "--json"]).expect(0).json();
    let id = text(&questions["items"][0]["id"]);
    let until = text(&questions["items"][0]["until"]);
    let call = text(&questions["items"][0]["call"]);
    let mut all = String::new();
    for words in [
        &["questions"][..],
        &["questions", "--session", "other"],
        &["answer", &id[..8], "blue"],
        &["answer", &id[..8], r#""blue""#],
        &["answer", "nonsense", "1"],
        &["answer", &id[..8], r#""red""#],
        &["answer", &id, r#""red""#],
        &["answer", &id, r#""green""#],
    ] {
        let shown = format!("$ windlass {}\n{}\n", words.join(" "), rig.told(&rig.run(words)));
        let shown = shown.replace(&id, "ID").replace(&id[..8], "ID8").replace(&until, "UNTIL");
        all.push_str(&shown.replace(&call[..8], "CALL8"));
    }
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_is_listed_and_answered_with_and_without_an_owner() {
    let rig = Rig::new();
    std::fs::create_dir(rig.path(".windlass")).expect("a folder");
    let runtime = host(&rig);
    drop(asked(&runtime, "left").await);
    drop(runtime);
    drop(host(&rig));
    let without = answer(&rig);
    insta::assert_snapshot!(without);

    let runtime = host(&rig);
    let control = Control::serve(&windlass_server::Api::new(&runtime, None), &rig.path(".windlass"))
        .expect("the socket is served");
    let left =
        runtime.submit("s", paint("left")).await.expect("it is taken").settled().await.expect("answered");
    assert_eq!(left.calls[0].model_text(), r#"{"colour":"red"}"#);
    let submitted = asked(&runtime, "owned").await;
    let left_for = "recorded; it takes effect when a process next drives session s, e.g. `windlass run`";
    assert_eq!(answer(&rig), without.replace(left_for, "answered; the call continues"));
    assert_eq!(submitted.settled().await.expect("answered").calls[0].model_text(), r#"{"colour":"red"}"#);
    control.stop().await;
}

/// A tool of a host that is never connected.
fn mail() -> impl Tool {
    let spec = ToolSpec { name: "mail".into(), ..ToolSpec::default() };
    let needs = || async { Err(ToolError::needs_connection("smtp", Some("https://example.com/smtp"))) };
    tool_fn(spec, move |_, _| needs())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_is_declined_with_and_without_an_owner() {
    let rig = Rig::new();
    std::fs::create_dir(rig.path(".windlass")).expect("a folder");
    let mail = |key: &str| {
        let calls = vec![CallRequest { tool: "mail".into(), ..paint(key).calls.remove(0) }];
        BatchRequest { calls, ..paint(key) }
    };
    let waiting = async |runtime: &Runtime, key: &str| {
        let submitted = runtime.submit("s", mail(key)).await.expect("it is taken");
        while runtime
            .open()
            .await
            .expect("it can be read")
            .iter()
            .all(|call| call.state != "awaiting_connection")
        {
            tokio::task::yield_now().await;
        }
        submitted
    };
    let runtime = host(&rig);
    drop(waiting(&runtime, "left").await);
    drop(runtime);
    drop(host(&rig));
    let calls = listed(&rig, &["--state", "awaiting_connection"]);
    assert!(text(&calls[0]["waiting_for"]).starts_with("connection to smtp until 2"), "{calls:?}");
    let decline = || rig.run(&["connections", "s", "smtp", "--declined"]).expect(0).stdout;
    assert_eq!(
        decline(),
        "recorded; it takes effect when a process next drives session s, e.g. `windlass run`\n"
    );

    let runtime = host(&rig);
    let control = Control::serve(&windlass_server::Api::new(&runtime, None), &rig.path(".windlass"))
        .expect("the socket is served");
    let left =
        runtime.submit("s", mail("left")).await.expect("it is taken").settled().await.expect("answered");
    assert_eq!(left.calls[0].failure().expect("it failed").code.as_str(), "connection_declined");
    let submitted = waiting(&runtime, "owned").await;
    assert_eq!(decline(), "calls that waited for smtp and fail now: 1\n");
    submitted.settled().await.expect("answered");
    assert_eq!(decline(), "no call of session s waits for smtp; nothing changed\n");
    rig.run(&["connections", "nowhere", "smtp", "--connected"]).expect(2);
    control.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_result_of_a_tool_that_the_caller_runs_is_posted_under_its_call() {
    let rig = Rig::new();
    std::fs::create_dir(rig.path(".windlass")).expect("a folder");
    let tab = |key: &str| {
        let calls = vec![CallRequest { tool: "tab".into(), ..paint(key).calls.remove(0) }];
        BatchRequest { calls, ..paint(key) }
    };
    let runtime = host(&rig);
    drop(runtime.submit("s", tab("left")).await.expect("it is taken"));
    while runtime.open().await.expect("it can be read").iter().all(|call| call.state != "awaiting_client") {
        tokio::task::yield_now().await;
    }
    drop(runtime);
    drop(host(&rig));
    let call = text(&listed(&rig, &["--state", "awaiting_client"])[0]["call"]);
    rig.run(&["complete", "--call", &call[..8], "--ok", "7"]).expect(0);
    rig.run(&["complete", "--call", &call, "--ok", "8"]).expect(4);
    rig.run(&["complete", "KEY", "--call", &call, "--ok", "8"]).expect(2);
    let runtime = host(&rig);
    let left =
        runtime.submit("s", tab("left")).await.expect("it is taken").settled().await.expect("answered");
    assert_eq!(left.calls[0].model_text(), "7");
}
