//! A worker that stood still past its lease changes nothing any more.

#[cfg(feature = "postgres")]
mod stopped;

use anyhow::{Context, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use tempfile::TempDir;
use tokio::task::LocalSet;
use windlass_store::sqlite::{Options, SqliteStore};
use windlass_store::{MemoryStore, Store};
use windlass_testkit::chance::Chance;
use windlass_testkit::leases::{self, Happened, LeaseTrial};

/// With those on PostgreSQL, where real processes are stopped, a thousand.
const TRIALS: u64 = 950;
/// So many of those are on SQLite.
const ON_SQLITE: u64 = 50;
/// Pairs of workers at once.
const PAIRS: u64 = 16;
/// A machine that is so busy that more than this are void shows nothing.
const VOID_MAX: u64 = 4 * TRIALS;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_stood_still_changes_nothing_any_more() {
    let (began, next, void) = (Instant::now(), Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    // Those who watch are in one place; the workers are driven beside it.
    let watching = LocalSet::new();
    let pairs: Vec<_> = (0..PAIRS).map(|_| watching.spawn_local(pair(next.clone(), void.clone()))).collect();
    watching.await;
    let mut happened = Happened::default();
    for pair in pairs {
        happened.add(pair.await.unwrap().unwrap());
    }
    happened.void = void.load(Ordering::Relaxed);
    println!("{happened:?} in {:.0?}", began.elapsed());
    let Happened {
        trials, taken_over, refused, stopped, told_to_stop, acted_late, run_again, unknown, ..
    } = happened;
    assert_eq!((trials, taken_over), (TRIALS, TRIALS));
    for (count, what) in [
        (refused, "late writes refused"),
        (stopped, "tools stopped"),
        (told_to_stop, "tools told to stop"),
        (acted_late, "tools that acted late"),
        (run_again, "calls run again"),
        (unknown, "calls unknown"),
    ] {
        assert!(count > 0, "{what}: none");
    }
}

/// Makes trials with one pair after the other, as long as there are some to be made.
async fn pair(next: Arc<AtomicU64>, void: Arc<AtomicU64>) -> Result<Happened> {
    let mut happened = Happened::default();
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        if number >= TRIALS {
            return Ok(happened);
        }
        let mut chance = Chance::new(number);
        let trial = LeaseTrial::chosen(&mut chance);
        loop {
            // A store of its own, or other pairs would look after what this one left.
            let folder = TempDir::new()?;
            let shared: Arc<dyn Store> = match number < ON_SQLITE {
                true => Arc::new(SqliteStore::open(Options::new(folder.path()))?),
                false => Arc::new(MemoryStore::new()?),
            };
            let made = leases::run(&shared, "s", trial).await;
            match made.with_context(|| format!("trial {number}, {trial:?}"))? {
                Some(one) => {
                    happened.add(one);
                    break;
                }
                None => assert!(void.fetch_add(1, Ordering::Relaxed) < VOID_MAX, "the machine is too busy"),
            }
        }
    }
}
