//! Part D: whole calls over HTTP, durable, one call per batch; beside a handler that does nothing but the same two group
//! commits.
//!
//! Both are asked by the same plain client over connections that stay open, in turn. The clients and the readers of events run
//! in the same process, as cheap as they can be: on a small machine they cost a part of what is measured, of both alike.

use crate::BenchError;
use crate::floor::{Handoff, apart};
use crate::rate::{Laps, MeasuredRate, median};
use crate::report::{Bar, Figure, FigureTable, Unit};
use axum::Router;
use axum::extract::State;
use axum::routing::post;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use rustix::time::{ClockId, clock_gettime};
use serde_json::json;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use windlass::store::sqlite::{Options, SqliteStore};
use windlass::{Config, EffectClass, Flags, Limits, Output, Runtime, ToolSpec, tool_fn};
use windlass_server::Api;
use windlass_server::access::{AccessRules, TokenScope};
use windlass_server::address::Address;
use windlass_server::wire::NewToken;

/// The options of the measurement.
#[derive(Clone, Debug)]
pub struct ServedOptions {
    /// For how long each.
    pub span: Duration,
    /// In which folder; not the system's for temporary files, which often lies in memory.
    pub dir: PathBuf,
    /// Over how many connections.
    pub connections: usize,
    /// With how many readers of events.
    pub readers: usize,
}

/// Of each row that the floor commits, as in the other floors.
const ROW_BYTES: usize = 300;
/// Into how many turns a measurement is cut.
const TURNS: u32 = 5;

/// Every figure of the part. `tell` is told what is being measured.
pub fn table(asked: &ServedOptions, tell: &mut (dyn FnMut(&str) + Send)) -> Result<FigureTable, BenchError> {
    apart(|| {
        let tokio = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        tokio.block_on(figures(asked, tell))
    })
}

async fn figures(
    asked: &ServedOptions,
    tell: &mut (dyn FnMut(&str) + Send),
) -> Result<FigureTable, BenchError> {
    let ServedOptions { span, connections, .. } = *asked;
    let floor = Floor::start(&asked.dir, connections).await?;
    let ours = Ours::start(&asked.dir, asked).await?;
    let mut lines = Vec::new();
    tell("requests, as many as come");
    let (mut floors, mut rates) = (Vec::new(), Vec::new());
    for _ in 0..TURNS {
        floors.push(load(&floor.target(), connections, span / TURNS, None).await?);
        rates.push(load(&ours.target(), connections, span / TURNS, None).await?);
    }
    let (floor_rate, rate) = (each(&floors, LoadResult::per_second), each(&rates, LoadResult::per_second));
    let what = format!("once, {connections} connections");
    lines.push(Figure::against(what, rate, Unit::PerSecond, floor_rate, Bar::AtLeast(0.5)));
    let (floor_busy, busy) = (each(&floors, LoadResult::busy_ns), each(&rates, LoadResult::busy_ns));
    lines.push(Figure::beside("  CPU for each, with its client", busy, Unit::Nanoseconds, floor_busy));
    let last = rates.last().ok_or_else(|| BenchError::Wrong("nothing was measured".to_owned()))?.rate;
    lines.push(Figure::plain("  p50", ms(last.p50), Unit::Milliseconds));
    lines.push(Figure::against(
        "  p99 over p50",
        ms(last.p99),
        Unit::Milliseconds,
        ms(last.p50),
        Bar::AtMost(5.0),
    ));

    lines.extend(with_readers(asked, &ours, rate, tell).await?);
    ours.stop().await;
    floor.stop()?;
    let title =
        "D. Server, durable, HTTP keep-alive; the floor is a handler with two group commits".to_owned();
    Ok(FigureTable { title, lines })
}

