//! Runs the real binary in a folder of its own, and looks at what is left behind.

use serde_json::Value;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A test that waits longer has failed.
const PATIENCE: Duration = Duration::from_secs(120);

/// A folder in which windlass is run: its `windlass.toml`, its data under `.windlass`, and what commands write.
pub struct Rig {
    folder: TempDir,
}

/// The result of a run of the binary.
pub struct Ran {
    /// None if a signal ended it.
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

/// The first line of a `windlass.toml` with the tools for trying out.
pub const DEMO: &str = "builtin = [\"time\", \"demo\"]\n";

impl Rig {
    pub fn new() -> Rig {
        Rig { folder: tempfile::tempdir().expect("a folder") }
    }

    /// A rig with this `windlass.toml`, which has the tools for trying out.
    pub fn with(toml: &str) -> Rig {
        let rig = Rig::new();
        rig.write("windlass.toml", format!("{DEMO}{toml}"));
        rig
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn database(&self) -> PathBuf {
        self.path(".windlass/windlass.db")
    }

    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> &Rig {
        std::fs::write(self.path(name), bytes).expect("it can be written");
        self
    }

    /// A shell script that tools can run.
    pub fn script(&self, name: &str, text: &str) -> &Rig {
        use std::os::unix::fs::PermissionsExt;
        self.write(name, format!("#!/bin/sh\n{text}\n"));
        std::fs::set_permissions(self.path(name), PermissionsExt::from_mode(0o755)).expect("it is ours");
        self
    }

    /// The lines of a file, none if it is not there yet.
    pub fn lines(&self, name: &str) -> Vec<String> {
        let text = std::fs::read_to_string(self.path(name)).unwrap_or_default();
        // A line that is being written is none yet.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        if whole.is_empty() { Vec::new() } else { whole.lines().map(str::to_string).collect() }
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
        // What a developer has set must not change what people see.
        command
            .args(args)
            .current_dir(self.folder.path())
            .env_remove("RUST_BACKTRACE")
            .env_remove("NO_COLOR")
            .env_remove("WINDLASS_STORE")
            // What is logged differs from run to run; `logs` looks at it.
            .env("WINDLASS_LOG", "off");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub fn start(&self, args: &[&str]) -> Child {
        self.command(args).spawn().expect("windlass starts")
    }

    pub fn run(&self, args: &[&str]) -> Ran {
        finish(self.start(args))
    }

    /// Runs it with this on standard input.
    pub fn run_on(&self, args: &[&str], input: impl AsRef<[u8]>) -> Ran {
        let mut child = self.command(args).stdin(Stdio::piped()).spawn().expect("windlass starts");
        let mut stdin = child.stdin.take().expect("a pipe");
        let input = input.as_ref().to_vec();
        let feeding = std::thread::spawn(move || drop(stdin.write_all(&input)));
        let ran = finish(child);
        feeding.join().expect("it was fed");
        ran
    }

    /// The processes that work in this folder: windlass, its launchers, and the commands.
    pub fn processes(&self) -> Vec<i32> {
        let folder = self.folder.path().canonicalize().expect("it is there");
        let everyone = std::fs::read_dir("/proc").expect("/proc").flatten();
        let pids = everyone.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        pids.filter(|pid| {
            std::fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd.starts_with(&folder))
        })
        .collect()
    }

    /// Takes out of a text what differs from run to run.
    pub fn redact(&self, text: &str) -> String {
        let folder = self.folder.path().to_string_lossy();
        let mut shown = String::new();
        let text = text.replace(&*folder, "[folder]").replace(env!("CARGO_PKG_VERSION"), "[version]");
        for piece in text.split_inclusive(|letter: char| !letter.is_ascii_alphanumeric()) {
            let word = piece.trim_end_matches(|letter: char| !letter.is_ascii_alphanumeric());
            let is_handle =
                word.len() == 26 && word.bytes().all(|b| b.is_ascii_digit() || b.is_ascii_lowercase());
            shown.push_str(if is_handle { "[handle]" } else { word });
            shown.push_str(&piece[word.len()..]);
        }
        shown
    }

    /// A run as people see it, for snapshots.
    pub fn told(&self, ran: &Ran) -> String {
        let code = ran.code.map_or("by signal".to_string(), |code| code.to_string());
        let mut told = format!("exit {code}\n");
        for (name, text) in [("stdout", &ran.stdout), ("stderr", &ran.stderr)] {
            if !text.is_empty() {
                told.push_str(&format!("--- {name}\n{}", self.redact(text)));
            }
        }
        told
    }
}

/// A test that fails in the middle leaves nothing running: what works in this folder is ours.
impl Drop for Rig {
    fn drop(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = self.processes();
            if left.is_empty() || Instant::now() > deadline {
                return;
            }
            for pid in left.into_iter().filter_map(rustix::process::Pid::from_raw) {
                // One that is gone by now is what we want.
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        }
    }
}

impl Ran {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error} in {self}"))
    }

    /// `id state` of each call of `run --json`, in order.
    pub fn states(&self) -> Vec<String> {
        let json = self.json();
        let calls = json["calls"].as_array().unwrap_or_else(|| panic!("no calls in {self}"));
        calls.iter().map(|call| format!("{} {}", text(&call["id"]), text(&call["state"]))).collect()
    }

    /// Checks the exit code, and shows everything if it is another.
    #[track_caller]
    pub fn expect(self, code: i32) -> Ran {
        assert_eq!(self.code, Some(code), "{self}");
        self
    }
}

impl std::fmt::Display for Ran {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let short = |text: &str| text.chars().take(4_000).collect::<String>();
        write!(f, "exit {:?}\n{}\n{}", self.code, short(&self.stdout), short(&self.stderr))
    }
}

pub fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}")).to_string()
}

/// Waits for the end of a child, reading what it says.
pub fn finish(mut child: Child) -> Ran {
    let stdout = child.stdout.take().map(listen);
    let stderr = child.stderr.take().map(listen);
    let code = ended(&mut child);
    let heard = |listening: Option<std::thread::JoinHandle<String>>| {
        listening.map_or_else(String::new, |listening| listening.join().expect("it was read"))
    };
    Ran { code, stdout: heard(stdout), stderr: heard(stderr) }
}

fn listen(mut from: impl Read + Send + 'static) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        from.read_to_end(&mut bytes).expect("readable");
        String::from_utf8(bytes).expect("windlass writes text")
    })
}

fn ended(child: &mut Child) -> Option<i32> {
    let mut code = None;
    until("windlass ends", || {
        let status = child.try_wait().expect("it is our child");
        code = status.and_then(|status| status.code());
        status.is_some()
    });
    code
}

/// Kills with SIGKILL, as the machine would, and waits until it is gone.
pub fn kill(mut child: Child) {
    child.kill().expect("it can be killed");
    child.wait().expect("it is our child");
}

/// Looks again and again until it is so.
#[track_caller]
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(2)); // tidy: the pause between two looks at another process
    }
}

/// Whether every thread of a process is stopped: each takes the signal by itself.
pub fn stands_still(pid: i32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).expect("it is there");
    threads.flatten().all(|thread| {
        let status = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        status.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T'))
    })
}

/// The repository this test belongs to.
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("crates/cli is two deep").to_path_buf()
}
