//! The table of effect classes, row by row: in this process, and in workers that are killed at every write.

use crate::kill::programs;
use crate::points::with_points;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use windlass::{Config, Runtime};
use windlass_store::sqlite::Options as StoreOptions;
use windlass_store::{SqliteStore, Store};
use windlass_testkit::chance::Chance;
use windlass_testkit::proof::ledger::{Ledger, LedgerClient, TrialWorker};
use windlass_testkit::proof::plan::ProofPlan;
use windlass_testkit::proof::rows::{RowOptions, run};
use windlass_testkit::proof::table::{ProofRow, rows};
use windlass_testkit::proof::tools::{Death, Voice, World};
use windlass_testkit::proof::worker::{limits, play};

/// Rows that run together: they mostly wait for the disk.
const TOGETHER: usize = 6;

/// Longer than any request of a row takes.
const SOON: Duration = Duration::from_secs(60);

/// A runtime with the tools of the rigs, as this worker.
fn runtime(
    store: &Arc<dyn Store>,
    plan: &ProofPlan,
    ledger: &str,
    worker: TrialWorker,
    death: Death,
) -> (Runtime, Arc<World>) {
    let runtime = Runtime::new(Config { limits: limits(), ..Config::on(store.clone()) });
    let client = LedgerClient::new(ledger.to_owned(), worker);
    let world = World::new(client, death, Voice::Kept(Vec::new()));
    world.register(&runtime, plan).unwrap();
    (runtime, world)
}

/// Runs a row; how its call is shown.
async fn drive(row: ProofRow, trial: u64, ledger: String) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(StoreOptions::new(folder.path())).unwrap());
    let worker = |number| TrialWorker { trial, number };
    let (mut runtime, mut world) = runtime(&store, &row.plan(), &ledger, worker(1), Death::Hang);
    if row.dies() {
        let (first, first_world) = (runtime, world);
        let left = tokio::spawn({
            let (plan, first_world) = (row.plan(), first_world.clone());
            async move { play(&first, &first_world, plan, Chance::new(1)).await }
        });
        first_world.reaches(ProofRow::CALL).await;
        (runtime, world) = self::runtime(&store, &row.plan(), &ledger, worker(2), Death::Spared);
        // Until somebody takes the session, the one before it only hangs.
        play(&runtime, &world, row.plan(), Chance::new(2)).await.unwrap();
        left.abort();
    } else {
        play(&runtime, &world, row.plan(), Chance::new(1)).await.unwrap();
    }
    let batch = &row.plan().sessions[0].batches[0];
    let again = runtime.submit("s1", batch.request(batch.calls.len())).await.unwrap();
    let answer = serde_json::to_value(again.settled().await.unwrap()).unwrap();
    let calls = answer["calls"].as_array().unwrap();
    calls.iter().find(|call| call["id"] == ProofRow::CALL).unwrap().clone()
}

#[track_caller]
fn check(row: &ProofRow, call: &Value, applied: usize) {
    let (outcome, name) = (&call["outcome"], row.name());
    let detail = outcome["failure"]["code"].as_str().or(outcome["effect"].as_str()).unwrap_or_default();
    assert_eq!((call["state"].as_str().unwrap(), detail), (row.end.state, row.end.detail), "{name}: {call}");
    let attempts = call["attempts"].as_u64().unwrap() as u32;
    assert!(row.end.attempts.contains(&attempts), "{name}: {call}");
    assert_eq!(applied, row.end.applied, "{name}: {call}");
    let told = call["model"]["parts"][0]["text"].as_str().unwrap();
    assert!(told.starts_with(row.end.told), "{name}: {told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_class_does_at_each_event_what_the_table_says() {
    let folder = tempfile::tempdir().unwrap();
    let mut ledger = Ledger::start(&programs().ledger, folder.path()).unwrap();
    let mut driven = JoinSet::new();
    let few = Arc::new(Semaphore::new(TOGETHER));
    for (trial, row) in (0..).zip(rows()) {
        let (few, driving) = (few.clone(), drive(row.clone(), trial, ledger.address.clone()));
        driven.spawn(async move {
            let _one_of_few = few.acquire().await.unwrap();
            let call = tokio::time::timeout(SOON, driving).await;
            (trial, call.unwrap_or_else(|_| panic!("{row:?}")), row)
        });
    }
    let ended = driven.join_all().await;
    let effects = ledger.seen().unwrap();
    for (trial, call, row) in ended {
        let of_it = effects.iter().filter(|effect| effect.worker.trial == trial);
        let of_it = of_it.filter(|effect| effect.call.ends_with(ProofRow::CALL));
        check(&row, &call, of_it.filter(|effect| effect.verdict == "applied").count());
    }
}

/// Each row is struck at each point it passes, by one death at one visit. The long form,
/// `cargo run -p windlass-testkit -- table`, takes both deaths at the first and the last visit.
#[test]
fn no_death_takes_a_row_out_of_its_table() {
    let report = run(&with_points(), &RowOptions { thorough: false, only: None, lanes: 4 }).unwrap();
    println!("{:?}", report.record().line());
    assert_eq!(report.violations, [""; 0]);
    let distinct = rows().iter().filter(|row| row.is_distinct()).count();
    assert_eq!(report.strikes.len(), distinct, "{:?}", report.strikes);
    for (row, strikes) in &report.strikes {
        assert!(*strikes >= STRIKES_MIN, "{row} was struck {strikes} times");
    }
}

/// Even the row with the fewest writes has so many points.
const STRIKES_MIN: u64 = 6;