/// At half of a rate, in turn without and with readers of events: what these cost the calls.
async fn with_readers(
    asked: &ServedOptions,
    ours: &Ours,
    rate: f64,
    tell: &mut (dyn FnMut(&str) + Send),
) -> Result<Vec<Figure>, BenchError> {
    tell("at half of that, without and with readers of events");
    let ServedOptions { span, connections, readers, .. } = *asked;
    let (turn, every) = (span / TURNS, Some(Duration::from_secs_f64(2.0 * connections as f64 / rate)));
    let (mut alone, mut read, mut told) = (Vec::new(), Vec::new(), 0);
    for _ in 0..TURNS {
        alone.push(load(&ours.target(), connections, turn, every).await?);
        let following = ours.follow(readers, connections).await?;
        read.push(load(&ours.target(), connections, turn, every).await?);
        told += following.told.load(Ordering::Relaxed);
        drop(following);
        ours.readers_are(0).await;
    }
    let what = format!("at half of it, with {readers} readers");
    let (rate, rate_alone) = (each(&read, LoadResult::per_second), each(&alone, LoadResult::per_second));
    let (busy, busy_alone) = (each(&read, LoadResult::busy_ns), each(&alone, LoadResult::busy_ns));
    let p50 = |loads: &[LoadResult]| each(loads, |load| ms(load.rate.p50));
    Ok(vec![
        Figure::against(what, rate, Unit::PerSecond, rate_alone, Bar::AtLeast(0.9)),
        Figure::beside("  CPU for each, with its readers", busy, Unit::Nanoseconds, busy_alone),
        Figure::plain("  p50 without readers", p50(&alone), Unit::Milliseconds),
        Figure::plain("  p50 with readers", p50(&read), Unit::Milliseconds),
        Figure::plain("  bytes that each reader was told", told as f64 / readers.max(1) as f64, Unit::Number),
    ])
}

/// The median over the turns.
fn each(loads: &[LoadResult], of: impl Fn(&LoadResult) -> f64) -> f64 {
    median(loads.iter().map(of).collect())
}

/// Whom the clients ask, and with what.
#[derive(Clone)]
struct LoadTarget {
    address: SocketAddr,
    /// The head of every request but its path and length.
    head: Arc<str>,
    /// How many were asked: no two are the same.
    asked: Arc<AtomicU64>,
}

/// So many connections, each with one request after the other; or each with one in so much time.
async fn load(
    target: &LoadTarget,
    connections: usize,
    span: Duration,
    every: Option<Duration>,
) -> Result<LoadResult, BenchError> {
    let mut clients = Vec::with_capacity(connections);
    for number in 0..connections {
        let mut client = BenchClient::connect(target, number).await?;
        client.ask().await?;
        clients.push(client);
    }
    let (busy, mut all) = (busy_time(), Laps::start(span));
    let mut running = JoinSet::new();
    for mut client in clients {
        running.spawn(async move {
            let mut laps = Laps::start(span);
            // They begin one after the other, as requests come.
            let mut due =
                every.map(|every| Instant::now() + every.mul_f64(client.number as f64 / connections as f64));
            while laps.more() {
                if let (Some(at), Some(every)) = (due, every) {
                    tokio::time::sleep_until(at.into()).await;
                    due = Some(at + every);
                }
                let began = Instant::now();
                client.ask().await?;
                laps.note(began);
            }
            Ok::<_, BenchError>(laps)
        });
    }
    while let Some(laps) = running.join_next().await {
        match laps {
            Ok(laps) => all.join(laps?),
            Err(ended) => std::panic::resume_unwind(ended.into_panic()),
        }
    }
    Ok(LoadResult { rate: all.rate(1), busy: busy_time().saturating_sub(busy) })
}

/// The result of a load.
struct LoadResult {
    rate: MeasuredRate,
    /// The CPU time meanwhile, for server, clients and readers: they are all in this process.
    busy: Duration,
}

impl LoadResult {
    fn per_second(&self) -> f64 {
        self.rate.per_second()
    }

    /// For one request. It hardly depends on what else the machine does.
    fn busy_ns(&self) -> f64 {
        self.busy.as_nanos() as f64 / self.rate.count.max(1) as f64
    }
}

/// The CPU time of this process.
fn busy_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// One connection that stays open.
struct BenchClient {
    stream: BufReader<TcpStream>,
    target: LoadTarget,
    number: usize,
    line: String,
    body: Vec<u8>,
}

