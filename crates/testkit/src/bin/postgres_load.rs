//! `windlass-postgres-load [--seconds T] [--writers N] [--sessions N]`: what a shared database costs. Calls of class `once` per second by
//! the number of sessions, through a whole runtime; for the last number again while somebody holds a snapshot, beside bare inserts
//! without and with one; then commits per second of every kind with one connection, with eight, and at two workers, each commit slowed
//! by 5 ms, so that whatever all commits share shows.

use anyhow::{Context, Result, ensure};
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use windlass::{Args, BatchRequest, CallRequest, Config, EffectClass, Output, Runtime, ToolSpec, tool_fn};
use windlass_core::ids::SessionNo;
use windlass_store::postgres::PostgresOptions;
use windlass_store::{Change, Inbound, PostgresStore, RecordChange, Row, Space, Store, StoreSpace};
use windlass_testkit::postgres::Cluster;
use windlass_testkit::store_suite::{begin, held, journal, one, open};

/// The sessions of the runtime's rows.
const SESSIONS: [usize; 3] = [1, 64, 256];

/// Sessions that commit at once where kinds of commits are compared: enough to keep every connection busy.
const COMMITTERS: u64 = 64;

/// Makes every COMMIT that wrote something take 5 ms longer.
const SLOWED: &str = "
    CREATE FUNCTION windlass.slow() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN PERFORM pg_sleep(0.005); RETURN NULL; END $$;
    CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON windlass.groups DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW EXECUTE FUNCTION windlass.slow()";

fn main() -> Result<()> {
    let mut asked = LoadOptions { span: Duration::from_secs(5), writers: PostgresOptions::new("").writers };
    let mut numbers = SESSIONS.to_vec();
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let value = words.next().with_context(|| format!("{word} needs a number"))?;
        match word.as_str() {
            "--seconds" => asked.span = Duration::from_secs_f64(value.parse()?),
            "--writers" => asked.writers = value.parse()?,
            "--sessions" => numbers = vec![value.parse()?],
            _ => anyhow::bail!(
                "there is no option {word}; there are --seconds T, --writers N and --sessions N"
            ),
        }
    }
    let templates = std::env::temp_dir().join("windlass-postgres");
    let cluster = Cluster::of_process(&templates.to_string_lossy()).context("there is no PostgreSQL")?;
    let threads = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    for sessions in &numbers {
        let load = threads.block_on(calls(&cluster.database(), *sessions, asked))?;
        say(&format!("once, {sessions} sessions: {load}"))?;
    }
    if let Some(sessions) = numbers.last() {
        threads.block_on(beside_a_snapshot(cluster, *sessions, asked))?;
    }
    for kind in CommitKind::ALL {
        let rate = |writers, workers| {
            threads.block_on(commits(&cluster.database(), kind, LoadOptions { writers, ..asked }, workers))
        };
        let (one, eight) = (rate(1, 1)?, rate(8, 1)?);
        say(&format!(
            "commits with {kind:?}, slowed: {one:.0}/s by 1 connection, {eight:.0}/s by 8: {:.1} x",
            eight / one
        ))?;
        let (alone, two) = (rate(asked.writers, 1)?, rate(asked.writers, 2)?);
        say(&format!(
            "commits with {kind:?}, slowed: {alone:.0}/s by one worker, {two:.0}/s by two: {:.1} x",
            two / alone
        ))?;
    }
    Ok(())
}

