//! Nothing of a command stays: whatever it started, and whoever dies.

use crate::rig::{
    RIG, alive, finish, folder, in_time, launcher_of, lives, run, script, signal, start, until,
    wait_for_line, words,
};
use rustix::process::Signal;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use windlass_tools::command::{CommandEnd, CommandPiece, Invocation};
use windlass_tools::kill_survivors;

/// Starts children of every kind that outlive their parent, and says their numbers: in the group, in the group and
/// deaf to SIGTERM, in a session of its own, a daemon that was forked twice, and in a session of its own without
/// environment.
pub const STRAYS: &str = "sleep 1000 & echo $!
    (trap '' TERM; exec sleep 1000) & echo $!
    setsid sleep 1000 & echo $!
    setsid /bin/sh -c 'sleep 1000 & echo $!'
    (setsid env -i /bin/sh -c 'echo $$; exec sleep 1000' &) | head -n 1
    ";
const STRAYS_COUNT: usize = 5;

fn numbers(text: &str) -> Vec<i32> {
    text.lines().filter_map(|line| line.parse().ok()).collect()
}

#[tokio::test]
async fn children_that_outlive_their_command_are_killed_and_hold_nothing_open() {
    let invocation = script(STRAYS);
    let call = invocation.call.clone();
    let ran = run(invocation).await;
    assert!(matches!(ran.ended.end, CommandEnd::Exited(0)), "{:?}", ran.ended.end);
    let strays = numbers(&ran.text());
    assert_eq!(strays.len(), STRAYS_COUNT);
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
    assert_eq!(strays.iter().filter(|pid| lives(**pid)).count(), STRAYS_COUNT);
    drop(running);
    until("the tree is gone", || alive(&call).is_empty() && !strays.iter().any(|pid| lives(*pid)));
}

#[tokio::test]
async fn a_command_may_end_well_when_asked_to() {
    let invocation = script(&format!("{STRAYS} trap 'echo bye; exit 3' TERM; echo ready; sleep 1000 & wait"));
    let call = invocation.call.clone();
    let mut running = start(invocation).await;
    wait_for_line(&mut running, "ready").await;
    running.terminate().await;
    let ran = finish(running).await;
    assert!(matches!(ran.ended.end, CommandEnd::Exited(3)), "{:?}", ran.ended.end);
    assert_eq!(ran.text(), "bye");
    assert_eq!(alive(&call), [0; 0]);
}

#[tokio::test]
async fn a_command_that_only_knows_signals_dies_of_ours() {
    let invocation = script(&format!("{STRAYS} echo ready; exec sleep 1000"));
    let call = invocation.call.clone();
    let mut running = start(invocation).await;
    let strays = numbers(&wait_for_line(&mut running, "ready").await);
    running.terminate().await;
    let ran = finish(running).await;
    assert!(matches!(ran.ended.end, CommandEnd::Signalled(15)), "{:?}", ran.ended.end);
    assert!(!strays.iter().any(|pid| lives(*pid)), "{strays:?}");
    assert_eq!(alive(&call), [0; 0]);
}

#[tokio::test]
async fn a_command_that_does_not_want_to_end_is_killed_when_dropped() {
    let text = format!("{STRAYS} trap 'echo no' TERM; echo ready; while true; do sleep 1000 & wait; done");
    let invocation = script(&text);
    let call = invocation.call.clone();
    let mut running = start(invocation).await;
    let strays = numbers(&wait_for_line(&mut running, "ready").await);
    running.terminate().await;
    wait_for_line(&mut running, "no").await;
    drop(running);
    until("the tree is gone", || alive(&call).is_empty() && !strays.iter().any(|pid| lives(*pid)));
}

#[tokio::test]
async fn the_whole_group_is_asked_to_end() {
    let text = "trap : TERM
        (trap 'echo asked; exit' TERM; echo ready; sleep 1000 & wait) &
        (trap '' TERM; exec sleep 1000) &
        while true; do wait; done";
    let invocation = script(text);
    let call = invocation.call.clone();
    let mut running = start(invocation).await;
    wait_for_line(&mut running, "ready").await;
    running.terminate().await;
    wait_for_line(&mut running, "asked").await;
    drop(running);
    until("the tree is gone", || alive(&call).is_empty());
}