impl BenchClient {
    async fn connect(target: &LoadTarget, number: usize) -> Result<BenchClient, BenchError> {
        let stream = TcpStream::connect(target.address).await?;
        stream.set_nodelay(true)?;
        let (stream, target) = (BufReader::new(stream), target.clone());
        Ok(BenchClient { stream, target, number, line: String::new(), body: Vec::new() })
    }

    /// Sends a batch of one call and reads its answer.
    async fn ask(&mut self) -> Result<(), BenchError> {
        let BenchClient { target, number, .. } = self;
        let place = target.asked.fetch_add(1, Ordering::Relaxed);
        let args = json!({
            "message": format!("{place}: a message that is about as long as what a model has to say"),
            "number": place,
        });
        let calls = json!([{"id": "call", "tool": "once", "args": args}]);
        let body = json!({"key": place.to_string(), "wait": "settled", "calls": calls}).to_string();
        let (head, length) = (&target.head, body.len());
        let request = format!(
            "POST /v1/sessions/s{number}/batches HTTP/1.1\r\n{head}content-length: {length}\r\n\r\n{body}"
        );
        self.stream.write_all(request.as_bytes()).await?;
        let status = self.read_head().await?;
        self.stream.read_exact(&mut self.body).await?;
        if status.contains(" 200 ") && memfind(&self.body, b"\"succeeded\"") {
            return Ok(());
        }
        Err(BenchError::Wrong(format!("{status}: {}", String::from_utf8_lossy(&self.body))))
    }

    /// The first line of the answer; room is made for its body.
    async fn read_head(&mut self) -> Result<String, BenchError> {
        let (mut status, mut length) = (String::new(), 0);
        loop {
            self.line.clear();
            if self.stream.read_line(&mut self.line).await? == 0 {
                return Err(BenchError::Wrong("the server closed a connection".to_owned()));
            }
            let line = self.line.trim_end();
            if line.is_empty() {
                break;
            } else if status.is_empty() {
                status = line.to_owned();
            } else if let Some((_, value)) =
                line.split_once(':').filter(|(name, _)| name.eq_ignore_ascii_case("content-length"))
            {
                length = value.trim().parse().unwrap_or(0);
            }
        }
        self.body.resize(length, 0);
        Ok(status)
    }
}

fn memfind(text: &[u8], wanted: &[u8]) -> bool {
    text.windows(wanted.len()).any(|part| part == wanted)
}

/// The least that a server can do that answers what is durable.
struct Floor {
    address: SocketAddr,
    serving: tokio::task::JoinHandle<()>,
    writer: std::thread::JoinHandle<Result<(), crate::floor::FloorError>>,
    _folder: TempDir,
}

