//! Does the work of [`windlass_testkit::scenario`] in a process of its own, so that it can be disturbed and cut:
//! `scenario short|endless|relaxed FOLDER RUNS`. Every answer is a line of JSON, told when it is acknowledged.
//!
//! Exits with 0 if every batch was answered, with 6 if the store could not be had or was lost.
#![expect(clippy::print_stdout, reason = "standard output is where its answers go")]

use anyhow::bail;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use windlass_store::sqlite::{Options, SqliteStore};
use windlass_store::{Durability, Health, Store};
use windlass_testkit::scenario::{self, BatchReplyKind, ClientReplies, RunCounts};

/// The store could not be had or was lost.
const FOLDER: u8 = 6;
/// Several tries of the store to go on fall into this time.
const STALLED_FOR_GOOD: Duration = Duration::from_millis(400);
/// The last calls must let go of the store within this.
const LETTING_GO: Duration = Duration::from_secs(20);

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> anyhow::Result<ExitCode> {
    // A panic is what this process is watched for; the tools' own call no hook.
    std::panic::set_hook(Box::new(|panic| {
        eprintln!("{panic}");
        std::process::exit(101);
    }));
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [what, folder, runs] = args.as_slice() else { bail!("scenario short|endless|relaxed FOLDER RUNS") };
    let durability = if what == "relaxed" { Durability::Relaxed } else { Durability::Full };
    let options = Options { durability, ..Options::new(PathBuf::from(folder)) };
    let store: Arc<dyn Store> = match SqliteStore::open(options) {
        Ok(store) => Arc::new(store),
        Err(error) => {
            eprintln!("refused: {}", windlass::error::chain(&error));
            return Ok(ExitCode::from(FOLDER));
        }
    };
    tokio::spawn(leave_if_stalled(store.health()));
    let runtime = scenario::runtime(store.clone(), &RunCounts::in_file(&PathBuf::from(runs))?)?;
    let lost = if what == "short" {
        let told = scenario::run(&runtime, scenario::short_work(), tell).await;
        told.iter().any(|told| !matches!(told.reply, BatchReplyKind::Answered(_)))
    } else {
        endless(&runtime).await
    };
    drop(runtime);
    let until = Instant::now() + LETTING_GO;
    while Arc::strong_count(&store) > 1 {
        if Instant::now() > until {
            bail!("the runtime does not let go of the store");
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    drop(store);
    Ok(if lost { ExitCode::from(FOLDER) } else { ExitCode::SUCCESS })
}

/// A disk that fails for good stalls the store for good: whoever runs this gives up and leaves, as by a kill.
async fn leave_if_stalled(mut health: watch::Receiver<Health>) {
    loop {
        if health.wait_for(|health| *health != Health::Ready).await.is_err() {
            return;
        }
        let ready = health.wait_for(|health| *health == Health::Ready);
        if tokio::time::timeout(STALLED_FOR_GOOD, ready).await.is_err() {
            std::process::exit(i32::from(FOLDER));
        }
    }
}

/// Works until the store is lost.
async fn endless(runtime: &windlass::Runtime) -> bool {
    let clients: Vec<_> = (0..scenario::CLIENTS)
        .map(|client| {
            let runtime = runtime.clone();
            tokio::spawn(async move {
                for round in 0.. {
                    let told = scenario::submit(runtime.clone(), scenario::endless(client, round)).await;
                    tell(&told);
                    if !matches!(told.reply, BatchReplyKind::Answered(_)) {
                        break;
                    }
                }
            })
        })
        .collect();
    for client in clients {
        drop(client.await);
    }
    true
}

fn tell(told: &ClientReplies) {
    let line = serde_json::to_string(told).unwrap_or_default();
    println!("{line}");
    // Whoever reads this may be gone; then nobody is told, and nothing is acknowledged.
    drop(std::io::stdout().flush());
}