#[tokio::test]
async fn a_chain_of_forks_in_a_session_of_its_own_is_caught() {
    let invocation =
        script("hop='hop() { hop & exit; }; hop'; setsid /bin/sh -c \"$hop\"; echo ready; sleep 1000");
    let call = invocation.call.clone();
    let mut running = start(invocation).await;
    wait_for_line(&mut running, "ready").await;
    drop(running);
    // The chain has a link without a number now and then, so that nobody is seen; the launcher outlives it.
    until("the tree is gone", || (0..5).all(|_| alive(&call).is_empty()));
}

#[tokio::test]
async fn a_command_that_floods_ends_when_asked_to() {
    let invocation = script("yes & exec yes >&2");
    let call = invocation.call.clone();
    let mut running = start(invocation).await;
    let mut said = [false; 2];
    while said != [true; 2] {
        match running.next().await.expect("readable").expect("more output") {
            CommandPiece::Stdout(_) => said[0] = true,
            CommandPiece::Stderr(_) => said[1] = true,
        }
    }
    running.terminate().await;
    let ended = in_time(running.end()).await.end;
    assert!(matches!(ended, CommandEnd::Signalled(15)), "{ended:?}");
    assert_eq!(alive(&call), [0; 0]);
}

#[tokio::test]
async fn a_command_that_floods_is_killed_when_dropped() {
    // Deaf to the closed pipes too: only SIGKILL ends it.
    let text = "trap '' TERM PIPE; while true; do echo x; done & while true; do echo x >&2; done";
    let invocation = script(text);
    let call = invocation.call.clone();
    let mut running = start(invocation).await;
    running.next().await.expect("readable").expect("output");
    running.terminate().await;
    drop(running);
    until("the tree is gone", || alive(&call).is_empty());
}

/// Somebody outside the tree has the pipe, as after the command passed it on, and does not stop writing.
#[tokio::test]
async fn a_stranger_with_the_pipe_does_not_hold_up_the_end() {
    let mut running = start(script("trap 'exit 0' TERM; echo $$; sleep 1000 & wait")).await;
    let first = running.next().await.expect("readable").expect("its number");
    let CommandPiece::Stdout(number) = first else { panic!("{first:?}") };
    let number = std::str::from_utf8(number).expect("text").trim();
    let pipe =
        std::fs::OpenOptions::new().write(true).open(format!("/proc/{number}/fd/1")).expect("the pipe");
    let stranger = std::thread::spawn(move || {
        let mut pipe = pipe;
        while pipe.write_all(&[b'x'; 4096]).is_ok() {}
    });
    running.terminate().await;
    let ended = in_time(running.end()).await.end;
    assert!(matches!(ended, CommandEnd::Exited(0)), "{ended:?}");
    // Our end is closed, so writing fails.
    stranger.join().expect("it ends too");
}