impl Floor {
    async fn start(dir: &Path, connections: usize) -> Result<Floor, BenchError> {
        let folder = tempfile::tempdir_in(dir)?;
        let (handoff, writer) = Handoff::start(folder.path(), connections)?;
        let router = Router::new()
            .route("/v1/sessions/{session}/batches", post(two_commits))
            .with_state(Arc::new(handoff));
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let serving = tokio::spawn(async move {
            let mut open = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let service = TowerToHyperService::new(router.clone());
                open.spawn(async move {
                    // Whoever goes away needs no answer.
                    let _ = stream.set_nodelay(true);
                    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Ok(Floor { address, serving, writer, _folder: folder })
    }

    fn target(&self) -> LoadTarget {
        LoadTarget { address: self.address, head: "host: localhost\r\n".into(), asked: Arc::default() }
    }

    fn stop(self) -> Result<(), BenchError> {
        self.serving.abort();
        drop(self.serving);
        // The writer ends when the last connection is gone, which the runtime sees to.
        drop(self.writer);
        Ok(())
    }
}

/// An intent and an end, and an answer that says so.
async fn two_commits(State(handoff): State<Arc<Handoff>>, body: String) -> String {
    let parsed: serde_json::Value = serde_json::from_str(&body).unwrap_or_default();
    let (first, second) = (handoff.commit(ROW_BYTES).await, handoff.commit(ROW_BYTES).await);
    let state = if first && second { "succeeded" } else { "lost" };
    json!({"key": parsed["key"], "calls": [{"id": "call", "state": state}]}).to_string()
}

/// Windlass, as `windlass serve` has it.
struct Ours {
    address: Address,
    runtime: Runtime,
    token: String,
    asked: Arc<AtomicU64>,
    _folder: TempDir,
}

impl Ours {
    async fn start(dir: &Path, asked: &ServedOptions) -> Result<Ours, BenchError> {
        let folder = tempfile::tempdir_in(dir)?;
        let most = u64::from(u32::MAX);
        let connections_max = (asked.connections + asked.readers + 16) as u64;
        let limits =
            Limits { calls_queued_max: most, connections_max, event_readers_max: most, ..Limits::default() };
        let store = SqliteStore::open(Options { limits: limits.store(), ..Options::new(folder.path()) })?;
        let runtime = Runtime::new(Config { limits, ..Config::on(Arc::new(store)) });
        let spec = ToolSpec {
            name: "once".to_owned(),
            input_schema: Some(json!({
                "type": "object",
                "properties": { "message": { "type": "string" }, "number": { "type": "integer" } },
                "required": ["message", "number"],
                "additionalProperties": false,
            })),
            class: Some(EffectClass::Once),
            flags: Flags { quick: true, ..Flags::default() },
            ..ToolSpec::default()
        };
        runtime.register(tool_fn(spec, |args, _| async { Ok(Output::from(args)) }))?;
        let api = Api::new(&runtime, None);
        let wanted = NewToken {
            principal: "bench".to_owned(),
            scopes: vec![TokenScope::Calls, TokenScope::Read],
            title: None,
            expires_in_s: None,
            requests_per_minute: Some(u32::MAX),
            approves: Vec::new(),
        };
        let cannot = |problem: windlass_server::Problem| BenchError::Server(problem.to_string());
        let token = api.tokens().make(wanted).await.map_err(cannot)?.token;
        let listening = Address::listen(SocketAddr::from(([127, 0, 0, 1], 0))).await?;
        let address = Address::serve(&api, listening, AccessRules::default())?;
        Ok(Ours { address, runtime, token, asked: Arc::default(), _folder: folder })
    }

    fn head(&self) -> String {
        format!("host: localhost\r\nauthorization: Bearer {}\r\n", self.token)
    }

    fn target(&self) -> LoadTarget {
        LoadTarget { address: self.address.address(), head: self.head().into(), asked: self.asked.clone() }
    }

    /// So many connections that follow the sessions, each one of them, and read whatever they are told.
    async fn follow(&self, readers: usize, sessions: usize) -> Result<BenchReaders, BenchError> {
        let told = Arc::new(AtomicU64::new(0));
        let mut reading = JoinSet::new();
        for number in 0..readers {
            let mut stream = TcpStream::connect(self.address.address()).await?;
            let (session, head) = (number % sessions, self.head());
            let request = format!("GET /v1/sessions/s{session}/events HTTP/1.1\r\n{head}\r\n");
            stream.write_all(request.as_bytes()).await?;
            let told = told.clone();
            reading.spawn(async move {
                while let Ok(read @ 1..) = read(&mut stream).await {
                    told.fetch_add(read as u64, Ordering::Relaxed);
                }
            });
        }
        self.readers_are(readers as u64).await;
        Ok(BenchReaders { told, _reading: reading })
    }

    /// Waits until so many follow.
    async fn readers_are(&self, count: u64) {
        while self.runtime.readers() != count {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn stop(self) {
        self.address.stop().await;
    }
}

/// Followers of events; they stop when this is dropped.
struct BenchReaders {
    told: Arc<AtomicU64>,
    _reading: JoinSet<()>,
}

/// Reads what is there, and only counts it: it needs no place of its own, and the place needs no zeros.
async fn read(stream: &mut TcpStream) -> std::io::Result<usize> {
    std::future::poll_fn(|cx| {
        let mut place = [MaybeUninit::uninit(); 16 << 10];
        let mut place = ReadBuf::uninit(&mut place);
        let read = Pin::new(&mut *stream).poll_read(cx, &mut place);
        read.map_ok(|()| place.filled().len())
    })
    .await
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
