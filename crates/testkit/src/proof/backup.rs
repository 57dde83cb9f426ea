//! Backups of a folder whose owner works, killed at random instants and made again. Everything that the owner had
//! acknowledged before a backup began must be in it, whatever was under way must be unknown there and must not run, and
//! the owner must not notice.

use crate::chance::Chance;
use crate::powercut;
use crate::progress::ProofProgress;
use crate::results::ProofRecord;
use crate::scenario::{self, BatchReplyKind, ClientReplies, RunCounts};
use crate::shim::parse;
use anyhow::{Context, Result, ensure};
use serde_json::json;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use windlass_store::sqlite::{Options, SqliteStore};
use windlass_store::{Original, Store};

/// An owner writes megabytes a second, so it is replaced after so many backups.
const BACKUPS_PER_OWNER: u64 = 3;
/// The owner has this much to lose before the first backup begins.
const ANSWERS_FIRST: usize = 20;
/// Longer than any answer of the owner takes.
const PATIENCE: Duration = Duration::from_secs(60);
/// A kill may come this long after the start before it is known how long a backup takes.
const FIRST_GUESS: Duration = Duration::from_millis(200);

/// The programs of the rig.
#[derive(Clone, Debug)]
pub struct BackupPrograms {
    /// The owner, `scenario`.
    pub owner: PathBuf,
    /// The backup.
    pub backup: PathBuf,
}

/// How much is tried.
#[derive(Clone, Copy, Debug)]
pub struct BackupTrials {
    /// Backups that are killed; each is made again to its end.
    pub count: u64,
    pub seed: u64,
}

/// The result of the rig.
#[derive(Debug, Default)]
pub struct BackupReport {
    /// Backups that were killed before their target was there.
    pub killed: u64,
    /// Backups that were complete when they were to be killed.
    pub too_late: u64,
    /// Killed backups that had left something, which the next one removed.
    pub left_something: u64,
    /// Answers that were acknowledged before a backup began, and found in it.
    pub acknowledged: u64,
    /// Calls that were under way in a backup, and are unknown there.
    pub unknown: u64,
    /// Answers of the owners while backups ran.
    pub answers: u64,
    pub took: Duration,
    pub violations: Vec<String>,
}

impl BackupReport {
    /// As a line of the results.
    pub fn record(&self, trials: &BackupTrials) -> ProofRecord {
        ProofRecord {
            proof: "backup",
            count: trials.count,
            seed: trials.seed,
            took: self.took,
            violations: self.violations.len(),
            more: json!({
                "killed": self.killed, "too_late": self.too_late, "left_something": self.left_something,
                "acknowledged": self.acknowledged, "unknown": self.unknown, "answers": self.answers,
            }),
        }
    }
}

/// Runs the rig.
pub async fn run(programs: &BackupPrograms, trials: &BackupTrials) -> Result<BackupReport> {
    let (began, mut chance) = (Instant::now(), Chance::new(trials.seed));
    let (mut report, mut lasts, mut done) = (BackupReport::default(), FIRST_GUESS, 0);
    let progress = ProofProgress::new("backups", Some(trials.count));
    while done < trials.count {
        let folder = TempDir::new()?;
        let mut owner = WorkingOwner::start(&programs.owner, folder.path())?;
        for _ in 0..BACKUPS_PER_OWNER.min(trials.count - done) {
            done += 1;
            let trial = BackupTrial { programs, owner: &owner, target: folder.path().join("copy") };
            let ran = trial.run(&mut chance, &mut lasts, &mut report).await;
            progress.advance(1, usize::from(ran.is_err()));
            if let Err(broken) = ran {
                report.violations.push(format!("backup {done}: {broken:#}"));
            }
            std::fs::remove_dir_all(&trial.target).ok();
        }
        match owner.end(folder.path()).await {
            Ok(answers) => report.answers += answers,
            Err(broken) => report.violations.push(format!("the owner of backup {done}: {broken:#}")),
        }
    }
    report.took = began.elapsed();
    Ok(report)
}

/// One backup that is killed, and the one after it.
struct BackupTrial<'a> {
    programs: &'a BackupPrograms,
    owner: &'a WorkingOwner,
    target: PathBuf,
}

impl BackupTrial<'_> {
    async fn run(&self, chance: &mut Chance, lasts: &mut Duration, report: &mut BackupReport) -> Result<()> {
        let told = self.owner.told();
        let within = u64::try_from(lasts.as_micros()).unwrap_or(u64::MAX);
        self.killed_after(Duration::from_micros(chance.below(within * 5 / 4)))?;
        if self.target.exists() {
            // It has its name, so it is complete, dead or not.
            report.too_late += 1;
            check(&self.target, &told, report).await.context("it was killed after its end")?;
            std::fs::remove_dir_all(&self.target)?;
        } else {
            report.killed += 1;
            report.left_something += u64::from(self.unfinished().exists());
        }
        let (told, began) = (self.owner.told(), Instant::now());
        let ended = self.start()?.wait()?;
        ensure!(ended.success(), "the backup after a killed one failed: {ended}");
        *lasts = began.elapsed();
        ensure!(!self.unfinished().exists(), "what the killed one left is still there");
        check(&self.target, &told, report).await
    }

    fn start(&self) -> Result<Child> {
        let mut backup = Command::new(&self.programs.backup);
        backup.args([&self.owner.data, &self.target]).stdin(Stdio::null()).stdout(Stdio::null());
        Ok(backup.spawn()?)
    }

    fn killed_after(&self, after: Duration) -> Result<ExitStatus> {
        let mut backup = self.start()?;
        std::thread::sleep(after);
        // One that has ended by itself stays as it was.
        let _over = backup.kill();
        Ok(backup.wait()?)
    }

    fn unfinished(&self) -> PathBuf {
        self.target.with_file_name(".copy.unfinished")
    }
}