/// Compares calls, and bare inserts, without and with somebody who holds a snapshot meanwhile, so that nothing old can be cleared away.
async fn beside_a_snapshot(cluster: &Cluster, sessions: usize, asked: LoadOptions) -> Result<()> {
    let (mut rates, mut inserts) = (Vec::new(), Vec::new());
    for is_held in [false, true] {
        let url = cluster.database();
        drop(opened(&url, asked.writers).await?);
        let holder = connected(&url).await?;
        holder.batch_execute("CREATE TABLE bare (no BIGINT PRIMARY KEY, data TEXT)").await?;
        if is_held {
            let hold = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM windlass.sessions, bare";
            holder.batch_execute(hold).await?;
        }
        let load = calls(&url, sessions, asked).await?;
        let snapshot = if is_held { "a snapshot is held" } else { "none holds a snapshot" };
        say(&format!("once, {sessions} sessions, {snapshot}: {load}"))?;
        rates.push(load.rate);
        inserts.push(bare_inserts(&url, asked).await?);
    }
    let ([free, held], [bare_free, bare_held]) = (&rates[..], &inserts[..]) else { return Ok(()) };
    let (calls, bare) = (held / free, bare_held / bare_free);
    say(&format!(
        "with a snapshot: calls {calls:.2} of without, bare inserts {bare:.2} ({bare_free:.0}/s without): {:.2}",
        calls / bare
    ))
}

