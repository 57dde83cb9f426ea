//! A power cut loses nothing that was acknowledged.

use crate::skip;
use std::path::Path;
use std::time::Instant;
use windlass_testkit::chance::Chance;
use windlass_testkit::powercut::PowerCutRig;

const CUTS: u64 = 200;
const RELAXED_CUTS: u64 = 5;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_power_cut_loses_nothing_acknowledged() {
    let mut rig = match PowerCutRig::new() {
        Ok(rig) => rig,
        Err(reason) => return skip("the power-cut rig", &reason, "WINDLASS_EXPECT_POWERCUT"),
    };
    let worker = Path::new(env!("CARGO_BIN_EXE_scenario"));
    let began = Instant::now();
    let mut chance = Chance::new(1);
    let (mut lost, mut told) = (0, 0);
    for _ in 0..RELAXED_CUTS {
        let cut = rig.cut(worker, "relaxed", &mut chance).await.unwrap();
        lost += cut.lost;
        told += cut.acknowledged;
    }
    println!("relaxed: {lost} of {told} acknowledged calls lost in {RELAXED_CUTS} cuts");
    assert!(lost > 0, "a rig that loses nothing without waiting for the disk does not cut");
    let (mut acknowledged, mut open, mut unknown) = (0, 0, 0);
    for number in 0..CUTS {
        let cut = rig.cut(worker, "endless", &mut chance).await;
        let cut = cut.unwrap_or_else(|broken| panic!("cut {number}: {broken:?}"));
        acknowledged += cut.acknowledged;
        open += cut.left.open;
        unknown += cut.left.unknown;
    }
    println!(
        "full: 0 of {acknowledged} acknowledged calls lost in {CUTS} cuts, {open} calls were open, {unknown} \
         unknown, {:.0?}",
        began.elapsed()
    );
    assert!(acknowledged > CUTS && open > 0 && unknown > 0, "too little happened");
}
