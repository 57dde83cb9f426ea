//! The worker that is killed: it opens a data folder, submits a plan, and says on standard output what it was told,
//! one JSON object per line.

use super::aside;
use super::ledger::{Client, Request, Worker};
use super::plan::{BatchPlan, Kind, Plan, SessionPlan, hash};
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use windlass::core::failure::FailureClass;
use windlass::core::limits::Limits;
use windlass::{
    BatchError, Config, Cx, EffectClass, Output, Runtime, SystemClock, Tool, ToolError, ToolSpec, tool_fn,
};
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
/// What makes a result too long for an answer.
const LONG_BYTES: usize = 64 << 10;

/// What a worker is told.
pub struct Options {
    /// The data folder.
    pub folder: PathBuf,
    /// Where the ledger is.
    pub ledger: String,
    /// Which worker it is.
    pub worker: Worker,
    /// What it submits.
    pub plan: Plan,
    /// Whether it also does what no runtime does yet: see [`aside`].
    pub aside: bool,
}

/// What became of a worker that was not killed.
pub enum Ended {
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
    let (plan, aside) = match plan.as_str() {
        "every-write" => (Plan::every_write(), true),
        "whole" => (Plan::every_write().whole(), false),
        seed => (Plan::of(seed.parse().context("PLAN is a number, every-write or whole")?), false),
    };
    let worker = Worker { trial: trial.parse()?, number: number.parse()? };
    let options = Options { folder: folder.into(), ledger: ledger.clone(), worker, plan, aside };
    let threads = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    match threads.block_on(run(options))? {
        Ended::Done => Ok(ExitCode::from(DONE)),
        Ended::Lost(why) => {
            eprintln!("{why}");
            Ok(ExitCode::from(LOST))
        }
    }
}

/// Runs a plan to its end.
pub async fn run(options: Options) -> Result<Ended> {
    match answered(options).await {
        Ok(()) => Ok(Ended::Done),
        Err(error) if error.chain().any(is_store_failure) => Ok(Ended::Lost(format!("{error:#}"))),
        Err(error) => Err(error),
    }
}

fn is_store_failure(error: &(dyn std::error::Error + 'static)) -> bool {
    matches!(error.downcast_ref(), Some(BatchError::Lost(_)))
        || error.downcast_ref::<windlass_store::StoreError>().is_some()
}

async fn answered(options: Options) -> Result<()> {
    let limits = Limits { wal_bytes_max: WAL_BYTES_MAX, tool_threads_max: 4, ..Limits::default() };
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(StoreOptions {
        folder: options.folder,
        durability: Durability::Full,
        limits: limits.clone(),
    })?);
    let clock = Arc::new(SystemClock::default());
    let runtime = Runtime::new(Config { store, clock, limits, hooks: Vec::new() });
    let client = Arc::new(Client::new(options.ledger, options.worker));
    for kind in Kind::EFFECTS {
        runtime.register(tool(kind, &client))?;
    }
    say(&json!({"phase": "opened"}))?;
    runtime.resume().await?;
    say(&json!({"phase": "resumed"}))?;
    let mut sessions = JoinSet::new();
    for session in options.plan.sessions {
        sessions.spawn(submit(runtime.clone(), session));
    }
    while let Some(ended) = sessions.join_next().await {
        ended??;
    }
    // A call is counted as closed a moment after it is answered.
    let closed = async {
        while runtime.open_calls() > 0 {
            tokio::task::yield_now().await;
        }
    };
    if tokio::time::timeout(CLOSED_AFTER, closed).await.is_err() {
        bail!("all is answered and {} calls are open", runtime.open_calls());
    }
    if options.aside {
        aside::run(&**runtime.store()).await?;
    }
    say(&json!({"phase": "done"}))
}

/// Submits the batches of a session in their order, a few of them under way together.
async fn submit(runtime: Runtime, session: SessionPlan) -> Result<()> {
    let mut under_way = JoinSet::new();
    for batch in session.batches {
        if under_way.len() >= session.ahead
            && let Some(ended) = under_way.join_next().await
        {
            ended??;
        }
        let first = if batch.grows { batch.calls.len() - 1 } else { batch.calls.len() };
        let submitted = runtime.submit(&session.name, batch.request(first)).await?;
        let (runtime, name) = (runtime.clone(), session.name.clone());
        under_way.spawn(async move {
            told(&name, &submitted.settled().await?)?;
            if batch.grows { grown(&runtime, &name, &batch).await } else { Ok(()) }
        });
    }
    while let Some(ended) = under_way.join_next().await {
        ended??;
    }
    Ok(())
}

async fn grown(runtime: &Runtime, session: &str, batch: &BatchPlan) -> Result<()> {
    let submitted = runtime.submit(session, batch.request(batch.calls.len())).await?;
    told(session, &submitted.settled().await?)
}

fn told(session: &str, answer: &windlass::BatchAnswer) -> Result<()> {
    say(&json!({"session": session, "answer": answer}))
}

/// One line in one write: whoever reads it has all of it, or was not told.
fn say(line: &Value) -> Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(format!("{line}\n").as_bytes()).and_then(|()| out.flush()).context("nobody listens")
}

/// The tool of this kind, which goes to the ledger for its effect.
fn tool(kind: Kind, client: &Arc<Client>) -> impl Tool + use<> {
    let class = match kind {
        Kind::Once | Kind::Missing => EffectClass::Once,
        Kind::Keyed => EffectClass::Keyed,
        Kind::Read => EffectClass::Read,
    };
    let spec = ToolSpec { name: kind.tool().to_owned(), class: Some(class), ..ToolSpec::default() };
    let client = Arc::clone(client);
    tool_fn(spec, move |args, cx| {
        let (client, request) = (Arc::clone(&client), request(kind, &args, cx));
        async move { effect(&client, request, args).await }
    })
}

fn request(kind: Kind, args: &Value, cx: &Cx) -> Request {
    Request {
        kind: kind.class(),
        key: cx.idempotency_key(),
        call: format!("{}/{}/{}", cx.session(), cx.batch_key(), cx.id()),
        handle: cx.call().to_string(),
        attempt: cx.attempt().0,
        hash: hash(args),
        order: args["order"].as_str().unwrap_or("ok").to_owned(),
    }
}

async fn effect(client: &Client, request: Request, args: Value) -> Result<Output, ToolError> {
    let unavailable =
        |message: &str| ToolError { class: FailureClass::Unavailable, ..ToolError::new(message) };
    let answer = client.effect(&request).await.map_err(|error| unavailable(&error.to_string()))?;
    match answer {
        None => Err(unavailable("the ledger hung up; it may have done it")),
        Some((verdict, _)) if verdict == "rejected" => {
            Err(ToolError::new("the ledger refused").did_not_happen())
        }
        Some((_, number)) => {
            let filler = if args["long"] == json!(true) { "x".repeat(LONG_BYTES) } else { String::new() };
            Ok(json!({"call": args["call"], "receipt": number, "filler": filler}).into())
        }
    }
}
