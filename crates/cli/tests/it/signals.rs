//! SIGINT and SIGTERM: the folder is given up in good order, and the next owner goes on.

use crate::rig::{Rig, finish, until};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::Child;
use std::time::{Duration, Instant};

const TOOLS: &str = r#"
[tools.hold]
command = ["sh", "-c", "echo held >> held; while [ ! -e go ]; do sleep 0.01; done"]
class = "keyed"

[tools.once]
command = ["sh", "-c", "echo held >> held; while [ ! -e go ]; do sleep 0.01; done"]
class = "once"
"#;

fn signal(child: &Child, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(child.id()).expect("a pid")).expect("a pid");
    kill_process(pid, signal).expect("it is there");
}

fn start(rig: &Rig, batch: &str) -> Child {
    rig.write("batch.json", batch);
    let child = rig.start(&["run", "batch.json"]);
    until("a command runs", || rig.lines("held").len() == 1);
    child
}

#[test]
fn the_first_signal_stops_in_good_order_and_the_next_run_goes_on() {
    for (name, sent) in [("SIGINT", Signal::INT), ("SIGTERM", Signal::TERM)] {
        let rig = Rig::with(TOOLS);
        let batch = r#"{"key": "k", "calls": [{"id": "a", "tool": "hold"}, {"id": "b", "tool": "hold"}]}"#;
        let child = start(&rig, batch);
        signal(&child, sent);
        let ran = finish(child).expect(5);
        assert_eq!(ran.stdout, "");
        let told: Vec<&str> = ran.stderr.lines().collect();
        assert_eq!(told[0], format!("windlass: {name}: stopping; send it again to exit at once"));
        assert_eq!(told[1], "windlass: 2 calls of session default stay open:");
        assert!(told[2].ends_with("a  hold  running") && told[3].ends_with("b  hold  queued"), "{ran}");
        assert!(
            told[4].contains("the next `windlass run` of session default on this folder goes on"),
            "{ran}"
        );
        assert_eq!(told.len(), 5, "{ran}");
        until("nothing is left running", || rig.processes().is_empty());
        assert!(!rig.path(".windlass/control.sock").exists());
        let lock = std::fs::read_to_string(rig.path(".windlass/owner.lock")).expect("it is there");
        assert_eq!(lock.len(), 1, "it was closed in good order: {lock}");

        rig.write("go", "");
        let ran = rig.run(&["run", "batch.json", "--json"]).expect(0);
        assert_eq!(ran.states(), ["a succeeded", "b succeeded"]);
        let call = crate::rig::text(&ran.json()["calls"][0]["call"]);
        let story = rig.run(&["calls", &call, "--journal"]).expect(0).stdout;
        assert!(
            story.contains("the owner went while attempt 1 was running; that does not count against it"),
            "{story}"
        );
    }
}

#[test]
fn a_once_call_that_was_cut_off_is_unknown() {
    let rig = Rig::with(TOOLS);
    let child = start(&rig, r#"{"key": "k", "calls": [{"id": "a", "tool": "once"}]}"#);
    signal(&child, Signal::INT);
    finish(child).expect(5);
    rig.run(&["run", "batch.json"]).expect(3);
    assert_eq!(rig.lines("held").len(), 1);
}

#[test]
fn a_second_signal_leaves_at_once() {
    let rig = Rig::with(TOOLS);
    let mut child = start(&rig, r#"{"key": "k", "calls": [{"id": "a", "tool": "hold"}]}"#);
    // Somebody is in the middle of a request, for which a stop in good order waits a second.
    let mut slow = UnixStream::connect(rig.path(".windlass/control.sock")).expect("served");
    slow.write_all(b"POST /v1/calls/x/cancel HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n{")
        .expect("sent");
    // It is let in before it is answered, and the answer to somebody behind it shows that it was.
    let answered = rig.run(&["calls", "--state", "open"]).expect(0);
    assert_eq!(answered.stdout.lines().count(), 2);
    signal(&child, Signal::INT);
    let mut stderr = child.stderr.take().expect("a pipe");
    let mut told = Vec::new();
    let mut byte = [0];
    while !told.ends_with(b"stay open:\n") {
        stderr.read_exact(&mut byte).expect("it speaks");
        told.push(byte[0]);
    }
    // The ear for the second signal is a thread that may not have begun.
    let began = Instant::now();
    while child.try_wait().expect("our child").is_none() {
        signal(&child, Signal::TERM);
        assert!(began.elapsed() < Duration::from_secs(30), "it does not leave");
        std::thread::sleep(Duration::from_millis(5)); // tidy: the pause between two signals
    }
    finish(child).expect(5);
    assert!(rig.path(".windlass/control.sock").exists(), "it did not wait to tidy up");
    until("nothing is left running", || rig.processes().is_empty());
}