async fn connected(url: &str) -> Result<tokio_postgres::Client> {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

/// Rows per second that are inserted into a table of their own, each in a transaction.
async fn bare_inserts(url: &str, asked: LoadOptions) -> Result<f64> {
    let (over, began) = (Arc::new(AtomicBool::new(false)), Instant::now());
    let inserters: Vec<_> = (0..asked.writers as i64)
        .map(|place| {
            let (url, over) = (url.to_owned(), over.clone());
            tokio::spawn(async move {
                let client = connected(&url).await?;
                let insert = client.prepare("INSERT INTO bare VALUES ($1, repeat('x', 400))").await?;
                let mut rows = 0_i64;
                while !over.load(Ordering::Relaxed) {
                    client.execute(&insert, &[&((place << 40) + rows)]).await?;
                    rows += 1;
                }
                anyhow::Ok(rows)
            })
        })
        .collect();
    tokio::time::sleep(asked.span).await;
    over.store(true, Ordering::Relaxed);
    let mut rows = 0;
    for inserter in inserters {
        rows += inserter.await??;
    }
    Ok(rows as f64 / began.elapsed().as_secs_f64())
}

#[derive(Clone, Copy)]
struct LoadOptions {
    span: Duration,
    writers: usize,
}

fn say(line: &str) -> Result<()> {
    writeln!(std::io::stdout().lock(), "{line}")?;
    Ok(())
}

async fn opened(url: &str, writers: usize) -> Result<PostgresStore> {
    Ok(PostgresStore::open(PostgresOptions { writers, ..PostgresOptions::new(url) }).await?)
}

/// Whole calls, each a batch of its own, one after the other in each session.
async fn calls(url: &str, sessions: usize, asked: LoadOptions) -> Result<PostgresCallLoad> {
    let runtime = Runtime::new(Config { shared: true, ..Config::new(opened(url, asked.writers).await?) });
    let class = Some(EffectClass::Once);
    let spec = ToolSpec { name: "touch".to_owned(), class, ..ToolSpec::default() };
    runtime.register(tool_fn(spec, |args, _| async { Ok(Output::from(args)) }))?;
    let (over, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let began = Instant::now();
    let callers: Vec<_> = (0..sessions)
        .map(|no| {
            let (runtime, over, done) = (runtime.clone(), over.clone(), done.clone());
            tokio::spawn(async move {
                let mut took = Vec::new();
                while !over.load(Ordering::Relaxed) {
                    let sent = Instant::now();
                    let id = Some("c".to_owned());
                    let args = Args::Text(
                        r#"{"filler": "as long as arguments usually are, more or less"}"#.to_owned(),
                    );
                    let call = CallRequest { id, tool: "touch".to_owned(), args, ..CallRequest::default() };
                    let key = Some(format!("b{}", done.fetch_add(1, Ordering::Relaxed)));
                    let batch = BatchRequest { key, calls: vec![call], ..BatchRequest::default() };
                    let answer = runtime.submit(&format!("s{no}"), batch).await?.settled().await?;
                    ensure!(answer.calls[0].call().outcome().is_some(), "a call has not ended");
                    took.push(sent.elapsed());
                }
                anyhow::Ok(took)
            })
        })
        .collect();
    tokio::time::sleep(asked.span).await;
    over.store(true, Ordering::Relaxed);
    let mut took = Vec::new();
    for caller in callers {
        took.extend(caller.await??);
    }
    took.sort_unstable();
    let rate = took.len() as f64 / began.elapsed().as_secs_f64();
    let at = |share: usize| took.get(took.len() * share / 100).copied().unwrap_or_default();
    Ok(PostgresCallLoad { rate, half: at(50), most: at(99) })
}

/// Calls per second, and how long half of them and 99 % of them took at most.
struct PostgresCallLoad {
    rate: f64,
    half: Duration,
    most: Duration,
}

impl std::fmt::Display for PostgresCallLoad {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let PostgresCallLoad { rate, half, most } = self;
        write!(
            f,
            "{rate:.0} calls/s, p50 {:.1} ms, p99 {:.1} ms",
            half.as_secs_f64() * 1e3,
            most.as_secs_f64() * 1e3
        )
    }
}

/// The rows of a commit.
#[derive(Clone, Copy, Debug)]
enum CommitKind {
    Entries,
    SessionRecords,
    StoreRecords,
    Messages,
}

impl CommitKind {
    const ALL: [CommitKind; 4] =
        [CommitKind::Entries, CommitKind::SessionRecords, CommitKind::StoreRecords, CommitKind::Messages];
}

/// Transactions of one kind, by so many workers.
async fn commits(url: &str, kind: CommitKind, asked: LoadOptions, workers: usize) -> Result<f64> {
    let mut stores = Vec::new();
    for _ in 0..workers {
        stores.push(Arc::new(opened(url, asked.writers).await?));
    }
    let mut sessions = Vec::new();
    for (no, postgres) in (0..COMMITTERS).zip(stores.iter().cycle()) {
        let store: Arc<dyn Store> = postgres.clone();
        let session = open(&store, &format!("s{no}")).await;
        let batch = begin(&store, session, "b").await;
        sessions.push((store, session, batch));
    }
    connected(url).await?.batch_execute(SLOWED).await?;
    let over = Arc::new(AtomicBool::new(false));
    let commits = || stores.iter().map(|store| store.commits()).sum::<u64>();
    let (began, before) = (Instant::now(), commits());
    let committers: Vec<_> = sessions
        .into_iter()
        .map(|(store, session, batch)| {
            let over = over.clone();
            tokio::spawn(async move {
                for round in 1..u32::MAX {
                    if over.load(Ordering::Relaxed) {
                        break;
                    }
                    let pair =
                        || Row::Put { space: Space::Pair, key: "k".to_owned(), value: [1, 2, 3].into() };
                    let change: Change = match kind {
                        CommitKind::Entries => held(session, vec![journal(batch, round, 1)]).into(),
                        CommitKind::SessionRecords => held(session, vec![pair()]).into(),
                        CommitKind::StoreRecords => of_store(session).into(),
                        CommitKind::Messages => {
                            let message = Inbound { session, key: round.to_string(), body: vec![1] };
                            store.post(message).await?;
                            continue;
                        }
                    };
                    one(&store, change).await?;
                }
                anyhow::Ok(())
            })
        })
        .collect();
    tokio::time::sleep(asked.span).await;
    over.store(true, Ordering::Relaxed);
    let rate = (commits() - before) as f64 / began.elapsed().as_secs_f64();
    for committer in committers {
        committer.await??;
    }
    Ok(rate)
}

/// A record of the whole store, another one for each committer.
fn of_store(session: SessionNo) -> RecordChange {
    RecordChange::put(StoreSpace::Setting, session.0.to_string(), [1, 2, 3])
}
