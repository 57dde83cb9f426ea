//! The kill rig over workers: processes of the real server on one PostgreSQL. Workers are killed, or stopped past their leases and let
//! go on; answers to COMMIT are lost on the way; the server of the database crashes. Clients send their requests to any worker. What they were told, and what
//! a ledger outside saw of the tools, must agree.

mod check;
mod client;
mod http;
mod ledger;
pub mod takeover;
mod worker;

use crate::chance::Chance;
use crate::postgres::Cluster;
use crate::postgres::proxy::{CommitCut, Proxy};
use crate::progress::ProofProgress;
use crate::results::ProofRecord;
use anyhow::{Context, Result};
use check::{FleetHistory, check};
use client::FleetClient;
use ledger::FleetLedger;
use rustix::process::Signal;
use serde_json::json;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use worker::{FleetWorker, WorkerSetup};

/// The classes of the tools, which have their names.
const CLASSES: [&str; 3] = ["read", "keyed", "once"];
/// Workers of a world.
const WORKERS: usize = 3;
/// Clients of a world.
const CLIENTS: u64 = 4;
/// FleetTrouble of one world before it is drained and checked.
const EVENTS_PER_WORLD: u64 = 60;
/// A worker, or everything that is open, takes longer than this only if it is stuck.
const PATIENCE: Duration = Duration::from_secs(60);
/// After so many violations there is no need for more.
const VIOLATIONS_MAX: usize = 20;

/// The options of a run.
#[derive(Clone, Debug)]
pub struct FleetOptions {
    /// The program `windlass`.
    pub windlass: PathBuf,
    /// Where the template of the database is kept.
    pub templates: PathBuf,
    /// The kind of disturbances.
    pub trouble: FleetTrouble,
    /// How many of them.
    pub events: u64,
    pub seed: u64,
    /// Stop after this long, however few they were.
    pub time_max: Duration,
    /// The lease of the workers.
    pub lease_ms: u64,
    /// The rule that the workers break, if they were built so that they can.
    pub mutant: Option<String>,
}

/// A kind of disturbance of a fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FleetTrouble {
    /// Kills, standstills, lost answers and crashes of the database.
    Faults,
    /// One after the other is asked to leave, and replaced: clients must not notice more than that it leaves.
    Upgrades,
}

/// One disturbance of a fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FleetEvent {
    Kill,
    /// Asked to leave, and started again.
    Replace,
    /// Stopped past its lease.
    Stop,
    /// The answer to a COMMIT, or the COMMIT, is lost.
    Cut,
    /// The server of the database crashes.
    Crash,
}

/// How often each event is chosen.
const EVENTS: [FleetEvent; 20] = {
    let mut events = [FleetEvent::Kill; 20];
    let mut at = 11;
    while at < 20 {
        events[at] = match at {
            11..14 => FleetEvent::Stop,
            14..19 => FleetEvent::Cut,
            _ => FleetEvent::Crash,
        };
        at += 1;
    }
    events
};

/// The report of a run.
#[derive(Clone, Debug, Default)]
pub struct FleetReport {
    pub worlds: u64,
    pub kills: u64,
    /// Workers that left in good order, and were started again.
    pub replaced: u64,
    /// Workers that stood still past their lease, and went on.
    pub stops: u64,
    /// Connections that were cut at a COMMIT.
    pub cuts: u64,
    /// Crashes of the server of the database.
    pub crashes: u64,
    pub batches: u64,
    pub calls: u64,
    pub effects: u64,
    /// Effects that were there before, under the same key.
    pub repeated: u64,
    /// Effects of workers that stood still, after somebody else had ended their call.
    pub late: u64,
    /// How many calls of each class ended in each way.
    pub states: BTreeMap<String, u64>,
    /// The longest time until a batch was answered.
    pub slowest: Duration,
    pub took: Duration,
    /// Every broken promise.
    pub violations: Vec<String>,
}

impl FleetReport {
    fn events(&self) -> u64 {
        self.kills + self.replaced + self.stops + self.cuts + self.crashes
    }

