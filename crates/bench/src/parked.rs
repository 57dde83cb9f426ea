//! Part B: calls that wait for the world outside, on SQLite: what each costs while it waits, how long a new process takes
//! until all wait again, and how long one takes from its answer to its end.

use crate::report::{Figure, FigureTable, Unit};
use crate::{BenchError, allocations};
use serde_json::json;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use windlass::approvals::ApprovalDecision;
use windlass::inspect::WaitingCall;
use windlass::policy::ApprovalRule;
use windlass::store::sqlite::{Options, SqliteStore};
use windlass::wait::Completed;
use windlass::{
    Args, BatchRequest, CallRequest, Config, Cx, EffectClass, Limits, Output, Runtime, Tool, ToolError,
    ToolFuture, ToolSpec,
};

/// Calls of one batch.
const BATCH_CALLS: u64 = 100;
/// How the calls lie in sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionShape {
    /// Twenty batches in each session.
    Mixed,
    /// All in one session.
    One,
    /// Each in a session of its own.
    Many,
}

impl SessionShape {
    /// The shape of this name.
    pub fn named(name: &str) -> Option<SessionShape> {
        [("mixed", SessionShape::Mixed), ("one", SessionShape::One), ("many", SessionShape::Many)]
            .into_iter()
            .find_map(|(known, shape)| (known == name).then_some(shape))
    }

    /// Batches of one session.
    fn session_batches(self) -> u64 {
        match self {
            SessionShape::Mixed => 20,
            SessionShape::One => u64::MAX,
            SessionShape::Many => 1,
        }
    }

    fn text(self) -> &'static str {
        match self {
            SessionShape::Mixed => "twenty batches in a session",
            SessionShape::One => "all in one session",
            SessionShape::Many => "each in a session of its own",
        }
    }
}

/// The answer that the calls wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParkedAnswer {
    /// A completion by key.
    Completion,
    /// The approval of a person.
    Approval,
}

impl ParkedAnswer {
    /// The answer of this name.
    pub fn named(name: &str) -> Option<ParkedAnswer> {
        match name {
            "completion" => Some(ParkedAnswer::Completion),
            "approval" => Some(ParkedAnswer::Approval),
            _ => None,
        }
    }

    fn text(self) -> &'static str {
        match self {
            ParkedAnswer::Completion => "a completion",
            ParkedAnswer::Approval => "an approval",
        }
    }
}

/// How many calls wait for their turns before more are submitted.
const QUEUED_MAX: u64 = 1_000;
/// Batches that are submitted together.
const AT_ONCE: usize = 32;
/// How many calls are answered one after the other, to see how long that takes.
const SAMPLES: usize = 1_000;
/// How long each waits at most: longer than any measurement.
const DEADLINE: Duration = Duration::from_secs(7 * 86_400);

/// The keys by which the calls of a folder are answered, one per line and call.
pub const KEYS: &str = "keys";

/// Where the keys go that are given out, each with session, batch and id of its call: not into memory, which is measured.
type KeySink = Arc<Mutex<BufWriter<File>>>;

/// A tool that leaves its result to the world outside, or asks before it runs.
struct ParkingTool {
    keys: KeySink,
    awaits: ParkedAnswer,
}

impl Tool for ParkingTool {
    fn spec(&self) -> ToolSpec {
        let class = Some(EffectClass::Keyed);
        let approval = match self.awaits {
            ParkedAnswer::Approval => ApprovalRule::Ask,
            ParkedAnswer::Completion => ApprovalRule::default(),
        };
        ToolSpec { name: "asks".into(), class, approval, claims: Some(Vec::new()), ..ToolSpec::default() }
    }

    fn run<'a>(&'a self, _: serde_json::Value, cx: &'a Cx) -> ToolFuture<'a> {
        Box::pin(async move {
            if self.awaits == ParkedAnswer::Approval {
                return Ok(Output::from(json!("done")));
            }
            let key = cx.completion("answer").await?;
            let line = format!("{key}\t{}\t{}\t{}", cx.session(), cx.batch_key(), cx.id());
            let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
            writeln!(keys, "{line}").map_err(|error| ToolError::internal(error.to_string()))?;
            Ok(Output::pending(key).within(DEADLINE))
        })
    }
}

