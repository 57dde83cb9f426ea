//! Breaks file operations of the short work: `nthop [--points N] [--nth N]`. Operation by operation, each in every
//! way, again and again until so many points were broken. The result is a line of `proofs/results.jsonl`.
#![expect(clippy::print_stdout, reason = "it is a command")]

use anyhow::{Context, bail};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;
use windlass_testkit::progress::ProofProgress;
use windlass_testkit::results::ProofRecord;
use windlass_testkit::shim::{KINDS, Shim};
use windlass_testkit::{arguments, sibling};

/// After so many runs in which nothing was left to break, all operations were.
const QUIET_RUNS: u64 = 5;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> anyhow::Result<()> {
    let options = arguments(&["points", "nth"])?;
    let points_max = options.get("points").copied().unwrap_or(u64::MAX);
    let only = options.get("nth").copied();
    let shim = Shim::compile().map_err(anyhow::Error::msg)?;
    let worker = sibling("scenario")?;
    let began = Instant::now();
    let mut hits: BTreeMap<String, u64> = BTreeMap::new();
    let (mut points, mut stopped, mut acknowledged, mut wrong) = (0, 0, 0, 0);
    let progress = ProofProgress::new("points", (points_max < u64::MAX).then_some(points_max));
    'all: loop {
        let mut quiet = 0;
        for nth in only.unwrap_or(1).. {
            for kind in KINDS {
                match shim.run(&worker, nth, kind).await {
                    Ok(broken) => {
                        let Some(hit) = broken.hit else {
                            quiet += 1;
                            continue;
                        };
                        points += 1;
                        progress.advance(1, 0);
                        let operation = hit.split(' ').nth(1).unwrap_or_default();
                        *hits.entry(format!("{operation} {kind}")).or_default() += 1;
                        stopped += u64::from(!broken.unharmed);
                        acknowledged += broken.left.acknowledged;
                    }
                    Err(broken) => {
                        wrong += 1;
                        progress.advance(0, 1);
                        println!("operation {nth}, {kind}: {broken:#}");
                    }
                }
                if points >= points_max {
                    break 'all;
                }
            }
            if quiet >= QUIET_RUNS || only.is_some() {
                break;
            }
        }
        if points_max == u64::MAX {
            break;
        }
    }
    println!("{points} points, {stopped} runs stopped, {acknowledged} answers kept, {wrong} wrong: {hits:?}");
    let more = json!({"stopped": stopped, "acknowledged": acknowledged, "hits": hits});
    let record = ProofRecord {
        proof: "nthop",
        count: points,
        seed: 0,
        took: began.elapsed(),
        violations: wrong,
        more,
    };
    record.append(Path::new("proofs/results.jsonl")).context("could not note the result")?;
    if wrong > 0 {
        bail!("{wrong} points broke a promise");
    }
    Ok(())
}
