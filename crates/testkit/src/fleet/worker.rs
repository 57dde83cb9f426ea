//! A worker of a fleet: a process of the real server, killed, stopped and started again in its folder and at its address.

use super::http::ask;
use super::ledger::WORKER;
use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How often a worker that is waited for is looked at.
const LOOK: Duration = Duration::from_millis(5);

/// Everything that a worker is started with.
pub struct WorkerSetup {
    /// The program `windlass`.
    pub windlass: PathBuf,
    /// The database.
    pub store: String,
    /// Where tools act.
    pub ledger: SocketAddr,
    /// The lease of the workers.
    pub lease_ms: u64,
    /// The rule that they break, if they were built so that they can.
    pub mutant: Option<String>,
}

impl WorkerSetup {
    /// The time between two heartbeats.
    pub fn heartbeat_ms(&self) -> u64 {
        self.lease_ms / 5
    }
}

/// A worker that may be dead at the moment.
pub struct FleetWorker {
    pub name: String,
    pub address: SocketAddr,
    folder: PathBuf,
    child: Child,
    starts: u32,
}

impl FleetWorker {
    pub fn start(setup: &WorkerSetup, parent: &Path, number: usize) -> Result<FleetWorker> {
        let name = format!("w{number}");
        let folder = parent.join(&name);
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join("windlass.toml"), toml(setup, &name))?;
        let address = SocketAddr::from(([127, 0, 0, 1], crate::postgres::free_port()?));
        let child = spawn(setup, &folder, address, 1)?;
        Ok(FleetWorker { name, address, folder, child, starts: 1 })
    }

    /// Kills it and starts it again. One that runs, or waits for its database to start, never gives up.
    pub fn restart(&mut self, setup: &WorkerSetup) -> Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!("R8: worker {} ended by itself with {status}: {}", self.name, self.said()?);
        }
        self.child.kill()?;
        self.child.wait()?;
        self.start_again(setup)
    }

    /// Asks it to leave, and waits until it has.
    pub fn leave(&mut self, within: Duration) -> Result<()> {
        self.signal(Signal::TERM)?;
        let began = Instant::now();
        while self.child.try_wait()?.is_none() {
            if began.elapsed() > within {
                bail!("R8: worker {} did not leave within {within:?}: {}", self.name, self.said()?);
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Starts it after its end.
    pub fn start_again(&mut self, setup: &WorkerSetup) -> Result<()> {
        self.starts += 1;
        self.child = spawn(setup, &self.folder, self.address, self.starts)?;
        Ok(())
    }

    /// Stops it where it is, or lets it go on.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        Ok(kill_process(Pid::from_child(&self.child), signal)?)
    }

    /// The first token, which this worker may have made; all share it.
    pub fn token(&self) -> Option<String> {
        let token = std::fs::read_to_string(self.folder.join("data/token")).ok()?;
        Some(token.trim().to_owned()).filter(|token| !token.is_empty())
    }

    /// Waits until it takes work.
    pub fn until_ready(&mut self, within: Duration) -> Result<()> {
        let began = Instant::now();
        loop {
            let asked = ask(self.address, "", "GET /readyz", None, Duration::from_secs(5));
            if asked.is_ok_and(|(status, _)| status == 200) {
                return Ok(());
            }
            if let Some(status) = self.child.try_wait()? {
                bail!("R8: worker {} ended by itself with {status}: {}", self.name, self.said()?);
            }
            if began.elapsed() > within {
                bail!("R8: worker {} was not ready within {within:?}: {}", self.name, self.said()?);
            }
            std::thread::sleep(LOOK);
        }
    }

    fn said(&self) -> Result<String> {
        Ok(std::fs::read_to_string(said(&self.folder, self.starts))?)
    }
}

impl Drop for FleetWorker {
    fn drop(&mut self) {
        // It may be gone already.
        let _killed = self.child.kill();
        let _ended = self.child.wait();
    }
}

fn spawn(setup: &WorkerSetup, folder: &Path, address: SocketAddr, start: u32) -> Result<Child> {
    Command::new(&setup.windlass)
        .args(["--data", "data", "serve", "--listen", &address.to_string()])
        .current_dir(folder)
        .env_remove("WINDLASS_URL")
        .env_remove("WINDLASS_TOKEN")
        .env("WINDLASS_STORE", &setup.store)
        .envs(setup.mutant.iter().map(|rule| ("WINDLASS_MUTANT", rule)))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(File::create(said(folder, start))?)
        .spawn()
        .with_context(|| format!("could not start {}", setup.windlass.display()))
}

fn said(folder: &Path, start: u32) -> PathBuf {
    folder.join(format!("said.{start}"))
}

/// A tool of each class; each acts by a request to the ledger.
fn toml(setup: &WorkerSetup, name: &str) -> String {
    let (lease_ms, beat_ms, ledger) = (setup.lease_ms, setup.heartbeat_ms(), setup.ledger);
    let mut toml = format!(
        "[limits]\nheartbeat_ms = {beat_ms}\nlease_ms = {lease_ms}\nknock_ms = 50\nqueue_ms = 60000\n"
    );
    for class in super::CLASSES {
        toml += &format!(
            "\n[tools.{class}]\ndescription = \"Acts\"\nclass = \"{class}\"\nbackground = true\nclaims = []\n\
             retry = {{ attempts = 10, base_ms = 20 }}\n\
             input = {{ type = \"object\", required = [\"n\", \"ms\"], properties = {{ n = {{ type = \"string\" }}, ms = {{ type = \"integer\" }} }} }}\n\
             http = {{ method = \"POST\", url = \"http://{ledger}/{{n}}/{{ms}}\", internal = true, headers = {{ {WORKER} = \"{name}\" }} }}\n"
        );
    }
    toml
}
