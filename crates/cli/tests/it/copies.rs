//! A copied data folder: it leaves its original alone, says what it is, and is on its own after its first start.

use crate::rig::{Ran, Rig, finish, kill, stands_still, until};
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command};

/// Commands that hold until the file `go` is there, one that waits for an answer, and one for schedules.
const TOOLS: &str = r#"
[tools.once]
command = ["sh", "-c", "echo once >> held; while [ ! -e go ]; do sleep 0.01; done; echo once >> done"]
class = "once"
claims = ["write a"]

[tools.read]
command = ["sh", "-c", "echo read >> held; while [ ! -e go ]; do sleep 0.01; done; echo read >> done"]
class = "read"
claims = []

[tools.ask]
command = ["sh", "-c", "echo $WINDLASS_COMPLETION_KEY >> keys; exit 73"]
completion = true
claims = []

[tools.tick]
command = ["true"]
background = true
claims = []
"#;

/// One that runs, one that must not run twice, one that waits for its turn, and one that is parked.
const BATCH: &str = r#"{"key": "k", "calls": [{"id": "runs", "tool": "once"}, {"id": "queued", "tool": "once"},
                        {"id": "reads", "tool": "read"}, {"id": "parked", "tool": "ask"}]}"#;

pub fn rig() -> Rig {
    let rig = Rig::with(TOOLS);
    rig.write("batch.json", BATCH);
    rig
}

/// A server with the batch under way.
pub fn start(rig: &Rig) -> Child {
    let server = rig.start(&["serve", "--listen", "127.0.0.1:0"]);
    until("the server is there", || rig.path(".windlass/control.sock").exists());
    rig.run(&["schedules", "add", "tick", "--cron", "0 3 * * *"]).expect(0);
    drop(rig.start(&["run", "batch.json"]));
    until("two run", || rig.lines("held").len() == 2);
    until("one is parked", || {
        rig.run(&["calls", "--state", "awaiting_completion"]).stdout.contains("parked")
    });
    server
}

/// As people copy a folder, the socket included.
fn copy(rig: &Rig, name: &str) {
    let copied = Command::new("cp").arg("-a").arg(rig.path(".windlass")).arg(rig.path(name)).status();
    assert!(copied.expect("cp runs").success());
}

fn states(ran: &Ran) -> Vec<String> {
    let calls = ran.json()["items"].as_array().expect("items").clone();
    let mut states: Vec<String> =
        calls.iter().map(|call| format!("{} {}", call["id"], call["state"]).replace('"', "")).collect();
    states.retain(|state| !state.contains('#'));
    states.sort();
    states
}

pub fn listed(rig: &Rig, data: &str) -> Vec<String> {
    states(&rig.run(&["--data", data, "calls", "--json", "--session", "default"]).expect(0))
}

pub fn commands(rig: &Rig) -> usize {
    let is_sh = |pid: &i32| {
        std::fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| !exe.ends_with(Path::new("windlass")))
    };
    rig.processes().iter().filter(|pid| is_sh(pid)).count()
}

/// Kills the server, who waits for it and its launchers, so that their commands go on.
pub fn orphan_commands(rig: &Rig, server: Child) {
    let those = |word: &[u8]| -> Vec<String> {
        let is_meant = |pid: &&i32| {
            let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            words.split(|byte| *byte == 0).nth(1) == Some(word)
        };
        rig.processes().iter().filter(is_meant).map(ToString::to_string).collect()
    };
    let signal = |signal: &str, pids: &[String]| {
        if !pids.is_empty() {
            let sent = Command::new("kill").arg(signal).args(pids).status();
            assert!(sent.expect("kill runs").success(), "{pids:?}");
        }
    };
    // Whoever still waits would take the folder over, and a server that stands still does not see that its launchers die.
    signal("-KILL", &those(b"run"));
    signal("-STOP", &[server.id().to_string()]);
    until("the server stands still", || stands_still(server.id().cast_signed()));
    signal("-KILL", &those(b"__launch"));
    until("its launchers are gone", || those(b"__launch").is_empty());
    kill(server);
    until("only commands are left", || rig.processes().len() == commands(rig));
    assert!(commands(rig) >= 2, "they went with their server");
}

