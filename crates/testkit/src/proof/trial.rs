//! One data folder through all its workers: each is started, dies or ends, and the next goes on.

use super::check::Histories;
use super::history::{Journal, Told};
use super::ledger::{Ledger, Worker};
use super::plan::Plan;
use super::worker;
use anyhow::{Context, Result, bail};
use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Everything that is open is answered within this, or it is stuck.
const DRAINED_AFTER: Duration = Duration::from_secs(60);
/// How often a worker that is waited for is looked at.
const LOOK: Duration = Duration::from_millis(1);
const SIGKILL: i32 = 9;
/// How many workers a tool may kill before it must be set aside.
const DEATHS_MAX: u32 = 8;

/// The programs of the rig.
#[derive(Clone, Debug)]
pub struct Programs {
    /// `windlass-worker`
    pub worker: PathBuf,
    /// `windlass-ledger`
    pub ledger: PathBuf,
    /// The rule that the worker breaks, if it was built so that it can.
    pub mutant: Option<String>,
}

impl Programs {
    /// The kill points of a worker that was built with them.
    pub fn points(&self) -> Result<Vec<String>> {
        let listed =
            Command::new(&self.worker).arg("--points").output().context("the worker cannot be started")?;
        Ok(String::from_utf8(listed.stdout)?.lines().map(str::to_owned).collect())
    }
}

/// Which plan a trial runs.
#[derive(Clone, Copy, Debug)]
pub enum Planned {
    /// The plan of a seed.
    Seed(u64),
    /// [Tasks](Plan::tasks) of a seed.
    Tasks(u64),
    /// [`Plan::every_write`].
    EveryWrite,
    /// The same, but each batch is submitted whole and nothing beside it is written.
    Whole,
    /// What is [asked](Plan::only) of calls.
    Asked,
    /// Its stepped calls.
    Stepped,
    /// What waits for its client, calls others, or is pushed.
    Outside,
    /// Calls that [decide about each other](Plan::siblings).
    Siblings,
    /// [One stepped call](Plan::two_steps), alone.
    TwoSteps,
    /// [A task, and a call at a time](Plan::background).
    Background,
    /// A row of the [table](super::table).
    Row(usize),
    /// [A call that kills its workers](super::poison), of this class.
    Poison(&'static str),
}

impl Planned {
    /// What is submitted.
    pub fn plan(self) -> Result<Plan> {
        worker::named(&self.arg())
    }

    fn arg(self) -> String {
        match self {
            Planned::Seed(seed) => seed.to_string(),
            Planned::Tasks(seed) => format!("tasks-{seed}"),
            Planned::EveryWrite => "every-write".to_owned(),
            Planned::Whole => "whole".to_owned(),
            Planned::Asked => "asked".to_owned(),
            Planned::Stepped => "stepped".to_owned(),
            Planned::Outside => "outside".to_owned(),
            Planned::Siblings => "siblings".to_owned(),
            Planned::TwoSteps => "two-steps".to_owned(),
            Planned::Background => "background".to_owned(),
            Planned::Row(row) => format!("row-{row}"),
            Planned::Poison(class) => format!("poison-{class}"),
        }
    }
}

/// A data folder and its workers so far.
pub struct Trial<'a> {
    folder: TempDir,
    programs: &'a Programs,
    ledger: &'a mut Ledger,
    number: u64,
    planned: Planned,
    started: u32,
    /// Which workers were killed.
    died: BTreeSet<u32>,
    /// Those that failed with their store.
    lost: u32,
}

/// How a worker ended.
pub enum Ended {
    /// By itself, with everything answered.
    Done,
    /// By itself, because the store failed.
    Lost,
    /// Killed.
    Killed,
}

