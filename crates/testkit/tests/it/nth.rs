//! Every file operation of one piece of work fails once: nothing acknowledged is lost, nothing recorded runs again.

use crate::skip;
use std::collections::BTreeMap;
use std::path::Path;
use windlass_testkit::shim::{KINDS, Shim};

/// After so many runs in which nothing was left to break, all operations were.
const QUIET_RUNS: u64 = 5;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_file_operation_fails_once() {
    let shim = match Shim::compile() {
        Ok(shim) => shim,
        Err(reason) => return skip("the Nth-operation loop", &reason, "WINDLASS_EXPECT_SHIM"),
    };
    let worker = Path::new(env!("CARGO_BIN_EXE_scenario"));
    let mut hits: BTreeMap<String, u64> = BTreeMap::new();
    let (mut quiet, mut refused, mut unharmed, mut acknowledged) = (0, 0, 0, 0);
    for nth in 1.. {
        // Each operation fails in one way here; `nthop` makes each fail in every way.
        let kind = KINDS[nth as usize % KINDS.len()];
        let broken = shim.run(worker, nth, kind).await;
        let broken = broken.unwrap_or_else(|wrong| panic!("operation {nth}, {kind}: {wrong:#}"));
        let Some(hit) = broken.hit else {
            quiet += 1;
            if quiet == QUIET_RUNS {
                break;
            }
            continue;
        };
        let operation = hit.split(' ').nth(1).unwrap_or_default();
        *hits.entry(format!("{operation} {kind}")).or_default() += 1;
        unharmed += u64::from(broken.unharmed);
        refused += u64::from(!broken.unharmed);
        acknowledged += broken.left.acknowledged;
    }
    let points: u64 = hits.values().sum();
    println!(
        "{points} operations broken, {refused} runs stopped, {unharmed} went on, {acknowledged} answers kept"
    );
    println!("{hits:?}");
    assert!(points > 100 && refused > 0 && acknowledged > 0, "the work has too few operations: {hits:?}");
    for operation in ["open", "write", "fsync", "ftruncate"] {
        assert!(hits.keys().any(|hit| hit.starts_with(operation)), "no {operation} was broken: {hits:?}");
    }
}
