//! One flipped bit, or a cut file: noticed or harmless, never another answer.

use std::collections::BTreeMap;
use windlass_testkit::chance::Chance;
use windlass_testkit::damage::{Met, PLACES, Specimen};

const FLIPS: u64 = 210;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flipped_bit_is_noticed_or_harmless() {
    let specimen = Specimen::make().await.unwrap();
    let mut chance = Chance::new(1);
    let mut met: BTreeMap<&str, [u64; 3]> = BTreeMap::new();
    let mut one_session = 0;
    for flip in 0..FLIPS {
        let place = PLACES[flip as usize % PLACES.len()];
        let counts = met.entry(place).or_default();
        match specimen.damage(place, &mut chance).await {
            Ok(Met::Refused) => counts[0] += 1,
            Ok(Met::Noticed { sessions, .. }) => {
                counts[1] += 1;
                one_session += u64::from(sessions <= 1);
            }
            Ok(Met::Harmless) => counts[2] += 1,
            Err(wrong) => panic!("flip {flip}: {wrong:#}"),
        }
    }
    println!("{FLIPS} flips; of the noticed ones {one_session} stopped one session only");
    println!("refused, noticed, harmless: {met:#?}");
    let sum = |which: usize| met.values().map(|counts| counts[which]).sum::<u64>();
    assert!(sum(0) > 0 && sum(1) > 0 && sum(2) > 0 && one_session > 0, "{met:?}");
    assert_eq!(met["cut file"][2], 0, "a cut file is always noticed");
}