/// A call at the copy, which is its first start.
pub const ADD: [&str; 7] = ["--data", "copied", "call", "add", r#"{"a": 1, "b": 2}"#, "--session", "new"];

#[test]
fn a_copy_leaves_its_original_alone_and_is_on_its_own_afterwards() {
    let rig = rig();
    let server = start(&rig);
    copy(&rig, "copied");
    assert!(rig.run(&["--data", "copied", "doctor"]).expect(0).stdout.contains("confirm --original-gone"));
    let first = rig.run(&ADD).expect(0);
    assert!(first.stderr.contains("is a copy"), "{first}");
    assert!(first.stderr.contains("3 calls that were under way"), "{first}");
    assert!(first.stderr.contains("1 parked calls wait on, 1 schedules are disabled"), "{first}");
    let judged = ["parked awaiting_completion", "queued unknown", "reads unknown", "runs unknown"];
    assert_eq!(listed(&rig, "copied"), judged);
    assert!(rig.run(&["--data", "copied", "schedules", "list"]).expect(0).stdout.contains("no"));
    // The next start is an ordinary one, and ends nothing either: what runs was started from the original.
    let second = rig.run(&ADD).expect(0);
    assert!(!second.stderr.contains("copy") && !second.stderr.contains("ended"), "{second}");
    assert!(
        rig.run(&["--data", "copied", "doctor"])
            .expect(0)
            .stdout
            .lines()
            .any(|line| { line.split_whitespace().eq(["copy", "no"]) })
    );
    let nothing = rig.run(&["--data", "copied", "confirm", "--original-gone"]).expect(2);
    assert!(nothing.stderr.contains("nothing to confirm"), "{nothing}");
    assert!(commands(&rig) >= 2, "a command of the original was ended");
    assert_eq!(rig.lines("held").len(), 2, "something ran again");
    rig.write("go", "");
    until("the original ends its calls", || rig.lines("done").len() == 3);
    until("they are recorded", || {
        listed(&rig, ".windlass")
            == ["parked awaiting_completion", "queued succeeded", "reads succeeded", "runs succeeded"]
    });
    // Answered at the copy, the parked call ends there, and at the original it waits on.
    let key = rig.lines("keys").first().expect("a key").clone();
    rig.run(&["--data", "copied", "complete", &key, "--ok", "{}"]).expect(0);
    rig.run(&["--data", "copied", "run", "batch.json"]).expect(3);
    assert!(listed(&rig, "copied").contains(&"parked succeeded".to_string()));
    assert!(listed(&rig, ".windlass").contains(&"parked awaiting_completion".to_string()));
    kill(server);
}

#[test]
fn a_copy_whose_original_is_gone_is_started_as_after_a_crash() {
    let rig = rig();
    let server = start(&rig);
    copy(&rig, "copied");
    orphan_commands(&rig, server);
    let confirmed = rig.run(&["--data", "copied", "confirm", "--original-gone"]).expect(0);
    assert!(confirmed.stdout.contains("as after a crash"), "{confirmed}");
    let mut again = rig.start(&["--data", "copied", "serve", "--listen", "127.0.0.1:0"]);
    let mut said = BufReader::new(again.stdout.take().expect("a pipe")).lines();
    said.next().expect("it greets").expect("readable");
    rig.write("go", "");
    let ended = ["parked awaiting_completion", "queued succeeded", "reads succeeded", "runs unknown"];
    until("the class of each decides", || listed(&rig, "copied") == ended);
    assert_eq!(rig.lines("done").len(), 2, "what its original left running was ended first");
    let mut told = String::new();
    let mut stderr = again.stderr.take().expect("a pipe");
    kill(again);
    stderr.read_to_string(&mut told).expect("readable");
    assert!(told.contains("ended ") && !told.contains("is a copy"), "{told}");
}

#[test]
fn a_copy_leaves_alone_what_its_original_left_running() {
    let rig = rig();
    let server = start(&rig);
    copy(&rig, "copied");
    orphan_commands(&rig, server);
    for _ in 0..2 {
        let told = rig.run(&ADD).expect(0);
        assert!(!told.stderr.contains("ended "), "{told}");
    }
    assert!(commands(&rig) >= 2, "a command of the original was ended");
    rig.write("go", "");
    until("they end by themselves", || rig.lines("done").len() == 2);
}

#[test]
fn an_original_that_lives_is_spared_whatever_was_confirmed() {
    let rig = rig();
    let server = start(&rig);
    copy(&rig, "copied");
    rig.run(&["--data", "copied", "confirm", "--original-gone"]).expect(0);
    let told = rig.run(&ADD).expect(0);
    assert!(!told.stderr.contains("ended "), "{told}");
    assert!(commands(&rig) >= 2, "a command of the original was ended");
    kill(server);
}

#[test]
fn a_folder_that_is_no_copy_has_nothing_to_confirm() {
    let rig = Rig::new();
    rig.run(&["confirm", "--original-gone"]).expect(6);
    assert!(!rig.path(".windlass").exists(), "nothing is made");
    rig.run(&["call", "add", r#"{"a": 1, "b": 2}"#]).expect(0);
    let told = rig.run(&["confirm", "--original-gone"]).expect(2);
    assert!(told.stderr.contains("is no copy"), "{told}");
    rig.run(&["confirm"]).expect(2);
    // Moved, it is what it was.
    std::fs::rename(rig.path(".windlass"), rig.path("moved")).expect("it can be moved");
    let moved = rig.run(&["--data", "moved", "call", "add", r#"{"a": 1, "b": 2}"#]).expect(0);
    assert!(!moved.stderr.contains("copy"), "{moved}");
}

#[test]
fn a_copy_that_is_killed_while_it_is_judged_is_judged_again() {
    let rig = rig();
    let server = start(&rig);
    for round in 0..8 {
        let name = format!("copied{round}");
        copy(&rig, &name);
        let log = rig.path(&name).join("windlass.db-wal");
        let written = || std::fs::metadata(&log).and_then(|log| log.modified()).ok();
        let before = written();
        let mut child = rig.start(&["--data", &name, "serve", "--listen", "127.0.0.1:0"]);
        // Before it opens the folder, or in the middle of what it writes.
        if round % 2 == 1 {
            until("it has begun to write", || written() != before);
        }
        child.kill().expect("it can be killed");
        finish(child);
        rig.run(&["--data", &name, "call", "add", r#"{"a": 1, "b": 2}"#, "--session", "new"]).expect(0);
        let judged = ["parked awaiting_completion", "queued unknown", "reads unknown", "runs unknown"];
        assert_eq!(listed(&rig, &name), judged, "round {round}");
    }
    assert_eq!(rig.lines("held").len(), 2, "something ran again");
    kill(server);
}
