//! Part C: whole calls on SQLite, every acknowledged one safe from a power cut.
//!
//! Tools are quick and do nothing but answer, so that what is measured is Windlass. Arguments and results are about
//! as long as the payloads of the floors once they are packed.

use crate::BenchError;
use crate::floor::{self, apart};
use crate::rate::{Laps, MeasuredRate, in_turn};
use crate::report::{Bar, Figure, FigureTable, Unit};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use windlass::store::Original;
use windlass::store::sqlite::{Options, SqliteStore};
use windlass::{
    Args, BatchRequest, CallRequest, Config, EffectClass, Flags, Limits, Output, Runtime, ToolSpec, tool_fn,
};

/// The options of the measurement.
#[derive(Clone, Debug)]
pub struct DurableOptions {
    /// For how long each.
    pub span: Duration,
    /// In which folder; not the system's for temporary files, which often lies in memory.
    pub dir: PathBuf,
    /// With how many open calls a runtime starts; the bar is for [`OPEN`].
    pub open: u64,
    /// After how many calls one figure is taken again.
    pub aged: Option<u64>,
}

/// The open calls of the bar.
pub const OPEN: u64 = 100_000;

/// Calls of one batch, where many are submitted at once.
const BATCH_CALLS: u64 = 100;

/// A row of the hand-off: a packed `read` call.
const ROW_BYTES: usize = 600;

/// Of the batches that are submitted again.
const AGAIN_BATCHES: u64 = 64;

/// Every figure of the part. `tell` is told what is being measured.
pub fn table(asked: &DurableOptions, tell: &mut (dyn FnMut(&str) + Send)) -> Result<FigureTable, BenchError> {
    apart(|| {
        let DurableOptions { span, dir, .. } = asked;
        let mut lines = vec![];
        let mut telling = |what: String| {
            tell(&what);
            what
        };
        let what = telling("one write of the disk: 4 KiB and its sync".to_owned());
        lines.push(Figure::plain(what, milliseconds(floor::fsync(dir, *span)?), Unit::Milliseconds));
        let what = telling("calls of class once, one after the other: half take less".to_owned());
        lines.push(alone(what, dir, *span)?);
        for (at_once, least) in [(8, None), (64, Some(0.5)), (512, Some(0.5))] {
            let what = telling(format!("calls of class once, {at_once} at once"));
            let floor = |span| Ok(floor_of("once", dir, at_once, span)?.per_second());
            lines.extend(concurrent(
                what,
                ConcurrentLoad { tool: "once", dir, at_once, span: *span },
                floor,
                least,
            )?);
        }
        let what = telling("calls of class read, 64 at once".to_owned());
        let floor = |span| Ok(floor_of("read", dir, 64, span)?.per_second());
        lines.extend(concurrent(
            what,
            ConcurrentLoad { tool: "read", dir, at_once: 64, span: *span },
            floor,
            Some(0.6),
        )?);
        let what = telling("calls submitted again, answered from the record".to_owned());
        let again = DurableRig::new(dir)?.again(*span)?.per_second();
        lines.push(Figure::barred(what, again, Unit::PerSecond, Bar::AtLeast(200_000.0)));
        let what = telling(format!("start after a crash with {} open calls", asked.open));
        let start = start(dir, asked.open)?.as_secs_f64();
        lines.push(match asked.open {
            OPEN => Figure::barred(what, start, Unit::Seconds, Bar::AtMost(5.0)),
            _ => Figure::plain(what, start, Unit::Seconds),
        });
        if let Some(calls) = asked.aged {
            let what =
                telling(format!("calls of class once, 64 at once, after {calls} calls; the floor is before"));
            lines.push(aged(what, dir, *span, calls)?);
        }
        let title = "C. Durable calls, each on disk before it is answered; the floor writes the same rows with SQLite alone".to_owned();
        Ok(FigureTable { title, lines })
    })
}

/// One load and nothing else, beside its floor, for whoever looks at what it costs: calls of `once` or `read`.
pub fn load(
    dir: &Path,
    tool: &'static str,
    at_once: usize,
    span: Duration,
) -> Result<FigureTable, BenchError> {
    apart(|| {
        let what = format!("{tool}, {at_once} at once");
        let floor = |span| Ok(floor_of(tool, dir, at_once, span)?.per_second());
        let line = concurrent(what, ConcurrentLoad { tool, dir, at_once, span }, floor, Some(0.5))?;
        Ok(FigureTable { title: "One load; the floor is bare SQLite".to_owned(), lines: line.into() })
    })
}

fn floor_of(tool: &str, dir: &Path, at_once: usize, span: Duration) -> Result<MeasuredRate, BenchError> {
    Ok(match tool {
        "read" => floor::sqlite_handoff(dir, at_once, ROW_BYTES, span)?,
        _ => floor::sqlite_attempts(dir, at_once, span)?,
    })
}

