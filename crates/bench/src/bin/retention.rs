//! Prints what a session under retention costs as it grows old: `retention [--calls N] [--batch B] [--bytes MAX] [--dir DIR]`.
//!
//! One session takes many calls while its oldest batches expire. After every tenth: the size of the file, what the journal holds, the
//! time of a call, and the slowest of a thousand batches.

use std::error::Error;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;
use windlass::limits::Retention;
use windlass::store::SqliteStore;
use windlass::store::sqlite::Options;
use windlass::{
    Args, BatchRequest, CallRequest, Config, EffectClass, Flags, Limits, Runtime, ToolSpec, tool_fn,
};

/// The number of batches under way at once.
const AT_ONCE: usize = 32;
/// The number of lines printed.
const LINES: u64 = 10;

fn main() -> Result<(), Box<dyn Error>> {
    let asked = RetentionLoad::parse(std::env::args().skip(1))?;
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?.block_on(run(asked))
}

struct RetentionLoad {
    calls: u64,
    batch: u64,
    bytes: u64,
    dir: PathBuf,
}

impl RetentionLoad {
    fn parse(mut words: impl Iterator<Item = String>) -> Result<RetentionLoad, Box<dyn Error>> {
        // Not the system's folder for temporary files: that one often lies in memory.
        let mut asked =
            RetentionLoad { calls: 1_000_000, batch: 1, bytes: 16 << 20, dir: PathBuf::from(".") };
        while let Some(word) = words.next() {
            let value = words.next().ok_or_else(|| format!("{word} needs a value"))?;
            match word.as_str() {
                "--calls" => asked.calls = value.parse()?,
                "--batch" => asked.batch = value.parse()?,
                "--bytes" => asked.bytes = value.parse()?,
                "--dir" => asked.dir = value.into(),
                _ => return Err(format!("{word} is not an option").into()),
            }
        }
        Ok(asked)
    }
}

async fn run(asked: RetentionLoad) -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir_in(&asked.dir)?;
    let limits = Limits { retention_every_ms: 200, ..Limits::default() };
    let store = SqliteStore::open(Options { limits: limits.store(), ..Options::new(folder.path()) })?;
    let retention = Retention { session_bytes: Some(asked.bytes), ..Retention::default() };
    let runtime = Runtime::new(Config { retention, limits, ..Config::new(store) });
    let flags = Flags { quick: true, ..Flags::default() };
    let spec = ToolSpec {
        name: "once".into(),
        class: Some(EffectClass::Once),
        claims: Some(Vec::new()),
        flags,
        ..ToolSpec::default()
    };
    runtime.register(tool_fn(spec, |args, _| async move { Ok(args.into()) }))?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{} calls in batches of {}, {} bytes of journal", asked.calls, asked.batch, asked.bytes)?;
    writeln!(out, "calls\tfile MB\tjournal MB\texpired\tus per call\tslowest of 1000 batches, ms")?;
    let batches = asked.calls / asked.batch;
    let mut next = 0;
    for line in 1..=LINES {
        let (until, began) = (batches * line / LINES, Instant::now());
        let slowest = tenth(&runtime, &asked, next..until).await?;
        let took = began.elapsed();
        let per_call = took.as_secs_f64() * 1e6 / ((until - next) * asked.batch) as f64;
        next = until;
        let (usage, file) = (runtime.store().usage().await?, size(folder.path())?);
        writeln!(
            out,
            "{}\t{:.1}\t{:.1}\t{}\t{per_call:.0}\t{:.1}",
            next * asked.batch,
            file as f64 / 1e6,
            usage.journal_bytes as f64 / 1e6,
            usage.expired_batches,
            slowest.as_secs_f64() * 1e3,
        )?;
    }
    let again = runtime.submit("s", batch(&asked, 0)).await?.settled().await?;
    let code = again.calls.first().and_then(|call| call.failure()).map(|failure| failure.code.as_str());
    writeln!(out, "the first batch, submitted again: {}", code.unwrap_or("answered from its record"))?;
    Ok(())
}

/// Submits these batches; returns a time that one in a thousand exceeds.
async fn tenth(
    runtime: &Runtime,
    asked: &RetentionLoad,
    numbers: std::ops::Range<u64>,
) -> Result<Duration, Box<dyn Error>> {
    let (room, mut tasks) = (Arc::new(Semaphore::new(AT_ONCE)), tokio::task::JoinSet::new());
    let mut times = Vec::new();
    for number in numbers {
        let permit = Arc::clone(&room).acquire_owned().await?;
        let (runtime, batch) = (runtime.clone(), batch(asked, number));
        tasks.spawn(async move {
            let began = Instant::now();
            let answered = async { runtime.submit("s", batch).await?.settled().await };
            let is_ok =
                answered.await.is_ok_and(|answer| answer.calls.iter().all(|call| call.failure().is_none()));
            drop(permit);
            is_ok.then(|| began.elapsed())
        });
        while let Some(done) = tasks.try_join_next() {
            times.push(done?.ok_or("a call failed")?);
        }
    }
    while let Some(done) = tasks.join_next().await {
        times.push(done?.ok_or("a call failed")?);
    }
    times.sort_unstable();
    Ok(times.get(times.len().saturating_sub(1 + times.len() / 1_000)).copied().unwrap_or_default())
}

fn batch(asked: &RetentionLoad, number: u64) -> BatchRequest {
    let calls = (0..asked.batch).map(|place| CallRequest {
        id: Some(format!("c{place}")),
        tool: "once".into(),
        args: Args::Json(serde_json::json!({ "message": "hello", "number": number, "place": place })),
        ..CallRequest::default()
    });
    BatchRequest { key: Some(format!("k{number}")), calls: calls.collect(), ..BatchRequest::default() }
}

/// The bytes of the files of a folder.
fn size(folder: &std::path::Path) -> Result<u64, std::io::Error> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with("windlass.db") {
            bytes += entry.metadata()?.len();
        }
    }
    Ok(bytes)
}