fn open(folder: &Path, awaits: ParkedAnswer) -> Result<(Runtime, KeySink), BenchError> {
    let file = File::options().append(true).create(true).open(folder.join(KEYS))?;
    let keys: KeySink = Arc::new(Mutex::new(BufWriter::new(file)));
    let limits = Limits {
        calls_parked_max: u64::MAX,
        calls_queued_max: u64::MAX,
        session_calls_queued_max: u64::MAX,
        approval_ms: DEADLINE.as_millis() as u64,
        ..Limits::default()
    };
    let store = SqliteStore::open(Options::new(folder))?;
    let runtime = Runtime::new(Config { limits, ..Config::new(store) });
    runtime.register(ParkingTool { keys: keys.clone(), awaits })?;
    Ok((runtime, keys))
}

/// A batch of one session. Every second one has one call, so that its end can be waited for.
fn batch(session: u64, number: u64, calls: u64) -> (String, BatchRequest) {
    let calls = if number.is_multiple_of(2) { 1 } else { calls };
    let calls = (0..calls).map(|call| CallRequest {
        id: Some(format!("c{call}")),
        tool: "asks".into(),
        args: Args::Json(json!({ "n": call, "batch": number })),
        ..CallRequest::default()
    });
    let key = Some(format!("b{number}"));
    (format!("s{session}"), BatchRequest { key, calls: calls.collect(), ..BatchRequest::default() })
}