fn alone(what: String, dir: &Path, span: Duration) -> Result<Figure, BenchError> {
    let rig = DurableRig::new(dir)?;
    let floor = |span| Ok(milliseconds(floor::sqlite_attempts(dir, 1, span)?));
    let (floor, ours) =
        in_turn(span, floor, |span| Ok::<_, BenchError>(milliseconds(rig.calls("once", 1, span)?)))?;
    Ok(Figure::against(what, ours, Unit::Milliseconds, floor, Bar::AtMost(1.5)))
}

/// Calls of one tool, so many at once, for so long.
#[derive(Clone, Copy)]
struct ConcurrentLoad<'a> {
    tool: &'static str,
    dir: &'a Path,
    at_once: usize,
    span: Duration,
}

/// So many calls at once beside their floor, and how many changes shared a commit meanwhile.
fn concurrent(
    what: String,
    load: ConcurrentLoad<'_>,
    floor: impl FnMut(Duration) -> Result<f64, BenchError>,
    least: Option<f64>,
) -> Result<[Figure; 2], BenchError> {
    let ConcurrentLoad { tool, dir, at_once, span } = load;
    let rig = DurableRig::new(dir)?;
    let mut calls = 0;
    let (floor, ours) = in_turn(span, floor, |span| {
        let rate = rig.calls(tool, at_once, span)?;
        // The warm-up makes one call in each session.
        calls += rate.count + at_once as u64;
        Ok::<_, BenchError>(rate.per_second())
    })?;
    // An intent and an end, or both in one.
    let changes = calls * if tool == "read" { 1 } else { 2 };
    let shared = changes as f64 / rig.windlass.store().commits() as f64;
    let shared = Figure::plain("  of which shared one write of the disk", shared, Unit::Number);
    let line = Figure::against(what, ours, Unit::PerSecond, floor, Bar::AtLeast(least.unwrap_or(0.0)));
    let line = if least.is_none() { Figure { bar: None, met: None, ..line } } else { line };
    Ok([line, shared])
}

/// One figure before and after this many calls of the same sessions.
fn aged(what: String, dir: &Path, span: Duration, calls: u64) -> Result<Figure, BenchError> {
    let rig = DurableRig::new(dir)?;
    let young = rig.calls("once", 64, span)?.per_second();
    rig.fill(64, calls)?;
    let old = rig.calls("once", 64, span)?.per_second();
    Ok(Figure::against(what, old, Unit::PerSecond, young, Bar::AtLeast(0.8)))
}

