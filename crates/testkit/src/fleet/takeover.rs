//! Many sessions of a worker that is killed go on at the others in time: within a lease, three heartbeats and five seconds.

use super::http::ask;
use super::ledger::FleetLedger;
use super::worker::{FleetWorker, WorkerSetup};
use super::{FleetOptions, PATIENCE, WORKERS};
use crate::postgres::Cluster;
use crate::results::ProofRecord;
use anyhow::{Context, Result, bail};
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Requests at a time while the sessions are opened.
const OPENERS: u64 = 8;
/// Everything has long gone wrong if it takes longer.
const TAKEN_WITHIN: Duration = Duration::from_secs(600);
/// The time that a takeover may need beside a lease and three heartbeats.
const ALLOWANCE: Duration = Duration::from_secs(5);

/// The outcome of a takeover.
#[derive(Clone, Debug)]
pub struct TakeoverReport {
    pub sessions: u64,
    /// How long it took to open them.
    pub opened: Duration,
    /// The time from the kill until every session has run elsewhere.
    pub took: Duration,
    /// The time that this may take.
    pub bar: Duration,
    /// Whether it took longer, or something ran that must not.
    pub violations: Vec<String>,
}

impl TakeoverReport {
    /// As a line of the results.
    pub fn record(&self) -> ProofRecord {
        ProofRecord {
            proof: "takeover-workers",
            count: self.sessions,
            seed: 0,
            took: self.took,
            violations: self.violations.len(),
            more: json!({"bar_ms": self.bar.as_millis() as u64, "opened_ms": self.opened.as_millis() as u64}),
        }
    }
}

/// Opens `sessions` at one of three workers, each with a call that hangs or waits for its turn, kills that one, and waits until all
/// calls have run at the others. `None`: there can be no PostgreSQL here.
pub fn run(options: &FleetOptions, sessions: u64) -> Result<Option<TakeoverReport>> {
    let templates = options.templates.to_str().context("the folder of templates has no name in UTF-8")?;
    let Some(cluster) = Cluster::alone(templates, |_| Ok(String::new())) else { return Ok(None) };
    let (folder, ledger) = (tempfile::tempdir()?, FleetLedger::start()?);
    let setup = WorkerSetup {
        windlass: options.windlass.clone(),
        store: cluster.database(),
        ledger: ledger.address(),
        lease_ms: options.lease_ms,
        mutant: None,
    };
    let mut workers = (1..=WORKERS)
        .map(|number| FleetWorker::start(&setup, folder.path(), number))
        .collect::<Result<Vec<_>>>()?;
    for worker in &mut workers {
        worker.until_ready(PATIENCE)?;
    }
    let token = workers.iter().find_map(FleetWorker::token).context("no worker has made a token")?;
    let victim = workers.remove(0);
    ledger.hold(true);
    let began = Instant::now();
    open(&victim, &token, sessions)?;
    let opened = began.elapsed();
    let victims = victim.name.clone();
    ledger.hold(false);
    let killed = Instant::now();
    drop(victim);
    let took = loop {
        let ran = ledger.effects();
        let elsewhere: BTreeSet<&str> =
            ran.iter().filter(|effect| effect.worker != victims).map(|effect| effect.call.as_str()).collect();
        if elsewhere.len() as u64 == sessions {
            break killed.elapsed();
        }
        if killed.elapsed() > TAKEN_WITHIN {
            bail!("R8: {} of {sessions} sessions run elsewhere after {TAKEN_WITHIN:?}", elsewhere.len());
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let bar = Duration::from_millis(setup.lease_ms + 3 * setup.heartbeat_ms()) + ALLOWANCE;
    let late = (took > bar).then(|| format!("R8: it took {took:?}, and may take {bar:?}"));
    let violations = late.into_iter().collect();
    Ok(Some(TakeoverReport { sessions, opened, took, bar, violations }))
}

/// Opens sessions at a worker, with a call in each.
fn open(worker: &FleetWorker, token: &str, sessions: u64) -> Result<()> {
    let next = AtomicU64::new(0);
    let open = || -> Result<()> {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= sessions {
                return Ok(());
            }
            let call = json!({"id": "c", "tool": "keyed", "args": {"n": format!("t{number}"), "ms": 0}});
            let batch = json!({"key": "k", "wait": "none", "calls": [call]});
            let request = format!("POST /v1/sessions/t{number}/batches");
            match ask(worker.address, token, &request, Some(&batch), PATIENCE)? {
                (200..300, _) => {}
                (429, told) => bail!("a session was refused: {told}; the token may make too few requests"),
                (status, told) => bail!("{request} was answered with {status}: {told}"),
            }
        }
    };
    std::thread::scope(|scope| {
        let opening: Vec<_> = (0..OPENERS).map(|_| scope.spawn(open)).collect();
        opening
            .into_iter()
            .try_for_each(|opener| opener.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}
