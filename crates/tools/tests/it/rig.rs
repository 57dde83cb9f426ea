//! Runs commands without a runtime, and looks at the processes of a call.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use windlass_tools::command::{
    BoundedOutput, CommandOutcome, CommandPiece, Invocation, RunningCommand, Tail, failure, spawn,
};
use windlass_tools::{LAUNCH_ARG, Launcher};

/// The binary that is a launcher, or an owner.
pub const RIG: &str = env!("CARGO_BIN_EXE_windlass-tools-rig");

pub fn launcher() -> Launcher {
    Launcher { program: RIG.into(), args: vec![LAUNCH_ARG.into()] }
}

/// A shell script as an invocation with a call of its own.
pub fn script(text: &str) -> Invocation {
    words(&["/bin/sh", "-c", text])
}

pub fn words(words: &[&str]) -> Invocation {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let call = format!("test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let words = words.iter().map(Into::into).collect();
    Invocation {
        call,
        words,
        program_file: None,
        env: Vec::new(),
        cwd: std::env::temp_dir(),
        stdin: Vec::new(),
        stdin_file: None,
    }
}

pub async fn start(invocation: Invocation) -> RunningCommand {
    spawn(&launcher(), invocation, Tail::new(200)).await.expect("the launcher starts")
}

/// The result of a command.
pub struct Ran {
    pub ended: CommandOutcome,
    pub stdout: BoundedOutput,
}

pub async fn run(invocation: Invocation) -> Ran {
    finish(start(invocation).await).await
}

pub async fn finish(mut running: RunningCommand) -> Ran {
    in_time(async {
        let mut stdout = BoundedOutput::new(8 << 20);
        while let Some(piece) = running.next().await.expect("readable") {
            if let CommandPiece::Stdout(piece) = piece {
                assert!(stdout.take(piece).is_none(), "the test's output is small");
            }
        }
        Ran { ended: running.end().await, stdout }
    })
    .await
}

/// The result of a future, if it comes in time.
pub async fn in_time<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("it ends in time")
}

/// A test that waits longer has failed.
pub const PATIENCE: Duration = Duration::from_secs(120);

impl Ran {
    pub fn text(self) -> String {
        let value = self.stdout.into_result(&windlass::Limits::default()).0;
        value.as_str().map_or_else(|| value.to_string(), str::to_string)
    }

    /// The failure as people see it, or the result.
    pub fn told(self) -> String {
        match failure(&self.ended, &self.stdout, &windlass::secrets::SecretScrubber::default()) {
            None => format!("result {}", self.text()),
            Some(error) => format!(
                "{} {:?}{} {}\n{}{}",
                error.class,
                error.retry,
                if error.did_not_happen { ", did not happen" } else { "" },
                error.tool_code.unwrap_or_default(),
                error.message,
                error.detail.unwrap_or_default(),
            ),
        }
    }
}

/// Reads output until this line is there.
pub async fn wait_for_line(running: &mut RunningCommand, line: &str) -> String {
    let mut seen = String::new();
    while !seen.lines().any(|seen| seen == line) {
        let piece = in_time(running.next()).await.expect("readable").expect("more output");
        if let CommandPiece::Stdout(piece) = piece {
            seen.push_str(std::str::from_utf8(piece).expect("text"));
        }
    }
    seen
}

/// The living processes of a call.
pub fn alive(call: &str) -> Vec<i32> {
    let marked = format!("WINDLASS_CALL={call}");
    let everyone = std::fs::read_dir("/proc").expect("/proc").flatten();
    let pids = everyone.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| {
        let environ = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environ.split(|byte| *byte == 0).any(|entry| entry == marked.as_bytes())
    })
    .collect()
}

/// Whether a process lives and is no zombie.
pub fn lives(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

/// Looks again and again until it is so.
pub fn until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(1)); // tidy: processes end when the kernel says so, nothing tells us
    }
}

/// Waits for a condition, letting other tasks run meanwhile.
pub async fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(1)).await; // tidy: another process does it, nothing tells us
    }
}

pub fn signal(pid: i32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(pid).expect("a process number");
    rustix::process::kill_process(pid, signal).expect("it can be signalled");
}

/// The launcher among the processes of a call.
pub fn launcher_of(call: &str) -> i32 {
    let is_launcher = |pid: &i32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).nth(1) == Some(LAUNCH_ARG.as_bytes())
    };
    alive(call).into_iter().find(is_launcher).expect("a launcher")
}

/// A folder that is deleted afterwards.
pub fn folder() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().to_path_buf();
    (folder, path)
}
