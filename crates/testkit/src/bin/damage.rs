//! Flips bits: `damage [--count N] [--seed S]`. The result is a line of `proofs/results.jsonl`.
#![expect(clippy::print_stdout, reason = "it is a command")]

use anyhow::{Context, bail};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;
use windlass_testkit::arguments;
use windlass_testkit::chance::Chance;
use windlass_testkit::damage::{Met, PLACES, Specimen};
use windlass_testkit::progress::ProofProgress;
use windlass_testkit::results::ProofRecord;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> anyhow::Result<()> {
    let options = arguments(&["count", "seed"])?;
    let option = |name, default| options.get(name).copied().unwrap_or(default);
    let (count, seed) = (option("count", 10_000), option("seed", 1));
    let specimen = Specimen::make().await?;
    let (began, mut chance) = (Instant::now(), Chance::new(seed));
    let mut met: BTreeMap<&str, [u64; 3]> = BTreeMap::new();
    let (mut one_session, mut wrong) = (0, 0);
    let progress = ProofProgress::new("flips", Some(count));
    for flip in 0..count {
        let before = wrong;
        let place = PLACES[flip as usize % PLACES.len()];
        let counts = met.entry(place).or_default();
        match specimen.damage(place, &mut chance).await {
            Ok(Met::Refused) => counts[0] += 1,
            Ok(Met::Noticed { sessions, .. }) => {
                counts[1] += 1;
                one_session += u64::from(sessions <= 1);
            }
            Ok(Met::Harmless) => counts[2] += 1,
            Err(broken) => {
                wrong += 1;
                println!("flip {flip} of seed {seed}: {broken:#}");
            }
        }
        progress.advance(1, wrong - before);
    }
    println!("{count} flips, {wrong} wrong; refused, noticed, harmless: {met:#?}");
    let more = json!({"refused_noticed_harmless": met, "stopped_one_session_only": one_session});
    let record = ProofRecord { proof: "damage", count, seed, took: began.elapsed(), violations: wrong, more };
    record.append(Path::new("proofs/results.jsonl")).context("could not note the result")?;
    if wrong > 0 {
        bail!("{wrong} flips were answered wrongly");
    }
    Ok(())
}
