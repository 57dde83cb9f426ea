//! A worker that is killed while batches expire leaves none half expired: what it acknowledged is answered from its record or
//! `expired`, and nothing is run a second time.

use super::{echo_into, runs_of};
use crate::rig::{batch, call, n, states};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;
use windlass::limits::Retention;
use windlass::{Config, Limits, Runtime};
use windlass_core::ids::EntryNo;
use windlass_testkit::sqlite_in;

/// Names the folder to the worker, which is this program once more.
const FOLDER: &str = "WINDLASS_RETENTION_FOLDER";
/// The batches that the worker is let submit before it is killed, by round.
const ROUNDS: [usize; 6] = [3, 10, 17, 30, 41, 64];

fn runtime(folder: &Path, bytes: u64) -> Runtime {
    let retention = Retention { session_bytes: Some(bytes), ..Retention::default() };
    // Small pieces, so that a pass is many changes.
    let limits = Limits { retention_batches_max: 2, retention_every_ms: u64::MAX, ..Limits::default() };
    let runtime = Runtime::new(Config { retention, limits, ..Config::new(sqlite_in(folder)) });
    runtime.register(echo_into(folder.join("ledger"))).unwrap();
    runtime
}

/// The worker: submits, says what was answered, and lets records expire all the time. It only runs when it is asked to.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn worker() {
    let Ok(folder) = std::env::var(FOLDER) else { return };
    let runtime = runtime(&PathBuf::from(folder), 1_500);
    let expiring = runtime.clone();
    tokio::spawn(async move {
        loop {
            expiring.expire_now().await.unwrap();
            tokio::task::yield_now().await;
        }
    });
    for number in 0_u64.. {
        let key = format!("{}-{number}", std::process::id());
        let request = batch(&key, vec![call("c", "echo", n(number))]);
        runtime.submit("s", request).await.unwrap().settled().await.unwrap();
        println!("answered {key} {number}");
    }
}

// With threads to spare: while it waits for a worker, the tasks of the last runtime must be able to end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_killed_while_batches_expire_leaves_none_half_expired() {
    let folder = TempDir::new().unwrap();
    let mut answered: Vec<(String, u64)> = Vec::new();
    for lines in ROUNDS {
        answered.extend(killed_after(folder.path(), lines));
        // Nothing more expires here: what is found is what the killed worker left.
        let runtime = runtime(folder.path(), u64::MAX);
        let mut expired = 0;
        for (key, number) in &answered {
            let before = runs_of(&folder.path().join("ledger"), *number);
            let request = batch(key, vec![call("c", "echo", n(*number))]);
            let answer = runtime.submit("s", request).await.unwrap().settled().await.unwrap();
            let state = states(&answer);
            assert!(state == "c succeeded" || state == "c failed/expired", "{key}: {state}");
            assert!(answer.calls[0].is_recorded(), "{key} was answered before");
            assert_eq!(runs_of(&folder.path().join("ledger"), *number), before, "{key} ran again");
            expired += u64::from(state == "c failed/expired");
        }
        assert!(expired > 0 || lines < 10, "nothing had expired after {lines} batches");
        let session = runtime.store().session("s").await.unwrap().unwrap();
        let kept = runtime.store().history(session.no, None, 10_000).await.unwrap();
        let onwards = runtime.store().journal_after(session.no, EntryNo(0), 10_000).await.unwrap();
        assert_eq!(kept.len(), onwards.len(), "the rest of the journal is whole in both directions");
    }
}

/// Starts a worker, kills it when it has answered so many batches, and returns what it said.
fn killed_after(folder: &Path, lines: usize) -> Vec<(String, u64)> {
    let mut worker = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "retention::killed::worker", "--nocapture"])
        .env(FOLDER, folder)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut said = Vec::new();
    for line in BufReader::new(worker.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        // The harness may have begun the line.
        let Some(place) = line.find("answered ") else { continue };
        let mut words = line[place..].split(' ').skip(1);
        said.push((words.next().unwrap().to_owned(), words.next().unwrap().parse().unwrap()));
        if said.len() == lines {
            break;
        }
    }
    worker.kill().unwrap();
    worker.wait().unwrap();
    assert_eq!(said.len(), lines, "the worker ended by itself");
    said
}
