//! Real processes on PostgreSQL, and a real SIGSTOP.

use anyhow::{Context, Result};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use tokio::task::LocalSet;
use windlass_testkit::chance::Chance;
use windlass_testkit::leases::Happened;
use windlass_testkit::leases::process::CLASSES;
use windlass_testkit::leases::stopped::{StopTrial, WorkerPair};
use windlass_testkit::postgres::Cluster;

const TRIALS: u64 = 50;
/// Pairs at once: each has more than a dozen connections.
const PAIRS: u64 = 6;
/// A machine that is so busy that more than this are void shows nothing.
const VOID_MAX: u64 = 4 * TRIALS;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_was_stopped_changes_nothing_any_more() {
    let Some(cluster) = Cluster::of_process(env!("CARGO_TARGET_TMPDIR")) else { return };
    let (began, next, void) = (Instant::now(), Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let watching = LocalSet::new();
    let pairs: Vec<_> = (0..PAIRS)
        .map(|number| watching.spawn_local(pair(cluster, number, next.clone(), void.clone())))
        .collect();
    watching.await;
    let mut happened = Happened::default();
    for pair in pairs {
        happened.add(pair.await.unwrap().unwrap());
    }
    happened.void = void.load(Ordering::Relaxed);
    println!("{happened:?} in {:.0?}", began.elapsed());
    let Happened { trials, taken_over, refused, stopped, told_to_stop, run_again, unknown, .. } = happened;
    assert_eq!((trials, taken_over), (TRIALS, TRIALS));
    for (count, what) in [
        (refused, "late writes refused"),
        (stopped, "tools stopped"),
        (told_to_stop, "tools told to stop"),
        (run_again, "calls run again"),
        (unknown, "calls unknown"),
    ] {
        assert!(count > 0, "{what}: none");
    }
}

/// Makes trials with one pair, as long as there are some to be made.
async fn pair(
    cluster: &'static Cluster,
    number: u64,
    next: Arc<AtomicU64>,
    void: Arc<AtomicU64>,
) -> Result<Happened> {
    let program = Path::new(env!("CARGO_BIN_EXE_windlass-lease"));
    // Every other one finds out from the store alone that its lease is over.
    let mut pair = WorkerPair::start(cluster, program, number.is_multiple_of(2)).await?;
    let mut happened = Happened::default();
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        if number >= TRIALS {
            return Ok(happened);
        }
        let mut chance = Chance::new(number);
        let trial = StopTrial { class: chance.one_of(&CLASSES).0, late: chance.percent(60) };
        loop {
            let made = pair.run(trial).await;
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
