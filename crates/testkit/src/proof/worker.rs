//! The worker that is killed: it opens a data folder, submits a plan, and says on standard output what it was told,
//! one JSON object per line.

use super::agent;
use super::approver;
use super::aside;
use super::client::{cancel, submit};
use super::jumps::{self, JumpingClock};
use super::ledger::{LedgerClient, TrialWorker};
use super::person::Person;
use super::plan::{ProofPlan, declared_rules};
use super::poison;
use super::table;
use super::tools::{Death, Voice, World};
use super::{context, deletion, grants};
use crate::chance::Chance;
use anyhow::{Context, Result, bail};
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use windlass::error::{AskError, GrantError, InboxError, ScheduleError, SessionError, TriggerError};
use windlass::{BatchError, Config, Limits, Runtime};
use windlass_store::sqlite::Options as StoreOptions;
use windlass_store::{Durability, SqliteStore, Store};

/// Everything was submitted and answered.
pub const DONE: u8 = 0;
/// The store failed under it; whoever comes next goes on.
pub const LOST: u8 = 3;

/// The log is brought home after this much of it, so that workers die under checkpoints too.
const WAL_BYTES_MAX: u64 = 96 << 10;
/// All calls are closed this long after all are answered.
const CLOSED_AFTER: Duration = Duration::from_secs(5);
/// How long a call waits for a tool that is not there, if it was taken over before it could be refused.
const MISSING_MS: u64 = 60;

/// The options of a worker.
pub struct WorkerOptions {
    /// The data folder.
    pub folder: PathBuf,
    /// Where the ledger is.
    pub ledger: String,
    /// Which worker it is.
    pub worker: TrialWorker,
    /// Its plan.
    pub plan: ProofPlan,
    /// Whether it also does what no runtime does yet: see [`aside`].
    pub aside: bool,
}

/// The outcome of a worker that was not killed.
pub enum WorkerOutcome {
    /// Everything was answered.
    Done,
    /// The store failed, for this reason.
    Lost(String),
}

/// The worker's program, by the words it was started with.
pub fn main(args: Vec<String>) -> Result<ExitCode> {
    let [folder, ledger, trial, number, plan] = &args[..] else {
        bail!("usage: windlass-worker FOLDER LEDGER TRIAL WORKER PLAN")
    };
    let worker = TrialWorker { trial: trial.parse()?, number: number.parse()? };
    let aside = plan == "every-write";
    let options =
        WorkerOptions { folder: folder.into(), ledger: ledger.clone(), worker, plan: named(plan)?, aside };
    let threads = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    match threads.block_on(run(options))? {
        WorkerOutcome::Done => Ok(ExitCode::from(DONE)),
        WorkerOutcome::Lost(why) => {
            eprintln!("{why}");
            Ok(ExitCode::from(LOST))
        }
    }
}

/// The plan of this name.
pub fn named(name: &str) -> Result<ProofPlan> {
    if let Some(row) = name.strip_prefix("row-") {
        let row = table::rows().into_iter().nth(row.parse()?).context("there are not so many rows")?;
        return Ok(row.plan());
    }
    if let Some(seed) = name.strip_prefix("tasks-") {
        return Ok(ProofPlan::tasks(seed.parse()?));
    }
    if let Some(seed) = name.strip_prefix("approvals-") {
        return Ok(ProofPlan::approvals(seed.parse()?));
    }
    if let Some(seed) = name.strip_prefix("grants-") {
        return Ok(ProofPlan::grants(seed.parse()?));
    }
    if let Some(class) = name.strip_prefix("poison-") {
        return poison::plan(class).with_context(|| format!("there is no class {class:?}"));
    }
    Ok(match name {
        "every-write" => ProofPlan::every_write(),
        "whole" => ProofPlan::every_write().only("s1").whole(),
        "asked" => ProofPlan::every_write().only("s2"),
        "stepped" => ProofPlan::every_write().only("s3"),
        "outside" => ProofPlan::every_write().only("s4"),
        "siblings" => ProofPlan::siblings(),
        "background" => ProofPlan::background(),
        "two-steps" => ProofPlan::two_steps(),
        "deletion" => ProofPlan::deletion(),
        "context" => ProofPlan::context(),
        "granted" => ProofPlan::granted(),
        seed => ProofPlan::of(seed.parse().context(
            "PLAN is a number, every-write, whole, asked, stepped, outside, siblings, background, two-steps, deletion, context, granted, tasks-N, approvals-N, grants-N, row-N or poison-CLASS",
        )?),
    })
}

/// Runs a plan to its end.
pub async fn run(options: WorkerOptions) -> Result<WorkerOutcome> {
    match answered(options).await {
        Ok(()) => Ok(WorkerOutcome::Done),
        Err(error) if error.chain().any(is_store_failure) => Ok(WorkerOutcome::Lost(format!("{error:#}"))),
        Err(error) => Err(error),
    }
}