#[tokio::test]
async fn what_lies_in_the_pipes_at_the_end_is_read() {
    let invocation = script("seq 9000 >&2; seq 9000; exit 1");
    let call = invocation.call.clone();
    let mut running = start(invocation).await;
    let launcher = running.launcher_id().expect("it lives").cast_signed();
    until("the command is over", || alive(&call).is_empty() && !lives(launcher));
    let mut said = [0, 0];
    while let Some(piece) = in_time(running.next()).await.expect("readable") {
        match piece {
            CommandPiece::Stdout(piece) => said[0] += piece.len(),
            CommandPiece::Stderr(piece) => said[1] += piece.len(),
        }
    }
    assert_eq!(said, [43893, 43893]);
    assert!(running.end().await.stderr.text().ends_with("\n9000"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drop_waits_for_nobody_and_what_a_hanging_launcher_leaves_is_killed() {
    let invocation = script(&format!("{STRAYS} echo ready; sleep 1000"));
    let call = invocation.call.clone();
    let mut running = start(invocation).await;
    let strays = numbers(&wait_for_line(&mut running, "ready").await);
    let launcher = launcher_of(&call);
    signal(launcher, Signal::STOP);
    drop(running);
    assert!(lives(launcher), "it was not waited for");
    until("the tree is gone", || alive(&call).is_empty() && !strays.iter().any(|pid| lives(*pid)));
}

/// As when the call is tried again before its first attempt is gone.
#[tokio::test(flavor = "multi_thread")]
async fn seeing_off_a_launcher_that_hangs_spares_what_a_later_one_started() {
    let first = script("trap '' TERM; echo ready; sleep 1000");
    let later = script("setsid sleep 1000 & trap 'exit 0' TERM; echo ready; sleep 1000 & wait");
    let later = Invocation { call: first.call.clone(), ..later };
    let mut running = start(first).await;
    wait_for_line(&mut running, "ready").await;
    let launcher = running.launcher_id().expect("it lives").cast_signed();
    signal(launcher, Signal::STOP);
    drop(running);
    let mut running = start(later).await;
    wait_for_line(&mut running, "ready").await;
    // It is waited for when all of its work has been done for it.
    until("the first is seen off", || !std::path::Path::new(&format!("/proc/{launcher}")).exists());
    running.terminate().await;
    let ran = finish(running).await;
    assert!(matches!(ran.ended.end, CommandEnd::Exited(0)), "{:?}", ran.ended.end);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_dead_launcher_leaves_is_killed_when_dropped() {
    let invocation = script("setsid sleep 1000 & echo ready; sleep 1000");
    let call = invocation.call.clone();
    let mut running = start(invocation).await;
    wait_for_line(&mut running, "ready").await;
    signal(launcher_of(&call), Signal::KILL);
    drop(running);
    until("the tree is gone", || alive(&call).is_empty());
}

#[tokio::test]
async fn nothing_starts_for_an_owner_that_is_gone_before_it_gave_the_input() {
    // More than the socket holds, so that the owner waits while it gives it.
    let (_guard, folder) = folder();
    let invocation =
        Invocation { stdin: vec![b'x'; 64 << 20], cwd: folder.clone(), ..words(&["touch", "started"]) };
    let call = invocation.call.clone();
    let starting = tokio::time::timeout(Duration::ZERO, start(invocation)).await;
    assert!(starting.is_err(), "it is still being given its input");
    until("the launcher is gone", || alive(&call).is_empty());
    assert!(!folder.join("started").exists());
}

#[tokio::test]
async fn a_command_without_its_launcher_is_killed_by_its_owner() {
    let invocation = script("setsid sleep 1000 & echo ready; sleep 1000");
    let call = invocation.call.clone();
    let mut running = start(invocation).await;
    wait_for_line(&mut running, "ready").await;
    signal(running.launcher_id().expect("it lives").cast_signed(), Signal::KILL);
    let ran = finish(running).await;
    assert!(matches!(ran.ended.end, CommandEnd::Lost), "{:?}", ran.ended.end);
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
        assert_eq!(strays.iter().filter(|pid| lives(**pid)).count(), STRAYS_COUNT);
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

/// Whether every thread of a process is stopped: each takes the signal by itself.
fn stands_still(pid: i32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).expect("it is there");
    threads.flatten().all(|thread| {
        let status = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        status.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T'))
    })
}

#[test]
fn what_survives_owner_and_launcher_is_killed_by_the_next_owner() {
    let call = format!("survivors-{}", std::process::id());
    let mut owner = Owner::start(&call);
    let launcher = launcher_of(&call);
    // Stopped, the owner cannot do anything about the death of its launcher.
    let pid = owner.process.id().cast_signed();
    signal(pid, Signal::STOP);
    until("the owner stands still", || stands_still(pid));
    signal(launcher, Signal::KILL);
    owner.kill();
    until("the launcher is gone", || !lives(launcher));
    assert!(owner.strays.iter().any(|pid| lives(*pid)), "the tree survived, or this tests nothing");

    assert_eq!(kill_survivors(|_| false).expect("looked"), 0);
    assert!(!alive(&call).is_empty());
    let killed = kill_survivors(|handle| handle == call).expect("killed");
    assert!(killed >= STRAYS_COUNT - 1, "{killed}");
    assert_eq!(alive(&call), [0; 0]);
    // One without environment, orphaned when its launcher died, is beyond our sight: see `kill_survivors`.
}

#[tokio::test]
async fn a_launcher_that_works_ends_by_itself() {
    let invocation = script(&format!("{STRAYS} echo ready; sleep 1000"));
    let call = invocation.call.clone();
    let mut running = start(invocation).await;
    wait_for_line(&mut running, "ready").await;
    assert!(kill_survivors(|handle| handle == call).expect("killed") > STRAYS_COUNT);
    // It lived to tell how its command ended.
    let ran = finish(running).await;
    assert!(matches!(ran.ended.end, CommandEnd::Signalled(9)), "{:?}", ran.ended.end);
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
