//! A search among 1,000 tools beside a durable call of class `read`: `search [--seconds N] [--dir DIR]`. A query must cost no more
//! than the call. The tools and the questions are those of the catalog's tests.

#[path = "../../../runtime/tests/it/catalog/questions.rs"]
mod questions;

use questions::{QUESTIONS, tools};
use serde_json::json;
use std::error::Error;
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use windlass::store::sqlite::{Options, SqliteStore};
use windlass::{BatchRequest, CallRequest, Config, EffectClass, Runtime, ToolSpec, tool_fn};
use windlass_bench::table::aligned;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let (mut seconds, mut dir) = (2.0, PathBuf::from("."));
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let value = words.next().ok_or_else(|| format!("{word} needs a value"))?;
        match word.as_str() {
            "--seconds" => seconds = value.parse()?,
            "--dir" => dir = value.into(),
            other => return Err(format!("{other} {value} is not known").into()),
        }
    }
    let folder = tempfile::tempdir_in(dir)?;
    let runtime = Runtime::new(Config::new(SqliteStore::open(Options::new(folder.path()))?));
    for (name, description) in tools() {
        let class = Some(EffectClass::Read);
        let spec = ToolSpec { name, description, class, ..ToolSpec::default() };
        runtime.register(tool_fn(spec, |_, _| async { Ok(json!("done").into()) }))?;
    }
    let span = Duration::from_secs_f64(seconds);
    let read = median(reads(&runtime, span).await?);
    let (query, first, found) = searches(&runtime, span).await?;
    let query = median(query);
    let us = |time: Duration| format!("{:.0} µs", time.as_secs_f64() * 1e6);
    let ratio = query.as_secs_f64() / read.as_secs_f64();
    let rows = [
        ["a durable call of class read, half take less", &us(read), ""],
        [
            "a query among 1,000 tools, half take less",
            &us(query),
            &format!("{ratio:.2} of a read, at most 1"),
        ],
        ["the first query, which makes the index", &us(first), ""],
        ["right among the first 8", &format!("{found} of {}", QUESTIONS.len()), "at least 45"],
    ];
    let rows: Vec<Vec<String>> = rows.iter().map(|row| row.map(str::to_owned).to_vec()).collect();
    write!(std::io::stdout().lock(), "{}", aligned(&rows))?;
    Ok(())
}

/// How long durable calls take, one after the other.
async fn reads(runtime: &Runtime, span: Duration) -> Result<Vec<Duration>, Box<dyn Error>> {
    let (began, mut times) = (Instant::now(), Vec::new());
    while began.elapsed() < span {
        let call = CallRequest { id: Some("c".into()), tool: "mail_list".into(), ..CallRequest::default() };
        let key = Some(format!("k{}", times.len()));
        let batch = BatchRequest { key, calls: vec![call], ..BatchRequest::default() };
        let started = Instant::now();
        runtime.submit("reads", batch).await?.settled().await?;
        times.push(started.elapsed());
    }
    Ok(times)
}

/// How long queries take, how long the first one took, and how many questions are answered.
async fn searches(
    runtime: &Runtime,
    span: Duration,
) -> Result<(Vec<Duration>, Duration, usize), Box<dyn Error>> {
    let catalog = runtime.catalog("searches");
    let (mut times, mut found) = (Vec::new(), 0);
    let began = Instant::now();
    while times.len() < QUESTIONS.len() || began.elapsed() < span {
        let (question, wanted) = QUESTIONS[times.len() % QUESTIONS.len()];
        let started = Instant::now();
        let tools = catalog.search(question).await?;
        times.push(started.elapsed());
        found += usize::from(times.len() <= QUESTIONS.len() && tools.iter().any(|tool| tool.name == wanted));
    }
    let first = times.remove(0);
    Ok((times, first, found))
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}
