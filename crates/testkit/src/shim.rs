//! Breaking the n-th file operation of a process, and looking at what is left.

use crate::scenario::{self, ClientReplies, ClientRounds, RunCounts, ScenarioRemains};
use anyhow::{Context, ensure};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use windlass_store::SqliteStore;
use windlass_store::sqlite::Options;

/// A process that takes longer hangs.
const HANG: Duration = Duration::from_secs(90);
/// Its exit code when the store was refused or lost.
const FOLDER: i32 = 6;
/// Its exit code when the shim ended it.
const DIED: i32 = 77;

/// The faults of an operation.
pub const KINDS: [&str; 5] = ["eio", "torn", "enospc_forever", "eio_forever", "die"];

/// The shim, compiled.
pub struct Shim {
    folder: TempDir,
}

/// The result of one broken operation.
#[derive(Debug)]
pub struct FaultFinding {
    /// The operation, as the shim noted it; `None` if the process had ended before it came to that.
    pub hit: Option<String>,
    /// Whether the process got all its answers in spite of it.
    pub unharmed: bool,
    /// The remains.
    pub left: ScenarioRemains,
}

impl Shim {
    /// Compiles the shim; the reason why not, if this machine cannot.
    pub fn compile() -> Result<Shim, String> {
        let folder = TempDir::new().map_err(|error| format!("no temporary folder: {error}"))?;
        let source = folder.path().join("shim.c");
        std::fs::write(&source, include_str!("shim/shim.c")).map_err(|error| error.to_string())?;
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-fPIC", "-O1", "-o"])
            .arg(folder.path().join("shim.so"))
            .arg(&source)
            .arg("-ldl");
        match cc.output() {
            Err(error) => Err(format!("there is no C compiler `cc` ({error})")),
            Ok(output) if !output.status.success() => {
                Err(format!("cc failed: {}", String::from_utf8_lossy(&output.stderr)))
            }
            Ok(_) => Ok(Shim { folder }),
        }
    }

    /// Runs the short work in the process `worker` with its n-th operation broken, and checks what is left.
    pub async fn run(&self, worker: &Path, nth: u64, kind: &str) -> anyhow::Result<FaultFinding> {
        let scene = in_memory()?;
        let (data, runs, report) =
            (scene.path().join("data"), scene.path().join("runs"), scene.path().join("report"));
        let child = Command::new(worker)
            .arg("short")
            .args([&data, &runs])
            .env("LD_PRELOAD", self.library())
            .env("WINDLASS_SHIM_FOLDER", &data)
            .env("WINDLASS_SHIM_NTH", nth.to_string())
            .env("WINDLASS_SHIM_KIND", kind)
            .env("WINDLASS_SHIM_REPORT", &report)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let ended = wait(child)?;
        let hit = std::fs::read_to_string(&report).ok().map(|text| text.trim().to_owned());
        let allowed: &[i32] = if kind == "die" { &[0, FOLDER, DIED] } else { &[0, FOLDER] };
        ensure!(allowed.contains(&ended.code), "it ended with {}: {}", ended.code, ended.errors);
        ensure!(hit.is_some() || ended.code == 0, "nothing was broken and it failed: {}", ended.errors);
        let told = parse(&ended.told);
        let store = SqliteStore::open(Options::new(&data))
            .with_context(|| format!("afterwards the folder does not open ({})", ended.errors))?;
        let runs = RunCounts::in_file(&runs)?;
        let left = scenario::check(Arc::new(store), &work(), &told, &runs).await?;
        Ok(FaultFinding { hit, unharmed: ended.code == 0, left })
    }

    fn library(&self) -> PathBuf {
        self.folder.path().join("shim.so")
    }
}

/// A folder in memory where there is one: what is broken here is the operation, not the disk.
fn in_memory() -> std::io::Result<TempDir> {
    TempDir::new_in("/dev/shm").or_else(|_| TempDir::new())
}

fn work() -> Vec<ClientRounds> {
    scenario::short_work()
}

/// The replies, line by line; a cut line was not a reply.
pub fn parse(told: &str) -> Vec<ClientReplies> {
    told.split_inclusive('\n')
        .filter(|line| line.ends_with('\n'))
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect()
}

struct ShimExit {
    code: i32,
    told: String,
    errors: String,
}

/// Waits for a process, not for ever.
fn wait(mut child: Child) -> anyhow::Result<ShimExit> {
    let mut pipes = (child.stdout.take(), child.stderr.take());
    let told = std::thread::spawn(move || read(&mut pipes.0));
    let errors = std::thread::spawn(move || read(&mut pipes.1));
    let until = Instant::now() + HANG;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if Instant::now() > until {
            child.kill()?;
            child.wait()?;
            anyhow::bail!("it hung: {}", errors.join().unwrap_or_default());
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    let (told, errors) = (told.join().unwrap_or_default(), errors.join().unwrap_or_default());
    Ok(ShimExit { code: status.code().unwrap_or(-1), told, errors })
}

fn read(pipe: &mut Option<impl Read>) -> String {
    let mut bytes = Vec::new();
    if let Some(pipe) = pipe {
        drop(pipe.read_to_end(&mut bytes));
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