    /// As a line of the results.
    pub fn record(&self, seed: u64) -> ProofRecord {
        ProofRecord {
            proof: if self.replaced > 0 { "upgrade-workers" } else { "kill-workers" },
            count: self.events(),
            seed,
            took: self.took,
            violations: self.violations.len(),
            more: json!({
                "worlds": self.worlds, "kills": self.kills, "replaced": self.replaced, "stops": self.stops, "cuts": self.cuts,
                "crashes": self.crashes, "batches": self.batches, "calls": self.calls, "effects": self.effects,
                "repeated": self.repeated, "late": self.late, "ends": self.states,
                "slowest_ms": self.slowest.as_millis() as u64,
            }),
        }
    }
}

/// A time in which a worker stood still.
#[derive(Clone, Debug)]
struct Standstill {
    worker: String,
    from: Instant,
    to: Instant,
}

/// The part of a world that its clients share.
struct FleetRun {
    addresses: Vec<SocketAddr>,
    token: String,
    /// Whether an answer that breaks off is a violation.
    undisturbed: bool,
    over: AtomicBool,
    broken: Mutex<Vec<String>>,
}

impl FleetRun {
    fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    fn broken(&self, what: String) {
        self.broken.lock().unwrap_or_else(PoisonError::into_inner).push(what);
    }
}

/// Makes worlds until enough has happened, time is up, or something is clearly broken. `None`: there can be no PostgreSQL here.
pub fn run(options: &FleetOptions) -> Result<Option<FleetReport>> {
    let templates = options.templates.to_str().context("the folder of templates has no name in UTF-8")?;
    let Some(cluster) = Cluster::alone(templates, |_| Ok(String::new())) else { return Ok(None) };
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let (began, mut report) = (Instant::now(), FleetReport::default());
    let progress = ProofProgress::new("events", Some(options.events));
    while report.events() < options.events
        && began.elapsed() < options.time_max
        && report.violations.len() < VIOLATIONS_MAX
    {
        let (before, chance) = (report.events(), Chance::new(options.seed).branch(report.worlds));
        let folder = tempfile::Builder::new().prefix("windlass-fleet-").tempdir()?;
        let proxy = tokio.block_on(Proxy::start(&cluster, CommitCut::AfterReply));
        let world = FleetWorld { options, cluster: &cluster, proxy: &proxy, folder: folder.path(), chance };
        let broken = world.run(&mut report)?;
        report.worlds += 1;
        progress.advance(report.events() - before, broken.len());
        if !broken.is_empty() {
            let kept = folder.keep();
            let place = format!("seed {} world {} in {}", options.seed, report.worlds - 1, kept.display());
            report.violations.extend(broken.into_iter().map(|broken| format!("{broken} ({place})")));
        }
    }
    report.took = began.elapsed();
    Ok(Some(report))
}

/// One database with its workers.
struct FleetWorld<'a> {
    options: &'a FleetOptions,
    cluster: &'a Cluster,
    proxy: &'a Proxy,
    folder: &'a Path,
    chance: Chance,
}

