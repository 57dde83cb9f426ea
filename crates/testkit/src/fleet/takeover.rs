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
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Requests at a time while the sessions are opened.
const OPENERS: u64 = 8;
/// Everything has long gone wrong if it takes longer.
const TAKEN_WITHIN: Duration = Duration::from_secs(600);
/// How the calls of the client of another worker begin.
const BESIDE: &str = "beside";
/// The time that a takeover may need beside a lease and three heartbeats.
const ALLOWANCE: Duration = Duration::from_secs(5);

/// The outcome of a takeover.
#[derive(Clone, Debug)]
pub struct TakeoverReport {
    pub sessions: u64,
    /// How long it took to open them.
    pub opened: Duration,
    /// The time from the kill until the first of them has run elsewhere: mostly the lease.
    pub first: Duration,
    /// The time from the kill until every session has run elsewhere.
    pub took: Duration,
    /// The calls that a client of another worker made meanwhile, one after the other.
    pub others: u64,
    /// The longest that it waited for one.
    pub others_slowest: Duration,
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
            more: json!({
                "bar_ms": self.bar.as_millis() as u64, "opened_ms": self.opened.as_millis() as u64,
                "first_ms": self.first.as_millis() as u64, "others": self.others,
                "others_slowest_ms": self.others_slowest.as_millis() as u64,
            }),
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
    let over = AtomicBool::new(false);
    let (elsewhere, others) = std::thread::scope(|scope| {
        let beside = scope.spawn(|| work_beside(&workers[0], &token, &over));
        let elsewhere = kill(victim, &ledger, sessions);
        over.store(true, Ordering::SeqCst);
        (elsewhere, beside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    let ((first, took), (others, others_slowest)) = (elsewhere?, others?);
    let bar = Duration::from_millis(setup.lease_ms + 3 * setup.heartbeat_ms()) + ALLOWANCE;
    let late = (took > bar).then(|| format!("R8: it took {took:?}, and may take {bar:?}"));
    let violations = late.into_iter().collect();
    Ok(Some(TakeoverReport { sessions, opened, first, took, others, others_slowest, bar, violations }))
}

/// Kills a worker; how long it takes from then until the first, and until all of its calls have run elsewhere.
fn kill(victim: FleetWorker, ledger: &FleetLedger, sessions: u64) -> Result<(Duration, Duration)> {
    let (victims, killed, mut first) = (victim.name.clone(), Instant::now(), None);
    // Before its calls are let go: none of them may end there.
    drop(victim);
    ledger.hold(false);
    loop {
        let ran = ledger.effects();
        let calls = ran.iter().filter(|effect| effect.worker != victims).map(|effect| effect.call.as_str());
        let elsewhere: BTreeSet<&str> = calls.filter(|call| !call.starts_with(BESIDE)).collect();
        if !elsewhere.is_empty() {
            first.get_or_insert_with(|| killed.elapsed());
        }
        if elsewhere.len() as u64 == sessions {
            return Ok((first.unwrap_or_default(), killed.elapsed()));
        }
        if killed.elapsed() > TAKEN_WITHIN {
            bail!("R8: {} of {sessions} sessions run elsewhere after {TAKEN_WITHIN:?}", elsewhere.len());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A client of a worker that stays, with a session of its own, until it is over: how many calls it has made, and how long the slowest took.
fn work_beside(worker: &FleetWorker, token: &str, over: &AtomicBool) -> Result<(u64, Duration)> {
    let (mut calls, mut slowest) = (0, Duration::ZERO);
    while !over.load(Ordering::SeqCst) {
        let began = Instant::now();
        let call = json!({"id": "c", "tool": "keyed", "args": {"n": format!("{BESIDE}{calls}"), "ms": 0}});
        let batch = json!({"key": format!("k{calls}"), "wait": "settled", "calls": [call]});
        let (status, told) =
            ask(worker.address, token, "POST /v1/sessions/beside/batches", Some(&batch), PATIENCE)?;
        if status != 200 {
            bail!("R8: a call at a worker that stays was answered with {status}: {told}");
        }
        slowest = slowest.max(began.elapsed());
        calls += 1;
    }
    Ok((calls, slowest))
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
