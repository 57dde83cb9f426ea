//! Two workers in processes of their own on PostgreSQL; one is stopped (`kill -STOP`) past its lease and goes on.

use super::{Happened, recorded};
use crate::postgres::Cluster;
use crate::powercut::{run, until_stopped};
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use windlass_core::ids::SessionNo;
use windlass_store::postgres::PostgresOptions;
use windlass_store::{JournalRow, PostgresStore, Space, Store};

/// A longer wait is in vain.
const PATIENCE: Duration = Duration::from_secs(60);
/// A worker that thinks so much of its own lease finds out from the store alone that it is over: its clock stood still as it did.
const BLIND_MS: u64 = 3_600_000;

/// A trial.
#[derive(Clone, Copy, Debug)]
pub struct StopTrial {
    /// One of the [classes](super::process::CLASSES).
    pub class: &'static str,
    /// Whether the tool acts and returns as soon as its worker goes on, rather than hanging until it is told to stop.
    pub late: bool,
}

/// A worker in a process of its own.
struct WorkerProcess {
    process: Child,
    said: Arc<Mutex<Vec<Value>>>,
}

impl WorkerProcess {
    fn start(program: &Path, url: &str, lease_ms: u64) -> Result<WorkerProcess> {
        let mut process = Command::new(program)
            .args([url, &lease_ms.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("the worker cannot be started")?;
        let said = Arc::new(Mutex::new(Vec::new()));
        let (heard, out) = (said.clone(), process.stdout.take().context("it has no output")?);
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                let line = serde_json::from_str(&line).unwrap_or(Value::String(line));
                heard.lock().unwrap_or_else(PoisonError::into_inner).push(line);
            }
        });
        Ok(WorkerProcess { process, said })
    }

    fn tell(&mut self, line: &str) -> Result<()> {
        let stdin = self.process.stdin.as_mut().context("it has no input")?;
        writeln!(stdin, "{line}").context("it does not listen")
    }

    fn all(&self) -> Vec<Value> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The first line of these kinds about a session.
    fn heard(&self, session: &str, kinds: &[&str]) -> Option<Value> {
        self.all().into_iter().find(|line| kinds.iter().any(|kind| line[*kind] == session))
    }

    /// Its id, once it has one that is not this.
    async fn id(&mut self, but: Option<&str>) -> Result<String> {
        let mut known = self.all().len();
        self.tell("who")?;
        until("an id", async || {
            let lines = self.all();
            let Some(place) = lines.iter().skip(known).position(|line| line.get("who").is_some()) else {
                return Ok(None);
            };
            let id = lines[known + place]["who"].as_str().map(str::to_string);
            if let Some(id) = id.filter(|id| Some(id.as_str()) != but) {
                return Ok(Some(id));
            }
            known = lines.len();
            self.tell("who")?;
            Ok(None)
        })
        .await
    }

    fn signal(&self, signal: &str) -> Result<()> {
        run(Command::new("kill").arg(signal).arg(self.process.id().to_string()))
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        // Dead or about to be, also if it is stopped.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Looks again and again: another process rings no bell here.
async fn until<T>(what: &str, mut found: impl AsyncFnMut() -> Result<Option<T>>) -> Result<T> {
    let began = Instant::now();
    loop {
        if let Some(found) = found().await? {
            return Ok(found);
        }
        ensure!(began.elapsed() < PATIENCE, "waited for: {what}");
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
}

/// Two workers, of which the first is stopped, and the database they share.
pub struct WorkerPair {
    first: WorkerProcess,
    second: WorkerProcess,
    store: Arc<dyn Store>,
    trials: u64,
}

impl WorkerPair {
    /// Starts both. The first one may be blind for the end of its own lease.
    pub async fn start(cluster: &Cluster, program: &Path, blind: bool) -> Result<WorkerPair> {
        let (url, limits) = (cluster.database(), super::limits());
        let store = Arc::new(PostgresStore::open(PostgresOptions::new(&url)).await?);
        let first = WorkerProcess::start(program, &url, if blind { BLIND_MS } else { limits.lease_ms })?;
        let second = WorkerProcess::start(program, &url, limits.lease_ms)?;
        Ok(WorkerPair { first, second, store, trials: 0 })
    }

    /// Makes a trial in a session of its own. `None`: it is void.
    pub async fn run(&mut self, trial: StopTrial) -> Result<Option<Happened>> {
        self.trials += 1;
        let session = format!("s{}", self.trials);
        let made = self.make(&session, trial).await;
        let about = |worker: &WorkerProcess| {
            let lines =
                worker.all().into_iter().filter(|line| line.to_string().contains(&format!("\"{session}\"")));
            lines.map(|line| line.to_string()).collect::<Vec<_>>()
        };
        made.with_context(|| {
            format!("the first said {:?}, the second {:?}", about(&self.first), about(&self.second))
        })
    }

    async fn make(&mut self, session: &str, trial: StopTrial) -> Result<Option<Happened>> {
        self.second.id(None).await?;
        let id = self.first.id(None).await?;
        self.first.tell(&format!("submit {session} {}", trial.class))?;
        let first = &self.first;
        for what in ["begun", "admitted"] {
            let heard = until(what, async || Ok(first.heard(session, &[what, "lost", "settled"])));
            if heard.await?.get(what).is_none() {
                return Ok(None);
            }
        }
        let Some(no) = self.store.session(session).await?.map(|row| row.no) else {
            bail!("there is no session")
        };
        self.first.signal("-STOP")?;
        until_stopped(self.first.process.id())?;
        // On a machine that is too busy its lease may have been over by then.
        let is_open = !self.store.open_batches(Some(no)).await?.is_empty();
        if !is_open || self.owner(no).await? != id {
            self.first.signal("-CONT")?;
            return Ok(None);
        }
        if trial.late {
            self.first.tell(&format!("go {session}"))?;
        }
        until("its session to be taken over and its call to end", async || {
            Ok(self.store.open_batches(Some(no)).await?.is_empty().then_some(()))
        })
        .await?;
        ensure!(self.owner(no).await? != id, "its call ended, and it still owns the session");
        let story = self.store.history(no, None, 1_000).await?;
        self.first.signal("-CONT")?;
        self.first.id(Some(&id)).await?;
        self.judge(session, no, trial, story).await.map(Some)
    }

    async fn owner(&self, session: SessionNo) -> Result<String> {
        let owner = self.store.record(Space::Owner.of(session), "worker").await?.context("nobody owns it")?;
        Ok(String::from_utf8(owner.value)?)
    }

    /// Whether the first one has changed nothing since, and whether the outcome is true of what both have done.
    async fn judge(
        &self,
        session: &str,
        no: SessionNo,
        trial: StopTrial,
        story: Vec<JournalRow>,
    ) -> Result<Happened> {
        let first = &self.first;
        until("its tool to be stopped", async || Ok(first.heard(session, &["over"]))).await?;
        let told = until("it to be told", async || Ok(first.heard(session, &["lost", "settled"]))).await?;
        let why =
            told["why"].as_str().with_context(|| format!("a worker that was dead has answered: {told}"))?;
        ensure!(self.store.history(no, None, 1_000).await? == story, "it wrote something when it went on");
        let acts = |worker: &WorkerProcess| {
            let acted = |line: &Value| line["acted"] == session;
            worker
                .all()
                .iter()
                .filter(|line| acted(line))
                .map(|line| line["key"].to_string())
                .collect::<Vec<_>>()
        };
        let (by_first, by_second) = (acts(first), acts(&self.second));
        let keys: BTreeSet<&String> = by_first.iter().chain(&by_second).collect();
        match (trial.class, recorded(&story)?) {
            ("read" | "keyed", "succeeded") => {
                ensure!(keys.len() == 1 && !by_second.is_empty(), "{by_first:?} and {by_second:?}");
            }
            ("once", "unknown") => {
                ensure!(by_first.len() <= 1 && by_second.is_empty(), "{by_first:?} and {by_second:?}");
            }
            (class, outcome) => bail!("a call that is {class} has {outcome}"),
        }
        Ok(Happened {
            trials: 1,
            taken_over: 1,
            refused: u64::from(why.contains("fence")),
            stopped: u64::from(!trial.late || by_first.is_empty()),
            told_to_stop: u64::from(first.heard(session, &["told"]).is_some()),
            acted_late: by_first.len() as u64,
            run_again: u64::from(trial.class != "once"),
            unknown: u64::from(trial.class == "once"),
            ..Happened::default()
        })
    }
}
