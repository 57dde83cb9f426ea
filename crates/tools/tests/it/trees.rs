//! Nothing of a command stays: whatever it started, and whoever dies.

use crate::rig::{RIG, alive, finish, launcher_of, lives, run, script, signal, start, until, wait_for_line};
use rustix::process::Signal;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use windlass_tools::command::End;
use windlass_tools::kill_survivors;

/// Children of every kind that outlive their parent, and says their numbers: in the group, in a session of its
/// own, and in a session of its own without environment.
const STRAYS: &str = "sleep 1000 & echo $!
    setsid sleep 1000 & echo $!
    (setsid env -i /bin/sh -c 'echo $$; exec sleep 1000' &) | head -n 1
    ";

fn numbers(text: &str) -> Vec<i32> {
    text.lines().filter_map(|line| line.parse().ok()).collect()
}

#[tokio::test]
async fn children_that_outlive_their_command_are_killed_and_hold_nothing_open() {
    let invocation = script(STRAYS);
    let call = invocation.call.clone();
    let ran = run(invocation).await;
    assert!(matches!(ran.ended.end, End::Exited(0)), "{:?}", ran.ended.end);
    let strays = numbers(&ran.text());
    assert_eq!(strays.len(), 3);
    // Not `until`: they are gone before the end is told.
    assert!(!strays.iter().any(|pid| lives(*pid)), "{strays:?}");
    assert_eq!(alive(&call), [0; 0]);
}

#[tokio::test]
async fn dropping_a_command_kills_its_tree() {
    let invocation = script(&format!("{STRAYS} echo ready; sleep 1000"));
    let call = invocation.call.clone();
    let mut running = start(invocation).await;
    let strays = numbers(&wait_for_line(&mut running, "ready").await);
    assert_eq!(strays.iter().filter(|pid| lives(**pid)).count(), 3);
    drop(running);
    until("the tree is gone", || alive(&call).is_empty() && !strays.iter().any(|pid| lives(*pid)));
}

#[tokio::test]
async fn a_command_may_end_well_when_asked_to() {
    let mut running = start(script("trap 'echo bye; exit 3' TERM; echo ready; sleep 1000 & wait")).await;
    wait_for_line(&mut running, "ready").await;
    running.terminate().await;
    let ran = finish(running).await;
    assert!(matches!(ran.ended.end, End::Exited(3)), "{:?}", ran.ended.end);
    assert_eq!(ran.text(), "bye");
}

#[tokio::test]
async fn a_command_without_its_launcher_is_killed_by_its_owner() {
    let invocation = script("setsid sleep 1000 & echo ready; sleep 1000");
    let call = invocation.call.clone();
    let mut running = start(invocation).await;
    wait_for_line(&mut running, "ready").await;
    signal(running.launcher_id().expect("it lives").cast_signed(), Signal::KILL);
    let ran = finish(running).await;
    assert!(matches!(ran.ended.end, End::Lost), "{:?}", ran.ended.end);
    assert_eq!(alive(&call), [0; 0]);
}

/// An owner in a process of its own, whose command has started its strays.
struct Owner {
    process: Child,
    strays: Vec<i32>,
}

impl Owner {
    fn start(call: &str) -> Owner {
        let text = format!("{STRAYS} echo ready; sleep 1000");
        let mut owner = Command::new(RIG);
        owner.args([call, "/bin/sh", "-c", &text]).stdout(Stdio::piped());
        let mut process = owner.spawn().expect("the owner starts");
        let output = BufReader::new(process.stdout.take().expect("output"));
        let lines = output.lines().map(|line| line.expect("text")).take_while(|line| line != "ready");
        let strays: Vec<i32> = lines.filter_map(|line| line.parse().ok()).collect();
        assert_eq!(strays.iter().filter(|pid| lives(**pid)).count(), 3);
        Owner { process, strays }
    }

    fn kill(&mut self) {
        self.process.kill().expect("killed");
        self.process.wait().expect("reaped");
    }
}

impl Drop for Owner {
    /// A test that fails leaves nothing behind either.
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        for stray in self.strays.iter().filter(|pid| lives(**pid)) {
            signal(*stray, Signal::KILL);
        }
    }
}

#[test]
fn a_command_dies_with_its_owner() {
    let call = format!("owner-{}", std::process::id());
    let mut owner = Owner::start(&call);
    owner.kill();
    until("the tree is gone", || alive(&call).is_empty() && !owner.strays.iter().any(|pid| lives(*pid)));
}

#[test]
fn what_survives_owner_and_launcher_is_killed_by_the_next_owner() {
    let call = format!("survivors-{}", std::process::id());
    let mut owner = Owner::start(&call);
    let launcher = launcher_of(&call);
    // Stopped, the owner cannot do anything about the death of its launcher.
    signal(owner.process.id().cast_signed(), Signal::STOP);
    signal(launcher, Signal::KILL);
    owner.kill();
    until("the launcher is gone", || !lives(launcher));
    assert!(owner.strays.iter().any(|pid| lives(*pid)), "the tree survived, or this tests nothing");

    assert_eq!(kill_survivors(|_| false).expect("looked"), 0);
    assert!(!alive(&call).is_empty());
    let killed = kill_survivors(|handle| handle == call).expect("killed");
    assert!(killed >= 3, "{killed}");
    assert_eq!(alive(&call), [0; 0]);
    // One without environment, orphaned when its launcher died, is beyond our sight: see `kill_survivors`.
}

#[tokio::test]
async fn a_launcher_that_works_ends_by_itself() {
    let invocation = script(&format!("{STRAYS} echo ready; sleep 1000"));
    let call = invocation.call.clone();
    let mut running = start(invocation).await;
    wait_for_line(&mut running, "ready").await;
    assert!(kill_survivors(|handle| handle == call).expect("killed") >= 5);
    // It lived to tell how its command ended.
    let ran = finish(running).await;
    assert!(matches!(ran.ended.end, End::Signalled(9)), "{:?}", ran.ended.end);
}

#[tokio::test]
async fn a_launcher_that_hangs_is_killed_too() {
    let invocation = script(&format!("{STRAYS} echo ready; sleep 1000"));
    let call = invocation.call.clone();
    let mut running = start(invocation).await;
    let strays = numbers(&wait_for_line(&mut running, "ready").await);
    signal(launcher_of(&call), Signal::STOP);
    kill_survivors(|handle| handle == call).expect("killed");
    assert_eq!(alive(&call), [0; 0]);
    // Below the launcher all are found, with an environment or without.
    assert!(!strays.iter().any(|pid| lives(*pid)), "{strays:?}");
}
