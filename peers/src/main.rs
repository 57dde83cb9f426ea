//! `windlass-peers [--seconds T] [--sessions N]`: calls per second of Windlass, DBOS Transact and everruns-durable, each in its published
//! version, on one PostgreSQL that this starts, in turns; and those of a bare program that writes as many rows in as few round trips as can be.
//!
//! A call is what each of them keeps of one durable step: that it was asked for, and how it ended. In Windlass it is a tool call of class `once`, in
//! DBOS a workflow with one step, in everruns-durable a task that is queued, claimed and completed by a worker in the same process.

mod dbos_side;
mod everruns_side;
mod floor;
mod windlass_side;

use anyhow::{Context, Result};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};
use windlass_testkit::postgres::Cluster;

/// Into how many turns each is cut, so that a machine that is slow for a while is slow for all.
const TURNS: usize = 3;

/// One call, made by the session of this number.
type OneCall = Arc<dyn Fn(usize) -> Pin<Box<dyn Future<Output = Result<()>> + Send>> + Send + Sync>;

/// One of those that are compared.
struct Peer {
    name: &'static str,
    call: OneCall,
    took: Vec<Duration>,
    worked: Duration,
}

fn main() -> Result<()> {
    let (mut seconds, mut sessions) = (10.0, 256);
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let value = words.next().with_context(|| format!("{word} needs a value"))?;
        match word.as_str() {
            "--seconds" => seconds = value.parse()?,
            "--sessions" => sessions = value.parse()?,
            _ => anyhow::bail!("there is no option {word}; there are --seconds T and --sessions N"),
        }
    }
    let templates = std::env::temp_dir().join("windlass-postgres");
    let templates = templates.to_string_lossy().into_owned();
    let cluster = Cluster::of_process(&templates).context("there is no PostgreSQL")?;
    let tokio = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    tokio.block_on(compare(cluster, Duration::from_secs_f64(seconds), sessions))
}

async fn compare(cluster: &Cluster, span: Duration, sessions: usize) -> Result<()> {
    let peer = |name, call| Peer { name, call, took: Vec::new(), worked: Duration::ZERO };
    let mut peers = [
        peer("the floor: bare rows", floor::start(&cluster.database()).await?),
        peer("Windlass", windlass_side::start(&cluster.database()).await?),
        peer("DBOS Transact 0.5.0", dbos_side::start(&url(cluster)).await?),
        peer("everruns-durable 0.50.1", everruns_side::start(&url(cluster)).await?),
    ];
    for _ in 0..TURNS {
        for peer in &mut peers {
            peer.work(span / TURNS as u32, sessions).await?;
        }
    }
    let rates: Vec<f64> =
        peers.iter().map(|peer| peer.took.len() as f64 / peer.worked.as_secs_f64()).collect();
    println!(
        "one durable call at a time in each of {sessions} sessions, {TURNS} turns of {:.1} s",
        span.as_secs_f64() / TURNS as f64
    );
    println!("{:26} {:>9} {:>9} {:>9} {:>12}", "", "calls/s", "p50", "p99", "Windlass is");
    for (peer, rate) in peers.iter_mut().zip(&rates) {
        let ratio = rates[1] / rate;
        let (half, most) = (ms(peer.at(50)), ms(peer.at(99)));
        println!("{:26} {rate:>9.0} {half:>9} {most:>9} {ratio:>10.2} x", peer.name);
    }
    Ok(())
}

/// A new database, as a URL.
fn url(cluster: &Cluster) -> String {
    let database = cluster.database();
    let named = |name: &str| {
        database.split(' ').find_map(|field| field.strip_prefix(name)).unwrap_or_default().to_string()
    };
    format!(
        "postgres://{}@localhost:{}/{}?host={}",
        named("user="),
        named("port="),
        named("dbname="),
        named("host=")
    )
}

fn ms(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1e3)
}

impl Peer {
    /// Calls in all sessions, one after the other in each, for so long.
    async fn work(&mut self, span: Duration, sessions: usize) -> Result<()> {
        let began = Instant::now();
        let working: Vec<_> = (0..sessions)
            .map(|session| {
                let call = self.call.clone();
                tokio::spawn(async move {
                    let mut took = Vec::new();
                    while began.elapsed() < span {
                        let asked = Instant::now();
                        call(session).await?;
                        took.push(asked.elapsed());
                    }
                    anyhow::Ok(took)
                })
            })
            .collect();
        for session in working {
            self.took.extend(session.await?.with_context(|| format!("{} failed", self.name))?);
        }
        self.worked += began.elapsed();
        Ok(())
    }

    /// The time within which so many of a hundred calls were answered.
    fn at(&mut self, percent: usize) -> Duration {
        self.took.sort_unstable();
        self.took.get(self.took.len() * percent / 100).copied().unwrap_or_default()
    }
}