impl<'a> Trial<'a> {
    /// An empty folder beneath `parent`.
    pub fn new(
        programs: &'a Programs,
        ledger: &'a mut Ledger,
        (number, planned): (u64, Planned),
    ) -> Result<Trial<'a>> {
        let folder = TempDir::with_prefix(format!("trial-{number}-")).context("no folder for a trial")?;
        Ok(Trial { folder, programs, ledger, number, planned, started: 0, died: BTreeSet::new(), lost: 0 })
    }

    /// Starts the next worker.
    pub fn start(&mut self, environment: &[(&str, String)]) -> Result<Child> {
        self.started += 1;
        let worker = Worker { trial: self.number, number: self.started };
        Command::new(&self.programs.worker)
            .arg(self.folder.path().join("data"))
            .args([&self.ledger.address, &worker.trial.to_string(), &worker.number.to_string()])
            .arg(self.planned.arg())
            .env("RUST_BACKTRACE", "0")
            .envs(environment.iter().cloned())
            .envs(self.programs.mutant.iter().map(|rule| ("WINDLASS_MUTANT", rule)))
            .stdin(Stdio::null())
            .stdout(File::create(self.file("told", self.started))?)
            .stderr(File::create(self.file("said", self.started))?)
            .spawn()
            .with_context(|| format!("could not start {}", self.programs.worker.display()))
    }

    /// Kills the worker that was started last, and says how it ended: it may have been quicker.
    pub fn kill(&mut self, child: &mut Child) -> Result<Ended> {
        child.kill().context("could not kill a worker")?;
        self.ended(child.wait()?)
    }

    /// Waits for the worker that was started last.
    pub fn wait(&mut self, child: &mut Child) -> Result<Ended> {
        let started = Instant::now();
        loop {
            if let Some(status) = child.try_wait()? {
                return self.ended(status);
            }
            if started.elapsed() > DRAINED_AFTER {
                self.kill(child)?;
                bail!("R8: worker {} was not done after {} s", self.started, DRAINED_AFTER.as_secs());
            }
            std::thread::sleep(LOOK);
        }
    }

    fn ended(&mut self, status: ExitStatus) -> Result<Ended> {
        if status.signal() == Some(SIGKILL) {
            self.died.insert(self.started);
            return Ok(Ended::Killed);
        }
        if status.code() == Some(i32::from(worker::DONE)) {
            return Ok(Ended::Done);
        }
        self.lost += 1;
        if status.code() == Some(i32::from(worker::LOST)) {
            return Ok(Ended::Lost);
        }
        let said = std::fs::read_to_string(self.file("said", self.started))?;
        bail!("R8: worker {} ended with {status}: {said}", self.started)
    }

    /// Lets workers finish undisturbed, and one more read everything back.
    pub fn drain(&mut self) -> Result<()> {
        // A tool that kills its workers is set aside; until then there may be several.
        let mut deaths_left = if self.planned.plan()?.dies() { DEATHS_MAX } else { 0 };
        for what in ["finish", "read everything back"] {
            loop {
                let mut child = self.start(&[])?;
                match self.wait(&mut child)? {
                    Ended::Done => break,
                    Ended::Killed if deaths_left > 0 => deaths_left -= 1,
                    Ended::Lost | Ended::Killed => {
                        let said = std::fs::read_to_string(self.file("said", self.started))?;
                        bail!("R8: worker {} could not {what}: {said}", self.started);
                    }
                }
            }
        }
        Ok(())
    }

    /// What the worker that was started last has told so far.
    pub fn last_told(&self) -> Result<Told> {
        self.told(self.started)
    }

    /// Whether the worker that was started last has said anything yet: that it has the store.
    pub fn has_told(&self) -> Result<bool> {
        Ok(std::fs::metadata(self.file("told", self.started))?.len() > 0)
    }

    fn told(&self, worker: u32) -> Result<Told> {
        let said = std::fs::read(self.file("told", worker)).context("what a worker told cannot be read")?;
        let told = Told::read(worker, &String::from_utf8_lossy(&said))?;
        Ok(Told { died: self.died.contains(&worker), ..told })
    }

    /// The three histories.
    pub fn histories(&mut self) -> Result<Histories> {
        let told = (1..=self.started).map(|worker| self.told(worker)).collect::<Result<Vec<_>>>()?;
        let threads = tokio::runtime::Builder::new_current_thread().build()?;
        let journal = threads.block_on(Journal::read(&self.folder.path().join("data")))?;
        let mut effects = self.ledger.effects()?;
        effects.retain(|effect| effect.worker.trial == self.number);
        let deaths = self.died.len() as u32 + self.lost;
        Ok(Histories { plan: self.planned.plan()?, told, journal, effects, deaths })
    }

    /// Keeps the folder, for whoever looks for the cause, and says where it is.
    pub fn keep(self) -> PathBuf {
        self.folder.keep()
    }

    fn file(&self, name: &str, worker: u32) -> PathBuf {
        self.folder.path().join(format!("{name}.{worker}"))
    }
}
