//! One data folder through all its workers: each is started, dies or ends, and the next goes on.

use super::check::Histories;
use super::history::{Journal, WorkerReplies};
use super::ledger::{Ledger, TrialWorker};
use super::plan::ProofPlan;
use super::worker;
use super::{context, deletion, grants};
use anyhow::{Context, Result, bail};
use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use windlass_store::{SqliteStore, Store};

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
    /// [Tasks](ProofPlan::tasks) of a seed.
    Tasks(u64),
    /// [Calls that wait for people](ProofPlan::approvals), of a seed.
    Approvals(u64),
    /// [Calls by grants](ProofPlan::grants), of a seed.
    Grants(u64),
    /// [One call at a time by one grant](ProofPlan::granted).
    Granted,
    /// [`ProofPlan::every_write`].
    EveryWrite,
    /// As above, but each batch is submitted whole and nothing beside it is written.
    Whole,
    /// [Requests](ProofPlan::only) about calls.
    Asked,
    /// Its stepped calls.
    Stepped,
    /// Calls that wait for their client, call others, or are pushed.
    Outside,
    /// Calls that [decide about each other](ProofPlan::siblings).
    Siblings,
    /// [One stepped call](ProofPlan::two_steps), alone.
    TwoSteps,
    /// [A task, and a call at a time](ProofPlan::background).
    Background,
    /// A session that is [deleted](ProofPlan::deletion).
    Deletion,
    /// A session in which calls [start and await tasks](ProofPlan::context).
    Context,
    /// A row of the [table](super::table).
    Row(usize),
    /// [A call that kills its workers](super::poison), of this class.
    Poison(&'static str),
}

impl Planned {
    /// The plan to submit.
    pub fn plan(self) -> Result<ProofPlan> {
        worker::named(&self.arg())
    }

    fn arg(self) -> String {
        match self {
            Planned::Seed(seed) => seed.to_string(),
            Planned::Tasks(seed) => format!("tasks-{seed}"),
            Planned::Approvals(seed) => format!("approvals-{seed}"),
            Planned::Grants(seed) => format!("grants-{seed}"),
            Planned::Granted => "granted".to_owned(),
            Planned::EveryWrite => "every-write".to_owned(),
            Planned::Whole => "whole".to_owned(),
            Planned::Asked => "asked".to_owned(),
            Planned::Stepped => "stepped".to_owned(),
            Planned::Outside => "outside".to_owned(),
            Planned::Siblings => "siblings".to_owned(),
            Planned::TwoSteps => "two-steps".to_owned(),
            Planned::Background => "background".to_owned(),
            Planned::Deletion => "deletion".to_owned(),
            Planned::Context => "context".to_owned(),
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
pub enum WorkerExit {
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
        number: u64,
        planned: Planned,
    ) -> Result<Trial<'a>> {
        let folder = TempDir::with_prefix(format!("trial-{number}-")).context("no folder for a trial")?;
        Ok(Trial { folder, programs, ledger, number, planned, started: 0, died: BTreeSet::new(), lost: 0 })
    }

    /// Starts the next worker.
    pub fn start(&mut self, environment: &[(&str, String)]) -> Result<Child> {
        self.started += 1;
        let worker = TrialWorker { trial: self.number, number: self.started };
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
    pub fn kill(&mut self, child: &mut Child) -> Result<WorkerExit> {
        child.kill().context("could not kill a worker")?;
        self.ended(child.wait()?)
    }

    /// Waits for the worker that was started last.
    pub fn wait(&mut self, child: &mut Child) -> Result<WorkerExit> {
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

    fn ended(&mut self, status: ExitStatus) -> Result<WorkerExit> {
        if status.signal() == Some(SIGKILL) {
            self.died.insert(self.started);
            return Ok(WorkerExit::Killed);
        }
        if status.code() == Some(i32::from(worker::DONE)) {
            return Ok(WorkerExit::Done);
        }
        self.lost += 1;
        if status.code() == Some(i32::from(worker::LOST)) {
            return Ok(WorkerExit::Lost);
        }
        let said = std::fs::read_to_string(self.file("said", self.started))?;
        bail!("R8: worker {} ended with {status}: {said}", self.started)
    }

    /// Lets workers finish undisturbed, and one more read everything back.
    pub fn drain(&mut self) -> Result<()> {
        self.drain_as(&[])
    }

    /// Drains with workers that have these environment variables.
    pub fn drain_as(&mut self, environment: &[(&str, String)]) -> Result<()> {
        // A tool that kills its workers is set aside; until then there may be several.
        let mut deaths_left = if self.planned.plan()?.dies() { DEATHS_MAX } else { 0 };
        for what in ["finish", "read everything back"] {
            loop {
                let mut child = self.start(environment)?;
                match self.wait(&mut child)? {
                    WorkerExit::Done => break,
                    WorkerExit::Killed if deaths_left > 0 => deaths_left -= 1,
                    WorkerExit::Lost | WorkerExit::Killed => {
                        let said = std::fs::read_to_string(self.file("said", self.started))?;
                        bail!("R8: worker {} could not {what}: {said}", self.started);
                    }
                }
            }
        }
        Ok(())
    }

    /// The replies so far to the worker that was started last.
    pub fn last_told(&self) -> Result<WorkerReplies> {
        self.told(self.started)
    }

    /// Whether the worker that was started last has said anything yet: that it has the store.
    pub fn has_told(&self) -> Result<bool> {
        Ok(std::fs::metadata(self.file("told", self.started))?.len() > 0)
    }

    fn told(&self, worker: u32) -> Result<WorkerReplies> {
        let said = std::fs::read(self.file("told", worker)).context("what a worker told cannot be read")?;
        let told = WorkerReplies::read(worker, &String::from_utf8_lossy(&said))?;
        Ok(WorkerReplies { died: self.died.contains(&worker), ..told })
    }

    /// The three histories.
    pub fn histories(&mut self) -> Result<Histories> {
        let told = (1..=self.started).map(|worker| self.told(worker)).collect::<Result<Vec<_>>>()?;
        let threads = tokio::runtime::Builder::new_current_thread().build()?;
        let data = self.folder.path().join("data");
        let mut journal = threads.block_on(Journal::read(&data))?;
        let found = threads.block_on(async {
            let store: Arc<dyn Store> = Arc::new(SqliteStore::open_reader(&data)?);
            let mut found = deletion::problems(&*store, &told).await?;
            found.extend(context::problems(&store, &told).await?);
            found.extend(grants::problems(&*store, &told, &journal).await?);
            anyhow::Ok(found)
        })?;
        journal.problems.extend(found);
        let mut effects = self.ledger.effects()?;
        effects.retain(|effect| effect.worker.trial == self.number);
        let deaths = self.died.len() as u32 + self.lost;
        Ok(Histories { plan: self.planned.plan()?, told, journal, effects, deaths, failed: self.lost })
    }

    /// Keeps the folder, for whoever looks for the cause, and says where it is.
    pub fn keep(self) -> PathBuf {
        self.folder.keep()
    }

    fn file(&self, name: &str, worker: u32) -> PathBuf {
        self.folder.path().join(format!("{name}.{worker}"))
    }
}