/// Parks so many calls in a folder, and leaves their keys beside it.
pub async fn park(
    folder: &Path,
    count: u64,
    shape: SessionShape,
    awaits: ParkedAnswer,
) -> Result<FigureTable, BenchError> {
    let (runtime, keys) = open(folder, awaits)?;
    let before = UsedMemory::now()?;
    let began = Instant::now();
    let (mut left, mut session) = (count, 0);
    let mut under_way = tokio::task::JoinSet::new();
    while left > 0 {
        for number in 0..shape.session_batches() {
            let (session, batch) = batch(session, number, BATCH_CALLS.min(left));
            let calls = batch.calls.len() as u64;
            if left == 0 || left < calls {
                break;
            }
            left -= calls;
            if under_way.len() >= AT_ONCE
                && let Some(submitted) = under_way.join_next().await
            {
                submitted.map_err(|error| BenchError::Wrong(error.to_string()))??;
            }
            // What waits for its turn is in memory, and is not what is measured.
            while runtime.counts().queued > QUEUED_MAX {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            let runtime = runtime.clone();
            under_way.spawn(async move {
                runtime.submit(&session, batch).await?;
                Ok::<_, BenchError>(())
            });
        }
        session += 1;
    }
    while let Some(submitted) = under_way.join_next().await {
        submitted.map_err(|error| BenchError::Wrong(error.to_string()))??;
    }
    all_wait(&runtime, count).await;
    let took = began.elapsed();
    let memory = before.each_since(count)?;
    keys.lock().unwrap_or_else(PoisonError::into_inner).flush()?;
    let mut lines =
        vec![Figure::plain("parked".to_owned(), count as f64 / took.as_secs_f64(), Unit::PerSecond)];
    lines.extend(memory.lines("in the process that parked it"));
    let title = format!("B. {count} calls that wait for {}, {}, SQLite", awaits.text(), shape.text());
    Ok(FigureTable { title, lines })
}

/// Takes a folder of parked calls over: until all wait again, what they cost, and how long some take to wake up.
pub async fn take_over(folder: &Path, count: u64, awaits: ParkedAnswer) -> Result<FigureTable, BenchError> {
    let began = Instant::now();
    let (runtime, _) = open(folder, awaits)?;
    let before = UsedMemory::now()?;
    let resumed = runtime.resume().await?;
    all_wait(&runtime, count).await;
    let took = began.elapsed();
    let memory = before.each_since(count)?;
    if resumed != count {
        return Err(BenchError::Wrong(format!("{resumed} calls went on, {count} were parked")));
    }
    let waits = match awaits {
        ParkedAnswer::Completion => awaiting_completion(folder)?,
        ParkedAnswer::Approval => awaiting_approval(&runtime).await?,
    };
    let (mut woken, mut answered) = (Vec::new(), Vec::new());
    for wait in waits.iter().filter(|wait| wait.batch.is_multiple_of(2)).take(SAMPLES) {
        let began = Instant::now();
        wait.answer(&runtime).await?;
        let durable = Instant::now();
        // Nobody waited for it, so it was not in memory; whoever asks for its answer now joins it or finds its end.
        let answer = runtime.submit(&wait.session, batch(0, wait.batch, 1).1).await?.settled().await?;
        let state = answer.calls[0].state();
        if state != "succeeded" {
            return Err(BenchError::Wrong(format!(
                "a call of {} that was answered is {state}",
                wait.session
            )));
        }
        answered.push(durable - began);
        woken.push(durable.elapsed());
    }
    let mut lines = vec![Figure::plain(
        "until all wait again, in a new process".to_owned(),
        took.as_secs_f64(),
        Unit::Seconds,
    )];
    lines.extend(memory.lines("in a new process"));
    lines.extend([
        Figure::plain(
            "answered, until that is durable: p50".to_owned(),
            at(&mut answered, 50),
            Unit::Milliseconds,
        ),
        Figure::plain(
            "answered, until that is durable: p99".to_owned(),
            at(&mut answered, 99),
            Unit::Milliseconds,
        ),
        Figure::plain(
            "from there to the end of the call: p50".to_owned(),
            at(&mut woken, 50),
            Unit::Milliseconds,
        ),
        Figure::plain(
            "from there to the end of the call: p99".to_owned(),
            at(&mut woken, 99),
            Unit::Milliseconds,
        ),
    ]);
    Ok(FigureTable { title: format!("B. {count} parked calls, taken over; {} answered", woken.len()), lines })
}

/// A call that waits, and how it is answered: by its key, or by its approval with the digest that was shown.
struct Wait {
    session: String,
    batch: u64,
    id: String,
    digest: Option<String>,
}

impl Wait {
    async fn answer(&self, runtime: &Runtime) -> Result<(), BenchError> {
        let wrong = |error: &dyn std::fmt::Display| BenchError::Wrong(error.to_string());
        let Some(digest) = self.digest.clone() else {
            let completed = runtime.complete(&self.id, Completed::ok(json!("done"))).await;
            return completed.map(drop).map_err(|error| wrong(&error));
        };
        let decision = ApprovalDecision { approve: true, digest, ..ApprovalDecision::default() };
        runtime.decide(&self.id, &decision, "bench").await.map_err(|error| wrong(&error))
    }
}

fn awaiting_completion(folder: &Path) -> Result<Vec<Wait>, BenchError> {
    let keys = std::fs::read_to_string(folder.join(KEYS))?;
    let wait = |line: &str| {
        let [id, session, batch, ..] = line.split('\t').collect::<Vec<_>>()[..] else { return None };
        let (id, session) = (id.to_owned(), session.to_owned());
        Some(Wait { session, batch: batch[1..].parse().ok()?, id, digest: None })
    };
    Ok(keys.lines().filter_map(wait).collect())
}

async fn awaiting_approval(runtime: &Runtime) -> Result<Vec<Wait>, BenchError> {
    let waiting = runtime.waiting().await?;
    let wait = |call: WaitingCall| {
        let batch = call.args?["batch"].as_u64()?;
        Some(Wait { session: call.session, batch, id: call.id, digest: call.digest })
    };
    Ok(waiting.into_iter().filter_map(|(_, call)| wait(call)).collect())
}

/// Until all of them have left memory.
async fn all_wait(runtime: &Runtime, count: u64) {
    while runtime.away() < count {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// The memory of the process: what the kernel gave it, and what it holds of that.
struct UsedMemory {
    resident: f64,
    held: Option<f64>,
}

impl UsedMemory {
    fn now() -> Result<UsedMemory, BenchError> {
        let held = allocations::held_bytes().map(|bytes| bytes as f64);
        Ok(UsedMemory { resident: resident_bytes()? as f64, held })
    }

    /// The bytes of each call that came since.
    fn each_since(&self, count: u64) -> Result<UsedMemory, BenchError> {
        let (now, each) = (UsedMemory::now()?, |now: f64, before: f64| (now - before) / count as f64);
        let held = now.held.zip(self.held).map(|(now, before)| each(now, before));
        Ok(UsedMemory { resident: each(now.resident, self.resident), held })
    }

    fn lines(&self, place: &str) -> impl Iterator<Item = Figure> {
        let line = |what: &str, bytes| {
            Figure::plain(format!("bytes of {what} of each, {place}"), bytes, Unit::Number)
        };
        let held = self.held.map(|held| line("the heap", held));
        [line("memory", self.resident)].into_iter().chain(held)
    }
}

/// The milliseconds that so many of a hundred are below.
fn at(samples: &mut [Duration], percent: usize) -> f64 {
    samples.sort_unstable();
    let place = (samples.len() * percent / 100).min(samples.len().saturating_sub(1));
    let value = samples.get(place).copied().unwrap_or_default();
    value.as_secs_f64() * 1_000.0
}

/// The resident memory of the process.
fn resident_bytes() -> Result<u64, BenchError> {
    /// As the kernel counts it.
    const PAGE_BYTES: u64 = 4_096;
    let statm = std::fs::read_to_string("/proc/self/statm")?;
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages
        .map(|pages| pages * PAGE_BYTES)
        .ok_or_else(|| BenchError::Wrong("the kernel does not say".to_owned()))
}