impl FleetWorld<'_> {
    /// Disturbs the workers while clients work, then lets everything end; returns every broken promise.
    fn run(mut self, report: &mut FleetReport) -> Result<Vec<String>> {
        let ledger = FleetLedger::start()?;
        let setup = WorkerSetup {
            windlass: self.options.windlass.clone(),
            store: self.proxy.url(&self.cluster.database()),
            ledger: ledger.address(),
            lease_ms: self.options.lease_ms,
            mutant: self.options.mutant.clone(),
        };
        let mut workers = (1..=WORKERS)
            .map(|number| FleetWorker::start(&setup, self.folder, number))
            .collect::<Result<Vec<_>>>()?;
        for worker in &mut workers {
            worker.until_ready(PATIENCE)?;
        }
        let token = workers.iter().find_map(FleetWorker::token).context("no worker has made a token")?;
        let addresses = workers.iter().map(|worker| worker.address).collect();
        let run = FleetRun {
            addresses,
            token,
            undisturbed: self.options.trouble == FleetTrouble::Upgrades,
            over: AtomicBool::new(false),
            broken: Mutex::default(),
        };
        let client = |number, asked| FleetClient {
            run: &run,
            ledger: ledger.clone(),
            number,
            chance: self.chance.branch(number),
            asked,
            submitted: 0,
            slowest: Duration::ZERO,
        };
        let clients: Vec<_> = (0..CLIENTS).map(|number| client(number, Vec::new())).collect();
        let drainer = client(CLIENTS, Vec::new());
        let mut standstills = Vec::new();
        let mut disturbed = Ok(());
        let ended = std::thread::scope(|scope| {
            let working: Vec<_> =
                clients.into_iter().map(|client| scope.spawn(move || client.work())).collect();
            disturbed = self.disturb(&mut workers, &setup, &mut standstills, report);
            run.over.store(true, Ordering::SeqCst);
            working
                .into_iter()
                .map(|client| client.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
                .collect::<Vec<_>>()
        });
        let mut ready = || workers.iter_mut().try_for_each(|worker| worker.until_ready(PATIENCE));
        if let Err(error) = disturbed.and_then(|()| ready()) {
            run.broken(format!("{error:#}"));
        }
        let mut asked = Vec::new();
        for (batches, slowest) in ended {
            report.slowest = report.slowest.max(slowest);
            asked.extend(batches);
        }
        let mut drainer = FleetClient { asked, ..drainer };
        drainer.drain(PATIENCE);
        let history = FleetHistory { asked: drainer.asked, effects: ledger.effects(), standstills };
        let mut broken = check(&history, report);
        broken.append(&mut run.broken.lock().unwrap_or_else(PoisonError::into_inner));
        Ok(broken)
    }

    /// One event after the other.
    fn disturb(
        &mut self,
        workers: &mut [FleetWorker],
        setup: &WorkerSetup,
        standstills: &mut Vec<Standstill>,
        report: &mut FleetReport,
    ) -> Result<()> {
        for number in 0..EVENTS_PER_WORLD.min(self.options.events.saturating_sub(report.events())) {
            self.pause(5, 400);
            let (chosen, event) = match self.options.trouble {
                FleetTrouble::Faults => (self.chance.below(WORKERS as u64), self.chance.one_of(&EVENTS)),
                FleetTrouble::Upgrades => (number % WORKERS as u64, FleetEvent::Replace),
            };
            let chosen = chosen as usize;
            match event {
                FleetEvent::Replace => {
                    workers[chosen].leave(PATIENCE)?;
                    workers[chosen].start_again(setup)?;
                    workers[chosen].until_ready(PATIENCE)?;
                    report.replaced += 1;
                }
                FleetEvent::Kill => {
                    workers[chosen].restart(setup)?;
                    report.kills += 1;
                }
                FleetEvent::Stop => {
                    let from = Instant::now();
                    workers[chosen].signal(Signal::STOP)?;
                    self.pause(setup.lease_ms * 6 / 5, setup.lease_ms * 3);
                    workers[chosen].signal(Signal::CONT)?;
                    let (worker, to) = (workers[chosen].name.clone(), Instant::now());
                    standstills.push(Standstill { worker, from, to });
                    report.stops += 1;
                }
                FleetEvent::Cut => {
                    let cuts =
                        [CommitCut::BeforeForwarding, CommitCut::AfterForwarding, CommitCut::AfterReply];
                    self.proxy.cut_next(self.chance.one_of(&cuts));
                    report.cuts += 1;
                }
                FleetEvent::Crash => {
                    self.cluster.stop();
                    self.pause(0, 500);
                    self.cluster.start();
                    report.crashes += 1;
                }
            }
        }
        Ok(())
    }

    /// The time between two events.
    fn pause(&mut self, least_ms: u64, most_ms: u64) {
        std::thread::sleep(Duration::from_millis(self.chance.between(least_ms, most_ms)));
    }
}
