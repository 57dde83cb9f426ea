//! Cuts the power: `powercut [--count N] [--relaxed N] [--seed S]`. The result is a line of `proofs/results.jsonl`.
#![expect(clippy::print_stdout, reason = "it is a command")]

use anyhow::{Context, bail};
use serde_json::json;
use std::path::Path;
use std::time::Instant;
use windlass_testkit::chance::Chance;
use windlass_testkit::powercut::PowerCutRig;
use windlass_testkit::progress::ProofProgress;
use windlass_testkit::results::ProofRecord;
use windlass_testkit::{arguments, sibling};

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> anyhow::Result<()> {
    let options = arguments(&["count", "relaxed", "seed"])?;
    let option = |name, default| options.get(name).copied().unwrap_or(default);
    let (count, relaxed, seed) = (option("count", 5_000), option("relaxed", 20), option("seed", 1));
    let (mut rig, worker) = (PowerCutRig::new().map_err(anyhow::Error::msg)?, sibling("scenario")?);
    let (began, mut chance) = (Instant::now(), Chance::new(seed));
    let (mut lost, mut told) = (0, 0);
    for _ in 0..relaxed {
        let cut = rig.cut(&worker, "relaxed", &mut chance).await?;
        lost += cut.lost;
        told += cut.acknowledged;
    }
    println!("relaxed: {lost} of {told} acknowledged calls lost in {relaxed} cuts");
    let (mut acknowledged, mut open, mut unknown, mut wrong) = (0, 0, 0, 0);
    let progress = ProofProgress::new("cuts", Some(count));
    for number in 0..count {
        let before = wrong;
        match rig.cut(&worker, "endless", &mut chance).await {
            Ok(cut) => {
                acknowledged += cut.acknowledged;
                open += cut.left.open;
                unknown += cut.left.unknown;
            }
            Err(broken) => {
                wrong += 1;
                println!("cut {number} of seed {seed}: {broken:#}");
            }
        }
        progress.advance(1, wrong - before);
    }
    println!(
        "full: {acknowledged} acknowledged, {open} open, {unknown} unknown, {wrong} of {count} cuts wrong"
    );
    let more = json!({
        "acknowledged": acknowledged, "open": open, "unknown": unknown,
        "relaxed": {"cuts": relaxed, "acknowledged": told, "lost": lost},
    });
    let record =
        ProofRecord { proof: "powercut", count, seed, took: began.elapsed(), violations: wrong, more };
    record.append(Path::new("proofs/results.jsonl")).context("could not note the result")?;
    if wrong > 0 || (relaxed > 0 && lost == 0) {
        bail!("{wrong} cuts broke a promise; relaxed lost {lost}");
    }
    Ok(())
}