fn is_store_failure(error: &(dyn std::error::Error + 'static)) -> bool {
    matches!(error.downcast_ref(), Some(SessionError::Lost(_)))
        || matches!(error.downcast_ref(), Some(BatchError::Session(SessionError::Lost(_))))
        || matches!(error.downcast_ref(), Some(AskError::Session(SessionError::Lost(_))))
        || matches!(error.downcast_ref(), Some(InboxError::Session(SessionError::Lost(_))))
        || matches!(error.downcast_ref(), Some(ScheduleError::Session(SessionError::Lost(_))))
        || matches!(error.downcast_ref(), Some(TriggerError::Session(SessionError::Lost(_))))
        || matches!(error.downcast_ref(), Some(GrantError::Session(SessionError::Lost(_))))
        || error.downcast_ref::<windlass_store::StoreError>().is_some()
}

/// The limits of the rigs.
pub fn limits() -> Limits {
    Limits {
        // A wait by the wall clock is over when that says so: longer than all jumps together, as the others are.
        client_ms: 86_400_000,
        wal_bytes_max: WAL_BYTES_MAX,
        tool_threads_max: 4,
        queue_ms: MISSING_MS,
        chunk_bytes_max: 4 << 10,
        ..Limits::default()
    }
}

async fn answered(options: WorkerOptions) -> Result<()> {
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(StoreOptions {
        folder: options.folder.clone(),
        durability: Durability::Full,
        limits: limits().store(),
    })?);
    let clock = Arc::new(JumpingClock::read(std::env::var(jumps::VARIABLE).ok().as_deref())?);
    let asks_people = options.plan.asks_people();
    let policy = asks_people.then(declared_rules);
    let runtime = Runtime::new(Config { clock, limits: limits(), policy, ..Config::on(store) });
    let world = World::new(LedgerClient::new(options.ledger, options.worker), Death::Kill, Voice::Aloud);
    world.register(&runtime, &options.plan)?;
    if options.plan.contexts > 0 {
        context::register(&runtime)?;
    }
    world.say(json!({"phase": "opened"}))?;
    runtime.resume().await?;
    world.say(json!({"phase": "resumed"}))?;
    let plan = grants::issue(&runtime, &options.folder, options.plan).await?;
    // Each worker's client does something else.
    let chance = Chance::new(options.worker.trial).branch(u64::from(options.worker.number));
    let deletions = plan.deletions;
    if deletions > 0 {
        deletion::register(&runtime)?;
    }
    let deleting = deletion::run(runtime.clone(), Arc::clone(&world), options.worker.number, deletions);
    let contexts = plan.contexts;
    let awaiting = context::run(runtime.clone(), Arc::clone(&world), contexts, chance.branch(3_000));
    tokio::try_join!(play(&runtime, &world, plan, chance), deleting, awaiting)?;
    // A call is counted as closed a moment after it is answered.
    let closed = async {
        while runtime.open_calls() > 0 {
            tokio::task::yield_now().await;
        }
    };
    if tokio::time::timeout(CLOSED_AFTER, closed).await.is_err() {
        bail!("all is answered and {} calls are open", runtime.open_calls());
    }
    if asks_people {
        world.say(json!({"policies": approver::policies(&runtime).await?}))?;
    }
    if options.aside {
        aside::run(&**runtime.store()).await?;
    }
    Ok(world.say(json!({"phase": "done"}))?)
}

/// Submits all of a plan, asks for what it asks for, and waits until all is answered.
pub async fn play(runtime: &Runtime, world: &Arc<World>, plan: ProofPlan, chance: Chance) -> Result<()> {
    let (mut sessions, mut asks) = (JoinSet::new(), JoinSet::new());
    for (number, planned) in (0..).zip(plan.cancels.clone()) {
        asks.spawn(cancel(runtime.clone(), Arc::clone(world), planned, chance.branch(number)));
    }
    for (number, (session, batch, call)) in (1_000..).zip(plan.calls()) {
        let name = format!("{}/{}/{}", session.name, batch.key, call.id);
        let person = Person {
            runtime: runtime.clone(),
            world: Arc::clone(world),
            session: session.name.clone(),
            call: name,
        };
        person.attend(call, chance.branch(number), &mut asks);
    }
    for (number, session) in (2_000..).zip(&plan.sessions) {
        let (session, chance) = (session.name.clone(), chance.branch(number));
        asks.spawn(agent::listen(runtime.clone(), Arc::clone(world), session, chance));
    }
    if plan.asks_people() {
        asks.spawn(approver::answer(runtime.clone(), Arc::clone(world), chance.branch(4_000)));
    }
    if !plan.grants.is_empty() {
        asks.spawn(grants::revoke(runtime.clone(), Arc::clone(world), plan.clone(), chance.branch(5_000)));
    }
    for planned in plan.schedules {
        sessions.spawn(agent::schedule(runtime.clone(), Arc::clone(world), planned));
    }
    for session in plan.sessions {
        sessions.spawn(submit(runtime.clone(), Arc::clone(world), session, plan.resolved_percent));
    }
    loop {
        tokio::select! {
            Some(ended) = sessions.join_next() => ended??,
            Some(ended) = asks.join_next(), if !asks.is_empty() => ended??,
            else => return Ok(()),
        }
        // What was to be cancelled or answered while it ran may be over without having run here.
        if sessions.is_empty() {
            asks.shutdown().await;
        }
    }
}
