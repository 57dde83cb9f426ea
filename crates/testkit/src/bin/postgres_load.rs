//! `windlass-postgres-load [--seconds T] [--writers N] [--sessions N]`: what a shared database costs. Calls of class `once` per second by
//! the number of sessions, through a whole runtime, and for the last number again while somebody holds a snapshot; then commits per second of every kind with one connection and with eight, each
//! commit slowed by 5 ms, so that whatever all commits share shows.

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

/// The connections that are compared.
const CONNECTIONS: [usize; 2] = [1, 8];

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
        let url = cluster.database();
        let load = threads.block_on(async {
            drop(opened(&url, asked.writers).await?);
            let (holder, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await?;
            tokio::spawn(connection);
            let hold = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM windlass.sessions";
            holder.batch_execute(hold).await?;
            calls(&url, *sessions, asked).await
        })?;
        say(&format!("once, {sessions} sessions, a snapshot is held: {load}"))?;
    }
    for kind in CommitKind::ALL {
        let mut rates = Vec::new();
        for writers in CONNECTIONS {
            let url = cluster.database();
            rates.push(threads.block_on(commits(&url, kind, LoadOptions { writers, ..asked }))?);
        }
        let [one, eight] = rates[..] else { continue };
        let ratio = eight / one;
        say(&format!(
            "commits with {kind:?}, slowed: {one:.0}/s by 1 connection, {eight:.0}/s by 8: {ratio:.1} x"
        ))?;
    }
    Ok(())
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

/// Transactions of one kind.
async fn commits(url: &str, kind: CommitKind, asked: LoadOptions) -> Result<f64> {
    let postgres = Arc::new(opened(url, asked.writers).await?);
    let store: Arc<dyn Store> = postgres.clone();
    let mut sessions = Vec::new();
    for no in 0..COMMITTERS {
        let session = open(&store, &format!("s{no}")).await;
        sessions.push((session, begin(&store, session, "b").await));
    }
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await?;
    tokio::spawn(connection);
    client.batch_execute(SLOWED).await?;
    let over = Arc::new(AtomicBool::new(false));
    let (began, before) = (Instant::now(), postgres.commits());
    let committers: Vec<_> = sessions
        .into_iter()
        .map(|(session, batch)| {
            let (store, over) = (store.clone(), over.clone());
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
    let rate = (postgres.commits() - before) as f64 / began.elapsed().as_secs_f64();
    for committer in committers {
        committer.await??;
    }
    Ok(rate)
}

/// A record of the whole store, another one for each committer.
fn of_store(session: SessionNo) -> RecordChange {
    RecordChange::put(StoreSpace::Setting, session.0.to_string(), [1, 2, 3])
}