/// How long a runtime takes until every call that was left open goes on or is parked.
fn start(dir: &Path, open: u64) -> Result<Duration, BenchError> {
    let rig = DurableRig::new(dir)?;
    let sessions = open.div_ceil(BATCH_CALLS);
    rig.tokio.block_on(async {
        for session in 0..sessions {
            let calls = BATCH_CALLS.min(open - session * BATCH_CALLS);
            // Nobody waits for the answer: there is none.
            rig.windlass.submit(&format!("s{session}"), batch("left".to_owned(), "never", calls)).await?;
        }
        // All calls of a batch are recorded with it.
        while rig.windlass.store().open_batches(None).await?.len() < sessions as usize {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Ok::<_, BenchError>(())
    })?;
    // A process cannot die here and go on, so the next owner starts from a copy of what it would find.
    let left = tempfile::tempdir_in(dir)?;
    for file in ["windlass.db", "windlass.db-wal"] {
        std::fs::copy(rig.folder.path().join(file), left.path().join(file))?;
    }
    drop(rig);
    let began = Instant::now();
    let rig = DurableRig::at(left)?;
    rig.tokio.block_on(async { rig.windlass.store().own_file(Original::Gone).await })?;
    let resumed = rig.tokio.block_on(rig.windlass.resume())?;
    let took = began.elapsed();
    if resumed != open {
        return Err(BenchError::Wrong(format!("{resumed} calls went on, {open} were open")));
    }
    Ok(took)
}

/// A runtime of Windlass on a store in a folder of its own, and the threads it runs on.
struct DurableRig {
    windlass: Runtime,
    tokio: tokio::runtime::Runtime,
    /// So that no two batches have one key.
    batches: Arc<AtomicU64>,
    folder: TempDir,
}

/// So many sessions at once, each with batches of so many calls of one tool.
#[derive(Clone, Copy)]
struct DurableLoad {
    sessions: usize,
    calls: u64,
    tool: &'static str,
}

impl DurableRig {
    fn new(dir: &Path) -> Result<DurableRig, BenchError> {
        DurableRig::at(tempfile::tempdir_in(dir)?)
    }

    fn at(folder: TempDir) -> Result<DurableRig, BenchError> {
        let tokio = tokio::runtime::Builder::new_multi_thread().enable_time().build()?;
        // So many at once as a load has: what is measured is not the limit.
        let most = u64::from(u32::MAX);
        let limits = Limits { calls_queued_max: most, calls_running_max: most, ..Limits::default() };
        let store = SqliteStore::open(Options { limits: limits.store(), ..Options::new(folder.path()) })?;
        let windlass = {
            let _inside = tokio.enter();
            Runtime::new(Config { limits, ..Config::on(Arc::new(store)) })
        };
        windlass
            .register(tool_fn(spec("once", EffectClass::Once), |args, _| async { Ok(Output::from(args)) }))?;
        windlass
            .register(tool_fn(spec("read", EffectClass::Read), |args, _| async { Ok(Output::from(args)) }))?;
        windlass.register(tool_fn(spec("never", EffectClass::Keyed), |_, _| std::future::pending()))?;
        Ok(DurableRig { windlass, tokio, batches: Arc::default(), folder })
    }

    /// One call after the other in each of so many sessions at once.
    fn calls(&self, tool: &'static str, at_once: usize, span: Duration) -> Result<MeasuredRate, BenchError> {
        self.under(DurableLoad { sessions: at_once, calls: 1, tool }, Duration::ZERO)?;
        self.under(DurableLoad { sessions: at_once, calls: 1, tool }, span)
    }

    /// At least so many calls, spread over so many sessions.
    fn fill(&self, sessions: usize, calls: u64) -> Result<(), BenchError> {
        let mut made = 0;
        while made < calls {
            made +=
                self.under(DurableLoad { sessions, calls: BATCH_CALLS, tool: "read" }, Duration::ZERO)?.count;
        }
        Ok(())
    }

    fn under(&self, load: DurableLoad, span: Duration) -> Result<MeasuredRate, BenchError> {
        let DurableLoad { sessions, calls, tool } = load;
        let session = |number: usize| {
            let (windlass, batches) = (self.windlass.clone(), self.batches.clone());
            async move {
                let name = format!("s{number}");
                let mut laps = Laps::start(span);
                while laps.more() {
                    let batch = batch(batches.fetch_add(1, Ordering::Relaxed).to_string(), tool, calls);
                    let began = Instant::now();
                    settled(&windlass, &name, batch).await?;
                    laps.note(began);
                }
                Ok::<_, BenchError>(laps)
            }
        };
        self.tokio.block_on(async {
            let mut all = Laps::start(span);
            if sessions == 1 {
                all.join(session(0).await?);
                return Ok(all.rate(calls));
            }
            let running: Vec<_> = (0..sessions).map(|number| tokio::spawn(session(number))).collect();
            for laps in running {
                match laps.await {
                    Ok(laps) => all.join(laps?),
                    Err(ended) => std::panic::resume_unwind(ended.into_panic()),
                }
            }
            Ok(all.rate(calls))
        })
    }

    /// Finished batches, submitted again and again.
    fn again(&self, span: Duration) -> Result<MeasuredRate, BenchError> {
        self.tokio.block_on(async {
            for number in 0..AGAIN_BATCHES {
                settled(&self.windlass, "again", batch(number.to_string(), "read", BATCH_CALLS)).await?;
            }
            let mut laps = Laps::start(span);
            for number in (0..AGAIN_BATCHES).cycle() {
                if !laps.more() {
                    break;
                }
                let batch = batch(number.to_string(), "read", BATCH_CALLS);
                let began = Instant::now();
                let answer = self.windlass.submit("again", batch).await?.settled().await?;
                laps.note(began);
                if !answer.calls.iter().all(|call| call.is_recorded() && call.state() == "succeeded") {
                    return Err(BenchError::Wrong(
                        "a recorded batch was not answered from the record".to_owned(),
                    ));
                }
            }
            Ok(laps.rate(BATCH_CALLS))
        })
    }
}

fn spec(name: &str, class: EffectClass) -> ToolSpec {
    ToolSpec {
        name: name.to_owned(),
        input_schema: Some(json!({
            "type": "object",
            "properties": { "message": { "type": "string" }, "number": { "type": "integer" } },
            "required": ["message", "number"],
            "additionalProperties": false,
        })),
        class: Some(class),
        flags: Flags { quick: true, ..Flags::default() },
        ..ToolSpec::default()
    }
}

/// A batch of calls whose arguments all differ.
fn batch(key: String, tool: &str, calls: u64) -> BatchRequest {
    let call = |number: u64| CallRequest {
        id: Some(format!("call_{number}")),
        tool: tool.to_owned(),
        args: Args::Json(json!({
            "message": format!("{key}/{number}: a message that is about as long as what a model has to say"),
            "number": number,
        })),
        ..CallRequest::default()
    };
    let calls = (0..calls).map(call).collect();
    BatchRequest { key: Some(key), calls, ..BatchRequest::default() }
}

async fn settled(windlass: &Runtime, session: &str, batch: BatchRequest) -> Result<(), BenchError> {
    let answer = windlass.submit(session, batch).await?.settled().await?;
    match answer.calls.iter().find(|call| call.state() != "succeeded" || call.is_recorded()) {
        Some(call) => Err(BenchError::Wrong(format!("{} is {}", call.id(), call.state()))),
        None => Ok(()),
    }
}

fn milliseconds(rate: MeasuredRate) -> f64 {
    rate.p50.as_secs_f64() * 1e3
}
