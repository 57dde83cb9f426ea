//! Workers that start while their database is away.

use super::{Worker, until};
use crate::rig::{Rig, finish};
use rustix::process::Signal;
use serde_json::json;
use std::io::{BufRead, BufReader};
use std::process::Child;
use windlass_testkit::postgres::Cluster;

/// A worker that has said that its database is away, and the rest of what it says.
fn waiting(rig: &Rig, store: &str, name: &str) -> (Child, BufReader<std::process::ChildStderr>) {
    let mut command = rig.command(&["--data", name, "serve", "--listen", "127.0.0.1:0"]);
    let mut child = command.env("WINDLASS_STORE", store).spawn().expect("it starts");
    let mut told = BufReader::new(child.stderr.take().expect("a pipe"));
    let mut line = String::new();
    told.read_line(&mut line).expect("it says something");
    assert!(line.contains("could not reach the database") && line.contains("waiting"), "{line}");
    (child, told)
}

#[test]
fn a_worker_waits_for_a_database_that_is_away_and_ends_at_once_if_it_is_told_to() {
    let Some(cluster) = Cluster::alone(env!("CARGO_TARGET_TMPDIR"), |_| Ok(String::new())) else { return };
    let (rig, store) = (Rig::with(super::TOML), cluster.database());
    cluster.stop();
    let (stays, _told) = waiting(&rig, &store, "one");
    let (mut leaves, _also_told) = waiting(&rig, &store, "two");
    let pid = rustix::process::Pid::from_child(&leaves);
    rustix::process::kill_process(pid, Signal::TERM).expect("it is ours");
    assert_eq!(leaves.wait().expect("it ends").code(), Some(0));

    let mut command = rig.command(&["--data", "three", "calls", "--store", &store]);
    let ran = finish(command.spawn().expect("it starts"));
    assert_eq!(ran.code, Some(6), "a command waits for nothing: {}", ran.stderr);

    cluster.start();
    let worker = Worker::greeted(stays);
    let token = std::fs::read_to_string(rig.path("one/token")).expect("a token");
    let call = json!({"id": "c", "tool": "echo", "args": {"message": "x"}});
    let batch = json!({"key": "k", "wait": "settled", "calls": [call]});
    until("the end of a call", || {
        let answer = worker.ask(token.trim(), "POST", "/v1/sessions/s/batches", &batch);
        matches!(answer, Some((200, told)) if told["calls"][0]["state"] == "succeeded")
    });
}

#[test]
fn a_worker_ends_at_once_if_its_database_will_never_be_there() {
    let Some(cluster) = Cluster::alone(env!("CARGO_TARGET_TMPDIR"), |_| Ok(String::new())) else { return };
    let (rig, store) = (Rig::with(super::TOML), cluster.database());
    let (server, _) = store.split_once("dbname=").expect("it names a database");
    let nowhere = format!("{server}dbname=nowhere");
    let mut command = rig.command(&["serve", "--listen", "127.0.0.1:0"]);
    let ran = finish(command.env("WINDLASS_STORE", nowhere).spawn().expect("it starts"));
    assert_eq!(ran.code, Some(6), "{}", ran.stderr);
    assert!(ran.stderr.contains("create the database first"), "{}", ran.stderr);
}

#[test]
fn a_worker_that_has_no_lease_yet_ends_when_it_is_told_to() {
    let Some(cluster) = Cluster::alone(env!("CARGO_TARGET_TMPDIR"), |_| Ok(String::new())) else { return };
    let (rig, store) = (Rig::with(super::TOML), cluster.database());
    // With the first worker comes the first token.
    Worker::start(&rig, &store, "one").end(Signal::TERM);
    let held = cluster.hold_writes(&store);
    let mut command = rig.command(&["--data", "two", "serve", "--listen", "127.0.0.1:0"]);
    let mut worker = command.env("WINDLASS_STORE", &store).spawn().expect("it starts");
    until("a write that waits", || held.is_waited_for());
    let pid = rustix::process::Pid::from_child(&worker);
    rustix::process::kill_process(pid, Signal::TERM).expect("it is ours");
    assert_eq!(worker.wait().expect("it ends").code(), Some(0));
}