/// Starts the copy as a folder whose original may live, and compares it with what was acknowledged before.
async fn check(target: &Path, told: &[ClientReplies], report: &mut BackupReport) -> Result<()> {
    let store = SqliteStore::open(Options::new(target)).context("the copy does not open")?;
    ensure!(store.is_copy(), "it does not know that it is a copy");
    let store: Arc<dyn Store> = Arc::new(store);
    let before = scenario::recorded(&store).await?;
    let open: Vec<String> =
        before.iter().filter(|(_, call)| !call.ended).map(|(name, _)| name.clone()).collect();
    let runs = RunCounts::default();
    let runtime = scenario::runtime(store.clone(), &runs)?;
    runtime.judge_copy().await?.context("nothing was judged")?;
    drop(runtime);
    ensure!(runs.all().is_empty(), "something ran in the copy: {:?}", runs.all());
    let after = scenario::recorded(&store).await?;
    for name in &open {
        let call = after.get(name).with_context(|| format!("{name} is gone"))?;
        ensure!(call.answer.state == "unknown", "{name} was under way and is {}", call.answer.state);
    }
    report.unknown += open.len() as u64;
    for told in told {
        let BatchReplyKind::Answered(answers) = &told.reply else { continue };
        for answer in answers {
            let name = format!("{}/{}/{}", told.session, told.batch, answer.id);
            let kept = after.get(&name).with_context(|| format!("{name} was acknowledged and is missing"))?;
            ensure!(kept.answer == *answer, "{name} was {answer:?} and is {:?}", kept.answer);
            report.acknowledged += 1;
        }
    }
    Ok(())
}

/// An owner at work, and the lines it has printed: each is an acknowledged answer.
struct WorkingOwner {
    child: Child,
    data: PathBuf,
    lines: Arc<Mutex<String>>,
    reading: Option<std::thread::JoinHandle<()>>,
}

impl WorkingOwner {
    fn start(program: &Path, folder: &Path) -> Result<WorkingOwner> {
        let data = folder.join("data");
        let mut child = Command::new(program)
            .arg("endless")
            .args([&data, &folder.join("runs")])
            .stdout(Stdio::piped())
            .spawn()?;
        let mut output = BufReader::new(child.stdout.take().context("the owner has no output")?);
        let lines = Arc::new(Mutex::new(String::new()));
        let (heard, (ready, first)) = (lines.clone(), std::sync::mpsc::channel());
        let reading = std::thread::spawn(move || {
            let mut line = String::new();
            while output.read_line(&mut line).unwrap_or(0) > 0 {
                heard.lock().unwrap_or_else(PoisonError::into_inner).push_str(&line);
                line.clear();
                // Only the first are waited for.
                let _nobody = ready.send(());
            }
        });
        let owner = WorkingOwner { child, data, lines, reading: Some(reading) };
        for _ in 0..ANSWERS_FIRST {
            first.recv_timeout(PATIENCE).context("the owner acknowledges nothing")?;
        }
        Ok(owner)
    }

    /// Everything acknowledged so far.
    fn told(&self) -> Vec<ClientReplies> {
        parse(&self.lines.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Ends the owner, and checks that it was never disturbed: every batch was answered, and all of it is there. Returns
    /// the number of answers.
    async fn end(&mut self, folder: &Path) -> Result<u64> {
        ensure!(self.child.try_wait()?.is_none(), "it ended by itself");
        self.child.kill()?;
        self.child.wait()?;
        if let Some(reading) = self.reading.take() {
            drop(reading.join());
        }
        let told = self.told();
        for told in &told {
            ensure!(matches!(told.reply, BatchReplyKind::Answered(_)), "{}: {:?}", told.batch, told.reply);
        }
        let store = SqliteStore::open(Options::new(&self.data)).context("its folder does not open")?;
        ensure!(!store.is_copy(), "the original takes itself for a copy");
        store.own_file(Original::Gone).await?;
        let runs = RunCounts::in_file(&folder.join("runs"))?;
        scenario::check(Arc::new(store), &powercut::asked(&told), &told, &runs).await?;
        Ok(told.len() as u64)
    }
}

impl Drop for WorkingOwner {
    fn drop(&mut self) {
        // One that has ended is what we want.
        let _over = self.child.kill().and_then(|()| self.child.wait());
    }
}
