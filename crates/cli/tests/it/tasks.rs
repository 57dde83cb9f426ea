//! A command that goes on without its caller: followed from a second terminal, killed with its owner, told of once.

use crate::rig::{Ran, Rig, finish, kill, text, until};
use std::process::Child;

const TOOLS: &str = r#"
[tools.build]
description = "Builds until the file `go` is there"
command = ["sh", "-c", "echo building >&2; echo begun >> begun; while [ ! -e go ]; do sleep 0.01; done; echo built"]
class = "keyed"
background = true
claims = []
inline_ms = 0
"#;

const CALL: &str = r#"{"id": "b", "tool": "build", "args": {}}"#;

fn serve(rig: &Rig) -> Child {
    let child = rig.start(&["serve", "--listen", "127.0.0.1:0"]);
    until("it is served", || {
        rig.path(".windlass/control.sock").exists() && rig.run(&["sessions"]).code == Some(0)
    });
    child
}

fn inbox(rig: &Rig, args: &[&str]) -> Vec<serde_json::Value> {
    let ran: Ran = rig.run(&[&["inbox", "--json"], args].concat()).expect(0);
    ran.json()["items"].as_array().expect("items").clone()
}

#[test]
fn a_task_is_followed_survives_its_owner_and_is_told_of_once() {
    let rig = Rig::with(TOOLS);
    let owner = serve(&rig);
    // It is still open when its caller is answered.
    let answer = rig.run_on(&["run", "-", "--json"], CALL).expect(5).json();
    let task = text(&answer["calls"][0]["task"]);
    let listed = rig.run(&["tasks", "--json"]).expect(0).json();
    assert_eq!(
        (&listed["items"][0]["task"], &listed["items"][0]["state"]),
        (&task.clone().into(), &"running".into())
    );
    let messages = rig.run(&["tasks", "messages", &task[..8], "--json"]).expect(0).json();
    assert_eq!(messages["items"], serde_json::json!([]));
    // A command hears nothing, and whoever talks to one is told so.
    let deaf = rig.run(&["tasks", "say", &task[..8], "hurry"]).expect(4);
    assert!(deaf.stderr.contains("signal"), "{}", deaf.stderr);
    let following = rig.start(&["logs", &task[..8], "-f"]);
    until("it runs", || !rig.lines("begun").is_empty());
    kill(owner);
    let owner = serve(&rig);
    until("it runs again", || rig.lines("begun").len() == 2);
    assert_eq!(inbox(&rig, &[]).len(), 0);
    rig.write("go", "");
    let followed = finish(following).expect(0);
    assert!(followed.stdout.contains("windlass| attempt 2 begins\n"), "{}", followed.stdout);
    assert!(followed.stdout.ends_with("err| building\nout| built\n"), "{}", followed.stdout);
    let taken = inbox(&rig, &["--take", "9"]);
    assert_eq!(
        (taken.len(), text(&taken[0]["task"]), text(&taken[0]["task_state"])),
        (1, task.clone(), "succeeded".into())
    );
    assert!(text(&taken[0]["text"]).ends_with("built"), "{}", taken[0]);
    assert_eq!(inbox(&rig, &["--take", "9"]).len(), 0, "it is somebody's");
    rig.run(&["inbox", "--ack", &text(&taken[0]["id"])]).expect(0);
    kill(owner);
    assert_eq!(inbox(&rig, &[]).len(), 0);
    assert!(rig.run(&["tasks", "messages", &task]).expect(0).stdout.contains("DIRECTION"));
    let unowned = rig.run(&["tasks", "say", &task, "late"]).expect(2);
    assert!(
        unowned.stderr.contains("its tasks take no messages; start `windlass serve` first"),
        "{}",
        unowned.stderr
    );
    // The same batch again is answered with its end.
    let again = rig.run_on(&["run", "-", "--json"], CALL).expect(0);
    assert_eq!(again.states(), ["b succeeded"]);
}

#[test]
fn run_stays_until_its_tasks_end_or_leaves_them() {
    let rig = Rig::with(TOOLS);
    let left = rig.run_on(&["run", "-", "--no-wait", "--json"], CALL).expect(5);
    assert_eq!(left.states(), ["b running"]);
    rig.write("go", "");
    let stayed = rig.run_on(&["run", "-"], CALL).expect(0);
    assert!(stayed.stderr.contains("(b) succeeded: built"), "{}", stayed.stderr);
}
